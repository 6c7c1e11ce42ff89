package blockcache

import "sync/atomic"

// residency is what the kernel has said about the pages of a mapping: for each
// region of them a word, which has the epoch of the answer and, below it, a bit
// for each page that was in memory. So blocks that are neighbours share an answer,
// however small they are.
type residency []atomic.Uint64

const (
	regionPages = 32
	// askRegions bounds one question: it takes in a block of 1 MiB wherever that
	// begins.
	askRegions = 9
)

// pageSet is a bit for each page of the regions of one question.
type pageSet [askRegions]uint32

func newResidency(size int64) residency {
	return make(residency, size/(regionPages*pageSize)+1)
}

// bitsOf returns the pages of a region that lie between first and last.
func bitsOf(region, first, last uint64) uint32 {
	bits := ^uint32(0)
	if region == first/regionPages {
		bits <<= first % regionPages
	}
	if region == last/regionPages {
		bits &= ^uint32(0) >> (regionPages - 1 - last%regionPages)
	}
	return bits
}

// has reports whether all pages from first to last were in memory in this epoch.
func (r residency) has(first, last uint64, epoch uint32) bool {
	all := uint64(epoch)<<32 | (1<<regionPages - 1)
	for at := first / regionPages; at <= last/regionPages; at++ {
		if w := r[at].Load(); w != all && (uint32(w>>32) != epoch || ^uint32(w)&bitsOf(at, first, last) != 0) {
			return false
		}
	}
	return true
}

// ask has the kernel asked about the pages from first to last, and reports whether
// all of them are in memory. Where an answer of this epoch does not suffice, readers
// are about: the rest of the region is asked for too, as long as it is before end.
// Elsewhere it would cost more than it is worth.
func (r residency) ask(first, last, end uint64, epoch uint32, resident func(first, last uint64) pageSet) bool {
	for at := first / regionPages; at <= last/regionPages; at += askRegions {
		final := min(at+askRegions-1, last/regionPages)
		from, to := max(first, at*regionPages), min(last, final*regionPages+regionPages-1)
		if uint32(r[at].Load()>>32) == epoch {
			from = at * regionPages
		}
		if uint32(r[final].Load()>>32) == epoch {
			to = min(final*regionPages+regionPages, end) - 1
		}
		in, all := resident(from, to), true
		for i := range final - at + 1 {
			r[at+i].Store(uint64(epoch)<<32 | uint64(in[i]))
			all = all && ^in[i]&bitsOf(at+i, first, last) == 0
		}
		if !all {
			return false
		}
	}
	return true
}
