package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/engine/timeline"
)

// timed adds a log that keeps every read that misses.
func timed(o *Options) {
	o.Timelines = timeline.New(100)
	o.Timelines.ThresholdMS.Store(0)
}

// told returns the newest timeline, a line for each step with milliseconds.
func (w *world) told() (timeline.View, string) {
	w.t.Helper()
	all := w.e.Timelines.Show(1)
	if len(all) == 0 {
		w.t.Fatal("no timeline was kept")
	}
	var b strings.Builder
	for _, s := range all[0].Steps {
		fmt.Fprintf(&b, "%s %s %d+%d %d..%d..%d %q %s\n", s.What, s.Addr, s.FirstBlock, s.Blocks, s.AtUS/1000, s.FirstByteUS/1000, s.UntilUS/1000, s.Outcome, s.Checksum)
	}
	return all[0], b.String()
}

func TestTimelineOfAHedgedRead(t *testing.T) {
	for _, c := range []struct {
		name string
		peer reply
		want string
	}{
		{"the peer is late and loses", reply{after: 90 * time.Millisecond}, `
local  0+0 0..0..0 "missed" 
candidates  0+0 0..0..0 "ready" 
peer 10.0.0.1:8060 3+1 0..0..60 "cancelled" 
hedge  3+1 20..0..0 "" 
s3  3+1 20..60..60 "all of it" made
winner  3+1 60..0..0 "s3" 
`},
		{"the peer is late and wins", reply{after: 50 * time.Millisecond}, `
local  0+0 0..0..0 "missed" 
candidates  0+0 0..0..0 "ready" 
peer 10.0.0.1:8060 3+1 0..50..50 "hit" ok
hedge  3+1 20..0..0 "" 
s3  3+1 20..0..50 "cancelled" 
winner  3+1 50..0..0 "peer" 
`},
		{"the peer's bytes are wrong", reply{after: 5 * time.Millisecond, corrupt: true}, `
local  0+0 0..0..0 "missed" 
candidates  0+0 0..0..0 "ready" 
peer 10.0.0.1:8060 3+1 0..0..5 "checksum mismatch" mismatch
s3  3+1 5..45..45 "all of it" made
winner  3+1 45..0..0 "s3" 
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.learn()
				w.know(tablet(), candidate(1, "cg_write"))
				w.peer(1, always(c.peer))
				w.one(3)
				if v, got := w.told(); "\n"+got != c.want || v.Why != "slow" {
					t.Errorf("%s%s", v.Why, got)
				}
			}, timed)
		})
	}
}

func TestTimelineOfAnUnknownObjectHasOneTimeOfWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_write"))
		w.peer(1, serves(90*time.Millisecond))
		w.one(3)
		v, got := w.told()
		if v.WaitedUS != 60_000 || !strings.Contains(got, "hedge  3+1 20..") || !strings.Contains(got, "s3  3+1 20..60..60") {
			t.Errorf("waited %d\n%s", v.WaitedUS, got)
		}
	}, timed)
}

func TestTimelineOfAReaderThatJoined(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() { // ends with its read
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				w.read(5*testBlock, (1+i)*testBlock) // the one that joins has a block of its own, and ends last
			})
		}
		both.Wait()
		if v, got := w.told(); !strings.Contains(got, "shared  5+1 0..0..30") || v.WaitedUS != 40_000 {
			t.Errorf("waited %d\n%s", v.WaitedUS, got)
		}
	}, timed)
}

// A peer that answers with a refusal is told apart from one that is broken.
func TestTimelineSaysHowAPeerRefuses(t *testing.T) {
	for err, want := range map[error]string{
		block.ErrRefused: `"refused: it takes this node for a stranger"`, block.ErrInvalid: `"refused: invalid request"`,
		block.ErrThrottled: `"refused: throttled"`, errReset: `"error"`,
	} {
		inWorld(t, func(w *world) {
			w.learn()
			w.know(tablet(), candidate(1, "cg_write"))
			w.peer(1, always(reply{after: time.Millisecond, err: fmt.Errorf("peer: %w", err)}))
			w.one(3)
			if _, got := w.told(); !strings.Contains(got, "peer 10.0.0.1:8060 3+1 0..0..1 "+want) {
				t.Errorf("%v:\n%s", err, got)
			}
		}, timed)
	}
}

func TestTimelineOfAReadThatFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.setStore(always(reply{after: time.Millisecond, err: block.ErrNotFound}))
		w.one(3)
		if v, got := w.told(); !strings.Contains(v.Error, "no such object") || !strings.Contains(got, "no such object") {
			t.Errorf("%q\n%s", v.Error, got)
		}
	}, timed)
}

// TestTimelinesCostAHitNothing: a hit has none, and a read that misses is told
// of the blocks that were there before.
func TestTimelinesCostAHitNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.one(1)
		kept := w.e.Timelines.Metrics().Slow
		w.one(0)
		w.one(1)
		r, err := w.e.Open(context.Background(), &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Size: 2 * testBlock})
		if err != nil {
			t.Fatal(err)
		}
		v, err := r.Next(context.Background())
		if err != nil || r.trace != nil {
			t.Errorf("a hit has a timeline (%v)", err)
		}
		v.Lease.Release()
		r.Close()
		if n := w.e.Timelines.Metrics().Slow; n != kept {
			t.Errorf("%d hits were kept", n-kept)
		}
		w.read(0, 4*testBlock)
		synctest.Wait()
		if v, got := w.told(); v.Steps[0].Count != 2 {
			t.Errorf("%d blocks were there, want 2\n%s", v.Steps[0].Count, got)
		}
	}, timed)
}

func TestTraceGoesAlongToThePeer(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, change := range map[string]func(*Options){"with a timeline": timed, "without": func(*Options) {}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.learn()
				w.know(tablet(), candidate(1, "cg_write"))
				w.peer(1, serves(time.Millisecond))
				w.readAs(context.Background(), &block.Read{
					Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: 3 * testBlock, Trace: trace,
				}, 10)
				want := trace
				if w.e.Timelines != nil {
					v, _ := w.told()
					want = "00-" + v.TraceID + "-" + v.SpanID + "-01"
				}
				if got := w.calls()[0].req.Trace; got != want || want[:35] != trace[:35] {
					t.Errorf("the peer got %q, want %q", got, want)
				}
			}, change)
		})
	}
}
