package shards

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"headstart/bench/latency"
	"headstart/engine/block"
)

// million is how many tablets the lookups are measured among.
const million = 1 << 20

// filled returns a table with n tablets of three candidates each, and a
// ticking clock's last value.
func filled(n int) *Table {
	s := NewSettings()
	s.MaxTablets.Store(int64(2 * n))
	coarse := new(atomic.Int64)
	coarse.Store(time.Now().UnixMilli())
	table := NewTable(Options{CoarseMS: coarse}, s, NewBreakers(s))
	three := cands("a:g1 b:g2 c:g3")
	for _, i := range rand.Perm(n) {
		r := block.TabletRoute(int64(i))
		table.BeginLookup(r)
		table.EndLookup(r, three, nil)
	}
	return table
}

func routes(n int) []block.Route {
	list := make([]block.Route, n)
	for i := range list {
		list[i] = block.TabletRoute(rand.Int64N(int64(n)))
	}
	return list
}

func TestCandidatesDoesNotAllocate(t *testing.T) {
	table := filled(1000)
	exact := NewTable(Options{}, NewSettings(), NewBreakers(NewSettings()))
	exact.PutSource(block.TabletRoute(1), cands("a")[0])
	list := routes(1000)
	i, sum := 0, 0
	if n := testing.AllocsPerRun(1000, func() {
		i++
		s := table.Candidates(list[i%1000])
		for k := range s.Len() {
			sum += s.At(k).Addr.Port
		}
		sum += exact.Candidates(list[i%1000]).Len()
	}); n != 0 {
		t.Errorf("Candidates allocates %v times", n)
	}
	hit := []Result{{addr("a"), block.OutcomeHit}}
	for _, r := range list {
		table.Note(r, table.Candidates(r), hit)
	}
	if n := testing.AllocsPerRun(1000, func() {
		i++
		r := list[i%1000]
		table.Note(r, table.Candidates(r), hit)
	}); n != 0 {
		t.Errorf("Note of a hit like the last one allocates %v times", n)
	}
	if sum == 0 {
		t.Error("there were no candidates")
	}
}

func TestBreakersDoNotAllocate(t *testing.T) {
	b := NewBreakers(NewSettings())
	a := addr("a")
	for range 100 {
		b.Observe(a, time.Millisecond)
	}
	if n := testing.AllocsPerRun(1000, func() {
		ticket, _ := b.Allow(a)
		b.Quantile(a, 0.95)
		b.Observe(a, time.Millisecond)
		b.NoteRace(a, true)
		b.Silent(a)
		ticket.Done(block.OutcomeHit)
	}); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}

// TestHashSpreads looks at both ends of the hash: xsync takes the bucket from
// the upper bits and the tag from the lower seven.
func TestHashSpreads(t *testing.T) {
	const n = 1 << 16
	for name, id := range map[string]func(i uint64) uint64{
		"consecutive":       func(i uint64) uint64 { return i },
		"powers of two":     func(i uint64) uint64 { return i << 20 },
		"high bits only":    func(i uint64) uint64 { return i << 48 },
		"multiples of 1000": func(i uint64) uint64 { return i * 1000 },
		"near 2^63":         func(i uint64) uint64 { return 1<<63 - i },
		"random":            func(uint64) uint64 { return rand.Uint64() },
	} {
		buckets, tags := make([]int, n/4), make([]int, 128)
		for i := range uint64(n) {
			h := hashID(id(i), 0x1234567890abcdef)
			buckets[(h>>7)%uint64(len(buckets))]++
			tags[h&127]++
		}
		if most := slices.Max(buckets); most > 20 {
			t.Errorf("%s: %d of %d keys in one bucket of %d", name, most, n, len(buckets))
		}
		if least, most := slices.Min(tags), slices.Max(tags); least < n/128*8/10 || most > n/128*12/10 {
			t.Errorf("%s: tags are used %d to %d times", name, least, most)
		}
	}
}

// TestBytesPerTablet keeps the figure of the documentation honest.
func TestBytesPerTablet(t *testing.T) {
	const n = 200_000
	before := heap()
	table := filled(n)
	per := float64(heap()-before) / n
	t.Logf("%.0f bytes a tablet with three candidates, map included", per)
	if per > 320 {
		t.Errorf("%.0f bytes a tablet", per)
	}
	runtime.KeepAlive(table)
}

// TestBytesPerAddress is TestBytesPerTablet for addresses that have answered.
func TestBytesPerAddress(t *testing.T) {
	const n = 50_000
	before := heap()
	b := NewBreakers(NewSettings())
	for i := range n {
		a := block.Addr{Host: "10.0.0.1", Port: i}
		ticket, _ := b.Allow(a)
		b.Observe(a, time.Millisecond)
		ticket.Done(block.OutcomeHit)
	}
	per := float64(heap()-before) / n
	t.Logf("%.0f bytes an address, map included", per)
	if per > 640 {
		t.Errorf("%.0f bytes an address", per)
	}
	runtime.KeepAlive(b)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkCandidates measures lookups among a million tablets, two goroutines,
// one in a hundred an update, in turn with the same on the bare map, whose keys are
// routes. The machine's noise falls on both alike, so the ratio is what counts. An
// operation is one lookup of ours, though the loop goes round by round.
func BenchmarkCandidates(b *testing.B) {
	table := filled(million)
	bare := xsync.NewMapOfWithHasher[block.Route, *tablet](func(r block.Route, seed uint64) uint64 {
		return hashID(r.ID^uint64(r.Kind)<<59, seed)
	})
	for _, i := range rand.Perm(million) {
		bare.Store(block.TabletRoute(int64(i)), emptyTablet())
	}
	list := routes(million)
	miss := [2][]Result{{{addr("a"), block.OutcomeMiss}}, {{addr("b"), block.OutcomeMiss}}}
	ours := func(r block.Route, i int) {
		if i%100 == 0 {
			table.Note(r, table.Candidates(r), miss[i/100%2])
		} else if table.Candidates(r).State() != Ready {
			b.Error("not ready")
		}
	}
	theirs := func(r block.Route, i int) {
		if i%100 == 0 {
			bare.Store(r, emptyTablet())
		} else if _, ok := bare.Load(r); !ok {
			b.Error("lost")
		}
	}
	var ns [2]float64
	var ratios []float64
	var before, after runtime.MemStats
	rounds, mallocs, bytes := 0.0, 0.0, 0.0
	for b.Loop() {
		runtime.ReadMemStats(&before)
		t := round(list, ours)
		runtime.ReadMemStats(&after)
		m := round(list, theirs)
		ns[0], ns[1], rounds = ns[0]+t, ns[1]+m, rounds+1
		mallocs, bytes = mallocs+float64(after.Mallocs-before.Mallocs), bytes+float64(after.TotalAlloc-before.TotalAlloc)
		ratios = append(ratios, t/m)
	}
	slices.Sort(ratios)
	b.ReportMetric(ns[0]/rounds, "ns/op")
	b.ReportMetric(bytes/rounds/(2*perRound), "B/op")
	b.ReportMetric(mallocs/rounds/(2*perRound), "allocs/op")
	b.ReportMetric(ns[1]/rounds, "bare-ns")
	b.ReportMetric(ratios[len(ratios)/2], "x-bare")
	i := 0
	latency.ReportEach(b, func() {
		i++
		ours(list[i%len(list)], i)
	})
}

func emptyTablet() *tablet { return &tablet{cands: make([]cand, 3)} }

// perRound is how often each goroutine of a round does its work.
const perRound = 200_000

// round lets two goroutines do f and returns the time for one.
func round(list []block.Route, f func(r block.Route, i int)) float64 {
	begin := time.Now()
	var all sync.WaitGroup
	for range 2 {
		from := rand.IntN(len(list))
		all.Go(func() {
			for i := range perRound {
				f(list[(from+i)%len(list)], i)
			}
		})
	}
	all.Wait()
	return float64(time.Since(begin).Nanoseconds()) / (2 * perRound)
}

func BenchmarkCall(b *testing.B) {
	peers := NewBreakers(NewSettings())
	a := addr("a")
	call := func() {
		ticket, _ := peers.Allow(a)
		peers.Observe(a, time.Millisecond)
		ticket.Done(block.OutcomeHit)
	}
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
	latency.ReportEach(b, call)
}
