package pools

import (
	"fmt"
	"sync/atomic"
)

// Tokens bounds how much work of one kind goes on at once. It is lock-free
// and never waits: who gets no token does something else.
type Tokens struct {
	// limit is written by SetLimit. A reader may find a limit that is just
	// being replaced: the change holds from the next TryAcquire on.
	limit atomic.Int64
	// inUse never passes the limit that its writer has read.
	inUse atomic.Int64
	// refused counts, for Metrics only.
	refused atomic.Uint64
}

// NewTokens returns limit tokens; none, when limit is not positive.
func NewTokens(limit int) *Tokens {
	t := new(Tokens)
	t.SetLimit(limit)
	return t
}

// SetLimit changes how many tokens there are. If more are in use none is given
// out until enough have come back.
func (t *Tokens) SetLimit(limit int) { t.limit.Store(int64(limit)) }

// TryAcquire takes a token, which the caller gives back with Release, or
// reports that there is none.
func (t *Tokens) TryAcquire() bool {
	for {
		n := t.inUse.Load()
		if n >= t.limit.Load() {
			t.refused.Add(1)
			return false
		}
		if t.inUse.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives back one token.
func (t *Tokens) Release() {
	if n := t.inUse.Add(-1); n < 0 {
		panic(fmt.Sprintf("pools: Release of a token that nobody holds (%d in use)", n))
	}
}

// InUse returns how many tokens are taken.
func (t *Tokens) InUse() int { return int(t.inUse.Load()) }

// TokensMetrics is a snapshot of Tokens.
type TokensMetrics struct {
	InUse, Limit int
	// Refused counts TryAcquire calls that found no token.
	Refused uint64
}

// Metrics returns a snapshot.
func (t *Tokens) Metrics() TokensMetrics {
	return TokensMetrics{InUse: t.InUse(), Limit: int(t.limit.Load()), Refused: t.refused.Load()}
}
