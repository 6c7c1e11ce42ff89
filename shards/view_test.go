package shards

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"headstart/engine/block"
)

func TestS74_ShowIsExactlyTheReferencesJSON(t *testing.T) {
	inBubble(t, func(w *world) {
		got := func() string {
			v, _ := w.Show(w.route)
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		empty := `{"tablet_id":10086,"candidates":[],"last_successful_compute_group_id":"","fetching_from_fe":false,` +
			`"consecutive_all_miss":0,"cooldown_until_ms":0}`
		if g := got(); g != empty {
			t.Fatalf("unknown tablet:\n%s", g)
		}
		if _, known := w.Show(w.route); known {
			t.Fatal("known before its time")
		}
		w.learn("10.0.0.2:cg_write_01 10.0.0.3:cg_read")
		time.Sleep(1500 * time.Millisecond)
		w.read("10.0.0.2=hit 10.0.0.3=error")
		w.set.AllMissThreshold.Store(1)
		want := `{"tablet_id":10086,"candidates":[` +
			`{"host":"10.0.0.2","brpc_port":8060,"compute_group_id":"cg_write_01","last_access_time_ms":946684801500,"consecutive_rpc_failures":0},` +
			`{"host":"10.0.0.3","brpc_port":8060,"compute_group_id":"cg_read","last_access_time_ms":946684801500,"consecutive_rpc_failures":1}],` +
			`"last_successful_compute_group_id":"cg_write_01","fetching_from_fe":false,"consecutive_all_miss":0,"cooldown_until_ms":0}`
		if g := got(); g != want {
			t.Fatalf("got\n%s, want\n%s", g, want)
		}
		w.read("10.0.0.2=miss 10.0.0.3=miss")
		if g := got(); !strings.HasSuffix(g, `"consecutive_all_miss":1,"cooldown_until_ms":946685101500}`) {
			t.Fatalf("in the cooldown:\n%s", g)
		}
	})
}

func TestS74_WhatHasExpiredIsNotShown(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		time.Sleep(30 * time.Minute)
		w.read("a=busy")
		time.Sleep(30 * time.Minute)
		w.wantView("a")
	})
}

func TestS75_ShowAllListsTabletsWithCandidates(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 50 {
			w.PutSource(block.TabletRoute(int64(i)), cands("a")[0])
		}
		w.PutSource(block.ExternalRoute(block.Object{Store: "s3", Bucket: "b", Key: "k"}), cands("a")[0])
		w.BeginLookup(block.TabletRoute(1000))
		all := w.ShowAll(1000)
		if all.Total != 50 || len(all.Tablets) != 50 {
			t.Fatalf("%d of %d", len(all.Tablets), all.Total)
		}
		for i, v := range all.Tablets {
			if v.TabletID != int64(i) || len(v.Candidates) != 1 {
				t.Fatalf("number %d is %+v", i, v)
			}
		}
		if few := w.ShowAll(7); few.Total != 50 || len(few.Tablets) != 7 {
			t.Fatalf("%d of %d", len(few.Tablets), few.Total)
		}
		b, _ := json.Marshal(NewTable(Options{}, w.set, w.peers).ShowAll(1000))
		if string(b) != `{"total":0,"tablets":[]}` {
			t.Fatalf("an empty table: %s", b)
		}
	})
}

func TestS76_SetForcesEverything(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.read("a=hit b=error")
		until := time.Now().Add(time.Minute).UnixMilli()
		if err := w.Set(w.route, View{
			Candidates: []CandidateView{
				{Host: "y", Port: 8060, GroupID: "g1", Failures: 2},
				{Host: "x", Port: 8060, GroupID: "g2"},
			},
			LastGroupID: "g2", AllMiss: 4, CooldownUntilMS: until,
		}); err != nil {
			t.Fatal(err)
		}
		w.wantView("y!2 x last=g2 allmiss=4 cooldown=1m0s")
		w.wantState(Cooldown)
		time.Sleep(time.Minute)
		w.wantOrder("x y")
		w.read("y=error")
		w.wantView("x last=g2")
		if err := w.Set(w.route, View{}); err != nil {
			t.Fatal(err)
		}
		w.wantView("")
		w.wantState(Empty)
	})
}

func TestS76_SetTakesWhatShowGives(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b c")
		w.read("b=error")
		w.read("b=error c=hit")
		before := w.view()
		v, _ := w.Show(w.route)
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		w.Remove(w.route)
		time.Sleep(24 * time.Hour)
		var again View
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		if err := w.Set(w.route, again); err != nil {
			t.Fatal(err)
		}
		w.wantView(before)
		w.wantState(Ready)
	})
}

func TestS76_SetRefusesNonsenseAndChangesNothing(t *testing.T) {
	one := CandidateView{Host: "x", Port: 8060}
	for _, c := range []struct {
		name string
		v    View
		says string
	}{
		{"no host", View{Candidates: []CandidateView{one, {Port: 8060}}}, "want a host"},
		{"port 0", View{Candidates: []CandidateView{{Host: "x"}}}, "1 to 65535"},
		{"port 65536", View{Candidates: []CandidateView{{Host: "x", Port: 65536}}}, "1 to 65535"},
		{"negative failures", View{Candidates: []CandidateView{{Host: "x", Port: 1, Failures: -1}}}, "consecutive_rpc_failures"},
		{"huge failures", View{Candidates: []CandidateView{{Host: "x", Port: 1, Failures: 1 << 20}}}, "consecutive_rpc_failures"},
		{"negative count", View{AllMiss: -1}, "consecutive_all_miss"},
		{"huge count", View{AllMiss: 1 << 20}, "consecutive_all_miss"},
		{"negative time", View{CooldownUntilMS: math.MinInt64}, "cooldown_until_ms"},
		{"too many", View{Candidates: make([]CandidateView, MaxCandidates+1)}, "at most 32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.learn("a")
				if err := w.Set(w.route, c.v); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("error %v, want one that says %q", err, c.says)
				}
				w.wantView("a")
			})
		})
	}
}

func TestS20_LaterCandidatesJoinAForcedList(t *testing.T) {
	inBubble(t, func(w *world) {
		w.BeginLookup(w.route)
		if err := w.Set(w.route, View{Candidates: []CandidateView{{Host: "y", Port: 8060}, {Host: "x", Port: 8060}}}); err != nil {
			t.Fatal(err)
		}
		w.EndLookup(w.route, cands("x a"), nil)
		w.wantOrder("y x a")
	})
}

func TestS76_RemoveAndReset(t *testing.T) {
	inBubble(t, func(w *world) {
		if w.Remove(w.route) || w.ResetCooldown(w.route) {
			t.Fatal("an unknown tablet is taken for known")
		}
		w.learn("a")
		for range 5 {
			w.read("a=miss")
		}
		w.wantState(Cooldown)
		if !w.ResetCooldown(w.route) {
			t.Fatal("a known tablet is taken for unknown")
		}
		w.wantView("a")
		w.wantState(Ready)
		if !w.Remove(w.route) {
			t.Fatal("a known tablet is taken for unknown")
		}
		w.wantState(Empty)
		if n := w.Metrics().Tablets; n != 0 {
			t.Fatalf("%d tablets are left", n)
		}
	})
}
