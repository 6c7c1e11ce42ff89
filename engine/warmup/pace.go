package warmup

import (
	"context"
	"sync"
	"time"
)

// pace bounds bytes per second over all batches. What was taken is paid back
// before the next may take: a run of blocks is never cut to fit.
type pace struct {
	mu struct {
		sync.Mutex
		// have may be spent; below 0 it is owed. It is of the time last.
		have float64
		last time.Time
	}
}

// look is how often a waiting batch looks whether the limit has been changed.
const look = 100 * time.Millisecond

// take waits until n bytes may be copied, or for ctx. limit is asked again and
// again; 0 and less mean no limit.
func (p *pace) take(ctx context.Context, n int64, limit func() int64) error {
	for {
		wait := p.try(n, limit())
		if wait == 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(min(wait, look))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// try takes n bytes, or says how long to wait before trying again. What was not
// spent in a tenth of a second is lost.
func (p *pace) try(n, limit int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, rate := time.Now(), float64(limit)
	passed := now.Sub(p.mu.last).Seconds()
	p.mu.last = now
	if rate <= 0 {
		p.mu.have = 0
		return 0
	}
	p.mu.have = min(p.mu.have+passed*rate, rate/10)
	if p.mu.have < 0 {
		return max(time.Duration(-p.mu.have/rate*float64(time.Second)), time.Millisecond)
	}
	p.mu.have -= float64(n)
	return 0
}
