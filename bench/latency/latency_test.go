package latency

import (
	"testing"
	"time"
)

func TestQuantilesAreThoseOfWhatWasAdded(t *testing.T) {
	a, b := New(), New()
	for i := range 500 {
		a.Add(time.Duration(i+1) * time.Millisecond)
		b.Add(time.Duration(i+501) * time.Millisecond)
	}
	a.Merge(b)
	if a.Count() != 1000 {
		t.Fatalf("%d durations", a.Count())
	}
	for q, want := range map[float64]time.Duration{0.001: time.Millisecond, 0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := a.At(q); (got - want).Abs() > want/900 {
			t.Errorf("quantile %v is %v, want %v to three digits", q, got, want)
		}
	}
	if got := a.Mean(); (got - 500500*time.Microsecond).Abs() > time.Millisecond {
		t.Errorf("mean %v", got)
	}
}

func TestWhatIsOutOfBoundsCountsAsTheBound(t *testing.T) {
	r := New()
	r.Add(-time.Second)
	r.Add(24 * time.Hour)
	if r.Count() != 2 || r.At(0.5) != 1 || (r.Max()-Longest).Abs() > Longest/900 {
		t.Errorf("%d, median %v, longest %v", r.Count(), r.At(0.5), r.Max())
	}
	if r.Reset(); r.Count() != 0 || r.At(0.5) != 0 {
		t.Errorf("after a reset: %d", r.Count())
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	r := New()
	if n := testing.AllocsPerRun(100, func() { r.Add(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
