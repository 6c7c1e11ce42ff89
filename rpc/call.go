package rpc

import (
	"context"
	"slices"
	"sync"
	"time"
)

// call is one call while it is served, and its context. A context of package
// context would cost five allocations and a timer; this one makes a channel
// when somebody asks for it, and the connection has the timer.
//
//	running ──Cancel, deadline, connection gone, served──▶ ended
type call struct {
	// values are the connection's.
	values   context.Context
	name     callName
	deadline time.Time

	mu struct {
		sync.Mutex
		// ended says why; done is closed then, if somebody has asked for it.
		ended cause
		done  chan struct{}
		after []*func()
	}
}

// cause is why a call has ended.
type cause int

const (
	causeNone cause = iota
	// causeCancel: a Cancel has named it.
	causeCancel
	causeDeadline
	// causeGone: its connection has ended.
	causeGone
	// causeServed: it has its answer.
	causeServed
)

// Deadline implements context.Context.
func (c *call) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Value implements context.Context.
func (c *call) Value(key any) any { return c.values.Value(key) }

// Done implements context.Context.
func (c *call) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.done == nil {
		c.mu.done = make(chan struct{})
		if c.mu.ended != causeNone {
			close(c.mu.done)
		}
	}
	return c.mu.done
}

// Err implements context.Context.
func (c *call) Err() error {
	switch c.cause() {
	case causeNone:
		return nil
	case causeDeadline:
		return context.DeadlineExceeded
	}
	return context.Canceled
}

func (c *call) cause() cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.ended
}

// AfterFunc is what package context looks for in a parent that is not its own:
// without it, each child would keep a goroutine.
func (c *call) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.ended != causeNone {
		go f() // ends when the caller of AfterFunc means it to
		return func() bool { return false }
	}
	c.mu.after = append(c.mu.after, &f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.mu.after, &f)
		if i >= 0 {
			c.mu.after = slices.Delete(c.mu.after, i, i+1)
		}
		return i >= 0
	}
}

// cancelFor ends the call; the first cause counts.
func (c *call) cancelFor(why cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.ended != causeNone {
		return
	}
	c.mu.ended = why
	if c.mu.done != nil {
		close(c.mu.done)
	}
	for _, f := range c.mu.after {
		go (*f)() // ends when the caller of AfterFunc means it to
	}
	c.mu.after = nil
}
