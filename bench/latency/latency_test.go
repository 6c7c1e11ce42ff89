package latency

import (
	"testing"
	"testing/synctest"
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

// metrics keeps what a benchmark reports.
type metrics map[string]float64

func (m metrics) ReportMetric(v float64, unit string) { m[unit] = v }

// TestEachIsOneOperation: whatever an operation takes, the quantiles are of one of
// them, and the operations end.
func TestEachIsOneOperation(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Microsecond, 50 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			got, calls := metrics{}, 0
			ReportEach(got, func() {
				calls++
				time.Sleep(takes)
			})
			want := float64(max(takes.Nanoseconds(), 1))
			for _, unit := range []string{"p50-ns", "p99-ns"} {
				if v := got[unit]; takes <= Longest && (v < 0.99*want || v > 1.01*want) {
					t.Errorf("an operation of %v: %v %s", takes, v, unit)
				}
			}
			if calls < 1 || calls > eachMost || time.Duration(calls-1)*takes > eachTime {
				t.Errorf("%d operations of %v", calls, takes)
			}
		})
	}
}
