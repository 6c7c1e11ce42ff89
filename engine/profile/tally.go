package profile

import (
	"sync"
	"sync/atomic"
)

// Tally counts reads, and the blocks and bytes that they got, by one atomic add
// a read: three would cost a hit more than its look-up in the cache.
//
//	word: reads (12 bits) | blocks (16 bits) | bytes (36 bits)
//
// Whoever finds one of the three half full empties the word. Overflow would take
// as many callers again between their add and their look at it.
type Tally struct {
	// The word has a cache line of its own: beside what its callers read on their
	// way, one add costs twice as much, and all of it again on the other cores.
	_ [64]byte
	// word is added to by readers. What a reader of it sees is part of the sum
	// only together with mu.
	word atomic.Uint64
	_    [56]byte
	mu   struct {
		sync.Mutex
		sum Sums
	}
}

// Sums is what a Tally has counted.
type Sums struct{ Reads, Blocks, Bytes int64 }

// The fields of the word, and what one call may add to them.
const (
	bytesBits, blocksBits = 36, 16
	blocksAt, readsAt     = bytesBits, bytesBits + blocksBits
	bytesMask             = 1<<bytesBits - 1
	blocksMask            = 1<<blocksBits - 1
	halves                = 1<<(bytesBits-1) | 1<<(readsAt-1) | 1<<63

	mostReads, mostBlocks, mostBytes = 1, 1 << 4, 1 << 24
)

func unpack(word uint64) Sums {
	return Sums{int64(word >> readsAt), int64(word >> blocksAt & blocksMask), int64(word & bytesMask)}
}

// Add counts at most one read, and what it got.
func (t *Tally) Add(reads, blocks, bytes int64) {
	if reads > mostReads || blocks > mostBlocks || bytes > mostBytes {
		t.flush(Sums{reads, blocks, bytes})
		return
	}
	if t.word.Add(uint64(reads)<<readsAt|uint64(blocks)<<blocksAt|uint64(bytes))&halves != 0 {
		t.flush(Sums{})
	}
}

// flush empties the word into the sum, and adds more to it.
func (t *Tally) flush(more Sums) Sums {
	t.mu.Lock()
	defer t.mu.Unlock()
	part, sum := unpack(t.word.Swap(0)), &t.mu.sum
	sum.Reads += part.Reads + more.Reads
	sum.Blocks += part.Blocks + more.Blocks
	sum.Bytes += part.Bytes + more.Bytes
	return *sum
}

// Sums returns what has been counted so far. It never goes back.
func (t *Tally) Sums() Sums { return t.flush(Sums{}) }
