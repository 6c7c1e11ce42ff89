//go:build !race

package pools

import (
	"context"
	"testing"
)

// The race detector makes sync.Pool forget at random, so these run without it.

func TestBuffersReuseWithoutAllocation(t *testing.T) {
	b := newBuffers(t, BuffersOptions{})
	mustGet(t, b, 1<<20).Release()
	if n := testing.AllocsPerRun(1000, func() {
		buf, err := b.Get(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		buf.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTokensWithoutAllocation(t *testing.T) {
	tokens := NewTokens(1)
	if n := testing.AllocsPerRun(1000, func() {
		if tokens.TryAcquire() {
			tokens.Release()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSharesWithoutAllocation(t *testing.T) {
	s := NewShares(2)
	if n := testing.AllocsPerRun(1000, func() {
		if s.TryAcquire("node", 1) {
			s.Release("node", 1)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestQueueWithoutAllocation(t *testing.T) {
	q := newQueue(t, QueueOptions{Workers: 1})
	ctx, work := context.Background(), func(context.Context) {}
	if n := testing.AllocsPerRun(1000, func() {
		if err := q.Do(ctx, work); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
