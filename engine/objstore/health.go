package objstore

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// settle is the least time between two lines on how the store is: one that
// refuses some requests and serves others would fill the log.
const settle = 10 * time.Second

// health says once when object storage begins to fail, and once when it serves
// again.
//
//	well ── a request has failed for good ──▶ failing ── one is served ──▶ well
//
// Neither edge is taken within settle of the last one.
type health struct {
	log *slog.Logger
	// failing is written with mu held. A reader that finds an old value says a line
	// with the next request.
	failing atomic.Bool
	mu      struct {
		sync.Mutex
		since time.Time
	}
}

// served notes that object storage has served a request.
func (h *health) served() {
	if h.failing.Load() {
		h.turn(false, "object storage serves again")
	}
}

// failed notes that object storage has failed a request, all attempts included.
func (h *health) failed(f failure) {
	if h.failing.Load() {
		return
	}
	switch f.reason {
	case ReasonDenied, ReasonThrottled, ReasonServer, ReasonNetwork, ReasonTimeout:
		h.turn(true, "object storage fails requests", "reason", f.reason.String(), "error", f.err)
	}
}

func (h *health) turn(failing bool, line string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.failing.Load() == failing || !h.mu.since.IsZero() && now.Sub(h.mu.since) < settle {
		return
	}
	level := slog.LevelWarn
	if !failing {
		level = slog.LevelInfo
		args = append(args, "after", now.Sub(h.mu.since).Round(time.Millisecond))
	}
	h.failing.Store(failing)
	h.mu.since = now
	h.log.Log(context.Background(), level, line, args...)
}
