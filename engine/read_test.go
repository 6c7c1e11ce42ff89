package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

func tablet() block.Route { return block.TabletRoute(1) }

func TestS01_HitNeedsNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		w.read(0, 100)
		synctest.Wait()
		gets, asked := len(w.gets()), len(w.lookups())
		if src, err := w.read(10, 2000); err != nil || src != block.SourceLocal {
			t.Errorf("second read: %v from %v, want local", err, src)
		}
		if len(w.gets()) != gets || len(w.lookups()) != asked || len(w.calls()) != 0 {
			t.Error("a hit asked somebody")
		}
	})
}

func TestS02_MissWithoutCandidatesReadsTheStoreAtOnceAndAsksTheFEBehind(t *testing.T) {
	inWorld(t, func(w *world) {
		w.setLookup(func(block.Route) ([]shards.Candidate, error) {
			return []shards.Candidate{candidate(1, "cg_write")}, nil
		})
		w.peer(1, func(int, *block.Fetch) reply { return reply{after: time.Millisecond} })
		begin := w.since()
		src, err := w.read(0, 100)
		if err != nil || src != block.SourceStore {
			t.Fatalf("first read: %v from %v, want s3", err, src)
		}
		if took := w.since() - begin; took != 40*time.Millisecond {
			t.Errorf("first read took %v, want the store's 40ms", took)
		}
		if n := len(w.lookups()); n != 1 {
			t.Errorf("%d look-ups, want 1", n)
		}
		if src, _ := w.read(5*testBlock, 100); src != block.SourcePeer {
			t.Errorf("second read from %v, want peer", src)
		}
	})
}

func TestS03_HeadStart(t *testing.T) {
	for _, c := range []struct {
		name        string
		delay, peer int64 // ms
		gets        int
		took        time.Duration
		src         block.Source
	}{
		{"peer within the head start", 20, 15, 0, 15 * time.Millisecond, block.SourcePeer},
		{"peer behind it but first", 20, 50, 1, 50 * time.Millisecond, block.SourcePeer},
		{"store first", 20, 90, 1, 60 * time.Millisecond, block.SourceStore},
		{"another head start", 35, 30, 0, 30 * time.Millisecond, block.SourcePeer},
		{"S04: none", 0, 15, 1, 15 * time.Millisecond, block.SourcePeer},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.e.Settings.PeerRaceHedgeDelayMS.Store(c.delay)
				w.know(tablet(), candidate(1, "cg_write"))
				w.peer(1, func(int, *block.Fetch) reply { return reply{after: time.Duration(c.peer) * time.Millisecond} })
				begin := w.since()
				src, err := w.read(0, 100)
				if took := w.since() - begin; err != nil || src != c.src || took != c.took {
					t.Errorf("%v from %v in %v, want %v in %v", err, src, took, c.src, c.took)
				}
				if n := len(w.gets()); n != c.gets {
					t.Errorf("%d GETs, want %d", n, c.gets)
				}
				synctest.Wait()
				for _, g := range append(w.gets(), w.calls()...) {
					if lost := (g.addr == "") != (src == block.SourceStore); lost && !g.cancelled {
						t.Errorf("the losing leg %q was not cancelled", g.addr)
					}
				}
				m := w.e.Metrics()
				peer, store := int64(0), int64(0)
				if c.src == block.SourcePeer {
					peer = 1
				} else {
					store = 1
				}
				if m.RacePeerWin != peer || m.RaceStoreWin != store || m.RaceBothFail != 0 {
					t.Errorf("wins %d/%d/%d, want %d/%d/0", m.RacePeerWin, m.RaceStoreWin, m.RaceBothFail, peer, store)
				}
			})
		})
	}
}

func TestS04_NoHeadStartStartsBothAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.e.Settings.PeerRaceHedgeDelayMS.Store(0)
		w.know(tablet(), candidate(1, "cg_write"))
		w.peer(1, func(int, *block.Fetch) reply { return reply{after: 60 * time.Millisecond} })
		begin := w.since()
		w.read(0, 10)
		synctest.Wait()
		if g, p := w.gets(), w.calls(); len(g) != 1 || len(p) != 1 || g[0].at != begin || p[0].at != begin {
			t.Errorf("%d GETs and %d calls, want one of each at %v", len(g), len(p), begin)
		}
	})
}

func TestS05_EitherWinnerGoesIntoTheCache(t *testing.T) {
	for _, ms := range []int{1, 500} {
		inWorld(t, func(w *world) {
			w.know(tablet(), candidate(1, "cg_write"))
			w.peer(1, func(int, *block.Fetch) reply { return reply{after: time.Duration(ms) * time.Millisecond} })
			w.read(0, 3*testBlock)
			synctest.Wait()
			if src, err := w.read(0, 3*testBlock); src != block.SourceLocal {
				t.Errorf("peer at %d ms: read again from %v (%v), want local", ms, src, err)
			}
		})
	}
}

func TestS06_NoPeerFailureFailsTheRead(t *testing.T) {
	failed := errors.New("connection reset")
	for name, script := range map[string]reply{
		"not found": {all: true}, "rpc error": {err: failed}, "silent": {silent: true},
		"queue full":    {all: true, status: block.StatusQueueFull},
		"queue timeout": {all: true, status: block.StatusQueueTimeout},
		"fill rejected": {all: true, status: block.StatusFillRejected},
		"fill timeout":  {all: true, status: block.StatusFillTimeout},
		"unknown":       {all: true, status: block.Status(200)},
		"corrupt":       {corrupt: true}, "cut": {cut: 1, err: failed},
		"unsupported": {all: true, status: block.StatusUnsupported},
	} {
		for _, race := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.e.Settings.EnablePeerS3Race.Store(race)
					w.know(tablet(), candidate(1, "cg_write"), candidate(2, "cg_write"))
					for n := range 2 {
						w.peer(n+1, func(int, *block.Fetch) reply { return script })
					}
					if _, err := w.read(0, 3*testBlock); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

func TestS06_BothLegsFailedIsTheStoresError(t *testing.T) {
	denied := &block.Error{Op: "get", Object: testObject(), Source: block.SourceStore, Err: block.ErrDenied}
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_write"))
		w.peer(1, func(int, *block.Fetch) reply { return reply{err: errors.New("connection refused")} })
		w.setStore(func(int, *block.Fetch) reply { return reply{err: denied} })
		if _, err := w.readAs(context.Background(), &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet()}, 10); !errors.Is(err, block.ErrDenied) {
			t.Errorf("error %v, want the store's", err)
		}
		synctest.Wait()
		if m := w.e.Metrics(); m.RaceBothFail != 1 {
			t.Errorf("both_fail = %d, want 1", m.RaceBothFail)
		}
	})
}

func TestS07_SequentialAsksAllCandidatesThenTheStore(t *testing.T) {
	for _, full := range []bool{false, true} {
		inWorld(t, func(w *world) {
			if full {
				w.e.Races.SetLimit(0)
			} else {
				w.e.Settings.EnablePeerS3Race.Store(false)
			}
			w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"), candidate(3, "cg_c"))
			for n := range 3 {
				w.peer(n+1, func(int, *block.Fetch) reply { return reply{after: 100 * time.Millisecond, all: true} })
			}
			begin := w.since()
			src, err := w.read(0, 100)
			if took := w.since() - begin; err != nil || src != block.SourceStore || took != 340*time.Millisecond {
				t.Errorf("%v from %v in %v, want s3 in 340ms", err, src, took)
			}
			if n := len(w.calls()); n != 3 {
				t.Errorf("%d calls, want 3", n)
			}
			if m := w.e.Metrics(); m.RacePeerWin+m.RaceStoreWin+m.RaceBothFail != 0 {
				t.Error("a sequence was counted as a race")
			}
		})
	}
}

func TestS09_ReadersOfOneBlockShareOneFetch(t *testing.T) {
	inWorld(t, func(w *world) {
		done := make(chan error, 100)
		for range 100 {
			go func() { _, err := w.read(testBlock, 100); done <- err }()
		}
		for range 100 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := len(w.gets()); n != 1 {
			t.Errorf("%d GETs, want 1", n)
		}
	})
}

func TestSF02_LeadersDeadlineIsItsOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		w.read(0, 1) // the object is known
		w.setStore(func(int, *block.Fetch) reply { return reply{after: 300 * time.Millisecond} })
		short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: 8 * testBlock}
		begin := w.since()
		leader, follower := make(chan error, 1), make(chan error, 1)
		go func() { _, err := w.readAs(short, req, 10); leader <- err }()
		synctest.Wait()
		go func() { _, err := w.readAs(context.Background(), req, 10); follower <- err }()
		if err := <-leader; !errors.Is(err, context.DeadlineExceeded) || w.since()-begin != 50*time.Millisecond {
			t.Errorf("leader: %v after %v", err, w.since()-begin)
		}
		if err := <-follower; err != nil || w.since()-begin != 300*time.Millisecond {
			t.Errorf("follower: %v after %v", err, w.since()-begin)
		}
		if n := len(w.gets()); n != 2 {
			t.Errorf("%d GETs, want the first read's and one", n)
		}
	})
}

func TestSF01_PanicInAFetchIsRetriedAndCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.read(0, 1)
		w.setStore(func(n int, _ *block.Fetch) reply {
			if n == 1 {
				panic("decoder")
			}
			return reply{after: 10 * time.Millisecond}
		})
		done := make(chan error, 50)
		for range 50 {
			go func() { _, err := w.read(3*testBlock, 10); done <- err }()
		}
		begin := w.since()
		for range 50 {
			if err := <-done; err != nil {
				t.Errorf("a waiter's error: %v", err)
			}
		}
		if took := w.since() - begin; took > time.Second {
			t.Errorf("the waiters waited %v", took)
		}
		if m := w.e.Metrics(); m.Panics != 1 || len(w.gets()) != 3 {
			t.Errorf("%d panics and %d GETs, want 1 and the first read's, the panic's and one more", m.Panics, len(w.gets()))
		}
	})
}

func TestS11_RangesAreClamped(t *testing.T) {
	const b = testBlock
	for _, size := range []int64{0, 1, b - 1, b, b + 1, 3 * b} {
		inWorld(t, func(w *world) {
			w.mu.objects[testObject()].size = size
			for _, off := range []int64{0, 1, size - 1, size, b} {
				if off < 0 || off > size {
					continue
				}
				for _, n := range []int{0, 1, 100, b, int(size) + 10} {
					if _, err := w.read(off, n); err != nil {
						t.Errorf("size %d, read of %d at %d: %v", size, n, off, err)
					}
				}
			}
			past := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: size + 1}
			if _, err := w.readAs(context.Background(), past, 1); !errors.Is(err, block.ErrRange) {
				t.Errorf("size %d: read past the end: %v", size, err)
			}
		})
	}
}

func TestS12_OnlyMissingBlocksComeFromTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_write"))
		w.read(19*testBlock, 1)
		before := len(w.gets())
		w.peer(1, func(int, *block.Fetch) reply {
			return reply{after: time.Millisecond, lacks: map[uint64]bool{2: true, 3: true, 7: true}}
		})
		if _, err := w.read(0, 10*testBlock); err != nil {
			t.Fatal(err)
		}
		var got []block.Run
		for _, g := range w.gets()[before:] {
			got = append(got, g.req.Run)
		}
		if len(got) != 2 || got[0].Count()+got[1].Count() != 3 {
			t.Errorf("GETs of %v, want blocks 2-3 and 7", got)
		}
	})
}

func TestS14_ChangedObjectIsNeverMixed(t *testing.T) {
	inWorld(t, func(w *world) {
		ext := &block.Read{Object: testObject(), Route: block.ExternalRoute(testObject())}
		if _, err := w.readAs(context.Background(), ext, testBlock); err != nil {
			t.Fatal(err)
		}
		w.mu.objects[testObject()] = &storedObject{size: 20*testBlock + 100, version: "v2"}
		// Within the freshness bound the node does not ask, but block 1 of the old
		// version is gone: all of the answer must be new.
		if _, err := w.readAs(context.Background(), ext, 2*testBlock); err != nil {
			t.Fatal(err)
		}
	})
}

func TestS15_SwitchIsLookedAtOnEveryRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_write"))
		w.peer(1, func(int, *block.Fetch) reply { return reply{after: time.Millisecond} })
		for i, on := range []bool{true, false, true} {
			w.e.Settings.EnableCacheReadFromPeer.Store(on)
			src, err := w.read(int64(i)*4*testBlock, 10)
			if err != nil || (src == block.SourcePeer) != on {
				t.Errorf("switch %v: read from %v (%v)", on, src, err)
			}
		}
	})
}

func TestS10_NoPeerReadsAskNoPeerAndNoFE(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_write"))
		req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), NoPeer: true}
		if _, err := w.readAs(context.Background(), req, 10); err != nil {
			t.Fatal(err)
		}
		if len(w.calls()) != 0 || len(w.lookups()) != 0 {
			t.Error("a read without peers asked one")
		}
	})
}

func TestS30_FillFlagGoesToTheFillGroupOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		group := "cg_write"
		w.e.Settings.PeerCacheFillComputeGroupID.Store(&group)
		w.know(tablet(), candidate(1, "cg_other"), candidate(2, "cg_write"))
		for n := range 2 {
			w.peer(n+1, func(int, *block.Fetch) reply { return reply{after: time.Millisecond, all: true} })
		}
		w.read(0, 10)
		for _, c := range w.calls() {
			if want := c.addr == peerAddr(2).String(); c.req.Fill != want {
				t.Errorf("call to %s: fill flag %v", c.addr, c.req.Fill)
			}
		}
		if len(w.calls()) != 2 {
			t.Errorf("%d calls, want 2", len(w.calls()))
		}
	})
}

func TestS33_FillCallsHaveTheirOwnDeadline(t *testing.T) {
	for _, ms := range []int64{6000, 2500} {
		inWorld(t, func(w *world) {
			group := "cg_write"
			w.e.Settings.PeerCacheFillComputeGroupID.Store(&group)
			w.e.Settings.PeerServerCacheFillTimeoutMS.Store(ms)
			w.e.Settings.EnablePeerS3Race.Store(false)
			w.know(tablet(), candidate(1, "cg_write"))
			w.peer(1, func(int, *block.Fetch) reply { return reply{silent: true} })
			begin := w.since()
			w.read(0, 10)
			if took, want := w.since()-begin, time.Duration(ms+40)*time.Millisecond; took != want {
				t.Errorf("read took %v, want %v", took, want)
			}
		})
	}
}
