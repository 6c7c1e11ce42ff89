package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

// Each block's first GET panics: none of them is asked for more than twice, so
// the read must not run out of patience because it has many blocks.
func TestSF01_PatienceIsForEachBlock(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		var mu sync.Mutex
		seen := map[uint64]bool{}
		w.setStore(func(_ int, f *block.Fetch) reply {
			mu.Lock()
			first := !seen[f.Run.First]
			seen[f.Run.First] = true
			mu.Unlock()
			if first {
				panic("decoder")
			}
			return reply{after: time.Millisecond}
		})
		if _, err := w.read(0, 20*testBlock); err != nil {
			t.Errorf("20 blocks, one panic each: %v", err)
		}
	}, func(o *Options) { o.Window = 1 })
}

// A peer has given a part and breaks off when it is asked for the rest: the rest
// is the store's. The next candidate is not asked for what has come already.
func TestS38_PeerThatFailsAtTheRestOfItsFill(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		w.peer(1, func(_ int, f *block.Fetch) reply {
			if f.Wait {
				return reply{err: errReset}
			}
			return reply{after: time.Millisecond, lacks: map[uint64]bool{2: true}, status: block.StatusFilling}
		})
		w.peer(2, serves(time.Millisecond))
		if _, err := w.read(testBlock, 2*testBlock); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := w.askedPeers(0); !slices.Equal(got, []int{1, 1}) {
			t.Errorf("asked %v, want peer 1 twice", got)
		}
		if b := w.circuit(2); b.Failures != 0 {
			t.Errorf("peer 2 is blamed for %d failures", b.Failures)
		}
	})
}

// A peer that comes back and fills on demand answers each first call with
// "filling": that is an answer, and its circuit closes.
func TestS27_FillingPeerClosesItsCircuit(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.rules.EvictionThreshold.Store(100)
		w.know(tablet(), candidate(1, "cg_fill"))
		w.peer(1, always(reply{corrupt: true})) // not silent: its next call is no probe of S28
		for n := range 3 {
			w.one(n + 1)
		}
		if b := w.circuit(1); b.State != "open" {
			t.Fatalf("the circuit is %s", b.State)
		}
		time.Sleep(31 * time.Second)
		w.peer(1, func(_ int, f *block.Fetch) reply {
			if f.Wait {
				return reply{after: 50 * time.Millisecond}
			}
			return reply{after: time.Millisecond, all: true, status: block.StatusFilling}
		})
		var last block.Source
		for n := range 3 {
			last, _, _ = w.one(n + 4)
		}
		if b := w.circuit(1); b.State != "closed" || last != block.SourcePeer {
			t.Errorf("the circuit is %s and the third block came from %s", b.State, last)
		}
	})
}

// Blocks that are fetched together are read by GETs of their own: one that is
// late or fails is no matter of those who wait for another block.
func TestS39_GETsOfOneRunStandAlone(t *testing.T) {
	for _, bad := range []reply{
		{after: 500 * time.Millisecond},
		{after: 10 * time.Millisecond, err: errReset},
		{after: 80 * time.Millisecond, err: errReset},
	} {
		inWorld(t, func(w *world) {
			w.learn()
			w.know(tablet(), candidate(1, "cg_a"))
			lack(w, 1)
			w.setStore(func(_ int, f *block.Fetch) reply {
				if f.Run.Has(1) {
					return bad
				}
				return reply{after: 40 * time.Millisecond}
			})
			first := make(chan error, 1)
			go func() { _, err := w.read(testBlock, 2*testBlock); first <- err }()
			synctest.Wait()
			begin := w.since()
			_, err := w.read(2*testBlock, 10)
			if took := w.since() - begin; err != nil || took != 41*time.Millisecond {
				t.Errorf("block 1 %+v: the reader of block 2 got %v after %v", bad, err, took)
			}
			if err := <-first; !errors.Is(err, bad.err) {
				t.Errorf("the reader of both got %v", err)
			}
		})
	}
}

func TestS87_PanicOfTheDirectoryIsAFailedLookup(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.setLookup(func(block.Route) ([]shards.Candidate, error) { panic("directory") })
		if src, _, err := w.one(1); err != nil || src != block.SourceStore {
			t.Errorf("%s, %v", src, err)
		}
		time.Sleep(time.Minute)
		w.setLookup(func(block.Route) ([]shards.Candidate, error) {
			return []shards.Candidate{candidate(1, "cg_a")}, nil
		})
		w.peer(1, serves(time.Millisecond))
		w.one(2)
		time.Sleep(time.Second)
		if src, _, err := w.one(3); err != nil || src != block.SourcePeer {
			t.Errorf("afterwards: %s, %v", src, err)
		}
		if m := w.e.Metrics(); m.Panics != 1 || m.LookupFailures != 1 {
			t.Errorf("%d panics, %d failed look-ups", m.Panics, m.LookupFailures)
		}
	})
}

func TestOS19_RefusalIsNotPassedOnToSlowPeers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(time.Millisecond))
		for range 16 {
			w.e.Breakers.NoteRace(peerAddr(1), false)
		}
		w.setStore(always(reply{after: time.Millisecond, err: block.ErrDenied}))
		if src, _, err := w.one(1); !errors.Is(err, block.ErrDenied) {
			t.Errorf("got %v from %s, want the refusal", err, src)
		}
	})
}

func TestS14_ReadOfAnObjectThatHasShrunkStartsOver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(4, "v1")
		req := &block.Read{Object: testObject(), Route: tablet(), NoPeer: true}
		if _, err := w.readAs(context.Background(), req, 4*testBlock); err != nil {
			t.Fatal(err)
		}
		old := w.e.Known(testObject(), "")
		w.put(1, "v2")
		time.Sleep(2 * time.Second)
		want := *req
		want.Size = 4 * testBlock
		if _, err := w.e.open(context.Background(), &want, 2*testBlock, old); !errors.Is(err, block.ErrChanged) {
			t.Errorf("two blocks of v1 are read, v2 has one: %v", err)
		}
	})
}

// The length of a block follows from the object's size: what comes shorter is
// not the block, and must not move the bytes behind it.
func TestS13_ShortBlocksAreNotTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, always(reply{after: time.Millisecond, short: true}))
		if src, err := w.read(testBlock, 2*testBlock); err != nil || src != block.SourceStore {
			t.Errorf("a peer's short block: %v from %s", err, src)
		}
		w.setStore(always(reply{after: time.Millisecond, short: true}))
		if _, err := w.read(4*testBlock, 2*testBlock); err == nil {
			t.Error("the store's short block was taken")
		}
	})
}

func TestOB07_OpenedReadThatFailsIsCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.setStore(always(reply{err: errReset}))
		r, err := w.e.Open(context.Background(), &block.Read{
			Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: testBlock, Size: 10, NoPeer: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := r.Next(context.Background()); !errors.Is(err, errReset) {
			t.Error(err)
		}
		w.one(2)
		if m := w.e.Metrics(); m.ReadErrors != 2 {
			t.Errorf("%d failed reads counted, want 2", m.ReadErrors)
		}
	})
}

// The head start is that of the candidate that is asked, not of one that the
// breaker keeps away.
func TestS36_HeadStartIsTheChosenPeers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		for range 100 {
			w.e.Breakers.Observe(peerAddr(1), 2*time.Millisecond)
			w.e.Breakers.Observe(peerAddr(2), 14*time.Millisecond)
		}
		for range 3 {
			ticket, _ := w.e.Breakers.Allow(peerAddr(1))
			ticket.Done(block.OutcomeError)
		}
		w.e.Settings.EnableAdaptivePeerRaceHedge.Store(true)
		w.peer(2, serves(13*time.Millisecond))
		gets := len(w.gets())
		if src, took, err := w.one(1); src != block.SourcePeer || took != 13*time.Millisecond || err != nil {
			t.Errorf("%s after %v, %v", src, took, err)
		}
		if n := len(w.gets()) - gets; n != 0 {
			t.Errorf("%d GETs beside a peer that was not late", n)
		}
	})
}

// TestS36_TheSourceOfARebalanceIsHedgedWithinTheBudget: reads storm a peer that none
// has asked before. One that is a stranger may be dead, so each of them is hedged;
// one that was greeted a moment ago costs no more GETs than the reads have earned,
// unless it goes on saying nothing.
func TestS36_TheSourceOfARebalanceIsHedgedWithinTheBudget(t *testing.T) {
	const misses = 30
	for _, tt := range []struct {
		vouched bool
		takes   time.Duration
		gets    int
	}{
		{false, 30 * time.Millisecond, misses}, {true, 30 * time.Millisecond, misses * 5 / 100},
		{true, 200 * time.Millisecond, misses * 5 / 100}, {true, time.Second, misses},
	} {
		inWorld(t, func(w *world) {
			w.e.Settings.EnableAdaptivePeerRaceHedge.Store(true)
			w.put(misses+1, "v1")
			w.learn()
			w.know(tablet(), candidate(1, "cg_a"))
			w.peer(1, always(reply{after: tt.takes}))
			if tt.vouched {
				w.e.Breakers.Vouch(peerAddr(1))
			}
			before := len(w.gets())
			var all sync.WaitGroup
			for n := range misses {
				all.Go(func() {
					if _, took, err := w.at(n + 1); err != nil || took > sourcePatience+40*time.Millisecond {
						t.Errorf("%v after %v", err, took)
					}
				})
			}
			all.Wait()
			synctest.Wait()
			if gets := len(w.gets()) - before; gets != tt.gets {
				t.Errorf("%+v: %d GETs", tt, gets)
			}
		})
	}
}
