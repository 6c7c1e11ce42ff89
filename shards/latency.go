package shards

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// latencyUnit is the resolution at the fast end; buckets get wider by the
	// octave, four to each, up to 16 s.
	latencyUnit    = 8 * time.Microsecond
	latencyBuckets = 80
	// latencyWindow is how many calls are remembered: when it is full every
	// count is halved.
	latencyWindow = 2048
)

// Latency follows the latency of the last few hundred calls, for quantiles.
// It is made of counters alone: Observe adds to one, and takes no lock. The
// zero value is ready.
type Latency struct {
	// total may lag behind the sum of the buckets by the calls under way.
	total atomic.Int32
	// halving is set by the one observer who halves the counts.
	halving atomic.Bool
	buckets [latencyBuckets]atomic.Int32
}

// Observe adds one call.
func (l *Latency) Observe(d time.Duration) {
	l.buckets[latencyBucket(d)].Add(1)
	if l.total.Add(1) >= latencyWindow && l.halving.CompareAndSwap(false, true) {
		l.halve()
		l.halving.Store(false)
	}
}

// halve forgets half of everything. One observer at a time comes here, and he
// takes away no more than he has seen, so that no count goes below zero. What
// is odd is left to the next bucket: rounding each one down would wipe out
// the sparse tail, which is what quantiles are about.
func (l *Latency) halve() {
	gone, odd := int32(0), int32(0)
	for i := range l.buckets {
		n := l.buckets[i].Load()
		kept := (n + odd) / 2
		odd = (n + odd) % 2
		l.buckets[i].Add(kept - n)
		gone += n - kept
	}
	l.total.Add(-gone)
}

// Quantile returns the latency that the share q of the calls stayed below, or
// false when there are too few calls to have one above it.
func (l *Latency) Quantile(q float64) (time.Duration, bool) {
	var counts [latencyBuckets]int32
	sum := int32(0)
	for i := range counts {
		counts[i] = l.buckets[i].Load()
		sum += counts[i]
	}
	if float64(sum)*(1-q) < 1 {
		return 0, false
	}
	rank := q * float64(sum)
	for i, n := range counts {
		if n > 0 && rank <= float64(n) {
			low, width := latencyRange(i)
			return low + time.Duration(float64(width)*rank/float64(n)), true
		}
		rank -= float64(n)
	}
	return 0, false
}

// latencyBucket returns the bucket of d: the first four are one unit wide,
// then come four to an octave.
func latencyBucket(d time.Duration) int {
	v := uint64(max(0, d) / latencyUnit)
	if v < 4 {
		return int(v)
	}
	octave := bits.Len64(v) - 3
	return min(4*octave+int(v>>octave), latencyBuckets-1)
}

// latencyRange returns where bucket i begins and how wide it is.
func latencyRange(i int) (low, width time.Duration) {
	if i < 4 {
		return time.Duration(i) * latencyUnit, latencyUnit
	}
	octave := i/4 - 1
	return time.Duration(4+i%4) << octave * latencyUnit, 1 << octave * latencyUnit
}
