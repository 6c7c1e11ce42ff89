package conduct_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"headstart/shards/placement"
	"headstart/shards/placement/conduct"
)

const tablets = 600

// scaleOut is a group of a and b that knows tablets, c joins it.
func scaleOut(t *testing.T, balance placement.BalanceType, timeoutS int) (w *world, before []string, c *backend) {
	w = newWorld(t)
	w.join("a", "cg")
	w.join("b", "cg")
	w.setType(balance, timeoutS)
	w.know(tablets)
	before = w.owners(tablets)
	return w, before, w.join("c", "cg")
}

// wantMoved fails the test unless all that moved went to host, and is its share.
func wantMoved(t *testing.T, before, after []string, host string) int {
	t.Helper()
	moved := 0
	for i := range before {
		if before[i] == after[i] {
			continue
		}
		if moved++; after[i] != host {
			t.Fatalf("tablet %d moved from %s to %s", i, before[i], after[i])
		}
	}
	if moved < tablets/3-60 || moved > tablets/3+60 {
		t.Fatalf("%d of %d tablets moved, want about a third", moved, tablets)
	}
	return moved
}

func TestS21S83_WithoutWarmupSwitchesAtOnceAndTellsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, before, c := scaleOut(t, placement.WithoutWarmup, 0)
		wantMoved(t, before, w.owners(tablets), "c") // with its first heartbeat
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if c.starts != 0 || len(c.sources) != 0 {
			t.Errorf("c was sent %d batches and recorded %d sources", c.starts, len(c.sources))
		}
	})
}

func TestS83_AsyncWarmupSwitchesEachBatchWhenItIsWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, before, c := scaleOut(t, placement.AsyncWarmup, 0)
		if !slices.Equal(before, w.owners(tablets)) {
			t.Fatal("tablets moved before anything was warm")
		}
		some := 0
		w.until(time.Minute, "all is warm", func() bool {
			after := w.owners(tablets)
			w.change(func() {
				for i := range after {
					if after[i] == "c" && c.warmed[uint64(i)] != 1 {
						t.Fatalf("tablet %d was switched when it had been warmed %d times", i, c.warmed[uint64(i)])
					}
				}
			})
			if n := count(after, "c"); n > 0 {
				some = n
			}
			return !w.round().Ended.IsZero()
		})
		moved := wantMoved(t, before, w.owners(tablets), "c")
		r := w.round()
		want := placement.RoundCounts{Moved: moved, Warm: moved}
		if r.RoundCounts != want || r.Moves != moved || r.Type != placement.AsyncWarmup || some == 0 {
			t.Errorf("the round shows %+v of %d, want %+v", r.RoundCounts, r.Moves, want)
		}
		after := w.owners(tablets)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, host := range before {
			if after[i] == "c" && c.sources[uint64(i)].Host != host {
				t.Errorf("tablet %d: source %v, want %s", i, c.sources[uint64(i)], host)
			}
		}
	})
}

// TestS86_ARoundIsCountedByWhoeverTakesItOver: the FE that has begun a round dies
// before it has said how much is to move.
func TestS86_ARoundIsCountedByWhoeverTakesItOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stop()
		w.refuse = func(c placement.Change) bool { return len(c.Rounds) == 1 && c.Rounds[0].Moves > 0 }
		w.start()
		w.join("a", "cg")
		w.join("b", "cg")
		w.know(tablets)
		before := w.owners(tablets)
		w.join("c", "cg")
		time.Sleep(5 * time.Second)
		if r := w.round(); r.Started.IsZero() || r.Counted || r.Moves != 0 {
			t.Fatalf("%+v: want a round that has begun and was not counted", r)
		}
		w.stop()
		w.refuse = nil
		w.start()
		r := w.ended(time.Minute)
		if moved := wantMoved(t, before, w.owners(tablets), "c"); r.Moves != moved || r.Moved != moved {
			t.Errorf("%d tablets moved, the round shows %d of %d", moved, r.Moved, r.Moves)
		}
	})
}

func TestS83_AsyncWarmupSwitchesAfterItsTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, before, c := scaleOut(t, placement.AsyncWarmup, 20)
		w.change(func() { c.took = time.Hour })
		time.Sleep(19 * time.Second)
		if !slices.Equal(before, w.owners(tablets)) {
			t.Fatal("tablets moved before the time limit")
		}
		r := w.ended(20 * time.Second)
		moved := wantMoved(t, before, w.owners(tablets), "c")
		if r.TimedOut != moved || r.Moved != moved || r.Warm != 0 {
			t.Errorf("counts %+v, want %d timed out", r.RoundCounts, moved)
		}
	})
}

func TestS83_SyncWarmupSwitchesOnlyWhatIsWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, before, c := scaleOut(t, placement.SyncWarmup, 5)
		w.change(func() { c.took = time.Hour })
		time.Sleep(59 * time.Minute)
		if !slices.Equal(before, w.owners(tablets)) {
			t.Fatal("tablets moved although nothing was warm")
		}
		r := w.ended(2 * time.Hour)
		if moved := wantMoved(t, before, w.owners(tablets), "c"); r.Warm != moved {
			t.Errorf("%d of %d are warm", r.Warm, moved)
		}
	})
}

func TestS83_SyncWarmupLeavesAFailingBackendOutAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.join("a", "cg")
		w.know(tablets)
		w.setType(placement.SyncWarmup, 0)
		before := w.owners(tablets)
		c, d := w.join("c", "cg"), w.join("d", "cg")
		w.change(func() { c.broken = errors.New("no space left on device") })
		w.ended(3 * time.Minute)
		after := w.owners(tablets)
		if count(after, "c") != 0 || count(after, "d") < tablets/2-60 {
			t.Fatalf("c has %d and d %d of %d tablets", count(after, "c"), count(after, "d"), len(before))
		}
		w.change(func() {
			for i, host := range after {
				if host == "d" && d.warmed[uint64(i)] == 0 {
					t.Fatalf("tablet %d went to d without being warm", i)
				}
			}
		})
		starts := 0
		w.change(func() { starts = c.starts })
		time.Sleep(30 * time.Second)
		w.change(func() {
			if c.starts != starts {
				t.Errorf("c was given %d batches soon after it had failed", c.starts-starts)
			}
			c.broken = nil
		})
		w.until(5*time.Minute, "c is taken in again", func() bool { return count(w.owners(tablets), "c") > tablets/3-60 })
		after = w.owners(tablets)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, host := range after {
			if host == "c" && c.warmed[uint64(i)] == 0 {
				t.Fatalf("tablet %d went to c without being warm", i)
			}
		}
	})
}

func TestS83S84_PeerReadSwitchesAsSoonAsSourcesAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, before, c := scaleOut(t, placement.PeerReadAsyncWarmup, 0)
		w.change(func() { c.took, c.slow = 10*time.Second, 1500*time.Millisecond })
		w.until(4*time.Second, "all is switched", func() bool {
			after := w.owners(tablets)
			w.change(func() {
				for i := range after {
					if after[i] == "c" && c.sources[uint64(i)].Host != before[i] {
						t.Fatalf("tablet %d was switched from %s when c had recorded %q", i, before[i], c.sources[uint64(i)].Host)
					}
				}
			})
			return count(after, "c") >= tablets/3-60
		})
		moved := wantMoved(t, before, w.owners(tablets), "c")
		if r := w.round(); r.Moved != moved || r.Warm != 0 || !r.Ended.IsZero() {
			t.Errorf("while c warms up behind, the round shows %+v", r)
		}
		if r := w.ended(time.Minute); r.Warm != moved {
			t.Errorf("%d of %d are warm", r.Warm, moved)
		}
	})
}

// A round that only warms up behind is not in the way of the next.
func TestS83_PeerReadDoesNotMakeTheNextBackendWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, c := scaleOut(t, placement.PeerReadAsyncWarmup, 0)
		w.change(func() { c.took = time.Hour })
		w.until(3*time.Second, "c serves", func() bool { return count(w.owners(tablets), "c") > 100 })
		w.join("d", "cg")
		w.until(4*time.Second, "d serves", func() bool { return count(w.owners(tablets), "d") > 100 })
	})
}

func TestS83_DeadBackendDoesNotStopARound(t *testing.T) {
	for _, balance := range []placement.BalanceType{placement.AsyncWarmup, placement.SyncWarmup, placement.PeerReadAsyncWarmup} {
		t.Run(string(balance), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.join("a", "cg")
				w.know(tablets)
				w.setType(balance, 0)
				c, d := w.join("c", "cg"), w.join("d", "cg")
				w.change(func() { c.down, d.took = true, 8*time.Second })
				w.ended(time.Minute)
				w.until(20*time.Second, "only those alive serve", func() bool { return count(w.owners(tablets), "c") == 0 })
				if n := count(w.owners(tablets), "d"); n < tablets/2-80 {
					t.Fatalf("d has %d of %d tablets", n, tablets)
				}
				w.restartBE(c)
				w.until(3*time.Minute, "c has come back", func() bool { return count(w.owners(tablets), "c") > tablets/3-60 })
			})
		})
	}
}

func TestS83_UnreachableBackendDoesNotStopARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, before, c := scaleOut(t, placement.AsyncWarmup, 0)
		w.change(func() { c.deaf = true }) // it says that it is alive but takes no calls
		r := w.ended(2 * time.Minute)
		if moved := wantMoved(t, before, w.owners(tablets), "c"); r.Failed != moved {
			t.Errorf("%d of %d moved count as failed", r.Failed, moved)
		}
	})
}

func TestS83_DecommissionWarmsUpOthersBeforeItTakesTabletsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		bes := map[string]*backend{"a": w.join("a", "cg"), "b": w.join("b", "cg"), "c": w.join("c", "cg")}
		w.setType(placement.SyncWarmup, 0)
		w.know(tablets)
		before := w.owners(tablets)
		if err := w.SetDecommissioned(t.Context(), bes["b"].id, true); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(before, w.owners(tablets)) {
			t.Fatal("tablets left b before they were warm elsewhere")
		}
		w.ended(time.Minute)
		after := w.owners(tablets)
		w.change(func() {
			for i, host := range after {
				switch {
				case host == "b":
					t.Fatalf("tablet %d is still on b", i)
				case before[i] == "b" && (bes[host].warmed[uint64(i)] != 1 || bes[host].sources[uint64(i)].Host != "b"):
					t.Fatalf("tablet %d went to %s, which had not warmed it up from b", i, host)
				case before[i] != "b" && before[i] != host:
					t.Fatalf("tablet %d moved from %s to %s", i, before[i], host)
				}
			}
		})
		v := w.Backends()[1]
		if !v.SystemDecommissioned || v.TabletNum != 0 || v.Membership != placement.Out {
			t.Errorf("b shows %+v", v)
		}
		if err := w.SetDecommissioned(t.Context(), bes["b"].id, false); err != nil {
			t.Fatal(err)
		}
		w.until(time.Minute, "b has its tablets again", func() bool { return slices.Equal(before, w.owners(tablets)) })
	})
}

func TestS83_DecommissionThatIsTakenBackUndoesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.join("a", "cg")
		b := w.join("b", "cg")
		w.know(tablets)
		before := w.owners(tablets)
		if err := w.SetDecommissioned(t.Context(), b.id, true); err != nil {
			t.Fatal(err)
		}
		w.until(5*time.Second, "the round is under way", func() bool { return !w.round().Started.IsZero() })
		if err := w.SetDecommissioned(t.Context(), b.id, false); err != nil {
			t.Fatal(err)
		}
		w.until(time.Minute, "b is a member", func() bool {
			return w.Backends()[1].Membership == placement.Member && slices.Equal(before, w.owners(tablets))
		})
	})
}

// Every tablet is switched once, and warmed up again only if its batch was
// under way when the FE was killed.
func TestS86_RoundGoesOnAfterTheFERestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, before, c := scaleOut(t, placement.SyncWarmup, 0)
		w.stop()
		w.options = conduct.Options{BatchTablets: 4, MaxBatches: 2}
		w.start()
		w.until(time.Minute, "a part is switched", func() bool { return count(w.owners(tablets), "c") > 50 })
		switched := w.owners(tablets)
		started := w.round().Started
		w.restart()
		now := w.owners(tablets)
		for i, host := range switched {
			if host == "c" && now[i] != "c" {
				t.Fatalf("tablet %d went back to %s", i, now[i])
			}
		}
		r := w.ended(10 * time.Minute)
		if moved := wantMoved(t, before, w.owners(tablets), "c"); !r.Started.Equal(started) || r.Moved != moved {
			t.Errorf("%d of %d moved in the round of %s, want that of %s", r.Moved, moved, r.Started, started)
		}
		again := 0
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, n := range c.warmed {
			if n > 1 {
				again++
			}
		}
		if again > 40 {
			t.Errorf("%d tablets were warmed up twice", again)
		}
	})
}

func TestS83_BackendThatRestartsIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, before, c := scaleOut(t, placement.SyncWarmup, 0)
		w.change(func() { c.took = 5 * time.Second })
		time.Sleep(3 * time.Second)
		w.restartBE(c)
		w.ended(time.Minute)
		after := w.owners(tablets)
		wantMoved(t, before, after, "c")
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, host := range after {
			if host == "c" && c.warmed[uint64(i)] == 0 {
				t.Fatalf("tablet %d is not warm", i)
			}
		}
	})
}

func TestS83_GroupsHaveTheirOwnTypeOrTheFEs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.join("a", "cg")
		w.join("x", "other")
		fe := string(placement.SyncWarmup)
		w.settings.BalanceType.Store(&fe)
		w.setType(placement.WithoutWarmup, 7)
		types := func() []placement.BalanceType {
			var all []placement.BalanceType
			for _, g := range w.Groups() {
				all = append(all, g.BalanceType)
			}
			return all
		}
		if got := types(); got[0] != placement.WithoutWarmup || got[1] != placement.SyncWarmup {
			t.Errorf("types %v", got)
		}
		w.restart()
		if g := w.Groups()[0]; g.BalanceType != placement.WithoutWarmup || g.WarmUpTimeout != 7*time.Second {
			t.Errorf("after a restart the group shows %+v", g)
		}
		for _, bad := range []error{
			w.SetBalance(t.Context(), "cg", "warm", 0), w.SetBalance(t.Context(), "cg", "", -1),
		} {
			if !errors.Is(bad, placement.ErrInvalid) {
				t.Errorf("error %v", bad)
			}
		}
	})
}
