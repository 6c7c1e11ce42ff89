package shards

import (
	"errors"
	"strings"
	"testing"
	"time"

	"headstart/engine/block"
)

func TestS20_SourcesJoinByTheirPriority(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wantState(Empty)
		w.learn("a b")
		w.wantState(Ready)
		w.wantOrder("a b")
		w.PutSource(w.route, cands("s")[0])
		w.wantOrder("s a b")
		w.PutSource(w.route, cands("b")[0])
		w.wantOrder("b s a")
		time.Sleep(time.Hour - time.Minute)
		w.read("a=busy b=busy s=busy")
		w.learn("c a s")
		w.wantOrder("b s a c")
		if err := w.Set(w.route, View{Candidates: []CandidateView{
			{Host: "y", Port: 8060}, {Host: "x", Port: 8060}, {Host: "y", Port: 8060}, {Host: "y", Port: 8061},
		}}); err != nil {
			t.Fatal(err)
		}
		w.wantOrder("y x y")
		w.PutSource(w.route, cands("s")[0])
		w.wantOrder("s y x y")
	})
}

func TestS20_EvictedAddressStaysOutWhileItsCircuitIsOpen(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		for range 3 {
			w.call("a", block.OutcomeError)
			w.read("a=error b=hit")
		}
		w.wantOrder("b")
		w.PutSource(w.route, cands("a")[0])
		w.wantOrder("b")
		time.Sleep(10 * time.Minute)
		w.read("b=hit")
		w.learn("a b")
		w.wantOrder("b a")
	})
}

func TestS20_EvictionIsForgottenWhenTheCircuitCloses(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a")
		for range 3 {
			w.call("a", block.OutcomeError)
			w.read("a=error")
		}
		time.Sleep(30 * time.Second)
		w.call("a", block.OutcomeHit)
		w.open("a")
		w.PutSource(w.route, cands("a")[0])
		w.wantOrder("a")
	})
}

func TestS20_OpenCircuitAloneKeepsNobodyOut(t *testing.T) {
	inBubble(t, func(w *world) {
		for range 3 {
			w.call("a", block.OutcomeError)
		}
		w.PutSource(w.route, cands("a")[0])
		w.wantOrder("a")
	})
}

func TestSF06_SelfIsNeverACandidate(t *testing.T) {
	inBubble(t, func(w *world) {
		self := Candidate{Addr: block.Addr{Host: "10.0.0.99", Port: 8060}, GroupID: "cg_a"}
		w.PutSource(w.route, self)
		w.wantState(Empty)
		if !w.BeginLookup(w.route) {
			t.Fatal("no look-up is due")
		}
		w.EndLookup(w.route, append(cands("a"), self), nil)
		w.wantOrder("a")
		err := w.Set(w.route, View{Candidates: []CandidateView{{Host: "10.0.0.99", Port: 8060}}})
		if err == nil || !strings.Contains(err.Error(), "this node itself") {
			t.Fatalf("own address by hand: %v", err)
		}
		w.wantOrder("a")
	})
}

func TestS22_LastGroupFirstStableOtherwise(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a:g1 b:g2 c:g1 d:g2 e:g3")
		w.read("a=error b=hit")
		w.wantOrder("b d a c e")
		w.read("b=hit")
		w.wantOrder("b d a c e")
		w.read("e=hit")
		w.wantOrder("e a b c d")
	})
}

func TestS23_MissMovesCandidateToEndAndClearsGroup(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a:g1 b:g2 c:g1")
		w.read("a=hit")
		w.wantView("a b c last=g1")
		w.read("a=miss c=cancelled")
		w.wantView("b c a")
		w.read("b=miss c=hit")
		w.wantView("c a b last=g1")
		w.read("b=miss")
		w.wantView("c a b last=g1")
	})
}

func TestS23_NextReadTriesAnotherWhateverItsLocation(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("far@there near@here")
		var first []string
		for range 6 {
			tried := w.Candidates(w.route).At(0).Addr.Host
			first = append(first, tried)
			w.read(tried + "=miss")
		}
		if got := strings.Join(first, " "); got != "near far near far near far" {
			t.Fatalf("tried first: %s", got)
		}
	})
}

func TestS23_LastToMissIsNotFirstInTheNextRound(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("far@there near@here")
		w.read("far=miss")
		w.read("near=miss")
		w.wantOrder("far near")
	})
}

func TestS19_OwnLocationFirstAmongEquals(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a:g1@there b:g2@here c:g1@here d:g2@there")
		w.wantOrder("b c a d")
		w.read("d=hit")
		w.wantOrder("b d c a")
		w.set.LocationPreference.Store(false)
		w.wantOrder("b d a c")
		w.set.LocationPreference.Store(true)
		w.wantOrder("b d c a")
	})
}

func TestS20_RotationKeepsTheOrderOfTheList(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b c")
		w.read("a=miss")
		w.wantOrder("b c a")
		w.PutSource(w.route, cands("s")[0])
		time.Sleep(11 * time.Minute)
		w.learn("d")
		w.wantOrder("s b c a d")
		w.read("b=miss")
		w.wantOrder("s c a d b")
	})
}

// Whoever joins while others have missed joins behind them: location must not
// bring back the one that has just missed.
func TestS23_JoiningDoesNotUndoTheRotation(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a@here b@there")
		w.wantOrder("a b")
		w.read("a=miss")
		time.Sleep(11 * time.Minute)
		w.learn("c@here")
		w.wantOrder("b a c")
	})
}

func TestS23_EvictionDoesNotUndoTheRotation(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a@here b@there c@there d@here")
		w.wantOrder("a d b c")
		w.read("a=miss d=miss")
		w.wantOrder("b c a d")
		for range 3 {
			w.read("d=error")
		}
		w.wantOrder("b c a")
		w.read("b=miss")
		w.wantOrder("c a b")
	})
}

func TestPR20_CorruptCandidateIsDemotedAndCounted(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.read("a=corrupt b=hit")
		w.wantView("b a!1 last=cg_b")
		w.read("a=corrupt")
		w.read("a=corrupt")
		w.wantView("b last=cg_b")
	})
}

func TestPR32_FewerAndFewerCandidates(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b c")
		for _, left := range []string{"b c", "c", ""} {
			first := w.Candidates(w.route).At(0).Addr.Host
			for range 3 {
				w.read(first + "=timeout")
			}
			w.wantOrder(left)
		}
		w.wantState(Empty)
		w.learn("a")
		w.wantState(Ready)
	})
}

func TestListIsBounded(t *testing.T) {
	inBubble(t, func(w *world) {
		var many []string
		for i := range MaxCandidates + 8 {
			many = append(many, "p"+string(rune('A'+i)))
		}
		w.learn(strings.Join(many, " "))
		if n := w.Candidates(w.route).Len(); n != MaxCandidates {
			t.Fatalf("%d candidates", n)
		}
		w.wantOrder(strings.Join(many[:MaxCandidates], " "))
		w.PutSource(w.route, cands("s")[0])
		w.wantOrder("s " + strings.Join(many[:MaxCandidates-1], " "))
		w.EndLookup(w.route, nil, errors.New("not begun"))
		w.wantState(Ready)
	})
}

func TestS24S28_SettingsHaveTheSpecifiedDefaults(t *testing.T) {
	s := NewSettings()
	for key, c := range map[string]struct{ got, want int64 }{
		"peer_rpc_failure_eviction_threshold":  {s.EvictionThreshold.Load(), 3},
		"peer_all_miss_cooldown_threshold":     {s.AllMissThreshold.Load(), 5},
		"peer_all_miss_cooldown_duration_s":    {s.CooldownSeconds.Load(), 300},
		"peer_candidate_expiry_s":              {s.ExpirySeconds.Load(), 3600},
		"peer_candidate_cleanup_interval_s":    {s.CleanupSeconds.Load(), 3600},
		"cache_peer_read_failure_threshold":    {s.FailureThreshold.Load(), 3},
		"cache_peer_read_circuit_open_seconds": {s.CircuitOpenSeconds.Load(), 30},
		"peer_silence_probe_ms":                {s.SilenceProbeMS.Load(), 1000},
	} {
		if c.got != c.want {
			t.Errorf("%s = %d, want %d", key, c.got, c.want)
		}
	}
	if !s.LocationPreference.Load() || !s.SlowPeerEjection.Load() {
		t.Error("enable_peer_location_preference and enable_slow_peer_ejection are on by default")
	}
}
