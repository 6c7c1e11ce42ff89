package profile

import (
	"testing"
	"time"
)

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if diff := (got - want).Abs(); diff > want/steps {
		t.Errorf("%s is %v, want about %v", what, got, want)
	}
}

func TestS71_LatencyRecorderLooksBackOverItsWindow(t *testing.T) {
	var r Recorder
	start := time.Unix(1_758_441_600, 0)
	for i := range 1000 { // 1 to 1000 ms, 100 of them in each of ten seconds
		r.Observe(start.Add(time.Duration(i/100)*time.Second), time.Duration(i+1)*time.Millisecond)
	}
	l := r.Latencies(start.Add(10 * time.Second))
	if l.Count != 1000 || l.QPS != 100 || l.Max != time.Second {
		t.Errorf("count %d, qps %v, max %v", l.Count, l.QPS, l.Max)
	}
	near(t, "mean", l.Mean, 500*time.Millisecond)
	near(t, "p50", l.P50, 500*time.Millisecond)
	near(t, "p90", l.P90, 900*time.Millisecond)
	near(t, "p99", l.P99, 990*time.Millisecond)
	near(t, "p999", l.P999, 999*time.Millisecond)

	l = r.Latencies(start.Add(15 * time.Second)) // the first five seconds are out of sight
	if l.Count != 1000 || l.QPS != 50 {
		t.Errorf("five seconds later: count %d, qps %v", l.Count, l.QPS)
	}
	near(t, "p50 five seconds later", l.P50, 750*time.Millisecond)

	l = r.Latencies(start.Add(time.Hour))
	if l.Count != 1000 || l.Sum == 0 || l.QPS != 0 || l.Mean != 0 || l.P99 != 0 || l.Max != 0 {
		t.Errorf("an hour later: %+v", l)
	}
	r.Observe(start.Add(time.Hour), 3*time.Millisecond) // into a slot that is an hour old
	if l = r.Latencies(start.Add(time.Hour + time.Second)); l.QPS != 0.1 || l.Max != 3*time.Millisecond {
		t.Errorf("one call after an hour: %+v", l)
	}
}

func TestLatencyBucketsAreContiguous(t *testing.T) {
	for i := range buckets - 1 {
		from, to := bucketStart(i), bucketStart(i+1)
		if from >= to || bucketOf(from) != i || bucketOf(to-time.Nanosecond) != i {
			t.Fatalf("bucket %d from %v to %v: the first is in %d, the last in %d", i, from, to, bucketOf(from), bucketOf(to-time.Nanosecond))
		}
	}
	if bucketOf(-time.Second) != 0 || bucketOf(24*time.Hour) != buckets-1 {
		t.Errorf("bounds are in buckets %d and %d", bucketOf(-time.Second), bucketOf(24*time.Hour))
	}
}

func TestRecorderAllocatesNothing(t *testing.T) {
	var r Recorder
	now := time.Unix(1_758_441_600, 0)
	if n := testing.AllocsPerRun(100, func() { r.Observe(now, time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
