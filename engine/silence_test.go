package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// elsewhere is a second tablet, with peers of its own.
func elsewhere() block.Route { return block.TabletRoute(2) }

func (w *world) readRoute(r block.Route, n int) (block.Source, error) {
	w.t.Helper()
	return w.readAs(context.Background(), &block.Read{
		Object: testObject(), Version: block.Immutable, Route: r, Offset: int64(n) * testBlock,
	}, 10)
}

func TestPR01_OwnCancelIsNoFailure(t *testing.T) {
	for _, delay := range []int64{0, 20} {
		inWorld(t, func(w *world) {
			w.put(2000, "v1")
			w.e.Settings.PeerRaceHedgeDelayMS.Store(delay)
			w.rules.SlowPeerEjection.Store(false)
			w.know(tablet(), candidate(1, "cg_write"))
			w.peer(1, serves(60*time.Millisecond))
			w.setStore(serves(30 * time.Millisecond))
			for n := range 1000 {
				if src, took, err := w.one(n); src != block.SourceStore || took != time.Duration(delay+30)*time.Millisecond {
					t.Fatalf("read %d: from %v in %v (%v)", n, src, took, err)
				}
			}
			for n := range 500 { // readers that hang up
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n%19+1)*time.Millisecond)
				req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: int64(1000+n) * testBlock}
				if _, err := w.readAs(ctx, req, 10); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a reader that hung up got %v", err)
				}
				cancel()
			}
			time.Sleep(2 * time.Second)
			view, _ := w.e.Table.Show(tablet())
			if c := w.circuit(1); c.State != "closed" || c.Failures != 0 || len(view.Candidates) != 1 || view.Candidates[0].Failures != 0 {
				t.Errorf("head start %d ms: circuit %+v, candidates %+v", delay, c, view.Candidates)
			}
			if n := len(w.calls()); n != 1500 {
				t.Errorf("%d calls for 1500 misses", n)
			}
		})
	}
}

// A silent peer and one that is merely slower than the store look alike to each
// single race; over time only the first is benched.
func TestS28PR01PR02_SilentPeerIsBenchedAndSlowOneIsNot(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(5000, "v1")
		w.rules.SlowPeerEjection.Store(false)
		w.know(tablet(), candidate(1, "cg_write"))
		w.know(elsewhere(), candidate(2, "cg_write"))
		w.peer(1, always(reply{silent: true}))
		w.peer(2, serves(60*time.Millisecond))
		w.setStore(serves(30 * time.Millisecond))
		begin, n := w.since(), 0
		opened := time.Duration(0)
		for w.since()-begin < 2*time.Minute {
			if _, err := w.readRoute(tablet(), n); err != nil {
				t.Fatal(err)
			}
			if opened == 0 && w.circuit(1).State == "open" {
				opened = w.since() - begin
			}
			if _, err := w.readRoute(elsewhere(), n+1); err != nil {
				t.Fatal(err)
			}
			n += 2
		}
		if opened == 0 || opened > 3*time.Second {
			t.Errorf("the silent peer's circuit opened after %v, want 3s at most", opened)
		}
		for at := opened; at+31*time.Second < 2*time.Minute; at += 31 * time.Second {
			var calls int
			for _, c := range w.calls() {
				if c.addr == peerAddr(1).String() && c.at > begin+at && c.at <= begin+at+30*time.Second {
					calls++
				}
			}
			if calls > 1 {
				t.Errorf("%d calls to the silent peer in the open period from %v on, want 1 at most", calls, at)
			}
		}
		if c := w.circuit(2); c.State != "closed" || c.Failures != 0 {
			t.Errorf("the slow peer: %+v", c)
		}
		if w.e.Breakers.Metrics().LeftRunning > 2*60+10 {
			t.Errorf("%d calls were left running: more than about one a second", w.e.Breakers.Metrics().LeftRunning)
		}
	})
}

// silence plays reads that a silent peer loses, until the next one to lose is to
// be left running.
func silence(w *world) {
	w.put(100, "v1")
	w.rules.SlowPeerEjection.Store(false)
	w.know(tablet(), candidate(1, "cg_write"))
	w.peer(1, always(reply{silent: true}))
	w.setStore(serves(30 * time.Millisecond))
	for n := 0; w.since() < time.Second; n++ {
		w.one(n)
	}
	time.Sleep(100 * time.Millisecond)
	if n := w.e.Breakers.Metrics().LeftRunning; n != 0 {
		w.t.Errorf("%d calls were left running before the silence was long enough", n)
	}
}

func TestS28_CallLeftRunningTellsWhatItSaw(t *testing.T) {
	late := 200 * time.Millisecond
	for _, c := range []struct {
		name     string
		answer   reply
		failures int
		silent   bool
		held     time.Duration // from the call's start to its end
	}{
		{"data", reply{after: late}, 0, false, late},
		{"data, then nothing", reply{after: late, gap: time.Hour}, 0, false, late},
		{"not found", reply{after: late, all: true}, 0, false, late},
		{"busy", reply{after: late, all: true, status: block.StatusQueueFull}, 2, false, late},
		{"its own error", reply{after: late, all: true, status: block.StatusFailed}, 3, true, late},
		{"connection lost", reply{after: late, err: errors.New("reset")}, 3, true, 0},
		{"corrupt", reply{after: late, corrupt: true}, 3, false, late},
		{"panic", reply{after: late, panics: true}, 3, true, late},
		{"nothing", reply{silent: true}, 3, true, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				silence(w)
				for range 2 {
					ticket, _ := w.e.Breakers.Allow(peerAddr(1))
					ticket.Done(block.OutcomeError)
				}
				w.peer(1, always(c.answer))
				before := len(w.calls())
				begin := w.since()
				if src, err := w.read(50*testBlock, 3*testBlock); src != block.SourceStore || w.since()-begin != 50*time.Millisecond {
					t.Fatalf("from %v in %v (%v)", src, w.since()-begin, err)
				}
				synctest.Wait()
				if n := w.e.Breakers.Metrics().LeftRunning; n != 1 {
					t.Fatalf("%d calls were left running, want 1", n)
				}
				if w.e.Races.InUse() != 0 {
					t.Error("a call that is left running holds a race's slot")
				}
				time.Sleep(2 * time.Second)
				got := w.circuit(1)
				if got.Failures != c.failures || (got.SilentSinceMS != 0) != c.silent {
					t.Errorf("%d failures, silent since %d; want %d, %v", got.Failures, got.SilentSinceMS, c.failures, c.silent)
				}
				if call := w.calls()[before]; c.held != 0 && call.closed-call.at != c.held {
					t.Errorf("the call ended after %v, want %v", call.closed-call.at, c.held)
				}
			})
		})
	}
}

// A peer that has begun to answer and stalls is no silent one.
func TestS28_AnsweredCallEndsWithItsRace(t *testing.T) {
	for _, probed := range []bool{true, false} {
		inWorld(t, func(w *world) {
			silence(w)
			if !probed {
				w.e.Breakers.Reset(peerAddr(1))
			}
			for range 2 {
				ticket, _ := w.e.Breakers.Allow(peerAddr(1))
				ticket.Done(block.OutcomeError)
			}
			w.peer(1, always(reply{after: 10 * time.Millisecond, gap: time.Hour}))
			before, begin := len(w.calls()), w.since()
			if src, err := w.read(50*testBlock, 3*testBlock); src != block.SourcePeer || w.since()-begin != 60*time.Millisecond {
				t.Errorf("from %v in %v (%v)", src, w.since()-begin, err)
			}
			synctest.Wait()
			if call := w.calls()[before]; call.closed-call.at != 60*time.Millisecond {
				t.Errorf("left running %v: the call ended after %v", probed, call.closed-call.at)
			}
			view, _ := w.e.Table.Show(tablet())
			if c := w.circuit(1); c.Failures != 0 || c.SilentSinceMS != 0 || view.LastGroupID != "cg_write" {
				t.Errorf("left running %v: %d failures, silent since %d, last group %q; it has served", probed, c.Failures, c.SilentSinceMS, view.LastGroupID)
			}
		})
	}
}

func TestS28_CloseEndsCallsLeftRunning(t *testing.T) {
	inWorld(t, func(w *world) {
		silence(w)
		w.one(50)
		if w.e.Breakers.Metrics().LeftRunning == 0 {
			t.Fatal("no call was left running")
		}
		begin := w.since()
		w.e.Close()
		if took := w.since() - begin; took != 0 {
			t.Errorf("Close took %v", took)
		}
	})
}

func TestPR04_ProbeSlotNeverLeaks(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer reply
		reader time.Duration // hangs up after so long, if set
	}{
		{"success", reply{after: time.Millisecond}, 0},
		{"RPC error", reply{err: errors.New("reset")}, 0},
		{"miss", reply{after: time.Millisecond, all: true}, 0},
		{"busy", reply{after: time.Millisecond, all: true, status: block.StatusQueueTimeout}, 0},
		{"decode panic", reply{after: time.Millisecond, panics: true}, 0},
		{"caller cancel", reply{silent: true}, 10 * time.Millisecond},
		{"the store wins", reply{after: 500 * time.Millisecond}, 0},
		{"never returning", reply{silent: true}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.rules.EvictionThreshold.Store(1000)
				w.know(tablet(), candidate(1, "cg_write"))
				w.peer(1, always(reply{err: errors.New("refused")}))
				for n := range 4 {
					w.one(n)
				}
				if n := len(w.calls()); n != 3 || w.circuit(1).State != "open" {
					t.Fatalf("%d calls, circuit %s; want 3, open", n, w.circuit(1).State)
				}
				time.Sleep(30 * time.Second)
				w.peer(1, always(c.answer))
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if c.reader > 0 {
					time.AfterFunc(c.reader, cancel)
				}
				req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: 5 * testBlock}
				if _, err := w.readAs(ctx, req, 10); (err != nil) != (c.reader > 0) {
					t.Errorf("the probe's read: %v", err)
				}
				if n := len(w.calls()); n != 4 {
					t.Fatalf("%d calls, want the probe as the fourth", n)
				}
				w.peer(1, serves(time.Millisecond))
				time.Sleep(31 * time.Second) // one open period, and the probe's own second
				if src, _, err := w.one(6); src != block.SourcePeer || err != nil {
					t.Errorf("a healthy peer is not used again: from %v (%v)", src, err)
				}
			})
		})
	}
}

func TestPR05_OneProbeForTwoHundredReaders(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(300, "v1")
		for id := range int64(50) {
			w.know(block.TabletRoute(id+1), candidate(1, "cg_write"))
		}
		w.peer(1, always(reply{err: errors.New("refused")}))
		for n := range 3 {
			w.readRoute(block.TabletRoute(int64(n+1)), n)
		}
		time.Sleep(30 * time.Second)
		w.peer(1, serves(15*time.Millisecond))
		before, begin := len(w.calls()), w.since()
		took := make(chan time.Duration, 200)
		for n := range 200 {
			go func() {
				w.readRoute(block.TabletRoute(int64(n%50+1)), n+10)
				took <- w.since() - begin
			}()
		}
		var fast int
		for range 200 {
			switch d := <-took; d {
			case 15 * time.Millisecond:
				fast++
			case 40 * time.Millisecond:
			default:
				t.Errorf("a reader took %v, want the store's 40ms at once", d)
			}
		}
		if n := len(w.calls()) - before; n != 1 || fast != 1 {
			t.Errorf("%d calls, %d readers served by the peer; want 1 and 1", n, fast)
		}
	})
}

func TestPR03_DeadPeerCostsItsThresholdOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(400, "v1")
		for id := range int64(100) {
			w.know(block.TabletRoute(id+1), candidate(1, "cg_write"))
		}
		// Packets are dropped: the connection's time-out is the first to notice.
		w.peer(1, always(reply{after: 200 * time.Millisecond, err: errors.New("connect: timed out")}))
		opened := time.Duration(-1)
		for n := range 400 {
			begin := w.since()
			if _, err := w.readRoute(block.TabletRoute(int64(n%100+1)), n); err != nil {
				t.Fatal(err)
			}
			if took := w.since() - begin; took > 60*time.Millisecond {
				t.Errorf("read %d took %v, want the head start and the store's 40ms at most", n, took)
			}
			if opened < 0 && w.circuit(1).State == "open" {
				opened = w.since()
			}
		}
		if opened < 0 {
			t.Fatal("the dead peer's circuit never opened")
		}
		for _, c := range w.calls() {
			if c.at > opened && c.at < opened+30*time.Second {
				t.Errorf("a call at %v, in the open period from %v on", c.at, opened)
			}
		}
	})
}

// The same with 64 misses in flight all the time: what the pool of hedges holds up
// until the circuit opens is less than one read in a hundred.
func TestPR03_DeadPeerUnderLoad(t *testing.T) {
	const readers, each = 64, 200
	inWorld(t, func(w *world) {
		w.put(readers*each, "v1")
		w.learn()
		for id := range int64(100) {
			w.know(block.TabletRoute(id+1), candidate(1, "cg_write"))
		}
		w.peer(1, always(reply{after: 200 * time.Millisecond, err: errors.New("connect: timed out")}))
		took := make(chan time.Duration, readers*each)
		for g := range readers {
			go func() {
				for n := range each {
					begin := w.since()
					if _, err := w.readRoute(block.TabletRoute(int64(n%100+1)), g*each+n); err != nil {
						t.Error(err)
					}
					took <- w.since() - begin
				}
			}()
		}
		all := make([]time.Duration, 0, readers*each)
		for range readers * each {
			all = append(all, <-took)
		}
		slices.Sort(all)
		if p99 := all[len(all)*99/100]; p99 > 80*time.Millisecond {
			t.Errorf("p99 %v, want the head start, the store and 20ms at most", p99)
		}
		if slowest := all[len(all)-1]; slowest > 240*time.Millisecond {
			t.Errorf("a read took %v, longer than the connection's time-out and the store", slowest)
		}
		// Its circuit opens, or it is ejected for the races that it has lost before.
		for _, c := range w.calls() {
			if c.at > 500*time.Millisecond && c.at < 10*time.Second {
				t.Errorf("a call at %v", c.at)
			}
		}
	})
}

func TestS27_FourReadsThreeAttempts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_write"), candidate(2, "cg_write"))
		w.rules.EvictionThreshold.Store(1000)
		w.peer(1, always(reply{err: errors.New("refused")}))
		w.peer(2, serves(time.Millisecond))
		// Peer 2 serves the group, so that peer 1 is asked first all the same.
		for n := range 6 {
			if src, _, err := w.one(n); src != block.SourcePeer {
				t.Errorf("read %d from %v (%v)", n, src, err)
			}
		}
		var first int
		for _, p := range w.askedPeers(0) {
			if p == 1 {
				first++
			}
		}
		if first != 3 || w.circuit(1).State != "open" {
			t.Errorf("%d calls to the failing peer, circuit %s; want 3, open", first, w.circuit(1).State)
		}
		if _, ok := w.e.Breakers.Allow(peerAddr(2)); !ok {
			t.Error("one peer's circuit stops another")
		}
		if view, _ := w.e.Table.Show(tablet()); len(view.Candidates) != 2 || view.Candidates[0].Failures != 3 {
			t.Errorf("an open circuit counts as a candidate's failure: %+v", view.Candidates)
		}
	})
}
