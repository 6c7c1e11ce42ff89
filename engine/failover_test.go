package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// The store answers first and dies in the middle of its body; the peer, which was
// stopped for it, has the rest.
func TestS06_StoreThatDiesBehindAStoppedPeer(t *testing.T) {
	for _, open := range []bool{false, true} { // the peer's circuit opens meanwhile
		inWorld(t, func(w *world) {
			w.learn()
			w.e.Settings.ObjectStorageGetMaxBlocks.Store(block.MaxRun)
			w.know(tablet(), candidate(1, "cg_a"))
			w.peer(1, serves(60*time.Millisecond))
			w.setStore(always(reply{after: 30 * time.Millisecond, cut: 2, err: errReset}))
			if open {
				time.AfterFunc(40*time.Millisecond, func() {
					for range 3 {
						ticket, _ := w.e.Breakers.Allow(peerAddr(1))
						ticket.Done(block.OutcomeError)
					}
				})
			}
			gets, begin := len(w.gets()), w.since()
			_, err := w.read(testBlock, 8*testBlock)
			took := w.since() - begin
			synctest.Wait()
			calls, m := w.calls(), w.e.Metrics()
			if n := len(w.gets()) - gets; n != 1 || m.RaceStoreWin != 1 {
				t.Errorf("%d GETs, %d races won by the store; want 1 and 1", n, m.RaceStoreWin)
			}
			if open {
				if !errors.Is(err, errReset) || len(calls) != 1 || w.circuit(1).State != "open" {
					t.Errorf("%v with %d calls, circuit %s; want the store's error and one", err, len(calls), w.circuit(1).State)
				}
				return
			}
			if err != nil || took != 110*time.Millisecond || len(calls) != 2 || calls[1].req.Run != (block.Run{First: 1, Want: 0b11111100}) {
				t.Fatalf("%v after %v with %d calls", err, took, len(calls))
			}
			if m.PeerBlocks != 6 || m.StoreBlocks != 2+1 {
				t.Errorf("%d blocks from the peer, %d from the store", m.PeerBlocks, m.StoreBlocks)
			}
		})
	}
}

// Object storage fails at the rest of a race that a peer has won, and another peer
// gives it: the first one has won all the same (S37). Else its defeats alone would
// count, and it would be ejected though it wins most of its races.
func TestS37_WhoGivesTheRestHasNotRaced(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(1000, "v1")
		w.learn()
		w.e.Settings.ObjectStorageGetMaxBlocks.Store(block.MaxRun)
		w.e.Settings.EnableAdaptivePeerRaceHedge.Store(false)
		wins, asked := false, 0
		w.peer(1, func(int, *block.Fetch) reply {
			switch asked++; {
			case asked > 1:
				return reply{after: time.Millisecond, all: true}
			case wins:
				return reply{after: time.Millisecond, gap: 500 * time.Millisecond}
			}
			return reply{after: 500 * time.Millisecond}
		})
		w.peer(2, serves(time.Millisecond))
		w.setStore(func(int, *block.Fetch) reply {
			if wins {
				return reply{after: 10 * time.Millisecond, cut: 1, err: errReset}
			}
			return reply{after: 10 * time.Millisecond}
		})
		for n := range 3 * 80 {
			route := block.TabletRoute(int64(100 + n)) // nothing is known of who served it last
			w.know(route, candidate(1, "cg_a"), candidate(2, "cg_b"))
			wins, asked = n%3 > 0, 0
			req := &block.Read{Object: testObject(), Version: block.Immutable, Route: route, Offset: int64(1+4*n) * testBlock}
			if _, err := w.readAs(context.Background(), req, 4*testBlock); err != nil {
				t.Fatal(n, err)
			}
			synctest.Wait()
			if until := w.circuit(1).SlowUntilMS; until != 0 {
				t.Fatalf("ejected after %d races, of which it has won two of three", n)
			}
		}
		if m := w.e.Metrics(); m.RacePeerWin < 64 || m.RaceStoreWin < 32 {
			t.Errorf("%d races won by peers, %d by the store", m.RacePeerWin, m.RaceStoreWin)
		}
	})
}

// A read whose peer is asked twice, and lacks the blocks both times, is one read
// in a row all the same.
func TestS25_PeerThatIsAskedAgainMissesOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.e.Settings.ObjectStorageGetMaxBlocks.Store(block.MaxRun)
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, always(reply{after: 60 * time.Millisecond, all: true}))
		w.setStore(always(reply{after: 30 * time.Millisecond, cut: 2, err: errReset}))
		if _, err := w.read(testBlock, 8*testBlock); !errors.Is(err, errReset) {
			t.Errorf("error %v, want the store's", err)
		}
		synctest.Wait()
		view, _ := w.e.Table.Show(tablet())
		if n := len(w.calls()); n != 2 || view.AllMiss != 1 || w.circuit(1).Failures != 0 {
			t.Errorf("%d calls, all-miss %d, %d failures; want 2, 1, 0", n, view.AllMiss, w.circuit(1).Failures)
		}
	})
}

// fills answers a request with "filling", and one that waits with later.
func fills(first, later reply) func(int, *block.Fetch) reply {
	return func(_ int, f *block.Fetch) reply {
		if f.Wait {
			return later
		}
		return first
	}
}

func TestS38_FillThatFailsLeavesNoPatienceBehind(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		w.peer(1, fills(reply{after: time.Millisecond, all: true, status: block.StatusFilling}, reply{after: 4 * time.Millisecond, err: errReset}))
		w.peer(2, always(reply{silent: true}))
		// The head start is over at 20 ms, and not when a fill would be late.
		if src, took, err := w.one(1); src != block.SourceStore || took != 60*time.Millisecond || err != nil {
			t.Errorf("from %v after %v (%v)", src, took, err)
		}
	})
}

func TestS38_WhatIsNotFilledDoesNotWaitForTheFill(t *testing.T) {
	for _, c := range []struct {
		later reply
		gets  int // when the fill fails, the head start is over for the others as well
	}{
		{reply{after: 100 * time.Millisecond}, 1},
		{reply{after: 60 * time.Millisecond, err: errReset}, 3},
	} {
		inWorld(t, func(w *world) {
			w.learn()
			w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
			w.peer(1, fills(reply{
				after: time.Millisecond, all: true, status: block.StatusFilling, misses: map[uint64]bool{3: true},
			}, c.later))
			w.peer(2, serves(time.Millisecond))
			gets, begin := len(w.gets()), w.since()
			rejected := make(chan time.Duration, 1)
			go func() {
				r, err := w.e.Open(context.Background(), &block.Read{
					Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: testBlock, Size: 3 * testBlock,
				})
				if err != nil {
					t.Error(err)
				}
				drain(t, r)
			}()
			synctest.Wait()
			go func() {
				w.read(3*testBlock, 10) // joins
				rejected <- w.since() - begin
			}()
			if took := <-rejected; took != 41*time.Millisecond {
				t.Errorf("the block that is not filled came after %v", took)
			}
			time.Sleep(time.Second)
			if got := w.gets()[gets:]; len(got) != c.gets || got[0].req.Run != block.NewRun(3, 1) {
				t.Errorf("%d GETs, want %d, block 3's first", len(got), c.gets)
			}
			calls := w.calls()
			if last := calls[len(calls)-1]; last.req.Run.Has(3) || last.req.Run.Count() != 2 {
				t.Errorf("who was asked last was asked for %v, want blocks 1 and 2", last.req.Run)
			}
		})
	}
}

func TestOB02_NobodyToAskIsNoRace(t *testing.T) {
	for name, off := range map[string]func(w *world){
		"circuits open": func(w *world) {
			for n := range 2 {
				for range 3 {
					ticket, _ := w.e.Breakers.Allow(peerAddr(n + 1))
					ticket.Done(block.OutcomeError)
				}
			}
		},
		"switched off": func(w *world) { w.e.Settings.EnableCrossComputeGroupRead.Store(false) },
	} {
		inWorld(t, func(w *world) {
			w.learn()
			w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
			off(w)
			req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: testBlock, QueryID: "q"}
			if src, err := w.readAs(context.Background(), req, 10); src != block.SourceStore || err != nil {
				t.Errorf("%s: from %v (%v)", name, src, err)
			}
			synctest.Wait()
			m, c := w.e.Metrics(), w.e.Profiles.Get("q").Counters()
			if m.RaceStoreWin+m.RacePeerWin+m.RaceBothFail+m.RaceAbandoned+m.RaceSequential+c.S3RaceWin != 0 || m.StoreReads != 2 {
				t.Errorf("%s: nobody was asked, and a race is counted: %+v", name, m)
			}
		})
	}
}

// A GET that a race shares with another reader is no waste when the race is lost.
func TestOB07_SharedGETsAreNoWaste(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(400, "v1")
		w.learn()
		w.e.Settings.PeerRaceHedgeDelayMS.Store(0)
		w.rules.SlowPeerEjection.Store(false)
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(40*time.Millisecond)) // when the store answers, too
		fromPeer := int64(0)
		for n := range 200 {
			var both sync.WaitGroup
			both.Go(func() {
				req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: int64(n+1) * testBlock, NoPeer: true}
				if _, err := w.readAs(context.Background(), req, 10); err != nil {
					t.Error(err)
				}
			})
			both.Go(func() {
				if src, _, _ := w.at(n + 1); src == block.SourcePeer {
					fromPeer++
				}
			})
			both.Wait()
			synctest.Wait()
		}
		m := w.e.Metrics()
		if m.StoreReads != 201 || fromPeer == 0 {
			t.Errorf("%d GETs for 201 blocks, %d races won by the peer", m.StoreReads, fromPeer)
		}
		if spare := m.PeerBytes - fromPeer*testBlock; m.WastedBytes != spare {
			t.Errorf("%d bytes wasted, want the peer's that nobody needed: %d", m.WastedBytes, spare)
		}
	})
}

func TestS36_BudgetIsNeverMoreThanEarned(t *testing.T) {
	for range 500 {
		b := &budget{}
		b.milli.Store(burstGets)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 10 {
					b.take(false)
				}
			})
			all.Go(func() {
				for range 10 {
					b.earn(5)
				}
			})
		}
		all.Wait()
		if got, most := b.milli.Load(), int64(burstGets-40*oneGet+40*oneGet*5/100); got > most {
			t.Fatalf("%d left after 40 GETs, want %d at most", got, most)
		}
	}
}

// A block whose fetch dies is asked for again; those behind it, which are on their
// way, are left alone.
func TestSF01_PanicLeavesTheOtherBlocksOnTheirWay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		before := len(w.gets())
		w.setStore(func(_ int, f *block.Fetch) reply {
			if f.Run.First == 1 && len(w.gets()) < before+9 {
				return reply{after: 10 * time.Millisecond, panics: true}
			}
			return reply{after: 40 * time.Millisecond}
		})
		begin := w.since()
		if _, err := w.read(testBlock, 8*testBlock); err != nil || w.since()-begin != 50*time.Millisecond {
			t.Errorf("%v after %v", err, w.since()-begin)
		}
		synctest.Wait()
		cancelled := 0
		for _, c := range w.gets()[before:] {
			if c.cancelled && !c.req.Run.Has(1) {
				cancelled++
			}
		}
		if n := len(w.gets()) - before; n != 9 || cancelled != 0 {
			t.Errorf("%d GETs, %d of them given up; want 9 for 8 blocks of which one panics", n, cancelled)
		}
	})
}

// A peer's word on what an object is may be as old as a peer may be behind: it is
// good for one read, or a chain of peers would pass it on for ever.
func TestS14_PeersWordIsNotPassedOnAsFresh(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(20, "v2")
		w.know(block.ExternalRoute(testObject()), candidate(1, "cg_a"))
		w.peer(1, always(reply{after: time.Millisecond, version: "v1"}))
		dst := make([]byte, 10)
		if _, src, err := w.e.Read(context.Background(), external(0), dst); src != block.SourcePeer || err != nil || uniform(dst, 0, "v1") == "" {
			t.Errorf("from %v (%v)", src, err)
		}
		if known := w.e.Current(testObject(), ""); known != nil {
			t.Errorf("the node would tell its peers that %+v is the present version", known.Meta)
		}
		if _, _, err := w.e.Read(context.Background(), external(0), dst); err != nil || uniform(dst, 0, "v1", "v2") != "v2" {
			t.Errorf("version %q (%v), want the present one", uniform(dst, 0, "v1", "v2"), err)
		}
		if w.mu.heads != 1 {
			t.Errorf("%d HEADs, want 1", w.mu.heads)
		}
	})
}

// cutShort truncates the files that the cache keeps its blocks in.
func (w *world) cutShort(dir string) {
	w.t.Helper()
	if err := w.e.Cache.Flush(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, infoErr := os.Stat(path); err == nil && infoErr == nil && d.Type().IsRegular() && info.Size() >= 4*testBlock {
			return os.Truncate(path, testBlock)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// cacheIn puts an engine's cache into a folder of its own, whose name it sets.
func cacheIn(t *testing.T, dir *string) func(*Options) {
	return func(o *Options) {
		o.Cache.Close()
		*dir = t.TempDir()
		o.Cache, _ = openCache(*dir)
	}
}

// TestLC10_ReadGetsWhatTheDiskHasLost: a block in the middle of a read vanishes
// from the disk. Read fetches it, as the streaming front does.
func TestLC10_ReadGetsWhatTheDiskHasLost(t *testing.T) {
	var dir string
	inWorld(t, func(w *world) {
		w.learn()
		for n := int64(2); n <= 8; n += 2 {
			w.read(n*testBlock, 10)
		}
		w.cutShort(dir)
		gets := len(w.gets())
		for n := int64(1); n <= 7; n += 2 { // not cached, but the block behind it
			if _, err := w.read(n*testBlock, 2*testBlock); err != nil {
				t.Errorf("blocks %d and %d: %v", n, n+1, err)
			}
		}
		if n := len(w.gets()) - gets; n != 8 {
			t.Errorf("%d GETs, want one for each block", n)
		}
	}, cacheIn(t, &dir))
}

// A read loses a block to the disk after it has copied others, and the object has
// changed by then: what it goes on with must be of the version it began with, or
// it starts over.
func TestS14OS05_ReadThatGoesOnKeepsItsVersion(t *testing.T) {
	var dir string
	inWorld(t, func(w *world) {
		w.put(20, "v1")
		dst := make([]byte, 2*testBlock)
		for _, off := range []int64{0, 2 * testBlock} {
			if _, _, err := w.e.Read(context.Background(), external(off), dst[:10]); err != nil {
				t.Fatal(err)
			}
		}
		w.cutShort(dir)
		w.setStore(serves(1500 * time.Millisecond))
		time.AfterFunc(700*time.Millisecond, func() { w.put(20, "v2") })
		n, _, err := w.e.Read(context.Background(), external(testBlock), dst)
		if v := uniform(dst[:n], testBlock, "v1", "v2"); err != nil || n != len(dst) || v != "v2" {
			t.Errorf("%d bytes of version %q (%v), want all of the present one", n, v, err)
		}
	}, cacheIn(t, &dir))
}
