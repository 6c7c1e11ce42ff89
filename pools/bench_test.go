package pools

import (
	"context"
	"testing"

	"headstart/bench/latency"
)

// BenchmarkAdmission is what a request pays to be let in where there is room:
// a token, a share of one node, a buffer of a block, and a turn in the queue.
func BenchmarkAdmission(b *testing.B) {
	b.Run("token", func(b *testing.B) {
		tokens := NewTokens(1)
		admit(b, func() {
			if !tokens.TryAcquire() {
				b.Fatal("no token")
			}
			tokens.Release()
		})
	})
	b.Run("share", func(b *testing.B) {
		s := NewShares(2)
		admit(b, func() {
			if !s.TryAcquire("node", 1) {
				b.Fatal("no share")
			}
			s.Release("node", 1)
		})
	})
	b.Run("buffer", func(b *testing.B) {
		buffers, err := NewBuffers(BuffersOptions{})
		if err != nil {
			b.Fatal(err)
		}
		admit(b, func() {
			buf, err := buffers.Get(1 << 20)
			if err != nil {
				b.Fatal(err)
			}
			buf.Release()
		})
	})
	b.Run("queue", benchmarkQueue)
}

func admit(b *testing.B, one func()) {
	b.ReportAllocs()
	for b.Loop() {
		one()
	}
	latency.ReportEach(b, one)
}

func benchmarkQueue(b *testing.B) {
	q, err := NewQueue(QueueOptions{Name: "bench", Workers: 1})
	if err != nil {
		b.Fatal(err)
	}
	ctx, work := context.Background(), func(context.Context) {}
	admit(b, func() {
		if err := q.Do(ctx, work); err != nil {
			b.Fatal(err)
		}
	})
	if err := q.Close(); err != nil {
		b.Error(err)
	}
}
