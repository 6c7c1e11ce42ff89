package shards

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headstart/engine/block"
)

func TestPR14_OneLookupForAThousandMisses(t *testing.T) {
	inBubble(t, func(w *world) {
		var begun atomic.Int32
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if w.Candidates(w.route).State() == Empty && w.BeginLookup(w.route) {
					begun.Add(1)
				}
			})
		}
		all.Wait()
		if n := begun.Load(); n != 1 {
			t.Fatalf("%d look-ups", n)
		}
		w.wantView(" fetching")
		w.EndLookup(w.route, cands("a"), nil)
		w.wantView("a")
		if w.BeginLookup(w.route) {
			t.Fatal("a look-up of a fresh list")
		}
	})
}

func TestS29_LookupsThatBringNothingBackOff(t *testing.T) {
	for _, c := range []struct {
		name  string
		found []Candidate
		err   error
	}{
		{"empty", nil, nil},
		{"failed", nil, errors.New("no FE")},
		{"nothing usable", []Candidate{{Addr: block.Addr{Host: "10.0.0.99", Port: 8060}}, {}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				begin := time.Now()
				var pauses []time.Duration
				for last := time.Now(); time.Since(begin) < 10*time.Minute; time.Sleep(10 * time.Millisecond) {
					if w.BeginLookup(w.route) {
						w.EndLookup(w.route, c.found, c.err)
						pauses = append(pauses, time.Since(last))
						last = time.Now()
					}
				}
				for i, p := range pauses[1:] {
					most := min(time.Minute, time.Second<<i)
					if p < most/2 || p > most+10*time.Millisecond {
						t.Fatalf("pause %d is %v, want %v to %v", i, p, most/2, most)
					}
				}
				if m := w.Metrics(); m.LookupsFailed+m.LookupsEmpty != int64(len(pauses)) {
					t.Fatalf("%d look-ups, counted %+v", len(pauses), m)
				}
				time.Sleep(time.Minute)
				w.learn("a")
				for range 3 {
					w.read("a=error")
				}
				w.learn("b")
				w.wantOrder("b")
			})
		})
	}
}

func TestS29_BackoffDiffersBetweenTablets(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[backoff(6)] = true
	}
	if len(seen) < 90 {
		t.Fatalf("%d different pauses out of 100", len(seen))
	}
}

func TestS29_ListsInUseAreRefreshed(t *testing.T) {
	inBubble(t, func(w *world) {
		idle := block.TabletRoute(2)
		w.learn("a b")
		w.BeginLookup(idle)
		w.EndLookup(idle, cands("a"), nil)
		if due := w.DueForRefresh(10); len(due) != 0 {
			t.Fatalf("due at once: %v", due)
		}
		time.Sleep(10 * time.Minute)
		w.read("a=hit")
		time.Sleep(time.Minute)
		due := w.DueForRefresh(10)
		if len(due) != 1 || due[0] != w.route {
			t.Fatalf("due: %v", due)
		}
		w.learn("c a")
		w.wantView("a b c last=cg_a")
		if due := w.DueForRefresh(10); len(due) != 0 {
			t.Fatalf("due again: %v", due)
		}
	})
}

func TestS29_FailedRefreshKeepsTheListAndBacksOff(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		time.Sleep(10 * time.Minute)
		w.read("a=hit")
		if !w.BeginLookup(w.route) {
			t.Fatal("no refresh is due")
		}
		w.EndLookup(w.route, nil, errors.New("no FE"))
		w.wantOrder("a b")
		if w.BeginLookup(w.route) {
			t.Fatal("no pause after a failed refresh")
		}
	})
}

func TestS29_DueForRefreshIsLimitedAndReachesAll(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 100 {
			r := block.TabletRoute(int64(i))
			w.BeginLookup(r)
			w.EndLookup(r, cands("a"), nil)
		}
		time.Sleep(10 * time.Minute)
		seen := map[block.Route]bool{}
		for range 10 {
			due := w.DueForRefresh(10)
			if len(due) != 10 {
				t.Fatalf("%d due", len(due))
			}
			for _, r := range due {
				seen[r] = w.BeginLookup(r)
				w.EndLookup(r, cands("a"), nil)
			}
		}
		if len(seen) != 100 || len(w.DueForRefresh(10)) != 0 {
			t.Fatalf("%d refreshed", len(seen))
		}
	})
}

func TestPR11_RefreshKeepsFailureCounts(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.read("a=error")
		w.read("a=timeout")
		time.Sleep(10 * time.Minute)
		w.learn("b a")
		w.wantView("a!2 b")
		w.read("a=error")
		w.wantView("b")
	})
}

func TestPR11_AnotherPortIsAnotherCandidate(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a")
		w.read("a=error")
		w.read("a=error")
		w.PutSource(w.route, Candidate{Addr: block.Addr{Host: "a", Port: 8061}, GroupID: "cg_a"})
		w.wantView("a a!2")
		w.read("a=error")
		w.wantView("a")
		if port := w.Candidates(w.route).At(0).Addr.Port; port != 8061 {
			t.Fatalf("port %d is left", port)
		}
	})
}

func TestPR11_OnlySetResetsTheCount(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.read("a=error")
		w.read("a=error")
		w.PutSource(w.route, cands("a")[0])
		w.wantView("a!2 b")
		if err := w.Set(w.route, View{Candidates: []CandidateView{{Host: "a", Port: 8060}}}); err != nil {
			t.Fatal(err)
		}
		w.wantView("a")
	})
}

func TestS29_LostLookupIsTakenOver(t *testing.T) {
	inBubble(t, func(w *world) {
		if !w.BeginLookup(w.route) {
			t.Fatal("no look-up is due")
		}
		time.Sleep(lostLookup - time.Millisecond)
		if w.BeginLookup(w.route) {
			t.Fatal("two look-ups")
		}
		time.Sleep(time.Millisecond)
		w.wantView("")
		w.learn("a")
		w.EndLookup(w.route, cands("z"), nil)
		w.wantView("a")
	})
}

func TestS29_LookupThatEndsAfterRemoveBringsNothingBack(t *testing.T) {
	inBubble(t, func(w *world) {
		w.BeginLookup(w.route)
		w.Remove(w.route)
		w.EndLookup(w.route, cands("a"), nil)
		w.wantState(Empty)
		w.learn("b")
	})
}

func TestS26_ExpiredListIsLookedUpAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a")
		time.Sleep(time.Hour)
		w.wantState(Empty)
		w.learn("b")
		w.wantOrder("b")
	})
}
