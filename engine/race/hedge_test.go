package race_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/engine/race"
)

func TestS36_HedgeNeedsTheBudget(t *testing.T) {
	one := block.NewRun(0, 1)
	t.Run("refused", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			empty := allows(0)
			peer, store := says(b, fails(errPeer, ms(60))), serves(b, ms(30), 0)
			out := run(t, t.Context(), one, known(), race.Legs{HeadStart: headStart, Budget: empty}, peer, store)
			// The reader's own read of the store needs no budget.
			out.want(t, io.EOF, got{0, storeSrc, ms(90)})
			if s := out.stats; s.Hedged || !s.NoBudget || s.NoSlot || empty.asked != 1 {
				t.Errorf("stats %+v, asked %d times; want one refusal", s, empty.asked)
			}
		})
	})
	t.Run("allowed", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			some := allows(3)
			out := run(t, t.Context(), one, known(), race.Legs{HeadStart: headStart, Budget: some},
				says(b, silent()), serves(b, ms(30), 0))
			out.want(t, io.EOF, got{0, storeSrc, ms(50)})
			if some.left.Load() != 2 || out.stats.NoBudget {
				t.Errorf("%d of 3 hedges left, stats %+v", some.left.Load(), out.stats)
			}
		})
	})
	t.Run("no slot", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			some := allows(3)
			out := run(t, t.Context(), one, known(), race.Legs{HeadStart: headStart, Budget: some, Slots: &slots{}},
				says(b, fails(errPeer, ms(60))), serves(b, ms(30), 0))
			if s := out.stats; some.left.Load() != 3 || s.NoBudget || !s.NoSlot {
				t.Errorf("%d of 3 hedges left, stats %+v; a hedge without a slot costs nothing", some.left.Load(), s)
			}
		})
	})
	t.Run("partial reply", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			empty := allows(0)
			peer, store := says(b, lacks(0, 0), has(1, ms(1)), has(2, ms(10))), serves(b, ms(5), 0)
			out := run(t, t.Context(), block.NewRun(0, 3), known(), race.Legs{HeadStart: headStart, Budget: empty}, peer, store)
			out.want(t, io.EOF, got{1, peerSrc, ms(1)}, got{0, storeSrc, ms(6)}, got{2, peerSrc, ms(11)})
			if empty.asked != 0 {
				t.Error("blocks that the peer lacks are no extra GETs")
			}
		})
	})
}

func TestS36_RefusedHedgeIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, b *books) {
		late := allows(0)
		time.AfterFunc(ms(33), func() { late.left.Store(1) })
		peer, store := says(b, silent()), serves(b, ms(30), 0)
		out := run(t, t.Context(), block.NewRun(0, 1), known(),
			race.Legs{HeadStart: headStart, Budget: late, Again: ms(5)}, peer, store)
		out.want(t, io.EOF, got{0, storeSrc, ms(65)})
		store.starts(t, "store", opening{run: block.NewRun(0, 1), at: ms(35)})
		if late.asked != 4 || !out.stats.Hedged {
			t.Errorf("asked %d times, want at 20, 25, 30 and 35 ms", late.asked)
		}
	})
	bubble(t, func(t *testing.T, b *books) {
		// A slot for what the peer lacks is asked for again as well; that the peer
		// is late is another matter.
		full := &slots{}
		time.AfterFunc(ms(14), func() { full.limit.Store(1) })
		peer, store := says(b, lacks(0, 0), has(1, ms(1)), has(2, ms(19)), has(3, ms(18))), serves(b, ms(3), 0)
		out := run(t, t.Context(), block.NewRun(0, 4), known(),
			race.Legs{HeadStart: headStart, Slots: full, Again: ms(5)}, peer, store)
		out.want(t, io.EOF, got{1, peerSrc, ms(1)}, got{0, storeSrc, ms(19)}, got{2, peerSrc, ms(20)}, got{3, peerSrc, ms(38)})
		store.starts(t, "store", opening{run: block.NewRun(0, 1), at: ms(16)})
	})
}

func TestS36_HedgeHasAStoreLegOfItsOwn(t *testing.T) {
	for _, peerFails := range []time.Duration{ms(5), ms(500)} {
		bubble(t, func(t *testing.T, b *books) {
			peer, store, hedge := says(b, fails(errPeer, peerFails)), serves(b, ms(30), 0), serves(b, ms(30), 0)
			run(t, t.Context(), block.NewRun(0, 1), known(), race.Legs{HeadStart: headStart, Hedge: hedge.open}, peer, store)
			own := peerFails < headStart
			if (len(store.opened) == 1) != own || (len(hedge.opened) == 1) == own {
				t.Errorf("a peer that failed at %v: %d store legs, %d hedges", peerFails, len(store.opened), len(hedge.opened))
			}
		})
	}
}

func TestS38_FillIsGivenItsOwnTime(t *testing.T) {
	const patience = 100 * time.Millisecond
	legs := race.Legs{HeadStart: headStart, FillHeadStart: patience}
	two := block.NewRun(0, 2)
	t.Run("in time", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, fills(ms(2)), fills(0), has(0, ms(99)), has(1, ms(99))), serves(b, ms(1), 0)
			out := run(t, t.Context(), two, known(), legs, peer, store)
			out.want(t, io.EOF, got{0, peerSrc, ms(101)}, got{1, peerSrc, ms(200)})
			store.starts(t, "store")
		})
	})
	t.Run("late", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, fills(ms(2)), fills(ms(50)), silent()), serves(b, ms(30), 0)
			out := run(t, t.Context(), two, known(), legs, peer, store)
			out.want(t, io.EOF, got{0, storeSrc, ms(132)}, got{1, storeSrc, ms(132)})
			store.starts(t, "store", opening{run: two, at: ms(102)})
		})
	})
	t.Run("said late", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			late := allows(0)
			time.AfterFunc(ms(26), func() { late.left.Store(1) })
			legs := race.Legs{HeadStart: headStart, FillHeadStart: patience, Budget: late, Again: ms(5)}
			peer, store := says(b, fills(ms(25)), has(0, ms(50)), has(1, 0)), serves(b, ms(1), 0)
			out := run(t, t.Context(), two, known(), legs, peer, store)
			out.want(t, io.EOF, got{0, peerSrc, ms(75)}, got{1, peerSrc, ms(75)})
			store.starts(t, "store")
		})
	})
	t.Run("the rest of a part", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, has(0, ms(2)), fills(0), has(1, ms(60))), serves(b, ms(1), 0)
			out := run(t, t.Context(), two, known(), legs, peer, store)
			out.want(t, io.EOF, got{0, peerSrc, ms(2)}, got{1, peerSrc, ms(62)})
			store.starts(t, "store")
		})
	})
	t.Run("a fill that fails", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			peer, store := says(b, fills(ms(2)), lacks(0, ms(50)), lacks(1, 0)), serves(b, ms(30), 0)
			out := run(t, t.Context(), two, known(), legs, peer, store)
			out.want(t, io.EOF, got{0, storeSrc, ms(82)}, got{1, storeSrc, ms(82)})
		})
	})
}

// A fill that has come to nothing is no reason to go on waiting: the head start
// that there was before it counts again.
func TestS38_FillThatFailsGivesItsTimeBack(t *testing.T) {
	legs := race.Legs{HeadStart: headStart, FillHeadStart: 100 * time.Millisecond}
	for failed, start := range map[int]int{5: 20, 53: 55} {
		bubble(t, func(t *testing.T, b *books) {
			peer := says(b, fills(ms(2)), step{after: ms(failed), status: block.StatusFillTimeout}, silent())
			store := serves(b, ms(30), 0)
			run(t, t.Context(), block.NewRun(0, 2), known(), legs, peer, store)
			store.starts(t, "store", opening{run: block.NewRun(0, 2), at: ms(start)})
		})
	}
	bubble(t, func(t *testing.T, b *books) { // said once: a leg can't fill the race's ears
		peer, store := says(b), serves(b, ms(1), 0)
		peer.steps = func(block.Run) (said []step) {
			for range 200 {
				said = append(said, fills(0), step{status: block.StatusFillTimeout})
			}
			return append(said, has(0, ms(15)))
		}
		b.lag = ms(50)
		out := run(t, t.Context(), block.NewRun(0, 1), known(), legs, peer, store)
		out.want(t, io.EOF, got{0, peerSrc, ms(50)})
	})
}

// What a peer that fills won't bring is the store's at once, not when it is late.
func TestS38_WhatIsNotFilledIsTheStores(t *testing.T) {
	legs := race.Legs{HeadStart: headStart, FillHeadStart: 100 * time.Millisecond}
	bubble(t, func(t *testing.T, b *books) {
		peer, store := says(b, lacks(1, ms(2)), lacks(2, 0), fills(0), has(0, ms(80))), serves(b, ms(30), 0)
		out := run(t, t.Context(), block.NewRun(0, 3), known(), legs, peer, store)
		out.want(t, io.EOF, got{1, storeSrc, ms(32)}, got{2, storeSrc, ms(32)}, got{0, peerSrc, ms(82)})
		store.starts(t, "store", opening{run: block.Run{Want: 0b110}, at: ms(2)})
	})
}

// twin runs a GET and, when that is late, a second one.
func twin(t *testing.T, r block.Run, first, second *script) outcome {
	t.Helper()
	return run(t, t.Context(), r, known(), race.Legs{HeadStart: headStart, Twin: true}, first, second)
}

func TestS36_LateGETHasATwin(t *testing.T) {
	two := block.NewRun(0, 2)
	bubble(t, func(t *testing.T, b *books) {
		first, second := serves(b, ms(19), 0), serves(b, ms(1), 0)
		out := twin(t, two, first, second)
		out.want(t, io.EOF, got{0, storeSrc, ms(19)}, got{1, storeSrc, ms(19)})
		second.starts(t, "second")
	})
	bubble(t, func(t *testing.T, b *books) {
		first, second := serves(b, ms(180), 0), serves(b, ms(30), 0)
		out := twin(t, two, first, second)
		out.want(t, io.EOF, got{0, storeSrc, ms(50)}, got{1, storeSrc, ms(50)})
		if at := first.opened[0].stopped; at != ms(50) {
			t.Errorf("the late GET was cancelled at %v", at)
		}
	})
}

func TestPR17_TwinsDoNotRepeatAFailure(t *testing.T) {
	two := block.NewRun(0, 2)
	broken := errors.New("connection reset")
	t.Run("the first fails", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			first, second := says(b, fails(block.ErrThrottled, ms(5))), serves(b, ms(30), 0)
			out := twin(t, two, first, second)
			out.want(t, block.ErrThrottled)
			second.starts(t, "second")
		})
	})
	t.Run("the first ends early", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			first, second := says(b, has(0, ms(5))), serves(b, ms(30), 0)
			out := twin(t, two, first, second)
			out.want(t, io.ErrUnexpectedEOF, got{0, storeSrc, ms(5)})
			second.starts(t, "second")
		})
	})
	t.Run("the second fails after it has won", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			first, second := serves(b, ms(180), 0), says(b, has(0, ms(30)), fails(broken, ms(5)))
			out := twin(t, two, first, second)
			out.want(t, broken, got{0, storeSrc, ms(50)})
		})
	})
	t.Run("the second fails before", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			first, second := serves(b, ms(180), 0), says(b, fails(broken, ms(5)))
			out := twin(t, two, first, second)
			out.want(t, io.EOF, got{0, storeSrc, ms(180)}, got{1, storeSrc, ms(180)})
		})
	})
	t.Run("both fail", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			first, second := says(b, fails(block.ErrThrottled, ms(90))), says(b, fails(broken, ms(5)))
			out := twin(t, two, first, second)
			out.want(t, block.ErrThrottled)
		})
	})
	t.Run("the second is denied", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *books) {
			first, second := serves(b, ms(180), 0), says(b, fails(block.ErrDenied, ms(5)))
			out := twin(t, two, first, second)
			out.want(t, block.ErrDenied)
		})
	})
}
