// Package plan cuts a read into blocks and blocks into runs, and decides which
// neighbours a GET brings along (Growth). It is pure: it knows numbers, not
// caches, networks or clocks. Growth remembers what was asked for, in memory of
// fixed size.
package plan

import "headstart/engine/block"

// Range is the blocks that a read touches.
type Range struct {
	// First is the first block's number, Count how many there are.
	First, Count uint64
	// Offset and End are the bytes of the object that the reader gets.
	Offset, End int64
}

// Clamp cuts a read of size bytes at offset down to an object of objectSize
// bytes; a negative size means up to the end. It reports false when the offset
// lies past the end. A read at the very end is empty, not an error.
func Clamp(g block.Geometry, offset, size, objectSize int64) (Range, bool) {
	if offset < 0 || offset > objectSize {
		return Range{}, false
	}
	end := objectSize
	if size >= 0 && size < objectSize-offset {
		end = offset + size
	}
	r := Range{First: g.Index(offset), Offset: offset, End: end}
	if end > offset {
		r.Count = g.Index(end-1) - r.First + 1
	}
	return r, true
}

// Learn returns the run that a reader of an object of unknown size asks for:
// the blocks of its range, as far as they go into one run of at most most
// blocks.
func Learn(g block.Geometry, offset, size int64, most int) block.Run {
	most = clampRun(most)
	first := g.Index(offset)
	count := uint64(most)
	if size >= 0 {
		size = min(size, int64(most)*int64(g))
		count = min(count, uint64((offset%int64(g)+max(size, 1)-1)/int64(g))+1)
	}
	return block.NewRun(first, int(count))
}

// clampRun makes most a length that a run can have, so that each round of a cut
// gets on.
func clampRun(most int) int { return max(1, min(most, block.MaxRun)) }

// Runs cuts blocks, which rise, into runs of at most most blocks each.
func Runs(blocks []uint64, most int) []block.Run {
	most = clampRun(most)
	var runs []block.Run
	for i := 0; i < len(blocks); {
		run := block.Run{First: blocks[i]}
		n := 0
		for i < len(blocks) && n < most && blocks[i]-run.First < block.MaxRun {
			run.Want |= 1 << (blocks[i] - run.First)
			i++
			n++
		}
		runs = append(runs, run)
	}
	return runs
}

// Spans cuts a run into contiguous parts of at most most blocks: the GETs that
// read it from object storage.
func Spans(run block.Run, most int) []block.Run {
	most = clampRun(most)
	var spans []block.Run
	for run.Want != 0 {
		var span block.Run
		span, run = run.Span()
		for n := span.Count(); n > 0; n -= most {
			spans = append(spans, block.NewRun(span.First, min(n, most)))
			span.First += uint64(min(n, most))
		}
	}
	return spans
}
