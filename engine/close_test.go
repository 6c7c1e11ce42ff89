package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/engine/flight"
)

// situations are worlds in which a read is under way for a while.
func situations() map[string]func(w *world) {
	peer := func(r reply) func(w *world) {
		return func(w *world) {
			w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
			w.peer(1, always(r))
			w.peer(2, serves(25*time.Millisecond))
		}
	}
	return map[string]func(w *world){
		"store alone":     func(*world) {},
		"slow store":      func(w *world) { w.setStore(always(reply{after: 10 * time.Millisecond, gap: 9 * time.Millisecond})) },
		"peer":            peer(reply{after: 10 * time.Millisecond, gap: 5 * time.Millisecond}),
		"late peer":       peer(reply{after: 50 * time.Millisecond}),
		"silent peer":     peer(reply{silent: true}),
		"partial peer":    peer(reply{after: 7 * time.Millisecond, lacks: map[uint64]bool{1: true, 2: true, 5: true}}),
		"peer cut off":    peer(reply{after: 7 * time.Millisecond, gap: 3 * time.Millisecond, cut: 2, err: errReset}),
		"sequence":        func(w *world) { sequence(w); peer(reply{after: 30 * time.Millisecond, all: true})(w) },
		"panicking store": func(w *world) { w.setStore(always(reply{after: 15 * time.Millisecond, panics: true})) },
		"panicking peer":  peer(reply{after: 15 * time.Millisecond, panics: true}),
		"known object": func(w *world) {
			w.learn()
			peer(reply{after: 10 * time.Millisecond, gap: 5 * time.Millisecond})(w)
		},
	}
}

// idle reports what a world still holds when nobody reads any more.
func (w *world) idle(what string) {
	w.t.Helper()
	time.Sleep(2 * time.Second) // calls left running have ended
	synctest.Wait()
	m := w.e.Metrics()
	if m.FlightsRacing+m.FlightsGetting != 0 || w.e.learning.Len() != 0 {
		w.t.Errorf("%s: %d+%d+%d flights are left", what, m.FlightsRacing, m.FlightsGetting, w.e.learning.Len())
	}
	if err := w.e.Cache.Flush(context.Background()); err != nil {
		w.t.Error(err)
	}
	if n := w.bufs.Load(); n != 0 {
		w.t.Errorf("%s: %d blocks are held when all is on disk and nobody reads", what, n)
	}
	for _, c := range append(w.calls(), w.gets()...) {
		if c.streamed && c.closed < 0 {
			w.t.Errorf("%s: a stream of %q was never closed", what, c.addr)
		}
	}
}

func TestSF02_CallerThatLeavesAtAnyStepLeavesNothingBehind(t *testing.T) {
	for name, set := range situations() {
		for _, ms := range []int{0, 5, 10, 20, 27, 40, 52, 61, 84} {
			inWorld(t, func(w *world) {
				set(w)
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
				defer cancel()
				req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet()}
				begin := w.since()
				_, err := w.readAs(ctx, req, 12*testBlock)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && name != "panicking store" {
					t.Errorf("%s, %d ms: %v", name, ms, err)
				}
				if err != nil && w.since()-begin > time.Duration(ms)*time.Millisecond {
					t.Errorf("%s: the caller left after %d ms and got its answer after %v", name, ms, w.since()-begin)
				}
				w.idle(fmt.Sprintf("%s, caller gone after %d ms", name, ms))
			})
		}
	}
}

func TestReaderClosedHalfWayLeavesNothingBehind(t *testing.T) {
	for name, set := range situations() {
		if name == "panicking store" {
			continue // gives no blocks
		}
		for _, taken := range []int{0, 1, 2, 3, 6, 11, 12} {
			inWorld(t, func(w *world) {
				set(w)
				r, err := w.e.Open(context.Background(), &block.Read{
					Object: testObject(), Version: block.Immutable, Route: tablet(), Size: 12 * testBlock,
				})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				for range taken {
					v, err := r.Next(context.Background())
					if err != nil {
						t.Errorf("%s: %v", name, err)
						break
					}
					v.Lease.Release()
				}
				r.Close()
				r.Close() // does nothing
				w.idle(fmt.Sprintf("%s, closed behind %d blocks", name, taken))
			})
		}
	}
}

func TestCloseAtAnyStepEndsReadsAndGoroutines(t *testing.T) {
	for name, set := range situations() {
		for _, ms := range []int{0, 9, 20, 33, 55} {
			inWorld(t, func(w *world) {
				set(w)
				done := make(chan error, 4)
				for n := range 4 {
					go func() {
						_, err := w.read(int64(n)*testBlock, 4*testBlock)
						done <- err
					}()
				}
				time.Sleep(time.Duration(ms) * time.Millisecond)
				begin := w.since()
				w.e.Close()
				if took := w.since() - begin; took != 0 {
					t.Errorf("%s: Close after %d ms took %v", name, ms, took)
				}
				for range 4 {
					if err := <-done; err != nil && !errors.Is(err, errClosed) && !errors.Is(err, flight.ErrRetry) {
						t.Errorf("%s: a reader's error: %v", name, err)
					}
				}
				if w.since() != begin {
					t.Errorf("%s: readers hung on for %v", name, w.since()-begin)
				}
				for _, req := range []*block.Read{{Object: testObject(), Version: block.Immutable, Offset: 19 * testBlock}, external(0)} {
					if _, _, err := w.e.Read(context.Background(), req, make([]byte, 1)); !errors.Is(err, errClosed) {
						t.Errorf("%s: a new read: %v, want %v", name, err, errClosed)
					}
				}
			})
		}
	}
}

func TestSF01_PanicNeverBlocksAKey(t *testing.T) {
	for name, script := range map[string]reply{
		"when it opens": {}, "when it decodes": {panics: true},
	} {
		for _, peer := range []bool{false, true} {
			inWorld(t, func(w *world) {
				w.learn()
				once := func(bad bool) reply {
					switch {
					case !bad:
						return reply{after: time.Millisecond}
					case name == "when it opens":
						panic("opening")
					}
					return script
				}
				if peer {
					w.know(tablet(), candidate(1, "cg_a"))
					w.peer(1, func(n int, _ *block.Fetch) reply { return once(n == 0) })
				} else {
					w.setStore(func(n int, _ *block.Fetch) reply { return once(n == 1) })
				}
				done := make(chan error, 50)
				for range 50 {
					go func() { _, _, err := w.at(5); done <- err }()
				}
				for range 50 {
					if err := <-done; err != nil {
						t.Errorf("panic %s, peer %v: a waiter got %v", name, peer, err)
					}
				}
				synctest.Wait()
				if m := w.e.Metrics(); m.Panics != 1 {
					t.Errorf("panic %s, peer %v: %d counted", name, peer, m.Panics)
				}
				if _, _, err := w.at(7); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
