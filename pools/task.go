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
//	   │ full, closed       │ caller, worker: ErrCancelled
//	   ▼                    ▼ Close: ErrClosed
//	refused ◄───────────────┘
//
// Tasks are reused: Do takes one and gives it back when it is done or refused.
type task struct {
	ctx context.Context
	fn  func(context.Context)
	err error
	// done has room for the one answer, so that nobody waits to give it.
	done chan struct{}

	since      time.Time
	queued     bool
	prev, next *task
}

// refuse answers a task that the caller of refuse has taken out of the queue.
func (t *task) refuse(err error) {
	t.err = err
	t.done <- struct{}{}
}

// taskList is the queue, oldest task in front: linked through the tasks, so
// that one that gives up leaves without a search and no call allocates.
type taskList struct {
	front, back *task
	len         int
}

func (l *taskList) push(t *task) {
	t.queued, t.prev = true, l.back
	if l.back == nil {
		l.front = t
	} else {
		l.back.next = t
	}
	l.back = t
	l.len++
}

func (l *taskList) remove(t *task) {
	if t.prev == nil {
		l.front = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.back = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.queued, t.prev, t.next = false, nil, nil
	l.len--
}
