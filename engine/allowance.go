package engine

import (
	"sync"
	"time"
)

// allowance bounds bytes a second: a bucket of one second's worth that may be
// overdrawn by what was under way when it ran empty. It is asked and charged
// only for peers of another location.
type allowance struct {
	mu sync.Mutex
	// bytes are left; they were counted at since.
	bytes float64
	since time.Time
}

// left reports whether anything is left at now of perSecond bytes a second; 0
// means no bound.
func (a *allowance) left(perSecond int64, now time.Time) bool {
	if perSecond <= 0 {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		a.bytes = float64(perSecond)
	} else {
		a.bytes = min(float64(perSecond), a.bytes+now.Sub(a.since).Seconds()*float64(perSecond))
	}
	a.since = now
	return a.bytes > 0
}

// spend takes n bytes out.
func (a *allowance) spend(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bytes -= float64(n)
}
