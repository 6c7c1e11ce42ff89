package blockcache

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"headstart/engine/block"
)

const (
	shardBits   = 6
	bucketWords = 7
	tagShift    = 40
)

// word is an entry of the index: 24 bits of the key's hash, 40 of the slot's
// place among all. 0 is empty, because no slot has number 0.
type word uint64

func makeWord(h, place uint64) word { return word(hashTag(h)<<tagShift | place) }

func (w word) tag() uint64   { return uint64(w) >> tagShift }
func (w word) place() uint64 { return uint64(w) & (1<<tagShift - 1) }

// hashID spreads ids over shards (the top bits), tags (the middle) and buckets
// (the bottom). Real ids are a SHA-256 already; this makes made-up ones good.
func hashID(id block.ID) uint64 {
	hi, lo := bits.Mul64(id.Hi^0x9E3779B97F4A7C15, id.Lo^id.Index*0xA24BAED4963EE407^0xD1B54A32D192ED03)
	return hi ^ lo
}

func hashTag(h uint64) uint64   { return h >> 34 & (1<<24 - 1) }
func hashShard(h uint64) uint64 { return h >> (64 - shardBits) }

// index finds the slot of a block. Readers never lock: they take a word, pin
// the slot, and look whether the word is still there. Writers lock a shard.
type index struct {
	shards [1 << shardBits]shard
	// idOf reads the key of a word's slot; the word is in the index and its
	// shard locked meanwhile, so the slot can't change.
	idOf func(word) block.ID
}

type shard struct {
	// table is replaced when it grows, and the old one emptied then. A reader who
	// finds a word still there after pinning knows that it holds; one who finds
	// nothing looks whether the table is still the newest.
	table atomic.Pointer[table]
	mu    struct {
		sync.Mutex
		count int // entries
		spare int // overflow buckets never used
	}
	_ [32]byte
}

// table is a power of two of buckets and, behind them, the overflow buckets.
type table struct {
	buckets []bucket
	mask    uint64
}

// bucket is one cache line. An entry stays where it was put until it is
// removed, so a reader never misses one that is there all the time.
type bucket struct {
	words [bucketWords]atomic.Uint64
	more  atomic.Uint64 // number of the bucket that goes on from here, or 0
}

func newIndex(idOf func(word) block.ID) *index {
	x := &index{idOf: idOf}
	for i := range x.shards {
		x.shards[i].mu.spare = x.shards[i].resize(4)
	}
	return x
}

// resize gives the shard an empty table and returns its number of overflow
// buckets.
func (s *shard) resize(buckets int) int {
	spare := buckets/4 + 1
	s.table.Store(&table{buckets: make([]bucket, buckets+spare), mask: uint64(buckets - 1)})
	return spare
}

// reserve makes room for so many more entries, so that filling the index does
// not grow it step by step.
func (x *index) reserve(n int) {
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.Lock()
		x.growLocked(s, (s.mu.count+n>>shardBits)/(bucketWords/2))
		s.mu.Unlock()
	}
}

// firstWord and nextWord walk the words of a bucket from a place that the
// hash gives, so that most look-ups find what they want at the first.
func firstWord(h uint64) int { return int(h>>31) & 7 }

func nextWord(i int) int {
	if i++; i < bucketWords {
		return i
	}
	return 0
}

func (t *table) size() int { return int(t.mask) + 1 }

func (t *table) first(h uint64) *bucket { return &t.buckets[h&t.mask] }

// next returns the bucket that goes on from b, or nil.
func (t *table) next(b *bucket) *bucket {
	if n := b.more.Load(); n != 0 {
		return &t.buckets[n]
	}
	return nil
}

// put adds w unless the index holds a block with the same id; then it returns
// that one's word and false.
func (x *index) put(id block.ID, h uint64, w word) (word, bool) {
	s := &x.shards[hashShard(h)]
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table.Load()
	var free *atomic.Uint64
	for b := t.first(h); b != nil; b = t.next(b) {
		i := firstWord(h)
		for range bucketWords {
			i = nextWord(i)
			old := word(b.words[i].Load())
			if old == 0 && free == nil {
				free = &b.words[i]
			}
			if old != 0 && old.tag() == w.tag() && x.idOf(old) == id {
				return old, false
			}
		}
	}
	if free != nil {
		free.Store(uint64(w))
		s.mu.count++
		return w, true
	}
	if s.mu.spare == 0 {
		x.growLocked(s, 2*s.table.Load().size())
	}
	s.addLocked(s.table.Load(), h, w)
	return w, true
}

// addLocked stores a word whose key is not in t. The caller has seen to it
// that an overflow bucket is left.
func (s *shard) addLocked(t *table, h uint64, w word) {
	s.mu.count++
	b := t.first(h)
	for {
		i := firstWord(h)
		for range bucketWords {
			i = nextWord(i)
			if b.words[i].Load() == 0 {
				b.words[i].Store(uint64(w))
				return
			}
		}
		more := t.next(b)
		if more == nil {
			break
		}
		b = more
	}
	last := len(t.buckets) - s.mu.spare
	s.mu.spare--
	t.buckets[last].words[0].Store(uint64(w))
	b.more.Store(uint64(last))
}

// growLocked moves the shard to a table of at least so many buckets, if it is
// smaller, in which all entries fit with overflow buckets to spare.
func (x *index) growLocked(s *shard, buckets int) {
	old := s.table.Load()
	size := old.size()
	if size >= buckets {
		return
	}
	for size < buckets {
		size *= 2
	}
	for ; ; size *= 2 {
		spare := size/4 + 1
		t := &table{buckets: make([]bucket, size+spare), mask: uint64(size - 1)}
		s.mu.count, s.mu.spare = 0, spare
		if x.moveLocked(s, old, t) {
			s.table.Store(t)
			old.empty()
			return
		}
	}
}

func (t *table) empty() {
	for i := range t.buckets {
		for j := range t.buckets[i].words {
			t.buckets[i].words[j].Store(0)
		}
	}
}

func (x *index) moveLocked(s *shard, from, to *table) bool {
	for i := range from.buckets {
		for j := range from.buckets[i].words {
			w := word(from.buckets[i].words[j].Load())
			if w == 0 {
				continue
			}
			if s.mu.spare == 0 {
				return false
			}
			s.addLocked(to, hashID(x.idOf(w)), w)
		}
	}
	return s.mu.spare > 0
}

// replace puts another slot of the same block where w is, and reports whether
// w was still there.
func (x *index) replace(h uint64, w, with word) bool {
	s := &x.shards[hashShard(h)]
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.table.Load().find(h, w)
	if at == nil {
		return false
	}
	at.Store(uint64(with))
	return true
}

// find returns where w is, or nil.
func (t *table) find(h uint64, w word) *atomic.Uint64 {
	for b := t.first(h); b != nil; b = t.next(b) {
		for i := range b.words {
			if word(b.words[i].Load()) == w {
				return &b.words[i]
			}
		}
	}
	return nil
}

// remove takes w out and reports whether the caller is the one who did.
func (x *index) remove(h uint64, w word) bool {
	s := &x.shards[hashShard(h)]
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.table.Load().find(h, w)
	if at == nil {
		return false
	}
	at.Store(0)
	s.mu.count--
	return true
}
