package plan

import (
	"math/bits"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// What bench/plan chose; its tests hold the figures.
const (
	// earnEvery blocks asked for pay for one brought along in vain: no pattern of
	// reads costs more than 4 %, and what was saved up before.
	earnEvery = 25
	// startCredit is how many blocks may come along before any has been of use,
	// maxCredit how many credits are kept. Many scanners at once need many.
	startCredit, maxCredit = 160, 512
	// reserve is the part of the credit that only scans may use: they hardly ever
	// fail, and should not starve because guesses do.
	reserve = 64
	// aheadReserve is the part that only GETs somebody waits for may use: many scans
	// at once keep object storage busy by themselves, and without credit their GETs
	// would be small.
	aheadReserve = 128
	// guess is how many blocks behind the one asked for come along from a small
	// object. More save GETs, but then readers wait for their turn in a long one:
	// TPC-H takes 74 GETs and 1.34 s with 4, 62 and 1.50 s with 15, 207 and 1.58 s
	// without.
	guess = 4
	// scanned of the scanWindow blocks before must have been asked for lately
	// until a large object is taken to be scanned.
	scanned, scanWindow = 3, 4
	// restBlocks is how many blocks a GET of the rest of a small object has at most:
	// two that go beside each other bring a large one sooner. TPC-H takes 67 GETs and
	// 0.95 s with 8, 89 and 0.89 s with 4, 55 and 1.13 s with 16.
	restBlocks = 8
)

// Growth decides which neighbours a GET brings along with the blocks that it
// is for. Each of them costs a credit, which comes back when the block is asked
// for: what is brought in vain is bounded whatever the pattern. Its memory is
// of fixed size. All methods may be called by many goroutines.
type Growth struct {
	// credit is in parts: earnEvery of them are a block. Only take lowers it, and
	// never below 0.
	credit atomic.Int64
	// unused counts the idle bits of memory. While it is 0 Used looks no further.
	unused atomic.Int64
	memory memory
	count  struct{ extra, used atomic.Int64 }
}

// NewGrowth returns a Growth that has seen nothing.
func NewGrowth() *Growth {
	g := &Growth{}
	g.credit.Store(startCredit * earnEvery)
	return g
}

// Grow notes that the blocks of span, which are neighbours, are asked for and
// about to be fetched, and returns the run of at most most neighbours that the
// GET should fetch: span, what comes along behind it, and sometimes the block
// before it. blocks is how many the object has, 0 when that is not known. now
// is the time since any fixed moment.
//
// The caller asks whether the other blocks are cached or in flight, outward
// from span, and keeps to the neighbours that are not. What it does not fetch,
// or fetches without success, goes to Return.
func (g *Growth) Grow(base block.ID, span block.Run, blocks uint64, most int, now time.Duration) block.Run {
	g.earn(int64(span.Count()))
	s := g.memory.shard(base)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after, least := neighbours(s.viewLocked(base, span.First, now), span, blocks, clampRun(most))
	g.unused.Add(-int64(s.noteLocked(base, span, now)))
	before, after = g.take(before, after, least)
	if before+after == 0 {
		return span
	}
	run := block.NewRun(span.First-uint64(before), before+span.Count()+after)
	extra := block.Run{First: run.First, Want: run.Want &^ (span.Want << before)}
	g.unused.Add(int64(s.bringLocked(base, extra, now)))
	g.count.extra.Add(int64(before + after))
	return run
}

// Rest returns the GETs that should go at once beside a read of span, the end of a
// small object: who reads the footer goes on to read most of it. They are of the
// blocks before span, down to the first that was asked for lately, or that came
// along once and nobody wanted. Grow has noted span before. What is not fetched
// goes to Return.
func (g *Growth) Rest(base block.ID, span block.Run, blocks uint64, most int, now time.Duration) []block.Run {
	most = min(clampRun(most), restBlocks)
	if most == 1 || blocks > block.MaxRun || span.First == 0 || span.First+uint64(span.Count()) != blocks {
		return nil
	}
	s := g.memory.shard(base)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, count := s.viewLocked(base, span.First, now), 0
	for at := span.First; at > 0 && !v.hasAsked(at-1) && !v.isIdle(at-1); at-- {
		count++
	}
	if count, _ = g.take(count, 0, reserve); count == 0 {
		return nil
	}
	rest := block.NewRun(span.First-uint64(count), count)
	g.unused.Add(int64(s.bringLocked(base, rest, now)))
	g.count.extra.Add(int64(count))
	pieces := (count + most - 1) / most
	return Spans(rest, (count+pieces-1)/pieces)
}

// neighbours is the rule: how many blocks before and after span are worth
// bringing, if least credits are left.
func neighbours(v view, span block.Run, blocks uint64, most int) (before, after, least int) {
	end := span.First + uint64(span.Count())
	if end >= blocks || span.Count() >= most {
		return 0, 0, 0
	}
	after = int(min(uint64(most-span.Count()), blocks-end))
	if blocks > block.MaxRun {
		return 0, min(after, v.scan()), 0
	}
	before, after = v.guess(span, blocks, after)
	return before, min(after, most-span.Count()-before), reserve
}

// scan returns how many blocks a scan of a large object brings along: as many
// as it has read lately.
func (v view) scan() int {
	behind := v.asked << (64 - v.at) // the nearest is the highest bit
	if bits.OnesCount64(behind>>(64-scanWindow)) < scanned {
		return 0
	}
	return bits.OnesCount64(behind)
}

// guess is for files that fit into one GET: who has read the footer, or the
// block before, goes on to read most of it. It leaves out what came along once
// and nobody wanted.
func (v view) guess(span block.Run, blocks uint64, most int) (before, after int) {
	first, end := span.First, span.First+uint64(span.Count())
	follows := first > 0 && v.hasAsked(first-1)
	if !follows && !v.hasAsked(blocks-1) {
		return 0, 0
	}
	for after < min(most, guess) && !v.isIdle(end+uint64(after)) {
		after++
	}
	if after > 0 && first > 0 && !follows && !v.isIdle(first-1) {
		before = 1
	}
	return before, after
}

// Used is called when a block is found in the cache or in flight, so that one
// that came along pays back. It is made for being called on every hit: no lock,
// no allocation, and a single load while all that came along has been used.
// It reports whether the block is one.
func (g *Growth) Used(base block.ID, index uint64) bool {
	if g.unused.Load() == 0 || !g.memory.isIdle(base, index) {
		return false
	}
	s := g.memory.shard(base)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.useLocked(base, block.NewRun(index, 1), true)
	g.unused.Add(-int64(n))
	g.count.used.Add(int64(n))
	g.earn(int64(n) * (earnEvery + 1))
	return n > 0
}

// Ahead returns the run that a GET should fetch now that a block has been used
// which came along: a scan of a large object that has used up half of what it is
// worth to bring gets the next part before it has to wait for it. What is not
// fetched goes to Return.
func (g *Growth) Ahead(base block.ID, index uint64, blocks uint64, most int, now time.Duration) block.Run {
	most = clampRun(most)
	if most == 1 || blocks <= block.MaxRun {
		return block.Run{}
	}
	s := g.memory.shard(base)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.viewLocked(base, index, now)
	worth, next := min(v.scan(), most), index+1
	for next-v.first < regionBlocks && v.isIdle(next) {
		next++
	}
	if next >= blocks || worth < most || next-v.first == regionBlocks || int(next-index)-1 > worth/2 || v.hasAsked(next) {
		return block.Run{}
	}
	count := int(min(uint64(worth), blocks-next))
	if g.credit.Load()/earnEvery < int64(aheadReserve+count) {
		return block.Run{}
	}
	_, count = g.take(0, count, aheadReserve)
	run := block.NewRun(next, count)
	g.unused.Add(int64(s.bringLocked(base, run, now)))
	g.count.extra.Add(int64(count))
	return run
}

// Return takes back the blocks of run that Grow has added and that did not
// come.
func (g *Growth) Return(base block.ID, run block.Run) {
	s := g.memory.shard(base)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(s.useLocked(base, run, false))
	g.unused.Add(-n)
	g.count.extra.Add(-n)
	g.earn(n * earnEvery)
}

// earn adds parts to the credit, as far as it goes.
func (g *Growth) earn(parts int64) {
	for {
		old := g.credit.Load()
		sum := min(old+parts, maxCredit*earnEvery)
		if sum == old || g.credit.CompareAndSwap(old, sum) {
			return
		}
	}
}

// take pays for as many of the blocks as leave least credits, those after the
// span last.
func (g *Growth) take(before, after, least int) (int, int) {
	for before+after > 0 {
		old := g.credit.Load()
		have := max(int(old/earnEvery)-least, 0)
		before = min(before, have)
		after = min(after, have-before)
		if g.credit.CompareAndSwap(old, old-int64(before+after)*earnEvery) {
			break
		}
	}
	return before, after
}

// GrowthMetrics is a snapshot.
type GrowthMetrics struct {
	// Extra counts the blocks that came along, Used those of them that were asked
	// for while they were there.
	Extra, Used int64
	// Credit is how many blocks may come along now.
	Credit int64
}

// Metrics returns what has been counted.
func (g *Growth) Metrics() GrowthMetrics {
	return GrowthMetrics{
		Extra: g.count.extra.Load(), Used: g.count.used.Load(), Credit: g.credit.Load() / earnEvery,
	}
}
