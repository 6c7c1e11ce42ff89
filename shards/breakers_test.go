package shards

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headstart/engine/block"
)

func TestS27_ThresholdOpensThePeriodEndsInOneProbe(t *testing.T) {
	for _, c := range []struct {
		threshold, openSeconds int64
		fails                  int
		period                 time.Duration
	}{
		{3, 30, 3, 30 * time.Second},
		{5, 2, 5, 2 * time.Second},
		{1, 30, 1, 30 * time.Second},
		{0, 30, 1, 30 * time.Second},
		{-7, 10, 1, 10 * time.Second},
		{3, 0, 3, 0},
		{3, -5, 3, 0},
	} {
		t.Run(fmt.Sprintf("%d_%d", c.threshold, c.openSeconds), func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.set.FailureThreshold.Store(c.threshold)
				w.set.CircuitOpenSeconds.Store(c.openSeconds)
				for i := range c.fails {
					if !w.call("a", block.OutcomeError) {
						t.Fatalf("call %d was refused", i)
					}
				}
				w.wantCircuit("a", "open")
				if c.period > 0 {
					time.Sleep(c.period - time.Millisecond)
					if w.call("a", block.OutcomeHit) {
						t.Fatal("a call in the open period")
					}
					time.Sleep(time.Millisecond)
				}
				probe, ok := w.peers.Allow(addr("a"))
				if !ok {
					t.Fatal("no probe when the period is over")
				}
				w.wantCircuit("a", "half_open")
				if w.call("a", block.OutcomeHit) {
					t.Fatal("two probes")
				}
				probe.Done(block.OutcomeTimeout)
				w.wantCircuit("a", "open")
				time.Sleep(c.period)
				if !w.call("a", block.OutcomeHit) {
					t.Fatal("no second probe")
				}
				w.wantCircuit("a", "closed")
			})
		})
	}
}

func TestS27_OpenPeriodFollowsTheSetting(t *testing.T) {
	inBubble(t, func(w *world) {
		w.open("a")
		w.set.CircuitOpenSeconds.Store(5)
		time.Sleep(5 * time.Second)
		if !w.call("a", block.OutcomeMiss) {
			t.Fatal("the shorter period is not in force")
		}
		w.wantCircuit("a", "closed")
	})
}

// open lets calls to a peer fail until its circuit is open.
func (w *world) open(name string) {
	w.Helper()
	for range w.set.failureThreshold() {
		w.call(name, block.OutcomeError)
	}
	w.wantCircuit(name, "open")
}

func TestS27_WhatCounts(t *testing.T) {
	for _, c := range []struct {
		calls []block.Outcome
		want  string
	}{
		{[]block.Outcome{block.OutcomeError, block.OutcomeTimeout, block.OutcomeCorrupt}, "open"},
		{[]block.Outcome{block.OutcomeError, block.OutcomeError, block.OutcomeHit, block.OutcomeError}, "closed"},
		{[]block.Outcome{block.OutcomeError, block.OutcomeError, block.OutcomeMiss, block.OutcomeError}, "closed"},
		{[]block.Outcome{block.OutcomeError, block.OutcomeBusy, block.OutcomeError, block.OutcomeCancelled,
			block.OutcomeUnsupported, block.OutcomeError}, "open"},
		{[]block.Outcome{block.OutcomeBusy, block.OutcomeBusy, block.OutcomeBusy, block.OutcomeCancelled,
			block.OutcomeCancelled, block.OutcomeCancelled, block.OutcomeCircuitOpen}, "closed"},
	} {
		inBubble(t, func(w *world) {
			for _, o := range c.calls {
				w.call("a", o)
			}
			w.wantCircuit("a", c.want)
		})
	}
}

func TestPR04_ProbeSlotNeverLeaks(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(probe *Ticket)
		// within is when the next call is let through at the latest.
		within time.Duration
	}{
		{"success", func(p *Ticket) { p.Done(block.OutcomeHit) }, 0},
		{"miss", func(p *Ticket) { p.Done(block.OutcomeMiss) }, 0},
		{"busy", func(p *Ticket) { p.Done(block.OutcomeBusy) }, 0},
		{"unsupported", func(p *Ticket) { p.Done(block.OutcomeUnsupported) }, 0},
		{"caller cancelled, or the store won", func(p *Ticket) { p.Done(block.OutcomeCancelled) }, 0},
		{"RPC error", func(p *Ticket) { p.Done(block.OutcomeError) }, 30 * time.Second},
		{"corrupt", func(p *Ticket) { p.Done(block.OutcomeCorrupt) }, 30 * time.Second},
		{"never returns", func(*Ticket) {}, 30 * time.Second},
		{"panics", func(p *Ticket) {
			defer func() { _ = recover() }()
			defer p.Done(block.OutcomeError)
			panic("decoder")
		}, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.open("a")
				time.Sleep(30 * time.Second)
				probe, ok := w.peers.Allow(addr("a"))
				if !ok {
					t.Fatal("no probe")
				}
				c.end(&probe)
				if c.within > 0 {
					time.Sleep(c.within - time.Millisecond)
					if w.call("a", block.OutcomeHit) {
						t.Fatal("a call too early")
					}
					time.Sleep(time.Millisecond)
				}
				if !w.call("a", block.OutcomeHit) {
					t.Fatal("the slot has leaked")
				}
				w.wantCircuit("a", "closed")
			})
		})
	}
}

func TestPR04_ProbeThatWasGivenUpChangesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		w.open("a")
		time.Sleep(30 * time.Second)
		lost, _ := w.peers.Allow(addr("a"))
		time.Sleep(30 * time.Second)
		next, ok := w.peers.Allow(addr("a"))
		if !ok {
			t.Fatal("the slot has leaked")
		}
		lost.Done(block.OutcomeHit)
		w.wantCircuit("a", "half_open")
		if w.call("a", block.OutcomeHit) {
			t.Fatal("two probes")
		}
		next.Done(block.OutcomeError)
		w.wantCircuit("a", "open")
	})
}

func TestPR05_OneProbeForTwoHundredReaders(t *testing.T) {
	inBubble(t, func(w *world) {
		w.open("a")
		time.Sleep(30 * time.Second)
		var sent atomic.Int32
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				if ticket, ok := w.peers.Allow(addr("a")); ok {
					sent.Add(1)
					time.Sleep(time.Millisecond)
					ticket.Done(block.OutcomeHit)
				}
			})
		}
		all.Wait()
		if n := sent.Load(); n != 1 {
			t.Fatalf("%d calls on the wire", n)
		}
	})
}

func TestS27_DoneTwiceCountsOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		for range 2 {
			ticket, _ := w.peers.Allow(addr("a"))
			ticket.Done(block.OutcomeError)
			ticket.Done(block.OutcomeError)
			ticket.Done(block.OutcomeHit)
		}
		w.wantCircuit("a", "closed")
		w.call("a", block.OutcomeError)
		w.wantCircuit("a", "open")
	})
}

func TestS27_LateCallsOfAnEarlierSpellDoNotCount(t *testing.T) {
	inBubble(t, func(w *world) {
		var late []Ticket
		for range 5 {
			ticket, _ := w.peers.Allow(addr("a"))
			late = append(late, ticket)
		}
		w.open("a")
		late[0].Done(block.OutcomeHit)
		w.wantCircuit("a", "open")
		time.Sleep(30 * time.Second)
		w.call("a", block.OutcomeHit)
		w.wantCircuit("a", "closed")
		for i := range late {
			late[i].Done(block.OutcomeTimeout)
		}
		w.wantCircuit("a", "closed")
	})
}

func TestPR03_ThreeAttemptsForFourReads(t *testing.T) {
	inBubble(t, func(w *world) {
		attempts := 0
		for range 4 {
			if w.call("a", block.OutcomeError) {
				attempts++
			}
		}
		if attempts != 3 {
			t.Fatalf("%d attempts", attempts)
		}
	})
}

func TestS28_OpenCircuitIsNeitherFailureNorMiss(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a")
		w.open("a")
		for range 20 {
			w.read("a=open")
		}
		w.wantView("a")
		w.wantState(Ready)
	})
}

func TestPR01_OwnCancelIsNeutral(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a")
		for range 1000 {
			ticket, ok := w.peers.Allow(addr("a"))
			if !ok {
				t.Fatal("refused")
			}
			time.Sleep(30 * time.Millisecond)
			o := block.OutcomeCancelled
			if w.peers.Silent(addr("a")) {
				time.Sleep(30 * time.Millisecond)
				o = block.OutcomeHit
			}
			ticket.Done(o)
			w.Note(w.route, w.Candidates(w.route), []Result{{addr("a"), o}})
		}
		w.wantCircuit("a", "closed")
		if v := w.peers.Show()[0]; v.Failures != 0 {
			t.Fatalf("%d failures", v.Failures)
		}
		v, _ := w.Show(w.route)
		if len(v.Candidates) != 1 || v.Candidates[0].Failures != 0 {
			t.Fatalf("candidates %v", v.Candidates)
		}
		if left := w.peers.Metrics().LeftRunning; left == 0 || left > 40 {
			t.Fatalf("%d losing calls were left running in 30 s", left)
		}
	})
}

func TestPR02_SilentPeerIsFoundOut(t *testing.T) {
	for _, pace := range []time.Duration{5 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(pace.String(), func(t *testing.T) {
			inBubble(t, func(w *world) {
				const deadline = time.Second
				begin := time.Now()
				var calls []time.Duration
				var all sync.WaitGroup
				for time.Since(begin) < 5*time.Minute {
					if ticket, ok := w.peers.Allow(addr("a")); ok {
						calls = append(calls, time.Since(begin))
						all.Go(func() {
							time.Sleep(50 * time.Millisecond)
							if !w.peers.Silent(addr("a")) {
								ticket.Done(block.OutcomeCancelled)
								return
							}
							time.Sleep(deadline - 50*time.Millisecond)
							ticket.Done(block.OutcomeTimeout)
						})
					}
					time.Sleep(pace)
				}
				all.Wait()
				late := 0
				for _, at := range calls {
					if at > 3*deadline {
						late++
					}
				}
				if late == 0 || late > 10 {
					t.Fatalf("%d calls after %v, want at most one in an open period", late, 3*deadline)
				}
				if left := w.peers.Metrics().LeftRunning; left > 20 {
					t.Fatalf("%d calls were left running", left)
				}
			})
		})
	}
}

func TestS28_SilenceNeedsItsTimeAndEndsWithAnyAnswer(t *testing.T) {
	for _, answer := range []block.Outcome{block.OutcomeHit, block.OutcomeMiss, block.OutcomeBusy,
		block.OutcomeUnsupported, block.OutcomeCorrupt} {
		inBubble(t, func(w *world) {
			a := addr("a")
			if w.peers.Silent(a) || w.peers.Quiet(a, 0) {
				t.Fatal("an address that was never called is silent")
			}
			w.call("a", block.OutcomeCancelled)
			if !w.peers.Quiet(a, 0) {
				t.Fatal("a call without an answer goes unnoticed")
			}
			time.Sleep(999 * time.Millisecond)
			if !w.peers.Quiet(a, 999*time.Millisecond) || w.peers.Quiet(a, time.Second) {
				t.Fatal("it has been quiet for 999 ms")
			}
			w.call("a", block.OutcomeCancelled)
			if w.peers.Silent(a) {
				t.Fatal("silent too early")
			}
			time.Sleep(time.Millisecond)
			if !w.peers.Silent(a) {
				t.Fatal("not silent after 1000 ms")
			}
			w.call("a", answer)
			if w.peers.Silent(a) || w.peers.Quiet(a, 0) {
				t.Fatalf("silent after outcome %d", answer)
			}
			w.set.SilenceProbeMS.Store(10)
			w.call("a", block.OutcomeCancelled)
			time.Sleep(10 * time.Millisecond)
			if !w.peers.Silent(a) {
				t.Fatal("the shorter time is not in force")
			}
		})
	}
}

func TestS28_FewCallsAreLeftRunning(t *testing.T) {
	for _, c := range []struct{ threshold, want int64 }{{1, 1}, {3, 3}, {1000, maxRunOn}} {
		inBubble(t, func(w *world) {
			w.set.FailureThreshold.Store(c.threshold)
			w.call("a", block.OutcomeCancelled)
			time.Sleep(time.Second)
			left := int64(0)
			for range 100 {
				if w.peers.Silent(addr("a")) {
					left++
				}
			}
			if left != c.want {
				t.Fatalf("threshold %d: %d calls left running", c.threshold, left)
			}
			time.Sleep(time.Second)
			if !w.peers.Silent(addr("a")) {
				t.Fatal("claims that nobody ended keep others away")
			}
		})
	}
}

func TestS28_FailuresSoFarCountForTheSilence(t *testing.T) {
	inBubble(t, func(w *world) {
		w.call("a", block.OutcomeTimeout)
		w.call("a", block.OutcomeTimeout)
		time.Sleep(time.Second)
		if !w.peers.Silent(addr("a")) || w.peers.Silent(addr("a")) {
			t.Fatal("one failure is missing: one call is to run on")
		}
	})
}

func TestPR09_BusyIsNotDead(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a")
		for i := range 400 {
			o := block.OutcomeBusy
			if i%5 == 0 {
				o = block.OutcomeHit
			}
			if !w.call("a", o) {
				t.Fatal("refused in the burst")
			}
			w.Note(w.route, w.Candidates(w.route), []Result{{addr("a"), o}})
			time.Sleep(5 * time.Millisecond)
		}
		w.wantCircuit("a", "closed")
		w.wantView("a last=cg_a")
		w.wantState(Ready)
	})
}

func TestS77_ShowAndReset(t *testing.T) {
	inBubble(t, func(w *world) {
		w.open("b")
		w.call("a", block.OutcomeHit)
		w.call("c", block.OutcomeCancelled)
		now := time.Now().UnixMilli()
		want := []BreakerView{
			{Address: "a:8060", State: "closed"},
			{Address: "b:8060", State: "open", Failures: 3, OpenUntilMS: now + 30_000, SilentSinceMS: now},
			{Address: "c:8060", State: "closed", SilentSinceMS: now},
		}
		if got := w.peers.Show(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("shown\n%+v, want\n%+v", got, want)
		}
		if w.peers.Reset(addr("nobody")) || !w.peers.Reset(addr("b")) {
			t.Fatal("Reset tells known from unknown wrongly")
		}
		w.wantCircuit("b", "closed")
		w.race("b", "llllllllllllllll")
		w.peers.Reset(addr("b"))
		if v := w.peers.Show()[1]; v.SilentSinceMS != 0 || v.SlowUntilMS != 0 {
			t.Fatalf("after the reset: %+v", v)
		}
		if !w.call("b", block.OutcomeError) {
			t.Fatal("refused after the reset")
		}
		w.wantCircuit("b", "closed")
	})
}
