package pools

import (
	"context"
	"time"
)

// task is one call of Do. Whether it is queued is decided under Queue.mu, so
// exactly one of the causes below takes it out of the queue and answers:
//
//	         a worker is free                    fn ends or panics
//	  new ──────────────────────────► running ─────────────────────► done
//	   │                                 ▲
//	   │ there is room                   │ worker: next
//	   ├────────────────► queued ────────┘
//	   │                    │ timer, worker: ErrQueueTimeout
//	   │                    │ caller, worker: ErrCancelled
//	   │ full, closed       │ newcomer in a full queue: ErrQueueFull
//	   ▼                    ▼ Close: ErrClosed
//	refused ◄───────────────┘
//
// Tasks are reused: Do takes one and gives it back when it is done or refused.
type task struct {
	ctx context.Context
	who string
	fn  func(context.Context)
	err error
	// done has room for the one answer, so that nobody waits to give it.
	done chan struct{}

	since  time.Time
	queued bool
	lane   *lane
	links  [linkCount]struct{ prev, next *task }
}

// refuse answers a task that the caller of refuse has taken out of the queue.
func (t *task) refuse(err error) {
	t.err = err
	t.done <- struct{}{}
}

// The lists that a task is on while it waits.
const (
	linkAge = iota
	linkLane
	linkCount
)

// taskList is tasks in the order in which they came, oldest in front: linked
// through the tasks, so that one that gives up leaves without a search and no
// call allocates. link says by which of their links.
type taskList struct {
	link        int
	front, back *task
	len         int
}

func (l *taskList) push(t *task) {
	t.links[l.link].prev = l.back
	if l.back == nil {
		l.front = t
	} else {
		l.back.links[l.link].next = t
	}
	l.back = t
	l.len++
}

func (l *taskList) remove(t *task) {
	at := &t.links[l.link]
	if at.prev == nil {
		l.front = at.next
	} else {
		at.prev.links[l.link].next = at.next
	}
	if at.next == nil {
		l.back = at.prev
	} else {
		at.next.links[l.link].prev = at.prev
	}
	at.prev, at.next = nil, nil
	l.len--
}
