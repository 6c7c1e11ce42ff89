package race_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/engine/race"
)

const (
	peerSrc  = block.SourcePeer
	storeSrc = block.SourceStore
)

func TestS03_HeadStartIsExact(t *testing.T) {
	for _, head := range []time.Duration{ms(20), ms(7)} {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, silent()), serves(b, ms(30), 0)
			one := block.NewRun(3, 1)
			out := run(t, t.Context(), one, known(), race.Legs{HeadStart: head}, peer, store)
			out.want(t, io.EOF, got{3, storeSrc, head + ms(30)})
			store.starts(t, "store", opening{run: one, at: head})
			if !out.stats.Hedged || out.stats.Winner != race.StoreWon {
				t.Errorf("stats %+v, want a hedge that the store has won", out.stats)
			}
			if at := peer.opened[0].stopped; at != head+ms(30) {
				t.Errorf("the peer leg was cancelled at %v, want with the store's answer", at)
			}
		})
	}
}

func TestS03_AnswerWithinHeadStartNeedsNoStore(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer, store := serves(b, headStart-1, 0), serves(b, ms(1), 0)
		out := run(t, t.Context(), block.NewRun(0, 2), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, headStart - 1}, got{1, peerSrc, headStart - 1})
		store.starts(t, "store")
		if out.stats.Hedged || out.stats.Winner != race.PeerWon || out.stats.WastedBytes != 0 {
			t.Errorf("stats %+v, want a peer win without a hedge or waste", out.stats)
		}
	})
}

func TestS03_SlowReaderDoesNotHedge(t *testing.T) {
	// The peer is in time; it is the reader that comes late to listen.
	for range 50 {
		bubble(t, func(t *testing.T, b *books) {
			b.lag = ms(100)
			peer, store := serves(b, ms(5), ms(5)), serves(b, ms(1), 0)
			out := run(t, t.Context(), block.NewRun(0, 4), known(), race.Legs{HeadStart: headStart}, peer, store)
			if out.stats.Hedged || len(store.opened) != 0 || len(out.blocks) != 4 {
				t.Errorf("stats %+v, %d store legs beside a peer that was in time", out.stats, len(store.opened))
			}
		})
	}
}

func TestS03_ProgressRearmsHeadStart(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer, store := serves(b, ms(15), ms(15)), serves(b, ms(1), 0)
		out := run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(15)}, got{1, peerSrc, ms(30)}, got{2, peerSrc, ms(45)})
		store.starts(t, "store")
	})
	bubble(t, func(t *testing.T, b *books) {
		peer, store := says(b, has(0, ms(15)), silent()), serves(b, ms(30), 0)
		out := run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(15)}, got{1, storeSrc, ms(65)}, got{2, storeSrc, ms(65)})
		store.starts(t, "store", opening{run: block.Run{Want: 0b110}, at: ms(35)})
		if out.stats.Winner != race.PeerWon {
			t.Errorf("winner %d, want the peer, whose block came first", out.stats.Winner)
		}
	})
}

func TestS04_ZeroHeadStartStartsBothAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer, store := serves(b, ms(10), 0), serves(b, ms(30), 0)
		out := run(t, t.Context(), block.NewRun(0, 1), known(), race.Legs{}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(10)})
		store.starts(t, "store", opening{run: block.NewRun(0, 1), at: 0})
		if at := store.opened[0].stopped; at != ms(10) {
			t.Errorf("the store leg was cancelled at %v, want with the peer's answer", at)
		}
	})
}

func TestS03_PeerFailureStartsStoreAtOnce(t *testing.T) {
	lost := errors.New("connection reset")
	two := block.NewRun(0, 2)
	refused := says(nil)
	refused.openErr, refused.openAfter = lost, ms(4)
	cases := []struct {
		name    string
		peer    *script
		peerErr error
	}{
		{"refused", refused, lost},
		{"failed", says(nil, fails(lost, ms(4))), lost},
		{"nothing", says(nil, fails(io.EOF, ms(4))), nil},
		{"not found", says(nil, lacks(0, ms(2)), lacks(1, ms(2))), nil},
		{"busy", says(nil, step{after: ms(2), status: block.StatusQueueFull}, fails(io.EOF, ms(2))), nil},
	}
	for _, sequential := range []bool{false, true} {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				bubble(t, func(t *testing.T, b *books) {
					peer := *c.peer
					peer.books, peer.opened = b, nil
					store, full := serves(b, ms(30), 0), &slots{}
					out := run(t, t.Context(), two, known(),
						race.Legs{HeadStart: headStart, Sequential: sequential, Slots: full}, &peer, store)
					out.want(t, io.EOF, got{0, storeSrc, ms(34)}, got{1, storeSrc, ms(34)})
					store.starts(t, "store", opening{run: two, at: ms(4)})
					if s := out.stats; s.Hedged || s.NoSlot || s.Winner != race.StoreWon || s.PeerErr != c.peerErr {
						t.Errorf("stats %+v, want a store win that needed no slot", s)
					}
					if full.refused.Load() != 0 {
						t.Error("the reader's own store leg asked for a slot")
					}
				})
			})
		}
	}
}

func TestS06_BothFailedReturnsStoresError(t *testing.T) {
	lost := errors.New("peer lost")
	busy := &block.Error{Op: "get", Source: storeSrc, Err: block.ErrThrottled}
	for _, head := range []time.Duration{0, headStart} {
		for _, peerAt := range []time.Duration{ms(1), ms(90)} {
			bubble(t, func(t *testing.T, b *books) {
				peer, store := says(b, fails(lost, peerAt)), says(b, fails(busy, ms(30)))
				out := run(t, t.Context(), block.NewRun(0, 2), known(), race.Legs{HeadStart: head}, peer, store)
				out.want(t, block.ErrThrottled)
				if out.err != error(busy) {
					t.Errorf("error %v, want the store's own", out.err)
				}
				if s := out.stats; s.Winner != race.BothFailed || s.PeerErr != lost {
					t.Errorf("stats %+v, want both failed, with the peer's error beside", s)
				}
				if len(store.opened) != 1 {
					t.Errorf("a store leg that failed was started %d times", len(store.opened))
				}
			})
		}
	}
}

func TestOS19_RefusalBeforeAWinnerIsTheAnswer(t *testing.T) {
	for _, c := range []struct {
		name       string
		first, all time.Duration // the peer's first block, and those behind it
		want       error
	}{
		{"no block yet", ms(60), 0, block.ErrDenied},
		{"the peer has answered", ms(10), ms(50), io.EOF},
	} {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := serves(b, c.first, c.all), says(b, fails(block.ErrDenied, ms(5)))
			out := run(t, t.Context(), block.NewRun(0, 2), known(), race.Legs{HeadStart: headStart}, peer, store)
			if out.err != c.want {
				t.Errorf("%s: error %v, want %v", c.name, out.err, c.want)
			}
			if len(store.opened) != 1 {
				t.Errorf("%s: the store was asked %d times", c.name, len(store.opened))
			}
		})
	}
}

func TestS06_StoreFailureLeavesPeerAlone(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer, store := serves(b, ms(60), ms(60)), says(b, fails(block.ErrThrottled, ms(5)))
		out := run(t, t.Context(), block.NewRun(0, 2), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(60)}, got{1, peerSrc, ms(120)})
		if out.stats.Winner != race.PeerWon {
			t.Errorf("winner %d, want the peer", out.stats.Winner)
		}
	})
}

func TestS07_SequentialNeverHedges(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		// A peer that answers in part, late, and then ends.
		peer := says(b, lacks(1, 0), has(0, ms(500)), fails(io.EOF, ms(100)))
		store := serves(b, ms(30), 0)
		out := run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{Sequential: true}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(500)}, got{1, storeSrc, ms(630)}, got{2, storeSrc, ms(630)})
		store.starts(t, "store", opening{run: block.Run{Want: 0b110}, at: ms(600)})
		if out.stats.Hedged {
			t.Error("a sequential read was hedged")
		}
	})
}

func TestS06_NoPeerReadsStoreAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		store, full := serves(b, ms(30), ms(1)), &slots{}
		out := run(t, t.Context(), block.NewRun(7, 2), known(), race.Legs{HeadStart: headStart, Slots: full}, nil, store)
		out.want(t, io.EOF, got{7, storeSrc, ms(30)}, got{8, storeSrc, ms(31)})
		if out.stats.Hedged || full.refused.Load() != 0 {
			t.Errorf("stats %+v: without a peer there is nothing to hedge", out.stats)
		}
	})
}

func TestSF01_PanicInALegIsItsError(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer, store := says(b, has(0, ms(1)), step{after: ms(1), panic: true}), serves(b, ms(30), 0)
		out := run(t, t.Context(), block.NewRun(0, 2), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(1)}, got{1, storeSrc, ms(32)})
		if out.stats.PeerErr == nil {
			t.Error("the peer leg's panic left no trace")
		}
	})
	bubble(t, func(t *testing.T, b *books) {
		peer, store := serves(b, ms(60), 0), says(b, step{after: ms(1), panic: true})
		out := run(t, t.Context(), block.NewRun(0, 1), known(), race.Legs{}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(60)})
	})
}

func TestReaderThatGivesUpIsNoWinner(t *testing.T) {
	gaveUp := errors.New("nobody waits")
	// Both orders of the legs' ends and the reader's: it must never look like a
	// failure of both.
	for range 100 {
		bubble(t, func(t *testing.T, b *books) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(ms(40), func() { cancel(gaveUp) })
			peer, store := says(b, has(0, ms(1)), silent()), says(b, silent())
			out := run(t, ctx, block.NewRun(0, 2), known(), race.Legs{HeadStart: headStart}, peer, store)
			out.want(t, gaveUp, got{0, peerSrc, ms(1)})
			if out.at != ms(40) || out.stats.Winner != race.NoWinner {
				t.Errorf("ended at %v with %+v, want at once and without a winner", out.at, out.stats)
			}
			if len(store.opened) != 1 || store.opened[0].stopped != ms(40) {
				t.Errorf("store legs %+v, want one, cancelled with its reader", store.opened)
			}
		})
		bubble(t, func(t *testing.T, b *books) {
			b.lag = ms(50)
			ctx, cancel := context.WithTimeoutCause(t.Context(), ms(40), gaveUp)
			defer cancel()
			peer, store := says(b, silent()), says(b, silent())
			out := run(t, ctx, block.NewRun(0, 2), known(), race.Legs{HeadStart: time.Hour}, peer, store)
			out.want(t, gaveUp)
			if out.stats.Winner != race.NoWinner || len(store.opened) != 0 {
				t.Errorf("stats %+v, %d store legs; want no winner and no leg for nobody", out.stats, len(store.opened))
			}
		})
	}
}

func TestWaitAloneEndsARace(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer, store := serves(b, ms(1), 0), serves(b, ms(1), 0)
		rc := race.Start(t.Context(), block.NewRun(0, 4), known(), race.Legs{
			Peer: peer.open, Store: store.open, BlockSize: blockSize,
		})
		time.Sleep(ms(10))
		synctest.Wait()
		stats := rc.Wait()
		b.check(t)
		if want := b.made.Load() * blockSize; stats.WastedBytes != want || want == 0 {
			t.Errorf("%d bytes wasted, want all %d", stats.WastedBytes, want)
		}
	})
}

func TestS08_LegThatGoesOnIsCancelledInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		peer, store := says(b, has(0, ms(5)), silent()), serves(b, ms(30), 0)
		out := run(t, t.Context(), block.NewRun(0, 1), known(), race.Legs{HeadStart: headStart}, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(5)})
		if at := peer.opened[0].stopped; at != ms(5) {
			t.Errorf("a leg that had brought all was cancelled at %v, want at once", at)
		}
	})
}
