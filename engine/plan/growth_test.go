package plan

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
)

func objectID(n uint64) block.ID {
	return block.BaseID(block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprint(n)}, block.Immutable)
}

// reader reads one object, block by block, with a cache that drops nothing
// until it is emptied.
type reader struct {
	growth *Growth
	id     block.ID
	blocks uint64
	now    time.Duration
	cached map[uint64]bool
}

func newReader(g *Growth, object, blocks uint64) *reader {
	return &reader{growth: g, id: objectID(object), blocks: blocks, cached: make(map[uint64]bool)}
}

// read reads blocks and returns the GETs that it took, as first+count.
func (r *reader) read(indexes ...uint64) string {
	var gets []string
	for _, i := range indexes {
		r.now += 10 * time.Millisecond
		if r.cached[i] {
			r.growth.Used(r.id, i)
			continue
		}
		run := r.growth.Grow(r.id, block.NewRun(i, 1), r.blocks, block.MaxRun, r.now)
		fetched := block.Run{First: run.First}
		for at := run.First; run.Has(at); at++ {
			if r.cached[at] {
				r.growth.Return(r.id, block.NewRun(at, 1))
				continue
			}
			fetched.Want |= 1 << (at - run.First)
			r.cached[at] = true
		}
		gets = append(gets, fmt.Sprintf("%d+%d", run.First, fetched.Count()))
	}
	return strings.Join(gets, " ")
}

func upTo(n uint64) []uint64 {
	all := make([]uint64, n)
	for i := range all {
		all[i] = uint64(i)
	}
	return all
}

// TestS39_Rule: who reads what, and the GETs that it takes.
func TestS39_Rule(t *testing.T) {
	for _, c := range []struct {
		name   string
		blocks uint64
		reads  []uint64
		want   string
	}{
		{"a lone read of a large object", 256, []uint64{77}, "77+1"},
		{"a lone read of a small one", 12, []uint64{5}, "5+1"},
		{"a footer", 12, []uint64{11}, "11+1"},
		{"a footer, then columns", 12, []uint64{11, 1, 4, 7, 9, 0}, "11+1 0+6 6+5"},
		{"a footer, then the first block", 12, []uint64{11, 0}, "11+1 0+5"},
		{"a small object from its start", 7, upTo(7), "0+1 1+5 6+1"},
		{"the last of two blocks, then the first", 2, []uint64{1, 0}, "1+1 0+1"},
		{"far apart in a large object", 256, []uint64{255, 10, 200, 30, 90}, "255+1 10+1 200+1 30+1 90+1"},
		{"two neighbours of a large object", 256, []uint64{10, 11, 12}, "10+1 11+1 12+1"},
		{"backwards", 256, []uint64{13, 12, 11, 10}, "13+1 12+1 11+1 10+1"},
		{"a scan, across regions", 100, upTo(100), "0+1 1+1 2+1 3+4 7+8 15+16 31+16 47+16 63+16 79+16 95+5"},
		{"a scan with gaps", 256, []uint64{0, 1, 3, 4, 6, 7, 9, 10}, "0+1 1+1 3+1 4+4 9+1 10+8"},
		{"of unknown size", 0, []uint64{0, 1, 2, 3, 4}, "0+1 1+1 2+1 3+1 4+1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := newReader(NewGrowth(), 1, c.blocks).read(c.reads...); got != c.want {
				t.Errorf("GETs %s, want %s", got, c.want)
			}
		})
	}
}

func TestS39_MostBoundsTheGET(t *testing.T) {
	g, id := NewGrowth(), objectID(1)
	for i := range uint64(40) {
		for _, most := range []int{0, 1, 2, 5, 16, 99} {
			span := block.NewRun(i, 1)
			if run := g.Grow(id, span, 256, most, 0); run.Count() > clampRun(most) || !run.Has(i) {
				t.Fatalf("block %d with at most %d: %v", i, most, run)
			}
		}
	}
	// A guess goes both ways: the block before must not push the span out.
	g = NewGrowth()
	g.Grow(id, block.NewRun(15, 1), 16, 16, 0)
	if run := g.Grow(id, block.NewRun(3, 2), 16, 3, 0); run != block.NewRun(2, 3) {
		t.Errorf("two blocks of at most three: %v", run)
	}
}

// TestS39_WithTime: what was asked for long ago says nothing.
func TestS39_WithTime(t *testing.T) {
	for _, c := range []struct {
		pause time.Duration
		want  string
	}{{0, "1+6"}, {lately, "1+6"}, {2*lately + time.Second, "2+1"}} {
		r := newReader(NewGrowth(), 1, 12)
		r.read(11)
		r.now += c.pause
		if got := r.read(2); got != c.want {
			t.Errorf("%v after the footer: %s, want %s", c.pause, got, c.want)
		}
	}
	// Regions are used again after any pause.
	r := newReader(NewGrowth(), 1, 12)
	for range 3 {
		clear(r.cached)
		if got := r.read(11, 2); got != "11+1 1+6" {
			t.Errorf("at %v: %s", r.now, got)
		}
		r.read(1, 3, 4, 5, 6)
		r.now += 5 * lately
	}
}

// TestS39_NotInVainTwice: what came along and was dropped unused does not come
// along again, until somebody has asked for it.
func TestS39_NotInVainTwice(t *testing.T) {
	r := newReader(NewGrowth(), 1, 6)
	for _, c := range []struct {
		reads []uint64
		want  string
	}{
		{[]uint64{5, 0, 1, 2, 3}, "5+1 0+5"}, // block 4 in vain
		{[]uint64{5, 0, 1, 2, 3}, "5+1 0+4"},
		{[]uint64{4}, "4+2"},
		{[]uint64{5, 0}, "5+1 0+5"},
	} {
		clear(r.cached)
		if got := r.read(c.reads...); got != c.want {
			t.Errorf("GETs for %v: %s, want %s", c.reads, got, c.want)
		}
	}
}

// TestS39_GuessesLeaveCreditForScans: files of which nobody reads more than two
// blocks use guesses up; a scan still grows.
func TestS39_GuessesLeaveCreditForScans(t *testing.T) {
	g := NewGrowth()
	for i := range uint64(100) {
		newReader(g, i, 12).read(11, 1)
	}
	m := g.Metrics()
	if m.Credit != reserve || m.Extra < startCredit-reserve || m.Used != 0 {
		t.Fatalf("after useless guesses: %+v", m)
	}
	if got := newReader(g, 1000, 256).read(upTo(20)...); got != "0+1 1+1 2+1 3+4 7+8 15+16" {
		t.Errorf("a scan after useless guesses: %s", got)
	}
}

// TestS39_Return: what did not come costs nothing, and once only.
func TestS39_Return(t *testing.T) {
	g, id := NewGrowth(), objectID(1)
	g.Grow(id, block.NewRun(11, 1), 12, 16, 0)
	run := g.Grow(id, block.NewRun(3, 1), 12, 16, 0)
	if run != block.NewRun(2, 6) || g.Metrics().Extra != 5 || g.Metrics().Credit != startCredit-5 {
		t.Fatalf("%v, %+v", run, g.Metrics())
	}
	g.Used(id, 4)
	for range 3 {
		g.Return(id, run)
		g.Used(id, 5)
		if m := g.Metrics(); m.Extra != 1 || m.Used != 1 || m.Credit != startCredit || g.unused.Load() != 0 {
			t.Fatalf("%+v, %d unused", m, g.unused.Load())
		}
	}
}

// play does random things to a Growth: a hostile mix of objects, sizes and
// orders. It returns how many blocks were asked for. check is called after each.
func play(t *testing.T, g *Growth, rng *rand.Rand, steps int, check func(asked int)) (asked int) {
	now := time.Duration(0)
	for range steps {
		object := rng.Uint64N(2000)
		blocks, id := 1+object%90, objectID(object)
		first := rng.Uint64N(blocks)
		now += time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
		if rng.IntN(3) == 0 {
			if g.Used(id, first) {
				if run := g.Ahead(id, first, blocks, block.MaxRun, now); run.Want != 0 && (run.First <= first || run.First+uint64(run.Count()) > blocks) {
					t.Fatalf("%v of %d blocks is read ahead of %d", run, blocks, first)
				}
			}
			continue
		}
		span := block.NewRun(first, 1+rng.IntN(int(min(blocks-first, 3))))
		asked += span.Count()
		run := g.Grow(id, span, blocks, block.MaxRun, now)
		if run.Want&(run.Want+1) != 0 || run.First+uint64(run.Count()) > blocks ||
			!run.Has(first) || !run.Has(first+uint64(span.Count())-1) {
			t.Fatalf("%v of %d blocks grows to %v", span, blocks, run)
		}
		if rng.IntN(5) == 0 {
			g.Return(id, run)
		}
		for _, rest := range g.Rest(id, span, blocks, block.MaxRun, now) {
			if rest.First+uint64(rest.Count()) > first || rest.Count() > restBlocks {
				t.Fatalf("beside %v of %d blocks go %v", span, blocks, rest)
			}
			if rng.IntN(3) == 0 {
				g.Return(id, rest)
			}
		}
		check(asked)
	}
	return asked
}

// idle counts the marks in memory.
func (g *Growth) idle() (n int64) {
	for i := range g.memory.shards {
		for j := range g.memory.shards[i].tags {
			for k := range ways {
				n += int64(bits.OnesCount64(g.memory.shards[i].tags[j].idle[k].Load()))
			}
		}
	}
	return n
}

// TestS39_VainIsBounded: whatever the pattern, what came along and was of no
// use is at most the first credit and 4 % of what was asked for.
func TestS39_VainIsBounded(t *testing.T) {
	for seed := range uint64(4) {
		g := NewGrowth()
		used := int64(0)
		play(t, g, rand.New(rand.NewPCG(seed, 0)), 30_000, func(asked int) {
			m := g.Metrics()
			// A used block was asked for too.
			if vain := m.Extra - m.Used; vain > startCredit+(int64(asked)+m.Used)/earnEvery || m.Credit < 0 || m.Credit > maxCredit {
				t.Fatalf("seed %d: after %d blocks %+v", seed, asked, m)
			}
			used = m.Used
		})
		if used == 0 || g.unused.Load() != g.idle() {
			t.Errorf("seed %d: %d used, %d unused by the counter, %d marks", seed, used, g.unused.Load(), g.idle())
		}
	}
}

func TestGrowthConcurrent(t *testing.T) {
	g := NewGrowth()
	var wg sync.WaitGroup
	for seed := range uint64(4) {
		wg.Go(func() { // ends with its steps
			play(t, g, rand.New(rand.NewPCG(seed, 1)), 5000, func(int) {})
		})
	}
	wg.Wait()
	if g.unused.Load() != g.idle() {
		t.Errorf("%d unused by the counter, %d marks", g.unused.Load(), g.idle())
	}
}

// TestGrowthForgets: more objects than the memory holds take the place of the
// oldest, and what those brought is no longer counted as unused.
func TestGrowthForgets(t *testing.T) {
	g := NewGrowth()
	first := newReader(g, 0, 12)
	first.read(11, 1)
	if g.unused.Load() != 5 {
		t.Fatalf("%d unused", g.unused.Load())
	}
	for i := range uint64(10 * shardCount * setCount * ways) {
		g.Grow(objectID(i+1), block.NewRun(11, 1), 12, 16, time.Second+time.Duration(i))
	}
	if g.unused.Load() != 0 || g.idle() != 0 {
		t.Errorf("%d unused, %d marks", g.unused.Load(), g.idle())
	}
	if got := first.read(7); got != "7+1" {
		t.Errorf("a forgotten object: %s", got)
	}
}

func TestGrowthAllocatesNothing(t *testing.T) {
	g, id := NewGrowth(), objectID(1)
	i := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		run := g.Grow(id.At(0), block.NewRun(i, 1), 1<<20, 16, time.Duration(i))
		g.Used(id, i+1)
		g.Return(id, run)
		i += 2
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkUsed is what a hit pays: while nothing has come along unused, and
// while something has.
func BenchmarkUsed(b *testing.B) {
	for _, name := range []string{"nothing", "other", "same-region"} {
		b.Run(name, func(b *testing.B) {
			g, id := NewGrowth(), objectID(1)
			r := newReader(g, 2, 12)
			if name == "same-region" {
				r = newReader(g, 1, 12)
			}
			if name != "nothing" {
				r.read(11, 1)
			}
			for i := uint64(0); b.Loop(); i++ {
				g.Used(id, 32+i%16)
			}
		})
	}
}

func BenchmarkGrow(b *testing.B) {
	g := NewGrowth()
	ids := make([]block.ID, 1000)
	for i := range ids {
		ids[i] = objectID(uint64(i))
	}
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		g.Grow(ids[i%1000], block.NewRun(i/1000%256, 1), 256, 16, time.Duration(i)*time.Millisecond)
	}
}
