package main

import (
	"testing"

	"headstart/bench/tpch"
	"headstart/engine/block"
)

// seeds keeps the tests short; the command takes more.
const seeds = 5

func traceOf(t *testing.T) *tpch.Trace {
	t.Helper()
	trace, err := tpch.Load()
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// within fails when larger GETs cost more bytes than times the one-block plan's.
func within(t *testing.T, s summary, times float64) {
	t.Helper()
	if s.worstBytes > times {
		t.Errorf("%.3f times the bytes of the one-block plan, at most %.2f wanted", s.worstBytes, times)
	}
}

// TestS39_AnalyticsColdStart: 207 blocks, 29 footers among them, in at most 70
// GETs and two thirds of the time.
func TestS39_AnalyticsColdStart(t *testing.T) {
	s := measure(analytics(traceOf(t), false), seeds)
	if s.one.gets != 207 || s.mostGets > 70 {
		t.Errorf("%d and up to %d GETs", s.one.gets, s.mostGets)
	}
	if s.grown.took*3 > s.one.took*2 {
		t.Errorf("%v, the one-block plan takes %v", s.grown.took, s.one.took)
	}
	within(t, s, 1.1)
}

func TestS39_AnalyticsColdQueries(t *testing.T) {
	s := measure(analytics(traceOf(t), true), seeds)
	if s.one.gets != 2640 || s.mostGets > 2000 {
		t.Errorf("%d and up to %d GETs", s.one.gets, s.mostGets)
	}
	if s.grown.took > s.one.took || s.slower > 0 {
		t.Errorf("%v, the one-block plan takes %v; slower in %d of %d runs", s.grown.took, s.one.took, s.slower, seeds)
	}
	within(t, s, 1.1)
}

func TestS39_PointReads(t *testing.T) {
	within(t, measure(points("", 400, 256*mib, 60_000), 1), 1.01)
	within(t, measure(points("", 12_800, 8*mib, 60_000), 1), 1.05)
}

// TestS39_Scans: a scan goes to GETs of 16 blocks and reads nothing in vain, also
// while point reads use the guesses up.
func TestS39_Scans(t *testing.T) {
	one := scans("", 1, 4)
	s := measure(one, 1)
	if blocks := int64(4 * 256); s.one.gets != blocks || s.grown.gets > blocks/block.MaxRun+4*6 {
		t.Errorf("one scanner: %d and %d GETs", s.one.gets, s.grown.gets)
	}
	if s.grown.took*5 > s.one.took {
		t.Errorf("one scanner takes %v, the one-block plan %v: it waits for each GET", s.grown.took, s.one.took)
	}
	within(t, s, 1)
	if s = measure(scans("", 32, 2), 1); s.grown.gets*8 > s.one.gets || s.grown.took*3 > s.one.took {
		t.Errorf("32 scanners: %d and %d GETs, %v and %v", s.one.gets, s.grown.gets, s.one.took, s.grown.took)
	}
	within(t, s, 1)
	noise := points("", 12_800, 8*mib, 10_000)
	s = measure(together("", noise, one), 1)
	if alone := measure(noise, 1); s.grown.gets-alone.grown.gets > 100 {
		t.Errorf("a scanner among point reads takes %d GETs more than these", s.grown.gets-alone.grown.gets)
	}
	within(t, s, 1.05)
}

// TestWorldIsSeeded: a seed plays the same world, another one another.
func TestWorldIsSeeded(t *testing.T) {
	l := analytics(traceOf(t), false)
	if a, b, c := l.run(1, nil), l.run(1, nil), l.run(2, nil); a != b || a == c {
		t.Errorf("%+v, %+v, and with another seed %+v", a, b, c)
	}
}

// TestWorldTime: a read of two blocks of an object that is known waits for the
// slower of two GETs.
func TestWorldTime(t *testing.T) {
	w := newWorld(3, []int64{3*mib - 5}, 2, nil)
	w.known[0] = true
	ended := false
	w.read(read{0, mib + 7, 2 * mib}, func() { ended = true })
	w.run()
	want := max(w.law.FirstByte(0)+w.law.Body(mib), w.law.FirstByte(1)+w.law.Body(mib-5))
	if !ended || w.now != want || w.seen.gets != 2 || w.seen.bytes != 2*mib-5 {
		t.Errorf("ended %v after %v, want %v; %+v", ended, w.now, want, w.seen)
	}
	w.read(read{0, 0, 1}, func() {})
	w.run()
	if w.cache[key{0, 1}] && w.cache[key{0, 2}] || len(w.cache) != 2 {
		t.Errorf("a cache of two blocks holds %v", w.cache)
	}
}
