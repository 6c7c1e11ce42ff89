package shards

import (
	"strings"
	"testing"
	"time"
)

func TestS24_ThreeRPCFailuresInARowEvict(t *testing.T) {
	for _, c := range []struct{ name, reads, want string }{
		{"three in a row", "error timeout corrupt", "b"},
		{"two", "error timeout", "a!2 b"},
		{"a hit in between", "error error hit error error", "a!2 b last=cg_a"},
		{"a hit of the group that served last", "hit error error hit error error", "a!2 b last=cg_a"},
		{"busy, cancelled and open circuit are neutral", "error busy cancelled error open unsupported error", "b"},
		{"neutral alone", "busy busy busy cancelled cancelled cancelled open open open unsupported", "a b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.learn("a b")
				for outcome := range strings.FieldsSeq(c.reads) {
					w.read("a=" + outcome)
				}
				w.wantView(c.want)
			})
		})
	}
}

func TestS24_MissIsAnAnswerAndResetsTheCount(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		for range 4 {
			w.read("a=error")
			w.read("a=error")
			w.read("a=miss")
		}
		w.wantView("b a")
	})
}

func TestS24_ThresholdChangesAtRunTime(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.read("a=error")
		w.set.EvictionThreshold.Store(2)
		w.read("a=error")
		w.wantView("b")
		w.set.EvictionThreshold.Store(1)
		w.read("b=timeout")
		w.wantView("")
		if got := w.Metrics().Evicted; got != 2 {
			t.Fatalf("%d evictions counted", got)
		}
	})
}

func TestPR10_OnlyAllMissCounts(t *testing.T) {
	for _, c := range []struct{ results, want string }{
		{"a=miss b=miss c=miss", "a b c allmiss=5 cooldown=5m0s"},
		{"a=miss b=miss", "c a b allmiss=4"},
		{"", "a b c allmiss=4"},
		{"a=hit b=miss c=miss", "a b c last=cg_a"},
		{"a=miss b=miss c=hit", "c a b last=cg_c"},
		{"a=miss b=busy c=miss", "b a c allmiss=4"},
		{"a=miss b=timeout c=miss", "b!1 a c allmiss=4"},
		{"a=error b=miss c=miss", "a!1 b c allmiss=4"},
		{"a=miss b=miss c=open", "c a b allmiss=4"},
		{"a=miss b=cancelled c=miss", "b a c allmiss=4"},
		{"a=miss b=miss c=unsupported", "c a b allmiss=4"},
		{"a=corrupt b=miss c=miss", "a!1 b c allmiss=4"},
	} {
		t.Run(c.results, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.learn("a b c")
				for range 4 {
					w.read("a=miss b=miss c=miss")
				}
				w.wantView("a b c allmiss=4")
				w.read(c.results)
				w.wantView(c.want)
			})
		})
	}
}

func TestS25_CooldownLastsItsTimeAndEndsClean(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		for range 5 {
			w.wantState(Ready)
			w.read("a=miss b=miss")
		}
		w.wantState(Cooldown)
		if w.BeginLookup(w.route) {
			t.Fatal("a look-up in the cooldown")
		}
		time.Sleep(300*time.Second - time.Millisecond)
		w.wantState(Cooldown)
		time.Sleep(time.Millisecond)
		w.wantState(Ready)
		w.wantView("a b")
		for range 4 {
			w.read("a=miss b=miss")
			w.wantState(Ready)
		}
		w.wantView("a b allmiss=4")
		w.read("a=miss b=miss")
		w.wantState(Cooldown)
		if got := w.Metrics().Cooldowns; got != 2 {
			t.Fatalf("%d cooldowns counted", got)
		}
	})
}

func TestS25_ThresholdAndDurationChangeAtRunTime(t *testing.T) {
	inBubble(t, func(w *world) {
		w.set.AllMissThreshold.Store(2)
		w.set.CooldownSeconds.Store(7)
		w.learn("a")
		w.read("a=miss")
		w.read("a=miss")
		w.wantView("a allmiss=2 cooldown=7s")
		time.Sleep(7 * time.Second)
		w.set.AllMissThreshold.Store(1)
		w.set.CooldownSeconds.Store(0)
		w.read("a=miss")
		w.wantState(Ready)
	})
}

func TestS25_ExpiredCandidatesNeedNotBeAsked(t *testing.T) {
	inBubble(t, func(w *world) {
		w.set.AllMissThreshold.Store(1)
		w.learn("a b")
		time.Sleep(30 * time.Minute)
		w.read("a=busy")
		time.Sleep(30 * time.Minute)
		w.wantOrder("a")
		w.read("a=miss")
		w.wantState(Cooldown)
	})
}

// late is a result that comes after something newer has happened, from a read
// that began before.
type late struct {
	name    string
	newer   func(w *world)
	results string
	want    string
}

func (l late) run(t *testing.T) {
	t.Run(l.name, func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.learn("a b")
			began := w.Candidates(w.route)
			l.newer(w)
			w.Note(w.route, began, results(l.results))
			w.wantView(l.want)
		})
	})
}

func TestS24_LateResultsChangeNothingNewerOfACandidate(t *testing.T) {
	for _, l := range []late{
		{"failure after op=set", func(w *world) {
			_ = w.Set(w.route, View{Candidates: []CandidateView{{Host: "a", Port: 8060, Failures: 2}}})
		}, "a=error", "a!2"},
		{"hit after op=set", func(w *world) {
			_ = w.Set(w.route, View{AllMiss: 3, Candidates: []CandidateView{{Host: "a", Port: 8060, GroupID: "g"}}})
		}, "a=hit", "a allmiss=3"},
		{"failure after eviction and return", func(w *world) {
			for range 3 {
				w.read("a=error")
			}
			w.PutSource(w.route, cands("a")[0])
		}, "a=error", "a b"},
		{"result of an evicted candidate", func(w *world) {
			for range 3 {
				w.read("a=error")
			}
		}, "a=hit", "b"},
		{"miss after a newer hit", func(w *world) {
			w.read("a=error")
			w.read("a=hit")
		}, "a=miss", "a b last=cg_a"},
		{"hit after a newer miss", func(w *world) {
			w.read("b=hit")
			w.read("b=miss a=hit")
		}, "b=hit", "a b last=cg_a"},
		{"hit after a newer miss of another group", func(w *world) {
			w.read("b=hit")
			w.read("a=miss")
		}, "a=hit", "b a last=cg_b"},
		{"anything after op=remove", func(w *world) {
			w.Remove(w.route)
		}, "a=hit b=error", ""},
	} {
		l.run(t)
	}
}

func TestS25_LateResultsChangeNothingNewerOfTheTablet(t *testing.T) {
	for _, l := range []late{
		{"hit of a group that a newer miss has put back", func(w *world) {
			_ = w.Set(w.route, View{LastGroupID: "g", Candidates: []CandidateView{
				{Host: "a", Port: 8060, GroupID: "g"}, {Host: "b", Port: 8060, GroupID: "g"},
			}})
			began := w.Candidates(w.route)
			w.read("a=error")
			w.read("a=miss")
			w.Note(w.route, began, results("b=hit"))
		}, "a=hit", "b a"},
		{"all missed after op=reset_cooldown", func(w *world) {
			w.ResetCooldown(w.route)
		}, "a=miss b=miss", "a b"},
		{"all missed in the cooldown", func(w *world) {
			for range 5 {
				w.read("a=miss b=miss")
			}
		}, "a=miss b=miss", "a b allmiss=5 cooldown=5m0s"},
		{"hit in the cooldown", func(w *world) {
			for range 5 {
				w.read("a=miss b=miss")
			}
		}, "a=hit", "a b allmiss=5 cooldown=5m0s"},
	} {
		l.run(t)
	}
}

func TestS25_ConcurrentReadsAllCount(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		began := w.Candidates(w.route)
		for range 5 {
			w.Note(w.route, began, results("a=miss b=miss"))
		}
		w.wantState(Cooldown)
	})
}

func TestS24_ConcurrentFailuresAllCount(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		began := w.Candidates(w.route)
		for range 3 {
			w.Note(w.route, began, results("a=timeout"))
		}
		w.wantView("b")
	})
}

func TestS25_ReadsUnderWayDoNotCountInTheCooldown(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		for range 4 {
			w.read("a=miss b=miss")
		}
		began := w.Candidates(w.route)
		w.Note(w.route, began, results("a=miss b=miss"))
		w.Note(w.route, began, results("a=miss b=miss"))
		w.Note(w.route, began, results("a=hit"))
		w.wantView("a b allmiss=5 cooldown=5m0s")
	})
}

func TestS25_HitResetsAForcedCount(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := w.Set(w.route, View{LastGroupID: "g", AllMiss: 4, Candidates: []CandidateView{
			{Host: "a", Port: 8060, GroupID: "g"},
		}}); err != nil {
			t.Fatal(err)
		}
		w.read("a=hit")
		w.wantView("a last=g")
	})
}

func TestS25_NoRefreshInTheCooldown(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a")
		time.Sleep(9*time.Minute + 59*time.Second)
		for range 5 {
			w.read("a=miss")
		}
		time.Sleep(299 * time.Second)
		if w.BeginLookup(w.route) {
			t.Fatal("a look-up in the cooldown")
		}
		time.Sleep(time.Second)
		if !w.BeginLookup(w.route) {
			t.Fatal("no refresh after the cooldown")
		}
	})
}
