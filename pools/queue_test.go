package pools

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// newQueue returns a queue that is closed when the bubble's test is over; the
// bubble then fails if a goroutine is left.
func newQueue(t *testing.T, opts QueueOptions) *Queue {
	t.Helper()
	opts.Name = "test"
	q, err := NewQueue(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func sleepFor(d time.Duration) func(context.Context) {
	return func(context.Context) { time.Sleep(d) }
}

// ended is how one call of Do ended, and when.
type ended struct {
	err error
	at  time.Duration
}

// doMany calls Do n times at once and returns how the calls ended.
func doMany(ctx context.Context, q *Queue, n int, fn func(context.Context)) []ended {
	start := time.Now()
	all := make([]ended, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			err := q.Do(ctx, fn)
			all[i] = ended{err, time.Since(start)}
		})
	}
	wg.Wait()
	return all
}

func TestS41_RejectedAtTheDeadlineOrAtOnceWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 2, MaxQueue: 8, Timeout: 30 * time.Millisecond})
		got := map[string]int{}
		for _, e := range doMany(t.Context(), q, 20, sleepFor(20*time.Millisecond)) {
			got[fmt.Sprintf("%v at %v", e.err, e.at)]++
		}
		// Two run at once, two more when those have ended; the other six have
		// waited 30 ms before the next worker is free.
		want := map[string]int{
			"<nil> at 20ms": 2,
			"<nil> at 40ms": 2,
			"test: waited too long in the queue: busy at 30ms": 6,
			"test: the queue is full: busy at 0s":              10,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
		m := q.Metrics()
		if m.Done != 4 || m.Timeouts != 6 || m.Full != 10 || m.MaxDepth != 8 || m.Delayed != 2 ||
			m.Waited != 40*time.Millisecond {
			t.Errorf("metrics %+v", m)
		}
	})
}

// Tasks that come one after another have deadlines of their own: one timer
// has to serve them all.
func TestS41_EachTaskHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 10, Timeout: 100 * time.Millisecond})
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { _ = q.Do(t.Context(), sleepFor(time.Second)) })
		for i := range 5 {
			wg.Go(func() {
				time.Sleep(time.Duration(1+30*i) * time.Millisecond)
				err := q.Do(t.Context(), func(context.Context) { t.Error("rejected task has run") })
				want := time.Duration(101+30*i) * time.Millisecond
				if at := time.Since(start); !errors.Is(err, ErrQueueTimeout) || at != want {
					t.Errorf("task %d: %v at %v, want a timeout at %v", i, err, at, want)
				}
			})
		}
		wg.Wait()
	})
}

func TestS41_ChangedTimeoutHoldsForThoseWhoWait(t *testing.T) {
	for _, c := range []struct{ from, to, rejectedAt time.Duration }{
		{from: 100 * time.Millisecond, to: 40 * time.Millisecond, rejectedAt: 40 * time.Millisecond},
		{from: 100 * time.Millisecond, to: 5 * time.Millisecond, rejectedAt: 10 * time.Millisecond},
		{from: 100 * time.Millisecond, to: 300 * time.Millisecond, rejectedAt: 300 * time.Millisecond},
		{from: 0, to: 50 * time.Millisecond, rejectedAt: 50 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 1, Timeout: c.from})
			go func() { _ = q.Do(context.Background(), sleepFor(time.Second)) }() // ends by itself
			synctest.Wait()
			time.AfterFunc(10*time.Millisecond, func() { q.SetTimeout(c.to) })
			e := doMany(t.Context(), q, 1, func(context.Context) {})[0]
			if !errors.Is(e.err, ErrQueueTimeout) || e.at != c.rejectedAt {
				t.Errorf("%v to %v: %v at %v, want a timeout at %v", c.from, c.to, e.err, e.at, c.rejectedAt)
			}
		})
	}
}

// A worker becomes free at the very moment at which the wait is over: worker or
// timer, whoever comes first, the task does not run.
func TestS41_RejectedAlsoWhenAWorkerIsJustFree(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 1, Timeout: 100 * time.Millisecond})
			go func() { _ = q.Do(context.Background(), sleepFor(100*time.Millisecond)) }() // ends by itself
			synctest.Wait()
			e := doMany(t.Context(), q, 1, func(context.Context) { t.Error("rejected task has run") })[0]
			if !errors.Is(e.err, ErrQueueTimeout) || e.at != 100*time.Millisecond {
				t.Errorf("%v at %v", e.err, e.at)
			}
		})
	}
}

func TestS41_NoTimeoutMeansOnlyTheContextBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 1, Timeout: time.Second})
		go func() { _ = q.Do(context.Background(), sleepFor(time.Minute)) }() // ends by itself
		synctest.Wait()
		time.AfterFunc(10*time.Millisecond, func() { q.SetTimeout(0) })
		if e := doMany(t.Context(), q, 1, func(context.Context) {})[0]; e.err != nil || e.at != time.Minute {
			t.Errorf("%v at %v, want success after a minute", e.err, e.at)
		}
	})
}

func TestS44_CallerGoneIsDroppedWithoutWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 10, Timeout: time.Minute})
		go func() { _ = q.Do(context.Background(), sleepFor(time.Second)) }() // ends by itself
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for _, e := range doMany(ctx, q, 10, func(context.Context) { t.Error("dropped task has run") }) {
			if !errors.Is(e.err, ErrCancelled) || !errors.Is(e.err, context.DeadlineExceeded) || e.at != 50*time.Millisecond {
				t.Errorf("%v at %v", e.err, e.at)
			}
		}
		if m := q.Metrics(); m.Depth != 0 || m.Cancelled != 10 {
			t.Errorf("dropped tasks still hold their place: %+v", m)
		}
		if err := q.Do(ctx, func(context.Context) { t.Error("call without a caller has run") }); !errors.Is(err, ErrCancelled) {
			t.Errorf("call whose context has ended: %v", err)
		}
	})
}

// quietlyDead is a context whose end nobody is woken by, as if the worker were
// faster than the caller.
type quietlyDead struct {
	context.Context
	dead atomic.Bool
}

func (c *quietlyDead) Err() error {
	if c.dead.Load() {
		return context.Canceled
	}
	return nil
}

func TestS44_WorkerSeesThatTheCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 1})
		go func() { _ = q.Do(context.Background(), sleepFor(time.Second)) }() // ends by itself
		synctest.Wait()
		ctx := &quietlyDead{Context: context.Background()}
		time.AfterFunc(time.Millisecond, func() { ctx.dead.Store(true) })
		e := doMany(ctx, q, 1, func(context.Context) { t.Error("task of a caller that has gone was started") })[0]
		if !errors.Is(e.err, ErrCancelled) || e.at != time.Second {
			t.Errorf("%v at %v", e.err, e.at)
		}
	})
}

func TestS44_RunningTaskKeepsItsCallerUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		e := doMany(ctx, q, 1, func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second) // the caller's memory is still in use
		})[0]
		if e.err != nil || e.at != time.Second+time.Millisecond {
			t.Errorf("%v at %v", e.err, e.at)
		}
	})
}

func TestBP02_PanicIsTheErrorOfItsOwnCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 10})
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				err := q.Do(t.Context(), func(context.Context) { panic(i) })
				p, ok := errors.AsType[*PanicError](err)
				if !ok || p.Value != i || !strings.Contains(string(p.Stack), "queue_test.go") {
					t.Errorf("task %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if err := q.Do(t.Context(), func(context.Context) {}); err != nil {
			t.Errorf("after the panics: %v", err)
		}
		if m := q.Metrics(); m.Panics != 5 || m.Done != 6 {
			t.Errorf("metrics %+v", m)
		}
	})
}

func TestBP03_CloseAnswersEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 2, MaxQueue: 1000, Timeout: time.Minute})
		var ran, closed atomic.Int32
		var wg sync.WaitGroup
		for range 1002 {
			wg.Go(func() {
				switch err := q.Do(t.Context(), sleepFor(time.Second)); {
				case err == nil:
					ran.Add(1)
				case errors.Is(err, ErrClosed):
					closed.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		var closers sync.WaitGroup
		for range 3 {
			closers.Go(func() {
				if err := q.Close(); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took != time.Second {
					t.Errorf("Close returned after %v, its tasks end after 1s", took)
				}
			})
		}
		synctest.Wait()
		if closed.Load() != 1000 {
			t.Errorf("%d of 1000 queued callers are answered while tasks run", closed.Load())
		}
		closers.Wait()
		wg.Wait()
		if ran.Load() != 2 {
			t.Errorf("%d tasks ran, want 2", ran.Load())
		}
		if err := q.Do(t.Context(), func(context.Context) {}); !errors.Is(err, ErrClosed) || errors.Is(err, block.ErrBusy) {
			t.Errorf("Do after Close: %v", err)
		}
		if m := q.Metrics(); m.Closed != 1001 || m.Running != 0 || m.Depth != 0 {
			t.Errorf("metrics %+v", m)
		}
	})
}

// A bubble does not end before its goroutines have.
func TestBP04_NoGoroutineSurvivesClose(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, QueueOptions{Workers: 8, MaxQueue: 100, Timeout: time.Minute})
			doMany(t.Context(), q, 50, sleepFor(time.Millisecond))
		})
	}
}

func TestBP06_DeadWorkIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 200, Timeout: 100 * time.Millisecond})
		go func() { _ = q.Do(context.Background(), sleepFor(500*time.Millisecond)) }() // ends by itself
		synctest.Wait()
		work := func(context.Context) { t.Error("work was done for a task that is due") }
		short, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			for _, e := range doMany(short, q, 50, work) {
				if !errors.Is(e.err, ErrCancelled) || e.at != 60*time.Millisecond {
					t.Errorf("short deadline: %v at %v", e.err, e.at)
				}
			}
		})
		for _, e := range doMany(t.Context(), q, 100, work) {
			if !errors.Is(e.err, ErrQueueTimeout) || e.at != 100*time.Millisecond {
				t.Errorf("queue timeout: %v at %v", e.err, e.at)
			}
		}
		wg.Wait()
	})
}

func TestBP07_EveryCauseHasItsOwnErrorAndCounter(t *testing.T) {
	type causes struct{ timeouts, full, cancelled, closed uint64 }
	for _, c := range []struct {
		err    error
		busy   bool
		counts causes
		cause  func(q *Queue) error
	}{
		{ErrQueueTimeout, true, causes{timeouts: 1}, func(q *Queue) error {
			return q.Do(context.Background(), func(context.Context) {})
		}},
		{ErrQueueFull, true, causes{full: 1}, func(q *Queue) error {
			go func() { _ = q.Do(context.Background(), func(context.Context) {}) }() // takes the place until Close
			synctest.Wait()
			q.SetTimeout(0)
			return q.Do(context.Background(), func(context.Context) {})
		}},
		{ErrCancelled, false, causes{cancelled: 1}, func(q *Queue) error {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Millisecond, cancel)
			return q.Do(ctx, func(context.Context) {})
		}},
		{ErrClosed, false, causes{closed: 1}, func(q *Queue) error {
			time.AfterFunc(time.Millisecond, func() { _ = q.Close() })
			return q.Do(context.Background(), func(context.Context) {})
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 1, Timeout: time.Second})
			go func() { _ = q.Do(context.Background(), sleepFor(time.Minute)) }() // ends by itself
			synctest.Wait()
			err := c.cause(q)
			if !errors.Is(err, c.err) || errors.Is(err, block.ErrBusy) != c.busy {
				t.Errorf("%v: got %v", c.err, err)
			}
			m := q.Metrics()
			if got := (causes{m.Timeouts, m.Full, m.Cancelled, m.Closed}); got != c.counts {
				t.Errorf("%v: counters %+v, want %+v", c.err, got, c.counts)
			}
		})
	}
}

// Every call ends in exactly one way, no more tasks run at once than there are
// workers, and the books balance, with callers that go and a timeout that
// changes all the while.
func TestQueueUnderRandomLoad(t *testing.T) {
	const calls, workers = 4000, 3
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: workers, MaxQueue: 10, Timeout: 10 * time.Millisecond})
		var running, started, ok atomic.Int64
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
				if i%100 == 0 {
					q.SetTimeout(time.Duration(random.IntN(20)) * time.Millisecond)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(15))*time.Millisecond)
				defer cancel()
				err := q.Do(ctx, func(context.Context) {
					if running.Add(1) > workers {
						t.Error("more tasks than workers")
					}
					started.Add(1)
					time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
					running.Add(-1)
				})
				if err == nil {
					ok.Add(1)
				}
			})
		}
		wg.Wait()
		m := q.Metrics()
		if sum := m.Done + m.Timeouts + m.Full + m.Cancelled; sum != calls {
			t.Errorf("%d of %d calls are counted: %+v", sum, calls, m)
		}
		if m.Done != uint64(ok.Load()) || m.Done != uint64(started.Load()) || m.Depth != 0 || m.Running != 0 {
			t.Errorf("%d succeeded, %d started: %+v", ok.Load(), started.Load(), m)
		}
		if m.Timeouts == 0 || m.Full == 0 || m.Cancelled == 0 || m.Delayed == 0 {
			t.Errorf("the load leaves something untried: %+v", m)
		}
	})
}

func TestS40_QueuesAreIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 1})
		other := newQueue(t, QueueOptions{Workers: 1})
		if m := peer.Metrics(); m.Running != 0 {
			t.Errorf("an idle queue has %d workers", m.Running)
		}
		go func() { _ = peer.Do(context.Background(), sleepFor(time.Minute)) }() // ends by itself
		synctest.Wait()
		if e := doMany(t.Context(), other, 1, func(context.Context) {})[0]; e.err != nil || e.at != 0 {
			t.Errorf("%v at %v", e.err, e.at)
		}
	})
}

func TestQueueOptionsAreChecked(t *testing.T) {
	for _, opts := range []QueueOptions{{Workers: -1}, {MaxQueue: -1}, {Timeout: -1}} {
		if _, err := NewQueue(opts); err == nil {
			t.Errorf("%+v is accepted", opts)
		}
	}
}
