package pools

import "time"

// QueueMetrics is a snapshot of a Queue.
type QueueMetrics struct {
	// Running and Depth are the tasks that run and those that wait, MaxDepth
	// the most that ever waited.
	Running, Depth, MaxDepth int
	// Done counts tasks that have run, Panics those among them that panicked.
	Done, Panics uint64
	// Delayed counts tasks that ran after a wait, Waited is the sum of their
	// waits.
	Delayed uint64
	Waited  time.Duration
	// MostLate is how long a task was kept at most that should have been refused:
	// what the machine, or the lock, made of a time-out.
	MostLate time.Duration
	// Timeouts, Full, Cancelled and Closed count refusals; each refused task is
	// counted once.
	Timeouts, Full, Cancelled, Closed uint64
	// Timeout and Adaptive are the settings in force.
	Timeout  time.Duration
	Adaptive bool
}

// Metrics returns a snapshot.
func (q *Queue) Metrics() QueueMetrics {
	m := QueueMetrics{
		Done: q.count.done.Load(), Panics: q.count.panics.Load(), Timeouts: q.count.timeouts.Load(),
		Full: q.count.full.Load(), Cancelled: q.count.cancelled.Load(), Closed: q.count.closed.Load(),
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	m.Running, m.Depth, m.MaxDepth = q.mu.workers, q.mu.waiting.len(), q.mu.maxDepth
	m.Delayed, m.Waited, m.MostLate = q.mu.delayed, q.mu.waited, q.mu.mostLate
	m.Timeout, m.Adaptive = q.mu.timeout, q.mu.adaptive
	return m
}
