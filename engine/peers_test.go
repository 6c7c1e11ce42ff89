package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

var errReset = errors.New("connection reset")

// sequence switches races off: the order of trial is then seen on the wire.
func sequence(w *world) { w.e.Settings.EnablePeerS3Race.Store(false) }

// lack makes peers 1 to n answer that they have nothing.
func lack(w *world, n int) {
	for i := range n {
		w.peer(i+1, always(reply{after: time.Millisecond, all: true}))
	}
}

func TestS20_SourcesAreTriedInTheirOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		sequence(w)
		lack(w, 5)
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		w.e.Table.PutSource(tablet(), candidate(3, "cg_c"))
		w.one(0)
		if got, want := w.askedPeers(0), []int{3, 1, 2}; !slices.Equal(got, want) {
			t.Errorf("asked %v, want the source of the rebalance first: %v", got, want)
		}
		forced := shards.View{TabletID: 1}
		for _, n := range []int{5, 4} {
			a := peerAddr(n)
			forced.Candidates = append(forced.Candidates, shards.CandidateView{Host: a.Host, Port: a.Port, GroupID: "cg_d"})
		}
		if err := w.e.Table.Set(tablet(), forced); err != nil {
			t.Fatal(err)
		}
		from := len(w.calls())
		w.one(1)
		if got, want := w.askedPeers(from), []int{5, 4}; !slices.Equal(got, want) {
			t.Errorf("asked %v, want the manual list as it is written: %v", got, want)
		}
	})
}

func TestS22_LastSuccessfulGroupIsTriedFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		sequence(w)
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"), candidate(3, "cg_b"))
		lack(w, 3)
		w.peer(2, serves(time.Millisecond))
		w.one(0)
		w.peer(1, serves(time.Millisecond))
		from := len(w.calls())
		w.one(1)
		if got := w.askedPeers(from); !slices.Equal(got, []int{2}) {
			t.Errorf("asked %v, want 2, whose group served last", got)
		}
	})
}

func TestS23_MissMovesCandidateToEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		sequence(w)
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"), candidate(3, "cg_c"))
		lack(w, 3)
		w.peer(2, serves(time.Millisecond))
		w.one(0)
		if got := w.candidates(); !slices.Equal(got, []int{2, 3, 1}) {
			t.Errorf("the list is %v, want 2 3 1", got)
		}
		// The group that served last misses now: the preference goes.
		lack(w, 3)
		w.peer(3, serves(time.Millisecond))
		w.one(1)
		if view, _ := w.e.Table.Show(tablet()); view.LastGroupID != "cg_c" {
			t.Errorf("last group %q, want cg_c", view.LastGroupID)
		}
		if got := w.candidates(); !slices.Equal(got, []int{3, 1, 2}) {
			t.Errorf("the list is %v, want 3 1 2", got)
		}
	})
}

func TestS24_ThreeRPCFailuresEvict(t *testing.T) {
	inWorld(t, func(w *world) {
		w.rules.FailureThreshold.Store(100) // the circuit stays out of it
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		w.peer(2, serves(time.Millisecond))
		for n, answer := range []reply{
			{err: errReset}, {err: errReset}, {after: time.Millisecond}, // a success resets the count
			{err: errReset}, {all: true, status: block.StatusQueueFull}, {err: errReset}, // busy does not
		} {
			// Peer 1 alone, so that it is asked.
			w.peer(1, always(answer))
			w.e.Table.PutSource(tablet(), candidate(1, "cg_a"))
			forget, _ := w.e.Table.Show(tablet())
			forget.LastGroupID = ""
			if err := w.e.Table.Set(tablet(), forget); err != nil {
				t.Fatal(err)
			}
			w.one(n)
		}
		if view, _ := w.e.Table.Show(tablet()); len(view.Candidates) != 2 || view.Candidates[0].Failures != 2 {
			t.Fatalf("candidates %+v, want peer 1 with 2 failures", view.Candidates)
		}
		// PR-11: the FE names it again; the third failure evicts all the same.
		time.Sleep(11 * time.Minute)
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		w.peer(1, always(reply{err: errReset}))
		view, _ := w.e.Table.Show(tablet())
		view.LastGroupID = ""
		if err := w.e.Table.Set(tablet(), view); err != nil {
			t.Fatal(err)
		}
		w.one(10)
		if got := w.candidates(); !slices.Equal(got, []int{2}) {
			t.Errorf("the list is %v, want peer 1 evicted", got)
		}
	})
}

func TestS25_AllMissCoolsDown(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(600, "v1")
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		lack(w, 2)
		// 64 blocks are four runs, all of which miss: one read all the same.
		if _, err := w.read(0, 64*testBlock); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if view, _ := w.e.Table.Show(tablet()); view.AllMiss != 1 {
			t.Errorf("one read counts %d times", view.AllMiss)
		}
		for n := range 4 {
			w.one(100 + n)
		}
		begin, calls := w.since(), len(w.calls())
		for _, after := range []time.Duration{0, 150 * time.Second, 300*time.Second - time.Millisecond - 40*time.Millisecond} {
			time.Sleep(begin + after - w.since())
			if _, took, _ := w.one(200 + int(after/time.Second)); took != 40*time.Millisecond {
				t.Errorf("in cooldown, after %v: the read took %v, want the store's 40ms", after, took)
			}
		}
		if n := len(w.calls()) - calls; n != 0 {
			t.Errorf("%d calls in cooldown", n)
		}
		if n := len(w.lookups()); n != 0 {
			t.Errorf("%d look-ups in cooldown", n)
		}
		time.Sleep(begin + 300*time.Second - w.since())
		w.one(300)
		if n := len(w.calls()) - calls; n != 2 {
			t.Errorf("%d calls after the cooldown, want both candidates asked", n)
		}
		synctest.Wait()
		if view, _ := w.e.Table.Show(tablet()); view.AllMiss != 1 || view.CooldownUntilMS != 0 {
			t.Errorf("all-miss %d, cooldown %d: the count does not start clean", view.AllMiss, view.CooldownUntilMS)
		}
	})
}

func TestS26_UnusedCandidatesExpireAndTheFEIsAskedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.setLookup(func(block.Route) ([]shards.Candidate, error) {
			return []shards.Candidate{candidate(2, "cg_b")}, nil
		})
		w.rules.RefreshSeconds.Store(1 << 20) // no refresh while it is in use
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(time.Millisecond))
		w.peer(2, serves(time.Millisecond))
		w.one(0)
		time.Sleep(3600*time.Second - time.Millisecond)
		if w.one(1); len(w.calls()) != 2 {
			t.Errorf("%d calls, want 2: the candidate is not too old yet", len(w.calls()))
		}
		time.Sleep(3600 * time.Second)
		asked := len(w.lookups())
		src, took, _ := w.one(2)
		if src != block.SourceStore || took != 40*time.Millisecond || len(w.calls()) != 2 {
			t.Errorf("from %v in %v with %d calls: an expired candidate is in use", src, took, len(w.calls()))
		}
		if n := len(w.lookups()) - asked; n != 1 {
			t.Errorf("%d look-ups, want 1", n)
		}
		if src, _, _ := w.one(3); src != block.SourcePeer || w.calls()[2].addr != peerAddr(2).String() {
			t.Errorf("from %v, want the FE's new candidate", src)
		}
	})
}

func TestS16_KindsOfPeersAreSwitchedApart(t *testing.T) {
	for _, c := range []struct {
		same, cross bool
		asked       []int
	}{{true, true, []int{1, 2}}, {true, false, []int{1}}, {false, true, []int{2}}, {false, false, nil}} {
		inWorld(t, func(w *world) {
			sequence(w)
			w.know(tablet(), candidate(1, "cg_read"), candidate(2, "cg_write"))
			lack(w, 2)
			w.e.Settings.EnableSameComputeGroupPeerRead.Store(c.same)
			w.e.Settings.EnableCrossComputeGroupRead.Store(c.cross)
			if _, _, err := w.one(0); err != nil {
				t.Fatal(err)
			}
			if got := w.askedPeers(0); !slices.Equal(got, c.asked) {
				t.Errorf("same %v, cross %v: asked %v, want %v", c.same, c.cross, got, c.asked)
			}
		})
	}
}

func TestS18_ExternalObjectsHaveTheirSwitch(t *testing.T) {
	inWorld(t, func(w *world) {
		route := block.ExternalRoute(testObject())
		w.know(route, candidate(1, "cg_write"))
		w.peer(1, serves(time.Millisecond))
		for n, on := range []bool{true, false, true} {
			w.e.Settings.EnableExternalPeerRead.Store(on)
			req := &block.Read{Object: testObject(), Route: route, Offset: int64(n) * testBlock}
			src, err := w.readAs(context.Background(), req, 10)
			if err != nil || (src == block.SourcePeer) != on {
				t.Errorf("switch %v: from %v (%v)", on, src, err)
			}
		}
		// The same number of the other kind is another route.
		if src, err := w.readRoute(block.Route{Kind: block.RouteTablet, ID: route.ID}, 5); src != block.SourceStore {
			t.Errorf("a tablet with the hash's number is served by its candidates: from %v (%v)", src, err)
		}
	})
}

func TestS19_OwnLocationFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		sequence(w)
		far := candidate(1, "cg_a")
		far.Location = "elsewhere"
		w.know(tablet(), far, candidate(2, "cg_b"))
		lack(w, 2)
		w.one(0)
		if got := w.askedPeers(0); !slices.Equal(got, []int{2, 1}) {
			t.Errorf("asked %v, want the own location first", got)
		}
	})
}

func TestS16_SwitchesAndAllowedGroups(t *testing.T) {
	own, other := candidate(1, "cg_read"), candidate(2, "cg_b")
	for _, c := range []struct {
		name        string
		same, cross bool
		allowed     []string
		asked       []int
	}{
		{"all", true, true, nil, []int{1, 2}},
		{"own group only", true, false, nil, []int{1}},
		{"others only", false, true, nil, []int{2}},
		{"none", false, false, nil, nil},
		{"allow-list", true, true, []string{"cg_x", "cg_b"}, []int{2}},
	} {
		inWorld(t, func(w *world) {
			sequence(w)
			w.e.Settings.EnableSameComputeGroupPeerRead.Store(c.same)
			w.e.Settings.EnableCrossComputeGroupRead.Store(c.cross)
			w.e.Settings.PeerReadAllowedComputeGroups.Store(&c.allowed)
			w.know(tablet(), own, other)
			lack(w, 1)
			lack(w, 2)
			w.one(0)
			if got := w.askedPeers(0); !slices.Equal(got, c.asked) {
				t.Errorf("%s: asked %v, want %v", c.name, got, c.asked)
			}
		})
	}
}

func TestS19_BytesFromAnotherLocationAreBounded(t *testing.T) {
	for _, perSecond := range []int64{2 * testBlock, 5 * testBlock} {
		inWorld(t, func(w *world) {
			w.put(100, "v1")
			w.e.Location = "az1"
			w.e.Settings.PeerCrossLocationBytesPerSecond.Store(perSecond)
			far := candidate(1, "cg_a")
			far.Location = "az2"
			w.know(tablet(), far)
			w.peer(1, serves(time.Millisecond))
			for n := range 40 {
				w.one(n)
			}
			want := int(perSecond / testBlock)
			if got := len(w.calls()); got < want || got > want*3 {
				t.Errorf("%d calls to another location within two seconds, want about %d a second", got, want)
			}
		})
	}
}

func TestS37_EjectedPeersAreTriedLast(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"))
		w.peer(1, serves(time.Millisecond))
		w.peer(2, serves(time.Millisecond))
		for range 16 {
			w.e.Breakers.NoteRace(peerAddr(1), false)
		}
		w.one(0)
		if got := w.askedPeers(0); !slices.Equal(got, []int{2}) {
			t.Errorf("asked %v, want the slow peer last", got)
		}
		time.Sleep(10 * time.Second)
		view, _ := w.e.Table.Show(tablet())
		view.LastGroupID = ""
		if err := w.e.Table.Set(tablet(), view); err != nil {
			t.Fatal(err)
		}
		w.one(1)
		if got := w.askedPeers(1); !slices.Equal(got, []int{1}) {
			t.Errorf("asked %v, want it back on trial", got)
		}
	})
}

func TestCF08_FillGroupThatNobodyBelongsToIsCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(time.Millisecond))
		for n, group := range []string{"", "cg_a", "a group's name"} {
			w.e.Settings.PeerCacheFillComputeGroupID.Store(&group)
			w.one(n)
			if filled := w.calls()[n].req.Fill; filled != (group == "cg_a") {
				t.Errorf("group %q: fill flag %v", group, filled)
			}
		}
		if m := w.e.Metrics(); m.FillGroupUnmatched != 1 {
			t.Errorf("%d counted, want the last read's", m.FillGroupUnmatched)
		}
	})
}

func TestPR32_FewerAndFewerPeers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(200, "v1")
		w.know(tablet(), candidate(1, "cg_a"), candidate(2, "cg_b"), candidate(3, "cg_c"))
		for n := range 3 {
			w.peer(n+1, serves(time.Millisecond))
		}
		for n := range 150 {
			if n%50 == 49 { // one more goes
				w.peer(n/50+1, nil)
			}
			if _, took, err := w.one(n); err != nil || took > 41*time.Millisecond {
				t.Errorf("read %d: %v after %v", n, err, took)
			}
		}
	})
}

func TestPR23_NobodyIsAskedWherePeersMustNotBe(t *testing.T) {
	external := block.ExternalRoute(testObject())
	for _, c := range []struct {
		name string
		req  block.Read
		set  func(*Settings)
	}{
		{"switched off", block.Read{Version: block.Immutable, Route: tablet()}, func(s *Settings) { s.EnableCacheReadFromPeer.Store(false) }},
		{"warm-up and fills", block.Read{Version: block.Immutable, Route: tablet(), NoPeer: true}, func(*Settings) {}},
		{"external", block.Read{Route: external}, func(s *Settings) { s.EnableExternalPeerRead.Store(false) }},
	} {
		for _, known := range []bool{true, false} {
			inWorld(t, func(w *world) {
				c.set(w.e.Settings)
				if known {
					w.know(c.req.Route, candidate(1, "cg_a"))
				}
				w.peer(1, serves(time.Millisecond))
				for n := range 5 {
					req := c.req
					req.Object, req.Offset = testObject(), int64(n)*testBlock
					if _, err := w.readAs(context.Background(), &req, 10); err != nil {
						t.Error(err)
					}
				}
				synctest.Wait()
				if len(w.calls()) != 0 || len(w.lookups()) != 0 {
					t.Errorf("%s: %d calls, %d look-ups", c.name, len(w.calls()), len(w.lookups()))
				}
			})
		}
	}
}

func TestPR23_SwitchWorksUnderLoad(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(600, "v1")
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(15*time.Millisecond))
		off := 100 * time.Millisecond
		time.AfterFunc(off, func() { w.e.Settings.EnableCacheReadFromPeer.Store(false) })
		done := make(chan error)
		for g := range 8 {
			go func() {
				var err error
				for n := 0; w.since() < 2*off && err == nil; n++ {
					_, _, err = w.at(g*64 + n)
				}
				done <- err
			}()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for _, c := range w.calls() {
			if c.at > off {
				t.Errorf("a call at %v, the switch was off at %v", c.at, off)
			}
		}
	})
}
