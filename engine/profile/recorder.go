package profile

import (
	"math/bits"
	"sync"
	"time"
)

const (
	// Window is how far back a Recorder's rate, mean, quantiles and maximum reach.
	Window = 10 * time.Second
	// slots is one for each second of the window and one for the second that has
	// begun.
	slots = int(Window/time.Second) + 1
	// steps is how many buckets an octave of latencies has: a quantile is right
	// to an eighth of itself.
	steps   = 8
	buckets = 28 * steps // up to 2^28 µs, more than 4 minutes
)

// Recorder is a latency recorder as the reference system has them: what it says
// of the last seconds is about whole seconds that have ended, and does not
// jitter with the one that runs. The zero value is ready, and all methods may
// be called at the same time. It is for calls that go over a wire: Observe
// takes a lock.
type Recorder struct {
	mu struct {
		sync.Mutex
		count int64
		sum   time.Duration
		// ring[s%slots] is about second s of Unix time.
		ring [slots]second
	}
}

// second is the calls that ended in one second.
type second struct {
	unix, count int64
	sum, max    time.Duration
	buckets     [buckets]uint32
}

// Observe adds a call that took so long and ended at end.
func (r *Recorder) Observe(end time.Time, took time.Duration) {
	unix := end.Unix()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.count++
	r.mu.sum += took
	s := &r.mu.ring[unix%int64(slots)]
	if s.unix != unix {
		*s = second{unix: unix}
	}
	s.count++
	s.sum += took
	s.max = max(s.max, took)
	s.buckets[bucketOf(took)]++
}

// Latencies is what a Recorder says at one moment. Count and Sum are since the
// start, the rest is about the last Window; zero when nothing happened.
type Latencies struct {
	Count               int64
	Sum                 time.Duration
	QPS                 float64
	Mean, Max           time.Duration
	P50, P90, P99, P999 time.Duration
}

// Latencies looks back from now.
func (r *Recorder) Latencies(now time.Time) Latencies {
	last := now.Unix()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := Latencies{Count: r.mu.count, Sum: r.mu.sum}
	var count int64
	var sum time.Duration
	var all [buckets]uint32
	for i := range r.mu.ring {
		s := &r.mu.ring[i]
		if age := last - s.unix; age < 1 || age >= int64(slots) {
			continue
		}
		count += s.count
		sum += s.sum
		l.Max = max(l.Max, s.max)
		for b, n := range s.buckets {
			all[b] += n
		}
	}
	if count == 0 {
		return l
	}
	l.QPS = float64(count) / Window.Seconds()
	l.Mean = sum / time.Duration(count)
	for _, q := range []struct {
		at  float64
		dst *time.Duration
	}{{0.5, &l.P50}, {0.9, &l.P90}, {0.99, &l.P99}, {0.999, &l.P999}} {
		*q.dst = min(quantile(&all, q.at*float64(count)), l.Max)
	}
	return l
}

// quantile returns the latency that so many of the calls stayed below.
func quantile(all *[buckets]uint32, rank float64) time.Duration {
	for i, n := range all {
		if n > 0 && rank <= float64(n) {
			from, to := bucketStart(i), bucketStart(i+1)
			return from + time.Duration(float64(to-from)*rank/float64(n))
		}
		rank -= float64(n)
	}
	return bucketStart(buckets)
}

// bucketOf: one bucket for each microsecond below steps, then steps of them to
// an octave.
func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < steps {
		return int(us)
	}
	octave := bits.Len64(us) - bits.Len64(steps)
	return min(steps*octave+int(us>>octave), buckets-1)
}

// bucketStart is the shortest latency in bucket i.
func bucketStart(i int) time.Duration {
	if i < 2*steps {
		return time.Duration(i) * time.Microsecond
	}
	octave := i/steps - 1
	return time.Duration(steps+i%steps) << octave * time.Microsecond
}
