package pools

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// call is what became of one call under an open load: it comes whether the
// others have been answered or not.
type call struct {
	came, waited, answered time.Duration
	err                    error
}

// phase is a load: so many calls a second, at random, for so long.
type phase struct {
	perSecond int
	lasts     time.Duration
}

// offer puts a load on q, whose tasks take work each, and returns what became
// of all calls.
func offer(q *Queue, who string, work time.Duration, phases ...phase) []call {
	random := rand.New(rand.NewPCG(1, uint64(len(who))))
	start := time.Now()
	var mu sync.Mutex
	var calls []call
	var wg sync.WaitGroup
	end := time.Duration(0)
	for _, p := range phases {
		for end += p.lasts; time.Since(start) < end; {
			time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / float64(p.perSecond)))
			came := time.Since(start)
			wg.Go(func() {
				c := call{came: came}
				c.err = q.DoFor(context.Background(), who, func(context.Context) {
					c.waited = time.Since(start) - came
					time.Sleep(work)
				})
				c.answered = time.Since(start)
				mu.Lock()
				calls = append(calls, c)
				mu.Unlock()
			})
		}
	}
	wg.Wait()
	return calls
}

// between returns those that came in a part of the time.
func between(calls []call, from, to time.Duration) (part []call) {
	for _, c := range calls {
		if c.came >= from && c.came < to {
			part = append(part, c)
		}
	}
	return part
}

func served(calls []call) (waits []time.Duration) {
	for _, c := range calls {
		if c.err == nil {
			waits = append(waits, c.waited)
		}
	}
	slices.Sort(waits)
	return waits
}

// Three and ten times as much as the workers can do: they go on doing all they
// can, nobody is served later than a caller may wait, everybody else is told
// when it is due, and when the load goes it is over at once. The adaptive queue
// serves those that have just come; fifo is the line to compare it with.
func TestS41_BP09_OverloadCostsNoWorkAndIsOverWhenTheLoadIs(t *testing.T) {
	const timeout, work, capacity = 100 * time.Millisecond, 64 * time.Millisecond, 1000
	for _, times := range []int{3, 10} {
		for _, adaptive := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, QueueOptions{Workers: 64, MaxQueue: 4096, Timeout: timeout, Adaptive: adaptive})
				calls := offer(q, "", work, phase{capacity / 2, time.Second}, phase{times * capacity, 5 * time.Second}, phase{capacity / 2, 2 * time.Second})
				normal := served(between(calls, 0, time.Second))
				peak := between(calls, 1500*time.Millisecond, 6*time.Second)
				waits := served(peak)
				after := served(between(calls, 7*time.Second, 8*time.Second))
				if got := float64(len(waits)) / 4.5; got < 0.95*capacity {
					t.Errorf("%dx, adaptive %v: %.0f served a second of %d", times, adaptive, got, capacity)
				}
				if last := waits[len(waits)-1]; last >= timeout {
					t.Errorf("%dx, adaptive %v: served after %v", times, adaptive, last)
				}
				due := timeout
				if adaptive {
					due /= hurry
				}
				for _, c := range peak {
					if c.err != nil && (!errors.Is(c.err, ErrQueueTimeout) || c.answered-c.came != due) {
						t.Errorf("%dx, adaptive %v: %v after %v, want a time-out at %v", times, adaptive, c.err, c.answered-c.came, due)
						break
					}
				}
				if p99 := after[len(after)*99/100]; p99 > normal[len(normal)*99/100] {
					t.Errorf("%dx, adaptive %v: p99 wait %v a second after the load", times, adaptive, p99)
				}
				t.Logf("%2dx, adaptive %-5v: %.0f served a second, wait p50 %v p99 %v, the others told after %v",
					times, adaptive, float64(len(waits))/4.5, waits[len(waits)/2], waits[len(waits)*99/100], due)
				if p50 := waits[len(waits)/2]; adaptive && p50 > due || !adaptive && p50 < timeout/2 {
					t.Errorf("%dx, adaptive %v: half of those served waited less than %v", times, adaptive, p50)
				}
			})
		}
	}
}

// When an overload goes back to nine tenths of what the workers can do, the
// adaptive queue must not go on refusing what it could serve.
func TestBP09_AnOverloadDoesNotOutliveItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 64, MaxQueue: 4096, Timeout: 100 * time.Millisecond, Adaptive: true})
		calls := offer(q, "", 64*time.Millisecond, phase{3000, 2 * time.Second}, phase{900, 10 * time.Second})
		after := between(calls, 3*time.Second, 12*time.Second)
		if share := float64(len(served(after))) / float64(len(after)); share < 0.98 {
			t.Errorf("only %.2f %% of %d are served", 100*share, len(after))
		}
	})
}

// A burst that the workers can clear in time is no overload: all are served,
// the oldest first.
func TestAnAdaptiveQueueServesABurstInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 100, Timeout: 100 * time.Millisecond, Adaptive: true})
		var order []int
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if err := q.Do(t.Context(), func(context.Context) {
					order = append(order, i)
					time.Sleep(9 * time.Millisecond)
				}); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("order %v", order)
		}
	})
}

// The policy changes under a load, and those who wait already feel it.
func TestS41_ThePolicyChangesAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 100, Timeout: 100 * time.Millisecond})
		go func() { _ = q.Do(context.Background(), sleepFor(time.Hour)) }() // ends by itself
		synctest.Wait()
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { // one comes every 10 ms
				time.Sleep(time.Duration(10*i) * time.Millisecond)
				err := q.Do(t.Context(), func(context.Context) {})
				want := time.Duration(10*i+100) * time.Millisecond // fifo
				switch {
				case i >= 14: // standing, adaptive: a tenth
					want = time.Duration(10*i+10) * time.Millisecond
				case i >= 5: // waiting when the policy changes
					want = 145 * time.Millisecond
				}
				if at := time.Since(start); !errors.Is(err, ErrQueueTimeout) || at != want {
					t.Errorf("%d: %v at %v, want a time-out at %v", i, err, at, want)
				}
			})
		}
		time.Sleep(145 * time.Millisecond)
		q.SetAdaptive(true)
		wg.Wait()
	})
}

// One requester asks for ten times as much as all workers can do; another one
// asks for little, and gets it.
func TestSE05_RequestersTakeTurns(t *testing.T) {
	for _, adaptive := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, QueueOptions{Workers: 10, MaxQueue: 200, Timeout: 100 * time.Millisecond, Adaptive: adaptive})
			var greedy, modest []call
			var wg sync.WaitGroup
			wg.Go(func() { greedy = offer(q, "greedy", 10*time.Millisecond, phase{10000, 3 * time.Second}) })
			wg.Go(func() { modest = offer(q, "modest", 10*time.Millisecond, phase{200, 3 * time.Second}) })
			wg.Wait()
			waits := served(modest)
			if share := float64(len(waits)) / float64(len(modest)); share < 0.99 {
				t.Errorf("adaptive %v: the modest one gets %.0f %% of %d", adaptive, 100*share, len(modest))
			}
			if p99 := waits[len(waits)*99/100]; p99 > 20*time.Millisecond {
				t.Errorf("adaptive %v: the modest one waits for %v", adaptive, p99)
			}
			if got := len(served(greedy)) + len(waits); got < 2850 {
				t.Errorf("adaptive %v: %d served in 3 s of 3000", adaptive, got)
			}
		})
	}
}

// In a full queue a newcomer takes the place of one that has more, not of one
// that has as few as itself.
func TestSE05_AFullQueueHasRoomForNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, QueueOptions{Workers: 1, MaxQueue: 4})
		go func() { _ = q.Do(context.Background(), sleepFor(time.Second)) }() // ends by itself
		synctest.Wait()
		var mu sync.Mutex
		ends := map[string]int{}
		var wg sync.WaitGroup
		for _, who := range []string{"a", "a", "a", "a", "b", "c", "d", "b", "e"} {
			wg.Go(func() {
				end := who + " served"
				if err := q.DoFor(t.Context(), who, func(context.Context) {}); errors.Is(err, ErrQueueFull) {
					end = who + " refused"
				}
				mu.Lock()
				defer mu.Unlock()
				ends[end]++
			})
			synctest.Wait()
		}
		wg.Wait()
		// b, c and d take the places of three of a's; then all have one.
		want := map[string]int{"a served": 1, "a refused": 3, "b served": 1, "b refused": 1, "c served": 1, "d served": 1, "e refused": 1}
		for end, n := range want {
			if ends[end] != n {
				t.Errorf("%s: %d, want %d", end, ends[end], n)
			}
		}
		if m := q.Metrics(); m.Full != 5 {
			t.Errorf("%d refused, want 5", m.Full)
		}
	})
}
