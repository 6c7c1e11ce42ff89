package plan

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

const (
	shardCount = 64
	setCount   = 16
	ways       = 4
	// regionBlocks is the bits of a word.
	regionBlocks = 64
	// lately is how long a block counts as asked for, at least; twice as long at
	// most.
	lately = 10 * time.Second
)

// memory is what was asked for lately, in regions of 64 blocks: the last 4,096
// of them, 200 KiB. An object's regions are in one shard.
type memory struct {
	shards [shardCount]shard
}

type shard struct {
	mu struct {
		sync.Mutex
		regions [setCount][ways]region
	}
	// tags are written with mu held. They are read without: what a reader sees may
	// be gone, so it looks again with mu held before it acts on it.
	tags [setCount]tags
}

// tags is a cache line for those who only ask for idle blocks.
type tags struct {
	// keys name the regions of a set; 0 is none.
	keys [ways]atomic.Uint64
	// idle has the blocks that came along and have not been asked for since. They
	// stay marked when they are dropped: there is no need to bring them again.
	idle [ways]atomic.Uint64
}

// region is the blocks asked for since began, and in the time as long before.
type region struct {
	asked, before uint64
	began, last   time.Duration
}

// view is the blocks from first on. The block that it was made for is bit at;
// the MaxRun blocks before it, as far as there are any, and the 47 behind it
// are in sight.
type view struct {
	first       uint64
	at          uint64
	asked, idle uint64
}

func (v view) hasAsked(index uint64) bool { return v.asked>>(index-v.first)&1 != 0 }
func (v view) isIdle(index uint64) bool   { return v.idle>>(index-v.first)&1 != 0 }

func (m *memory) shard(base block.ID) *shard {
	return &m.shards[(base.Hi^base.Lo)*0x9E3779B97F4A7C15>>(64-bits.Len(shardCount-1))]
}

// keyOf names a region. It is a hash: two regions that share one would only
// mislead the rule.
func keyOf(base block.ID, n uint64) uint64 {
	hi, lo := bits.Mul64(base.Hi^n*0x9E3779B97F4A7C15, base.Lo^0xD1B54A32D192ED03)
	return hi ^ lo | 1
}

func setOf(key uint64) uint64 { return key >> 8 % setCount }

// isIdle needs no lock.
func (m *memory) isIdle(base block.ID, index uint64) bool {
	key := keyOf(base, index/regionBlocks)
	t := &m.shard(base).tags[setOf(key)]
	for i := range t.keys {
		if t.keys[i].Load() == key {
			return t.idle[i].Load()>>(index%regionBlocks)&1 != 0
		}
	}
	return false
}

// findLocked returns region n of an object and its idle bits, nil when it is
// forgotten.
func (s *shard) findLocked(base block.ID, n uint64) (*region, *atomic.Uint64) {
	key := keyOf(base, n)
	t := &s.tags[setOf(key)]
	for i := range t.keys {
		if t.keys[i].Load() == key {
			return &s.mu.regions[setOf(key)][i], &t.idle[i]
		}
	}
	return nil, nil
}

// openLocked returns region n, in the place of the one that was used the
// longest ago if need be. forgotten is how many idle blocks that one had: they
// don't pay back any more.
func (s *shard) openLocked(base block.ID, n uint64, now time.Duration) (r *region, idle *atomic.Uint64, forgotten int) {
	if r, idle = s.findLocked(base, n); r == nil {
		key := keyOf(base, n)
		t, set := &s.tags[setOf(key)], &s.mu.regions[setOf(key)]
		oldest := 0
		for i := range set {
			if t.keys[i].Load() == 0 {
				oldest = i
				break
			}
			if set[i].last < set[oldest].last {
				oldest = i
			}
		}
		r, idle = &set[oldest], &t.idle[oldest]
		forgotten = bits.OnesCount64(idle.Load())
		idle.Store(0) // before the key: no reader takes them for the new region's
		t.keys[oldest].Store(key)
		*r = region{began: now}
	}
	r.last = now
	return r, idle, forgotten
}

// latelyAt returns the blocks that count as asked for.
func (r *region) latelyAt(now time.Duration) uint64 {
	switch age := now - r.began; {
	case age <= lately:
		return r.asked | r.before
	case age <= 2*lately:
		return r.asked
	}
	return 0
}

// turn forgets what is too long ago.
func (r *region) turn(now time.Duration) {
	if now-r.began > lately {
		r.before, r.asked, r.began = r.latelyAt(now), 0, now
	}
}

// viewLocked returns what is known around block index.
func (s *shard) viewLocked(base block.ID, index uint64, now time.Duration) view {
	v := view{first: index - min(index, block.MaxRun)}
	v.at = index - v.first
	n, shift := v.first/regionBlocks, v.first%regionBlocks
	if r, idle := s.findLocked(base, n); r != nil {
		v.asked, v.idle = r.latelyAt(now)>>shift, idle.Load()>>shift
	}
	if r, idle := s.findLocked(base, n+1); r != nil {
		v.asked |= r.latelyAt(now) << (regionBlocks - shift)
		v.idle |= idle.Load() << (regionBlocks - shift)
	}
	return v
}

// split returns the two regions' shares of a run's bits.
func split(run block.Run) (n, low, high uint64) {
	shift := run.First % regionBlocks
	return run.First / regionBlocks, uint64(run.Want) << shift, uint64(run.Want) >> (regionBlocks - shift)
}

// noteLocked marks blocks that are asked for and not there. It returns how many
// idle marks it took away, with the credit that was paid for them: those blocks
// were dropped before they were of use.
func (s *shard) noteLocked(base block.ID, run block.Run, now time.Duration) (cleared int) {
	n, low, high := split(run)
	for i, mask := range [...]uint64{low, high} {
		if mask == 0 {
			continue
		}
		r, idle, forgotten := s.openLocked(base, n+uint64(i), now)
		r.turn(now)
		r.asked |= mask
		old := idle.Load()
		idle.Store(old &^ mask)
		cleared += forgotten + bits.OnesCount64(old&mask)
	}
	return cleared
}

// bringLocked marks blocks that come along, and returns by how many more are
// idle now.
func (s *shard) bringLocked(base block.ID, run block.Run, now time.Duration) (more int) {
	n, low, high := split(run)
	for i, mask := range [...]uint64{low, high} {
		if mask == 0 {
			continue
		}
		_, idle, forgotten := s.openLocked(base, n+uint64(i), now)
		old := idle.Load()
		idle.Store(old | mask)
		more += bits.OnesCount64(mask&^old) - forgotten
	}
	return more
}

// useLocked takes away idle marks and returns how many there were.
func (s *shard) useLocked(base block.ID, run block.Run, asked bool) (used int) {
	n, low, high := split(run)
	for i, mask := range [...]uint64{low, high} {
		r, idle := s.findLocked(base, n+uint64(i))
		if r == nil {
			continue
		}
		old := idle.Load()
		idle.Store(old &^ mask)
		used += bits.OnesCount64(old & mask)
		if asked {
			r.asked |= old & mask
		}
	}
	return used
}
