// Package pools bounds what a node spends: goroutines and waiting (Queue),
// memory for blocks in flight (Buffers), concurrent work of one kind (Tokens),
// and it adds the bounds up (Budget).
//
// Buffers own their memory: a buffer belongs to its holders from Get to the
// last Release and then comes back. A Queue owns its workers and ends them in
// Close. Nothing here waits without a bound, and nothing here does I/O but
// for MemoryLimit.
package pools

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/ants/v2"

	"headstart/engine/block"
)

// The four ways in which a Queue refuses a task. Each has a counter of its own
// and means that the task did no work at all.
var (
	// ErrQueueTimeout: the task has waited longer than it may.
	ErrQueueTimeout = fmt.Errorf("waited too long in the queue: %w", block.ErrBusy)
	// ErrQueueFull: no worker is free and the queue has no room.
	ErrQueueFull = fmt.Errorf("the queue is full: %w", block.ErrBusy)
	// ErrCancelled: the caller has gone or its deadline is past.
	ErrCancelled = errors.New("the caller has gone")
	// ErrClosed: the queue is closed.
	ErrClosed = errors.New("the queue is closed")
)

// PanicError is what the caller of a task that panicked gets.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// QueueOptions are the options of a Queue.
type QueueOptions struct {
	// Name stands in errors.
	Name string
	// Workers is how many tasks run at once; 0 means 1.
	Workers int
	// MaxQueue is how many tasks may wait for a worker; 0 means that none may.
	MaxQueue int
	// Timeout is how long a task may wait for a worker; 0 means that only its
	// context bounds the wait. SetTimeout changes it later.
	Timeout time.Duration
	// Adaptive lets the queue serve the newest task first, and bound the wait more
	// tightly, while it is overloaded. SetAdaptive changes it later.
	Adaptive bool
}

// Validate reports options that make no sense.
func (o *QueueOptions) Validate() error {
	if o.Workers < 0 || o.MaxQueue < 0 || o.Timeout < 0 {
		return fmt.Errorf("queue %q: workers %d, max queue %d and timeout %v must not be negative",
			o.Name, o.Workers, o.MaxQueue, o.Timeout)
	}
	return nil
}

// Queue runs tasks on a bounded number of workers behind a bounded queue.
//
// A task that finds a worker free runs on its caller's goroutine, which is that
// worker meanwhile. Tasks that had to wait run on goroutines of an ants pool:
// started when there is work, kept by ants for a while when there is none. A
// worker that ends a task takes the next one that waits; only when none does,
// it goes back to ants. So tasks wait only while all workers are busy.
//
// Requesters take turns, and in a full queue a newcomer takes the place of the
// oldest task of the one that has most. An adaptive queue that has not been
// empty for as long as a task may wait is overloaded: it can't serve them all.
// To let each wait until it is hardly of use to anybody helps nobody, so the
// newest are served first, at once, and the others told after a tenth of the
// time.
type Queue struct {
	opts QueueOptions
	// The refusals, with the queue's name: made once, a refusal must be cheap.
	errTimeout, errFull, errClosed error

	ants  *ants.PoolWithFuncGeneric[struct{}]
	tasks sync.Pool
	// busy counts workers for Close. It grows under mu, while not closed.
	busy sync.WaitGroup

	mu struct {
		sync.Mutex
		waiting  waiting
		workers  int
		closed   bool
		timeout  time.Duration
		adaptive bool
		// standing is since when tasks have been waiting, whichever, emptied when
		// the last one left.
		standing, emptied time.Time
		// timer runs expire when the task in front is too old. It is set while
		// tasks wait (armed) and looked at again only when it fires: the task
		// it was set for may have found a worker since.
		timer *time.Timer
		armed bool
		// maxDepth is the longest the queue has been, waited the sum of the
		// waits of tasks that found a worker, delayed their number, mostLate how
		// late a task was refused at most.
		maxDepth int
		delayed  uint64
		waited   time.Duration
		mostLate time.Duration
	}

	// count is for Metrics only; each refused task moves one of the last four.
	count struct {
		done, panics                      atomic.Uint64
		timeouts, full, cancelled, closed atomic.Uint64
	}
}

// hurry and breath divide the time that a task may wait: into what it may wait
// while an adaptive queue is overloaded, and into how long the queue may be
// empty without the overload being over.
const (
	hurry  = 10
	breath = 4
)

// keepWorkers is how long ants keeps the goroutine of an idle worker.
const keepWorkers = time.Minute

// NewQueue returns a queue without workers: they come with the work. The caller
// closes it.
func NewQueue(opts QueueOptions) (*Queue, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts.Workers = max(opts.Workers, 1)
	q := &Queue{
		opts:       opts,
		errTimeout: fmt.Errorf("%s: %w", opts.Name, ErrQueueTimeout),
		errFull:    fmt.Errorf("%s: %w", opts.Name, ErrQueueFull),
		errClosed:  fmt.Errorf("%s: %w", opts.Name, ErrClosed),
	}
	q.tasks.New = func() any { return &task{done: make(chan struct{}, 1)} }
	q.mu.waiting = newWaiting()
	q.mu.timeout, q.mu.adaptive = opts.Timeout, opts.Adaptive
	// Queue counts its workers itself, under mu, so ants needs no bound of its
	// own: with one, Invoke would wait for a worker that is on its way back.
	pool, err := ants.NewPoolWithFuncGeneric(-1, q.work, ants.WithExpiryDuration(keepWorkers))
	if err != nil {
		return nil, fmt.Errorf("queue %q: %w", opts.Name, err)
	}
	q.ants = pool
	return q, nil
}

// Do runs fn as a worker and returns when it has ended: nil, or a *PanicError.
// If fn could not be run the error is one of the four sentinels; a call whose
// ctx ends while it waits returns at once. Once fn runs, Do waits for it
// whatever becomes of ctx, because fn may use its caller's memory: fn has to
// watch ctx itself. fn must not call Do of the same queue.
func (q *Queue) Do(ctx context.Context, fn func(context.Context)) error {
	return q.DoFor(ctx, "", fn)
}

// DoFor is Do for a requester, one of those that take turns.
func (q *Queue) DoFor(ctx context.Context, who string, fn func(context.Context)) error {
	if ctx.Err() != nil {
		return q.gone(ctx)
	}
	t := q.tasks.Get().(*task)
	t.ctx, t.who, t.fn = ctx, who, fn
	run, err := q.admit(t)
	switch {
	case err != nil:
		t.err = err
	case run:
		q.runHere(t)
	default:
		select {
		case <-t.done:
		case <-ctx.Done():
			if q.withdraw(t) {
				t.err = q.gone(ctx)
			} else {
				<-t.done
			}
		}
	}
	err = t.err
	t.ctx, t.who, t.fn, t.err = nil, "", nil, nil
	q.tasks.Put(t)
	return err
}

// admit decides whether t runs, on a worker that the caller has to start, or
// waits, or is refused.
func (q *Queue) admit(t *task) (run bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.closed:
		q.count.closed.Add(1)
		return false, q.errClosed
	case q.mu.workers < q.opts.Workers:
		q.mu.workers++
		q.busy.Add(1)
		return true, nil
	}
	t.since = time.Now()
	if q.mu.waiting.len() >= q.opts.MaxQueue && !q.makeRoomLocked(t) {
		q.count.full.Add(1)
		return false, q.errFull
	}
	if q.mu.waiting.len() == 0 && !q.breathesLocked(t.since) {
		q.mu.standing = t.since
	}
	q.mu.waiting.push(t)
	q.mu.maxDepth = max(q.mu.maxDepth, q.mu.waiting.len())
	if !q.mu.armed {
		q.armLocked(t.since)
	}
	return false, nil
}

// makeRoomLocked refuses another task of a full queue in the place of t, if
// that is fairer, or if t is served first because it is the newest.
func (q *Queue) makeRoomLocked(t *task) bool {
	if q.opts.MaxQueue == 0 {
		return false
	}
	other, own := q.mu.waiting.crowd(), 0
	if l := q.mu.waiting.lanes[t.who]; l != nil {
		own = l.tasks.len
	}
	if other.lane.tasks.len <= own+1 && !q.overloadedLocked(t.since) {
		return false
	}
	q.removeLocked(other, t.since)
	q.count.full.Add(1)
	other.refuse(q.errFull)
	return true
}

// overloadedLocked reports whether an adaptive queue has been standing for as
// long as a task may wait.
func (q *Queue) overloadedLocked(now time.Time) bool {
	return q.mu.adaptive && q.mu.timeout > 0 && q.mu.waiting.len() > 0 && now.Sub(q.mu.standing) >= q.mu.timeout
}

// breathesLocked reports whether the queue is empty for a moment only, between
// two tasks of an overload.
func (q *Queue) breathesLocked(now time.Time) bool {
	return q.mu.emptied.Sub(q.mu.standing) >= q.mu.timeout && now.Sub(q.mu.emptied) < q.mu.timeout/breath
}

// removeLocked takes t out of the queue.
func (q *Queue) removeLocked(t *task, now time.Time) {
	if q.mu.waiting.remove(t); q.mu.waiting.len() == 0 {
		q.mu.emptied = now
	}
}

// dueLocked returns when the task t, the oldest one, has waited long enough.
func (q *Queue) dueLocked(t *task) time.Time {
	due := t.since.Add(q.mu.timeout)
	if !q.mu.adaptive {
		return due
	}
	soon, overload := t.since.Add(q.mu.timeout/hurry), q.mu.standing.Add(q.mu.timeout)
	if soon.Before(overload) {
		soon = overload
	}
	if soon.Before(due) {
		return soon
	}
	return due
}

// runHere runs t on the goroutine of its caller, who has been let in at once:
// as a worker of one task, it saves the way to another goroutine and back.
func (q *Queue) runHere(t *task) {
	defer func() {
		<-t.done
		q.handOver()
	}()
	q.run(t)
}

// handOver gives the calling worker's place to a worker of ants if something has
// come to wait meanwhile. What that will be is decided when the worker is there:
// until then a task can still be told that its time is up.
func (q *Queue) handOver() {
	if q.retireIdle() {
		return
	}
	if err := q.ants.Invoke(struct{}{}); err != nil {
		for t := q.next(); t != nil; t = q.next() {
			t.refuse(fmt.Errorf("queue %q: %w", q.opts.Name, err))
		}
	}
}

// retireIdle ends the calling worker if nothing waits.
func (q *Queue) retireIdle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.waiting.len() > 0 {
		return false
	}
	q.retireLocked()
	return true
}

// work is a worker: it runs whatever waits.
func (q *Queue) work(struct{}) {
	for t := q.next(); t != nil; t = q.next() {
		q.run(t)
	}
}

// run runs t and answers its caller, also when t panics.
func (q *Queue) run(t *task) {
	defer func() {
		if v := recover(); v != nil {
			q.count.panics.Add(1)
			t.err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		q.count.done.Add(1)
		t.done <- struct{}{}
	}()
	t.fn(t.ctx)
}

// next takes the first waiting task that is still worth its work. Without one
// it ends the calling worker and returns nil.
func (q *Queue) next() *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for {
		t := q.mu.waiting.pick(q.overloadedLocked(now))
		if t == nil {
			q.retireLocked()
			return nil
		}
		q.removeLocked(t, now)
		switch {
		case t.ctx.Err() != nil:
			t.refuse(q.gone(t.ctx))
		case q.mu.timeout > 0 && !now.Before(q.dueLocked(t)):
			q.timeOutLocked(t, now)
		default:
			q.mu.delayed++
			q.mu.waited += now.Sub(t.since)
			return t
		}
	}
}

// withdraw takes t out of the queue for its caller, who is going. It reports
// false when something else has become of t: the answer is on its way.
func (q *Queue) withdraw(t *task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !t.queued {
		return false
	}
	q.removeLocked(t, time.Now())
	return true
}

// expire refuses the tasks that have waited too long: it is what the timer
// runs.
func (q *Queue) expire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.armed = false
	now := time.Now()
	for t := q.mu.waiting.oldest(); t != nil && q.mu.timeout > 0; t = q.mu.waiting.oldest() {
		if now.Before(q.dueLocked(t)) {
			break
		}
		q.removeLocked(t, now)
		q.timeOutLocked(t, now)
	}
	q.armLocked(now)
}

// timeOutLocked refuses a task that has been taken out of the queue because its
// time is over.
func (q *Queue) timeOutLocked(t *task, now time.Time) {
	q.count.timeouts.Add(1)
	q.mu.mostLate = max(q.mu.mostLate, now.Sub(q.dueLocked(t)))
	t.refuse(q.errTimeout)
}

// armLocked sets the timer for the task in front: the oldest one, so the first
// that becomes too old, whatever the timeout is changed to.
func (q *Queue) armLocked(now time.Time) {
	oldest := q.mu.waiting.oldest()
	if oldest == nil || q.mu.timeout <= 0 || q.mu.closed {
		return
	}
	wait := q.dueLocked(oldest).Sub(now)
	if q.mu.timer == nil {
		q.mu.timer = time.AfterFunc(wait, q.expire)
	} else {
		q.mu.timer.Reset(wait)
	}
	q.mu.armed = true
}

// SetTimeout changes how long a task may wait, for those that wait already as
// well. 0 means that only its context bounds the wait.
func (q *Queue) SetTimeout(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.timeout = d
	q.armLocked(time.Now())
}

// SetAdaptive changes whether the queue adapts to overload.
func (q *Queue) SetAdaptive(adaptive bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.adaptive = adaptive
	q.armLocked(time.Now())
}

// gone counts a caller that went away and says why it did.
func (q *Queue) gone(ctx context.Context) error {
	q.count.cancelled.Add(1)
	return fmt.Errorf("%s: %w: %w", q.opts.Name, ErrCancelled, ctx.Err())
}

func (q *Queue) retireLocked() {
	q.mu.workers--
	q.busy.Done()
}

// Close refuses what waits and what comes, and returns when the tasks that run
// have ended and no goroutine is left. To hurry them is up to their contexts.
func (q *Queue) Close() error {
	q.mu.Lock()
	if q.mu.closed {
		q.mu.Unlock()
		q.busy.Wait()
		return nil
	}
	q.mu.closed = true
	if q.mu.timer != nil {
		q.mu.timer.Stop()
	}
	for t := q.mu.waiting.oldest(); t != nil; t = q.mu.waiting.oldest() {
		q.mu.waiting.remove(t)
		q.count.closed.Add(1)
		t.refuse(q.errClosed)
	}
	q.mu.Unlock()
	q.busy.Wait()
	if err := q.ants.ReleaseTimeout(closeTimeout); err != nil {
		return fmt.Errorf("queue %q: %w", q.opts.Name, err)
	}
	return nil
}

// closeTimeout bounds the wait for ants, all of whose workers are idle by then.
const closeTimeout = 10 * time.Second
