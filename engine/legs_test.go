package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"headstart/blockcache"
	"headstart/engine/block"
)

func TestS08_SlotIsHeldUntilBothLegsHaveEnded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, always(reply{silent: true, lag: 300 * time.Millisecond}))
		if _, took, err := w.one(0); err != nil || took != 60*time.Millisecond {
			t.Fatalf("%v after %v", err, took)
		}
		synctest.Wait()
		if n := w.e.Races.InUse(); n != 1 {
			t.Errorf("%d races hold a slot while a leg is ending, want 1", n)
		}
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if n := w.e.Races.InUse(); n != 0 {
			t.Errorf("%d races hold a slot when both legs have ended", n)
		}
		if c := w.calls()[0]; !c.cancelled {
			t.Error("the losing call was not cancelled")
		}
	})
}

func TestS08_FullPoolMeansNoHedge(t *testing.T) {
	inWorld(t, func(w *world) {
		w.e.RaceGets.SetLimit(0)
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(200*time.Millisecond))
		if src, took, err := w.one(0); src != block.SourcePeer || took != 200*time.Millisecond {
			t.Errorf("from %v in %v (%v)", src, took, err)
		}
		w.peer(1, always(reply{after: 100 * time.Millisecond, all: true}))
		if src, took, err := w.one(1); src != block.SourceStore || took != 140*time.Millisecond {
			t.Errorf("the reader's own GET: from %v in %v (%v)", src, took, err)
		}
		synctest.Wait()
		if m := w.e.Metrics(); m.HedgeNoSlot != 2 || m.Hedges != 0 {
			t.Errorf("%d hedges, %d without a slot; want 0 and 2", m.Hedges, m.HedgeNoSlot)
		}
	})
}

func TestPR15_LosersEndAtOnceAndAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(16, "v1")
		w.know(tablet(), candidate(1, "cg_a"))
		// 4 KiB in 4 ms is a peer of 1 MB/s; all of the store is there in 41 ms.
		w.peer(1, always(reply{after: 4 * time.Millisecond, gap: 30 * time.Millisecond}))
		if _, err := w.read(0, 16*testBlock); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		done := w.since()
		for _, c := range append(w.calls(), w.gets()...) {
			if c.closed > done {
				t.Errorf("a leg ended at %v, the read at %v", c.closed, done)
			}
		}
		time.Sleep(time.Minute)
		m := w.e.Metrics()
		if in := m.PeerBytes + m.StoreBytes; in != 16*testBlock+m.WastedBytes {
			t.Errorf("%d bytes in, %d wasted: want 16 blocks and what was wasted", in, m.WastedBytes)
		}
	})
}

// Many readers, a peer of 1 MB/s and a store that always wins: no call outlives its
// race, the peer stops sending, and nothing is moved that is not in the books.
func TestPR15_ManyLosersEndAtOnce(t *testing.T) {
	const misses = 500
	inWorld(t, func(w *world) {
		w.put(2*misses, "v1")
		w.learn()
		w.e.RaceGets.SetLimit(misses)
		w.e.Races.SetLimit(misses)
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, always(reply{after: 30 * time.Millisecond, gap: 200 * time.Millisecond}))
		done := make(chan error, misses)
		for n := range misses {
			go func() {
				_, err := w.read(int64(2*n)*testBlock, 2*testBlock)
				done <- err
			}()
		}
		for range misses {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		ended, sent := w.since(), int64(0)
		for _, c := range w.calls() {
			sent += c.bytes
			if c.closed < 0 || c.closed > ended {
				t.Fatalf("a call is still running when its reader is served: %+v", c)
			}
		}
		time.Sleep(time.Minute)
		m := w.e.Metrics()
		if len(w.calls()) != misses || m.PeerBytes != sent || sent > misses*testBlock {
			t.Errorf("%d calls, %d bytes sent, %d counted; each gave one block before it lost", len(w.calls()), sent, m.PeerBytes)
		}
		if used := (2*misses - 1) * int64(testBlock); m.PeerBytes+m.StoreBytes-m.WastedBytes-testBlock != used {
			t.Errorf("%d bytes in, %d wasted, %d used", m.PeerBytes+m.StoreBytes, m.WastedBytes, used)
		}
	})
}

func TestPR17_AttemptsDoNotMultiply(t *testing.T) {
	for _, race := range []bool{true, false} {
		inWorld(t, func(w *world) {
			w.rules.FailureThreshold.Store(1000)
			w.e.Settings.EnablePeerS3Race.Store(race)
			w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"), candidate(3, "cg_c"))
			for n := range 3 {
				w.peer(n+1, always(reply{err: errReset}))
			}
			w.setStore(always(reply{after: 5 * time.Millisecond, err: block.ErrThrottled}))
			if _, _, err := w.one(0); !errors.Is(err, block.ErrThrottled) {
				t.Errorf("error %v, want the store's", err)
			}
			if c, g := len(w.calls()), len(w.gets()); c != 3 || g != 1 {
				t.Errorf("race %v: %d calls and %d GETs for one block, want 3 and 1", race, c, g)
			}
		})
	}
}

func TestPR18_SilentCandidatesCostTheirDeadlineEach(t *testing.T) {
	inWorld(t, func(w *world) {
		sequence(w)
		w.rules.SilenceProbeMS.Store(1 << 30) // no call outlives its reader
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"), candidate(3, "cg_c"))
		for n := range 3 {
			w.peer(n+1, always(reply{silent: true}))
		}
		if src, took, err := w.one(0); src != block.SourceStore || took != 3040*time.Millisecond {
			t.Errorf("from %v in %v (%v), want 3 deadlines and the store", src, took, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		begin := w.since()
		req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: testBlock}
		if _, err := w.readAs(ctx, req, 10); !errors.Is(err, context.DeadlineExceeded) || w.since()-begin != 1500*time.Millisecond {
			t.Errorf("%v after %v, want the caller's own deadline", err, w.since()-begin)
		}
		synctest.Wait()
		if calls := w.calls(); len(calls) != 5 || calls[4].closed != w.since() || !calls[4].cancelled {
			t.Errorf("%d calls, the last ended at %v: the caller's end is not the call's", len(calls), calls[len(calls)-1].closed)
		}
	})
}

func TestS13PR20_CorruptPeerIsNeverBelieved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		w.peer(1, always(reply{after: time.Millisecond, corrupt: true}))
		w.peer(2, always(reply{after: time.Millisecond, all: true}))
		if src, _, err := w.one(0); src != block.SourceStore || err != nil {
			t.Errorf("from %v (%v)", src, err)
		}
		synctest.Wait()
		view, _ := w.e.Table.Show(tablet())
		if got := w.candidates(); got[0] != 1 && got[1] != 1 || view.AllMiss != 0 {
			t.Errorf("list %v, all-miss %d", got, view.AllMiss)
		}
		if m := w.e.Metrics(); m.PeerCorrupt != 1 || w.circuit(1).Failures != 1 {
			t.Errorf("%d corrupt replies, %d failures; want 1 and 1", m.PeerCorrupt, w.circuit(1).Failures)
		}
		w.setStore(nil) // nobody is to ask it
		if src, _, err := w.one(0); src != block.SourceLocal || err != nil {
			t.Errorf("again from %v (%v): the store's bytes are not cached", src, err)
		}
	})
}

func TestOS19_DeniedIsNotHiddenByASlowPeer(t *testing.T) {
	for _, c := range []struct {
		peer time.Duration
		err  error
		took time.Duration
	}{
		{10 * time.Millisecond, nil, 10 * time.Millisecond},
		{60 * time.Millisecond, block.ErrDenied, 25 * time.Millisecond},
	} {
		inWorld(t, func(w *world) {
			w.know(tablet(), candidate(1, "cg_a"))
			w.peer(1, serves(c.peer))
			w.setStore(always(reply{after: 5 * time.Millisecond, err: block.ErrDenied}))
			_, took, err := w.one(0)
			if !errors.Is(err, c.err) || took != c.took {
				t.Errorf("peer at %v: %v after %v, want %v after %v", c.peer, err, took, c.err, c.took)
			}
			synctest.Wait()
			if n := len(w.gets()); n > 1 {
				t.Errorf("%d GETs: a refusal is tried again", n)
			}
			if m := w.e.Metrics(); m.RacePeerWin+m.RaceBothFail != 1 {
				t.Errorf("peer wins %d, both failed %d", m.RacePeerWin, m.RaceBothFail)
			}
		})
	}
}

func TestPR27_EveryStatusHasItsClass(t *testing.T) {
	for status := range block.Status(30) {
		if status == block.StatusData {
			continue
		}
		inWorld(t, func(w *world) {
			w.know(tablet(), candidate(1, "cg_a"))
			w.rules.EvictionThreshold.Store(2)
			w.peer(1, always(reply{after: time.Millisecond, all: true, status: status}))
			if status == 0 {
				return // the script's word for "not found"
			}
			if src, _, err := w.one(0); src != block.SourceStore || err != nil {
				t.Errorf("status %d: from %v (%v)", status, src, err)
			}
			synctest.Wait()
			view, _ := w.e.Table.Show(tablet())
			got := fmt.Sprintf("all-miss %d, failures %d", view.AllMiss, view.Candidates[0].Failures)
			want := "all-miss 0, failures 1"
			switch status {
			case block.StatusNotFound:
				want = "all-miss 1, failures 0"
			case block.StatusFilling, block.StatusQueueTimeout, block.StatusQueueFull, block.StatusFillRejected,
				block.StatusFillTimeout, block.StatusGoingAway, block.StatusCancelled, block.StatusUnsupported:
				want = "all-miss 0, failures 0"
			}
			if got != want {
				t.Errorf("status %d: %s, want %s", status, got, want)
			}
		})
	}
}

func TestPR09_BusyPeerIsNotDead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(600, "v1")
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, func(n int, _ *block.Fetch) reply {
			if n%5 == 0 {
				return reply{after: time.Millisecond}
			}
			return reply{after: 5 * time.Millisecond, all: true, status: block.StatusQueueTimeout}
		})
		n := 0
		for ; w.since() < 2*time.Second; n++ {
			if _, _, err := w.one(n); err != nil {
				t.Fatal(err)
			}
		}
		view, _ := w.e.Table.Show(tablet())
		if c := w.circuit(1); c.State != "closed" || c.Failures != 0 || view.AllMiss != 0 || len(view.Candidates) != 1 || view.Candidates[0].Failures != 0 {
			t.Errorf("circuit %+v, tablet() %+v", c, view)
		}
		w.peer(1, serves(time.Millisecond))
		if src, _, _ := w.one(n + 1); src != block.SourcePeer {
			t.Errorf("the burst is over: from %v", src)
		}
	})
}

func TestS12_AdjacentMissingBlocksAreOneGET(t *testing.T) {
	inWorld(t, func(w *world) {
		w.e.Settings.ObjectStorageGetMaxBlocks.Store(block.MaxRun)
		w.know(tablet(), candidate(1, "cg_a"))
		w.read(19*testBlock, 1)
		synctest.Wait()
		before := len(w.gets())
		w.peer(1, always(reply{after: time.Millisecond, lacks: map[uint64]bool{4: true, 5: true, 6: true}}))
		src, err := w.read(0, 10*testBlock)
		if err != nil || src != block.SourcePeer {
			t.Fatalf("from %v (%v)", src, err)
		}
		synctest.Wait()
		gets := w.gets()[before:]
		if len(gets) != 1 || gets[0].req.Run != block.NewRun(4, 3) {
			t.Errorf("%d GETs, want one for blocks 4 to 6", len(gets))
		}
		if m := w.e.Metrics(); m.PeerBlocks != 7 || m.StoreBlocks != 4 {
			t.Errorf("%d blocks from the peer, %d from the store; want 7, and 4 with the first read's", m.PeerBlocks, m.StoreBlocks)
		}
	})
}

func TestPeerThatRepeatsItselfHasFailed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.e.Settings.ObjectStorageGetMaxBlocks.Store(block.MaxRun)
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, always(reply{after: time.Millisecond, twice: true}))
		if src, err := w.read(0, 3*testBlock); src != block.SourcePeer || err != nil {
			t.Errorf("from %v (%v)", src, err)
		}
		synctest.Wait()
		if c := w.circuit(1); c.Failures != 1 {
			t.Errorf("%d failures, want 1", c.Failures)
		}
	})
}

func TestS50_WithoutACacheReadsPass(t *testing.T) {
	inWorld(t, func(w *world) {
		w.e.Settings.ObjectStorageGetMaxBlocks.Store(block.MaxRun)
		w.learn()
		for range 2 {
			before := len(w.gets())
			if src, err := w.read(0, 10*testBlock); src != block.SourceStore || err != nil {
				t.Errorf("from %v (%v)", src, err)
			}
			synctest.Wait()
			if n := len(w.gets()) - before; n != 1 {
				t.Errorf("%d GETs for ten neighbours, want 1", n)
			}
		}
		done, before := make(chan error), len(w.gets())
		for range 50 {
			go func() { _, _, err := w.at(15); done <- err }()
		}
		for range 50 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := len(w.gets()) - before; n != 1 {
			t.Errorf("%d GETs for 50 readers of one block, want 1", n)
		}
	}, func(o *Options) {
		o.Cache.Close()
		o.Cache, _ = blockcache.Open(blockcache.Options{BlockSize: testBlock})
	})
}

func TestReplyThatDoesNotSayWhatTheObjectIs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		w.peer(1, always(reply{after: time.Millisecond, noMeta: true}))
		w.peer(2, serves(time.Millisecond))
		if src, took, err := w.one(0); src != block.SourcePeer || took != 2*time.Millisecond {
			t.Errorf("from %v in %v (%v), want the second peer's", src, took, err)
		}
	})
}
