package pools

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestS07_TokensFollowTheLimit(t *testing.T) {
	tokens := NewTokens(2)
	steps := []struct {
		limit int
		want  bool
		inUse int
	}{
		{2, true, 1}, {2, true, 2}, {2, false, 2}, {3, true, 3}, {1, false, 3}, {0, false, 3}, {-1, false, 3}, {4, true, 4},
	}
	for i, s := range steps {
		tokens.SetLimit(s.limit)
		if got := tokens.TryAcquire(); got != s.want || tokens.InUse() != s.inUse {
			t.Fatalf("step %d, limit %d: %v with %d in use, want %v with %d", i, s.limit, got, tokens.InUse(), s.want, s.inUse)
		}
	}
	for range 4 {
		tokens.Release()
	}
	if m := tokens.Metrics(); m != (TokensMetrics{InUse: 0, Limit: 4, Refused: 4}) {
		t.Errorf("metrics %+v", m)
	}
	defer func() {
		if recover() == nil {
			t.Error("a Release too many goes unseen")
		}
	}()
	tokens.Release()
}

func TestS32_NeverMoreTokensThanTheLimit(t *testing.T) {
	const limit, goroutines, rounds = 3, 8, 5000
	tokens := NewTokens(limit)
	var held, got atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range rounds {
				if !tokens.TryAcquire() {
					continue
				}
				if n := held.Add(1); n > limit {
					t.Errorf("%d holders", n)
				}
				got.Add(1)
				held.Add(-1)
				tokens.Release()
			}
		})
	}
	wg.Wait()
	if m := tokens.Metrics(); m.InUse != 0 || got.Load()+int64(m.Refused) != goroutines*rounds {
		t.Errorf("%d acquired of %d: %+v", got.Load(), goroutines*rounds, m)
	}
}
