// Package latency collects durations in an HDR histogram (hdrhistogram-go): a
// fixed amount of memory however many there are, each to three digits, and no
// allocation to add one. A Recorder is used by one goroutine at a time.
package latency

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Longest is the longest time that a Recorder tells from a longer one.
const Longest = 10 * time.Minute

// Recorder is a distribution of durations from 1 ns to Longest.
type Recorder struct{ h *hdrhistogram.Histogram }

// New returns an empty Recorder; it takes about 300 KiB.
func New() Recorder {
	return Recorder{hdrhistogram.New(1, Longest.Nanoseconds(), 3)}
}

// Add counts one duration; those beyond the bounds count as the bound.
func (r Recorder) Add(d time.Duration) {
	_ = r.h.RecordValue(min(max(d, 1), Longest).Nanoseconds()) // only what is out of bounds is an error
}

// Merge adds all that other has counted.
func (r Recorder) Merge(other Recorder) { r.h.Merge(other.h) }

// Count returns how many durations there are.
func (r Recorder) Count() int64 { return r.h.TotalCount() }

// At returns the quantile q, from 0 to 1; 0 when nothing was counted.
func (r Recorder) At(q float64) time.Duration {
	if r.h.TotalCount() == 0 {
		return 0
	}
	return time.Duration(r.h.ValueAtQuantile(100 * q))
}

// Max returns the longest, to three digits.
func (r Recorder) Max() time.Duration { return time.Duration(r.h.Max()) }

// Mean returns the mean.
func (r Recorder) Mean() time.Duration { return time.Duration(r.h.Mean()) }

// Reset forgets everything.
func (r Recorder) Reset() { r.h.Reset() }

// ReportTo gives the median and the 99th percentile to a benchmark, in
// nanoseconds.
func (r Recorder) ReportTo(b interface{ ReportMetric(float64, string) }) {
	b.ReportMetric(float64(r.At(0.5)), "p50-ns")
	b.ReportMetric(float64(r.At(0.99)), "p99-ns")
}

const (
	// eachMost and eachTime bound what ReportEach does.
	eachMost = 10_000
	eachTime = 100 * time.Millisecond
)

// ReportEach does op again and again, each time by the clock, and reports the median
// and the 99th percentile less what the clock costs. It goes behind the loop of a
// benchmark, which it costs nothing: op may be shorter than a look at the clock.
func ReportEach(b interface{ ReportMetric(float64, string) }, op func()) {
	clock, took := New(), New()
	for range eachMost {
		clock.Add(timed(func() {}))
	}
	cost := clock.At(0.5)
	for end := time.Now().Add(eachTime); took.Count() < eachMost && time.Now().Before(end); {
		took.Add(timed(op) - cost)
	}
	took.ReportTo(b)
}

func timed(op func()) time.Duration {
	began := time.Now()
	op()
	return time.Since(began)
}
