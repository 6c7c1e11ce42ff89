package engine

import (
	"context"
	"testing"

	"headstart/bench/latency"
	"headstart/engine/block"
)

// BenchmarkHit is a whole read of 64 bytes that are in memory, as servers make it.
func BenchmarkHit(b *testing.B) {
	e, req := hitEngine(b)
	dst, ctx := make([]byte, 64), context.Background()
	req.Size = int64(len(dst))
	hit := func() {
		if n, src, err := e.Read(ctx, req, dst); n != len(dst) || src != block.SourceLocal || err != nil {
			b.Fatalf("%d bytes from %v (%v)", n, src, err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		hit()
	}
	latency.ReportEach(b, hit)
}
