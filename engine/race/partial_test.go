package race_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/engine/race"
)

func TestS12_PartialReplyNeedsStoreForTheRestAlone(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer := says(b, lacks(1, 0), lacks(2, 0), has(0, ms(5)), has(3, ms(1)))
		store := serves(b, ms(30), ms(1))
		out := run(t, t.Context(), block.NewRun(0, 4), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(5)}, got{3, peerSrc, ms(6)}, got{1, storeSrc, ms(35)}, got{2, storeSrc, ms(36)})
		store.starts(t, "store", opening{run: block.Run{Want: 0b0110}, at: ms(5)})
		if out.stats.Winner != race.PeerWon || out.stats.WastedBytes != 0 {
			t.Errorf("stats %+v, want a peer win without waste", out.stats)
		}
	})
}

func TestS12_StoreThatBringsTheRestLeavesThePeerItsPart(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer := says(b, lacks(3, 0), has(0, ms(5)), has(1, ms(15)), has(2, ms(15)))
		store := serves(b, ms(3), 0)
		out := run(t, t.Context(), block.NewRun(0, 4), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(5)}, got{3, storeSrc, ms(8)}, got{1, peerSrc, ms(20)}, got{2, peerSrc, ms(35)})
		store.starts(t, "store", opening{run: block.Run{Want: 0b1000}, at: ms(5)})
	})
}

func TestS12_PeerThatStallsAfterAPartIsHedged(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		// Block 2 is the store's from the start; blocks 1 and 3 are when the peer
		// has gone a head start without one.
		peer, store := says(b, lacks(2, 0), has(0, ms(5)), silent()), serves(b, ms(8), 0)
		out := run(t, t.Context(), block.NewRun(0, 4), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(5)}, got{2, storeSrc, ms(13)}, got{1, storeSrc, ms(33)}, got{3, storeSrc, ms(33)})
		store.starts(t, "store",
			opening{run: block.Run{Want: 0b0100}, at: ms(5)}, opening{run: block.Run{Want: 0b1010}, at: ms(25)})
	})
}

func TestS12_LateLacksGoToTheStoreInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer := says(b, lacks(1, 0), has(0, ms(1)), has(2, ms(10)), lacks(3, 0))
		store := serves(b, ms(5), 0)
		out := run(t, t.Context(), block.NewRun(0, 4), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(1)}, got{1, storeSrc, ms(6)}, got{2, peerSrc, ms(11)}, got{3, storeSrc, ms(16)})
	})
}

func TestS08_LoserIsCancelledAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer, store := serves(b, ms(30), ms(10)), serves(b, ms(40), ms(10))
		out := run(t, t.Context(), block.NewRun(0, 4), known(), race.Legs{HeadStart: headStart}, peer, store)
		if out.err != io.EOF || len(out.blocks) != 4 {
			t.Fatalf("got %v, %v", out.blocks, out.err)
		}
		if at := store.opened[0].stopped; at != ms(30) || len(store.opened) != 1 {
			t.Errorf("store legs %d, the first cancelled at %v; want one, at the peer's first block", len(store.opened), at)
		}
	})
	bubble(t, func(t *testing.T, b *books) {
		peer, store := serves(b, ms(60), ms(10)), serves(b, ms(30), ms(10))
		out := run(t, t.Context(), block.NewRun(0, 4), known(), race.Legs{HeadStart: headStart}, peer, store)
		if at := peer.opened[0].stopped; at != ms(50) {
			t.Errorf("the peer leg was cancelled at %v, want at the store's first block", at)
		}
		if out.stats.PeerErr != nil {
			t.Errorf("the peer leg that was stopped failed with %v", out.stats.PeerErr)
		}
	})
}

func TestS08_LosersDoNotStopEachOther(t *testing.T) {
	// Both legs have brought a block before the reader listens: the first one it
	// hears stops the other leg, which must not stop it in turn.
	for _, first := range []time.Duration{ms(29), ms(31)} {
		bubble(t, func(t *testing.T, b *books) {
			b.lag = ms(35)
			peer, store := serves(b, first, 0), serves(b, ms(30), ms(50))
			peer.steps = func(block.Run) []step { return []step{has(1, first), has(0, ms(50)), has(2, ms(50))} }
			out := run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{}, peer, store)
			if out.err != io.EOF || len(out.blocks) != 3 || len(store.opened) != 1 {
				t.Errorf("got %v, %v by %d store legs; want three blocks by one", out.blocks, out.err, len(store.opened))
			}
		})
	}
}

func TestS06_PeerThatBreaksItsWordAfterStoppingTheStore(t *testing.T) {
	lost := errors.New("connection reset")
	for name, end := range map[string]step{"error": fails(lost, ms(10)), "short": fails(io.EOF, ms(10))} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *books) {
				peer, store := says(b, has(0, ms(30)), end), serves(b, ms(40), 0)
				out := run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{HeadStart: headStart}, peer, store)
				out.want(t, io.EOF, got{0, peerSrc, ms(30)}, got{1, storeSrc, ms(80)}, got{2, storeSrc, ms(80)})
				store.starts(t, "store",
					opening{run: block.NewRun(0, 3), at: ms(20)}, opening{run: block.Run{Want: 0b110}, at: ms(40)})
			})
		})
	}
	// The second store leg is the last: its failure is the race's.
	bubble(t, func(t *testing.T, b *books) {
		peer, store := says(b, has(0, ms(30)), fails(lost, ms(10))), says(b, fails(block.ErrThrottled, ms(30)))
		out := run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, block.ErrThrottled, got{0, peerSrc, ms(30)})
		if len(store.opened) != 2 || out.stats.PeerErr != lost {
			t.Errorf("%d store legs, peer error %v", len(store.opened), out.stats.PeerErr)
		}
	})
}

func TestS06_PeerThatStallsAfterStoppingTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		// It wakes up again while the store's second leg runs: that one stays.
		peer := says(b, has(0, ms(30)), has(1, ms(40)), silent())
		store := serves(b, ms(40), 0)
		out := run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(30)}, got{1, peerSrc, ms(70)}, got{2, storeSrc, ms(90)})
		store.starts(t, "store",
			opening{run: block.NewRun(0, 3), at: ms(20)}, opening{run: block.Run{Want: 0b110}, at: ms(50)})
		if out.stats.WastedBytes != blockSize {
			t.Errorf("%d bytes wasted, want the one block that both brought", out.stats.WastedBytes)
		}
	})
}

// The store answers first, so the peer is stopped; then the store dies in the
// middle of its body. The peer has the rest.
func TestS06_StoreThatDiesAfterStoppingThePeer(t *testing.T) {
	lost := errors.New("connection reset")
	three := block.NewRun(0, 3)
	rest := block.Run{Want: 0b110}
	t.Run("the peer brings the rest", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := serves(b, ms(60), 0), says(b, has(0, ms(10)), fails(lost, ms(5)))
			out := run(t, t.Context(), three, known(), race.Legs{HeadStart: headStart}, peer, store)
			out.want(t, io.EOF, got{0, storeSrc, ms(30)}, got{1, peerSrc, ms(95)}, got{2, peerSrc, ms(95)})
			peer.starts(t, "peer", opening{run: three, at: 0}, opening{run: rest, at: ms(35)})
			store.starts(t, "store", opening{run: three, at: ms(20)})
			if s := out.stats; s.Winner != race.StoreWon {
				t.Errorf("winner %d, want the store, whose block came first", s.Winner)
			}
		})
	})
	t.Run("once, and the error is the store's", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, fails(errPeer, ms(60))), says(b, has(0, ms(10)), fails(lost, ms(5)))
			out := run(t, t.Context(), three, known(), race.Legs{HeadStart: headStart}, peer, store)
			out.want(t, lost, got{0, storeSrc, ms(30)})
			peer.starts(t, "peer", opening{run: three, at: 0}, opening{run: rest, at: ms(35)})
		})
	})
	t.Run("not for what it lacks", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, lacks(1, 0), has(2, ms(60))), says(b, has(0, ms(10)), fails(lost, ms(5)))
			out := run(t, t.Context(), three, known(), race.Legs{HeadStart: headStart}, peer, store)
			if out.err != lost || len(peer.opened) != 2 || peer.opened[1].run.Want != 0b100 {
				t.Errorf("%v; the peer leg was started %d times", out.err, len(peer.opened))
			}
		})
	})
	for _, gone := range []error{block.ErrChanged, block.ErrNotFound} {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := serves(b, ms(60), 0), says(b, has(0, ms(10)), fails(gone, ms(5)))
			out := run(t, t.Context(), three, known(), race.Legs{HeadStart: headStart}, peer, store)
			out.want(t, gone, got{0, storeSrc, ms(30)})
			peer.starts(t, "peer", opening{run: three, at: 0})
		})
	}
	t.Run("behind a store leg that was stopped itself", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) { // four legs in one race
			peer, store := says(b, has(0, ms(30)), silent()), says(b)
			peer.steps = func(r block.Run) []step {
				if r.Has(0) {
					return []step{has(0, ms(30)), silent()}
				}
				return []step{has(2, ms(5))}
			}
			store.steps = func(r block.Run) []step {
				return []step{has(1, ms(25)), fails(lost, ms(5))}
			}
			out := run(t, t.Context(), three, known(), race.Legs{HeadStart: headStart}, peer, store)
			out.want(t, io.EOF, got{0, peerSrc, ms(30)}, got{1, storeSrc, ms(75)}, got{2, peerSrc, ms(85)})
			store.starts(t, "store", opening{run: three, at: ms(20)}, opening{run: rest, at: ms(50)})
			peer.starts(t, "peer", opening{run: three, at: 0}, opening{run: block.Run{Want: 0b100}, at: ms(80)})
		})
	})
}

func TestS08_FullSlotsMeanNoHedge(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		full := &slots{}
		peer, store := says(b, silent()), serves(b, ms(30), 0)
		peer.steps = func(block.Run) []step { return []step{fails(context.DeadlineExceeded, time.Second)} }
		out := run(t, t.Context(), block.NewRun(0, 1), known(), race.Legs{HeadStart: headStart, Slots: full}, peer, store)
		out.want(t, io.EOF, got{0, storeSrc, ms(1030)})
		if s := out.stats; s.Hedged || !s.NoSlot {
			t.Errorf("stats %+v, want the missing slot counted", s)
		}
		if n := full.refused.Load(); n != 1 {
			t.Errorf("a slot was asked for %d times, want once", n)
		}
	})
}

func TestS08_SlotIsHeldAsLongAsTheStoreLeg(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		s := &slots{}
		s.limit.Store(1)
		peer, store := serves(b, ms(30), ms(10)), serves(b, ms(40), 0)
		var used []int64
		go func() { // ends before the race
			for _, wait := range []int{19, 2, 8, 2, 18} {
				time.Sleep(ms(wait))
				used = append(used, s.used.Load())
			}
		}()
		run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{HeadStart: headStart, Slots: s}, peer, store)
		// The peer's first block stops the store leg at 30 ms.
		for i, want := range []int64{0, 1, 1, 0, 0} {
			if used[i] != want {
				t.Fatalf("slots in use %v, want [0 1 1 0 0]", used)
			}
		}
	})
	bubble(t, func(t *testing.T, b *books) { // a leg that is slow to end keeps its slot
		s := &slots{}
		s.limit.Store(1)
		peer, store := serves(b, ms(30), 0), serves(b, ms(40), 0)
		store.openAfter = ms(1)
		slow := func(ctx context.Context, r block.Run) (block.Stream, error) {
			<-ctx.Done()
			time.Sleep(ms(50))
			return nil, ctx.Err()
		}
		rc := race.Start(t.Context(), block.NewRun(0, 1), known(), race.Legs{
			Peer: peer.open, Store: slow, HeadStart: headStart, Slots: s, BlockSize: blockSize,
		})
		piece, src, err := rc.Next()
		if err != nil {
			t.Fatal(err)
		}
		take(t, b, rc, piece, src)
		if _, _, err := rc.Next(); err != io.EOF || s.used.Load() != 1 {
			t.Errorf("Next: %v with %d slots in use, want io.EOF and one", err, s.used.Load())
		}
		rc.Wait()
		if at := time.Since(b.start); at != ms(80) || s.used.Load() != 0 {
			t.Errorf("Wait returned at %v with %d slots in use, want 80ms and none", at, s.used.Load())
		}
	})
}

func TestUnaskedAndRepeatedBlocksFailTheLeg(t *testing.T) {
	for name, bad := range map[string]step{
		"unasked":  has(9, ms(1)),
		"repeated": has(0, ms(1)),
		"far":      has(1<<40, ms(1)),
		"lacked":   lacks(0, ms(1)),
		"bare":     {after: ms(1), index: 1, status: block.StatusData, bare: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *books) {
				peer, store := says(b, has(0, ms(1)), bad, has(1, 0)), serves(b, ms(30), 0)
				out := run(t, t.Context(), block.NewRun(0, 2), known(), race.Legs{HeadStart: headStart}, peer, store)
				out.want(t, io.EOF, got{0, peerSrc, ms(1)}, got{1, storeSrc, ms(32)})
				if out.stats.PeerErr == nil {
					t.Error("the peer's fault left no trace")
				}
			})
		})
	}
}

func TestPR17_StoreThatFailedIsNotAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) { // a stream that ends too early has failed
		peer, store := says(b, has(0, ms(1)), fails(io.EOF, 0)), says(b, has(1, ms(30)))
		out := run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.ErrUnexpectedEOF, got{0, peerSrc, ms(1)}, got{1, storeSrc, ms(31)})
		store.starts(t, "store", opening{run: block.Run{Want: 0b110}, at: ms(1)})
	})
	bubble(t, func(t *testing.T, b *books) { // an object that grows with each look
		peer, store := says(b, lacks(0, 0)), says(b)
		peer.meta = of("v1", blockSize)
		store.steps = func(block.Run) []step {
			n := len(store.opened) + 1
			grown := of(block.Version('a'+rune(n)), int64(n)*blockSize)
			return []step{{after: ms(30), status: block.StatusNotFound, meta: &grown}}
		}
		out := run(t, t.Context(), block.NewRun(0, 8), block.UnknownMeta(""), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.ErrUnexpectedEOF)
		if len(store.opened) != 2 {
			t.Errorf("the store was asked %d times, want twice at most", len(store.opened))
		}
	})
}

func TestOB02_EachRaceHasOneWinner(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		wins := make(map[race.Winner]int)
		hedged := 0
		play := func(legs race.Legs, peer, store *script) {
			out := run(t, t.Context(), block.NewRun(0, 2), known(), legs, peer, store)
			wins[out.stats.Winner]++
			if out.stats.Hedged {
				hedged++
			}
		}
		for range 100 {
			play(race.Legs{HeadStart: headStart}, serves(b, ms(5), ms(1)), serves(b, ms(30), 0))
			play(race.Legs{HeadStart: headStart}, serves(b, ms(60), 0), serves(b, ms(30), 0))
			play(race.Legs{Sequential: true}, serves(b, ms(60), 0), serves(b, ms(30), 0))
			play(race.Legs{HeadStart: headStart}, says(b, fails(io.EOF, ms(1))), says(b, fails(block.ErrDenied, ms(1))))
		}
		if wins[race.PeerWon] != 200 || wins[race.StoreWon] != 100 || wins[race.BothFailed] != 100 || hedged != 100 {
			t.Errorf("wins %v, %d hedged; want 200 of the peer, 100 of the store, 100 of none, 100 hedged", wins, hedged)
		}
	})
}
