package profile

import (
	"testing"
	"time"

	"headstart/bench/latency"
)

// BenchmarkObserve is what a peer call pays for its latency being kept.
func BenchmarkObserve(b *testing.B) {
	var r Recorder
	now := time.Unix(1_758_441_600, 0)
	b.ReportAllocs()
	for b.Loop() {
		r.Observe(now, time.Millisecond)
	}
	latency.ReportEach(b, func() { r.Observe(now, time.Millisecond) })
}
