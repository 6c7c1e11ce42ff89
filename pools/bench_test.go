package pools

import (
	"context"
	"testing"
	"time"

	"headstart/bench/latency"
)

// BenchmarkAdmission is what a request pays to be let in where there is room:
// a token, a share of one node, a buffer of a block, and a turn in the queue.
func BenchmarkAdmission(b *testing.B) {
	b.Run("token", func(b *testing.B) {
		tokens := NewTokens(1)
		b.ReportAllocs()
		for b.Loop() {
			if !tokens.TryAcquire() {
				b.Fatal("no token")
			}
			tokens.Release()
		}
	})
	b.Run("share", func(b *testing.B) {
		s := NewShares(2)
		b.ReportAllocs()
		for b.Loop() {
			if !s.TryAcquire("node", 1) {
				b.Fatal("no share")
			}
			s.Release("node", 1)
		}
	})
	b.Run("buffer", func(b *testing.B) {
		buffers, err := NewBuffers(BuffersOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			buf, err := buffers.Get(1 << 20)
			if err != nil {
				b.Fatal(err)
			}
			buf.Release()
		}
	})
	b.Run("queue", benchmarkQueue)
}

func benchmarkQueue(b *testing.B) {
	q, err := NewQueue(QueueOptions{Name: "bench", Workers: 1})
	if err != nil {
		b.Fatal(err)
	}
	ctx, work, took := context.Background(), func(context.Context) {}, latency.New()
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		if err := q.Do(ctx, work); err != nil {
			b.Fatal(err)
		}
		took.Add(time.Since(began))
	}
	took.ReportTo(b)
	if err := q.Close(); err != nil {
		b.Error(err)
	}
}
