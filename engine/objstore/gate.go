package objstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// gate bounds the requests that are under way. Who waits leaves when its
// context ends.
type gate struct {
	slots chan struct{}
	// For Metrics only. waiting is how many wait now, waits how many ever had to,
	// waited the sum of their waits in nanoseconds.
	waiting atomic.Int64
	waits   atomic.Uint64
	waited  atomic.Int64
}

func newGate(n int) gate { return gate{slots: make(chan struct{}, n)} }

// enter takes a place, which the caller gives back with leave.
func (g *gate) enter(ctx context.Context) error {
	select {
	case g.slots <- struct{}{}:
		return nil
	default:
	}
	start := time.Now()
	g.waits.Add(1)
	g.waiting.Add(1)
	defer func() {
		g.waiting.Add(-1)
		g.waited.Add(int64(time.Since(start)))
	}()
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *gate) leave() { <-g.slots }

// The pacer's bounds. The gap between two requests starts at minGap, doubles
// up to maxGap while the store goes on refusing, and halves with each success:
// from the worst it is gone about maxGap * 2 after the store has recovered.
const (
	minGap = 5 * time.Millisecond
	maxGap = 320 * time.Millisecond
	// raiseEvery keeps replies to requests that were sent together from
	// counting as one refusal after another.
	raiseEvery = 100 * time.Millisecond
	// maxPaced is the longest wait for a turn. Who would wait longer fails, but
	// not at once: its caller would only come back at once.
	maxPaced = time.Second
)

// pacer slows all requests of a Store down together when object storage says
// that it gets too many. Each request's own back-off is not enough for that:
// there may be any number of them.
type pacer struct {
	// on tells whether there is a gap, without the lock. It is written under mu;
	// a reader that finds an old value sends one request too early or too late.
	on atomic.Bool
	mu struct {
		sync.Mutex
		gap time.Duration
		// next is the turn of the next request, raised when gap grew last.
		next, raised time.Time
	}
}

// wait waits for the caller's turn.
func (p *pacer) wait(ctx context.Context) error {
	if !p.on.Load() {
		return nil
	}
	d, ok := p.turn()
	if !ok {
		d = maxPaced/2 + rand.N(maxPaced/2)
	}
	if err := sleep(ctx, d); err != nil {
		return err
	}
	if !ok {
		return errShed
	}
	return nil
}

// turn books the next turn and returns how far off it is, or false when that
// is too far.
func (p *pacer) turn() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.mu.next.Before(now) {
		p.mu.next = now
	}
	d := p.mu.next.Sub(now)
	if d > maxPaced {
		return 0, false
	}
	p.mu.next = p.mu.next.Add(p.mu.gap)
	return d, true
}

// refused notes that the store has asked for fewer requests.
func (p *pacer) refused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.mu.gap > 0 && now.Sub(p.mu.raised) < raiseEvery {
		return
	}
	p.mu.raised = now
	p.mu.gap = min(max(2*p.mu.gap, minGap), maxGap)
	p.on.Store(true)
}

// served notes that the store has served a request.
func (p *pacer) served() {
	if !p.on.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.gap /= 2
	if p.mu.gap < minGap {
		p.mu.gap = 0
		p.on.Store(false)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
