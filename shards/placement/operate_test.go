package placement_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// notPrimary returns the host of two that does not serve the route by rank.
func (f *fe) notPrimary(route block.Route, a, b string) string {
	f.t.Helper()
	if f.holders(route)[0] == a {
		return b
	}
	return a
}

func TestS81_AssignmentGoesBeforeRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		beats := map[string]placement.Heartbeat{"a": beat("a", "cg"), "b": beat("b", "cg")}
		ids := map[string]int64{"a": f.hear(beats["a"]), "b": f.hear(beats["b"])}
		other := f.notPrimary(tablet(), "a", "b")
		primary := f.holders(tablet())[0]
		must(t, f.Assign(t.Context(), ids[other], []block.Route{tablet()}))
		f.wantHolders(tablet(), other)
		if v := f.Backends()[ids[other]-10001]; v.TabletNum != 1 {
			t.Errorf("TabletNum %d, want 1", v.TabletNum)
		}
		f.restart()
		f.wantHolders(tablet(), other)

		time.Sleep(2 * time.Second)
		f.hear(beats[primary])
		f.wantHolders(tablet(), primary) // the assigned one is silent
		f.hear(beats[other])
		f.wantHolders(tablet(), other)

		must(t, f.Assign(t.Context(), ids[primary], []block.Route{tablet()}))
		f.wantHolders(tablet(), primary)
		must(t, f.Assign(t.Context(), ids[other], []block.Route{tablet()}))
		must(t, f.Unassign(t.Context(), "cg", []block.Route{tablet(), block.TabletRoute(1)}))
		f.wantHolders(tablet(), primary)
		f.restart()
		f.wantHolders(tablet(), primary)
		for _, v := range f.Backends() {
			if v.Assigned != 0 {
				t.Errorf("%s still has %d tablets", v.Host, v.Assigned)
			}
		}
	})
}

func TestS81_AssignmentEndsWithItsBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		f.hear(beat("a", "cg"), beat("b", "cg"))
		must(t, f.Assign(t.Context(), 10001, []block.Route{tablet(), block.TabletRoute(1)}))
		must(t, f.Drop(t.Context(), 10001))
		f.wantHolders(tablet(), "b")
		must(t, f.Assign(t.Context(), 10002, []block.Route{tablet()}))
		time.Sleep(time.Second)
		f.hear(beat("b", "cg_other")) // restarted in another group
		f.hear(beat("a", "cg"))
		f.wantHolders(tablet(), "a", "b")
		f.restart() // refuses a store whose assignments point nowhere
		for _, v := range f.Backends() {
			if v.Assigned != 0 {
				t.Errorf("%s still has %d tablets", v.Host, v.Assigned)
			}
		}
	})
}

func TestAssignRefusesWhatItCannotKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		f.options = placement.Options{MaxAssignments: 2, MaxBackends: 1}
		f.restart()
		f.hear(beat("a", "cg"))
		three := []block.Route{tablet(), block.TabletRoute(1), block.TabletRoute(2)}
		for name, c := range map[string]struct{ got, want error }{
			"unknown backend":    {f.Assign(t.Context(), 9, three), placement.ErrUnknown},
			"unknown group":      {f.Unassign(t.Context(), "no", three), placement.ErrUnknown},
			"unknown kind":       {f.Assign(t.Context(), 10001, []block.Route{{}}), placement.ErrInvalid},
			"too many":           {f.Assign(t.Context(), 10001, three), placement.ErrFull},
			"decommission":       {f.SetDecommissioned(t.Context(), 9, true), placement.ErrUnknown},
			"suspend":            {f.SetSuspended(t.Context(), "no", true), placement.ErrUnknown},
			"drop":               {f.Drop(t.Context(), 9), placement.ErrUnknown},
			"a backend too many": {errOf(f.Heartbeat(t.Context(), beat("b", "cg"))), placement.ErrFull},
		} {
			if !errors.Is(c.got, c.want) {
				t.Errorf("%s: %v, want %v", name, c.got, c.want)
			}
		}
		if v := f.Backends()[0]; v.Assigned != 0 {
			t.Errorf("%d tablets were assigned by refused calls", v.Assigned)
		}
		if _, err := placement.NewDirectory(t.Context(), f.bolt, f.settings, placement.Options{MaxBackends: -1}); err == nil {
			t.Error("a negative bound was taken")
		}
	})
}

// tagOf reads the column Tag as the JSON that it is.
func tagOf(t *testing.T, v placement.BackendView) map[string]string {
	t.Helper()
	tag := map[string]string{}
	if err := json.Unmarshal([]byte(v.Tag), &tag); err != nil {
		t.Fatalf("tag %s: %v", v.Tag, err)
	}
	return tag
}

func errOf(_ placement.HeartbeatReply, err error) error { return err }

func TestS80_DecommissionedAndSuspendedAreNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		f.hear(beat("a", "cg1"), beat("b", "cg2"))
		must(t, f.SetDecommissioned(t.Context(), 10001, true))
		f.wantHolders(tablet(), "b")
		time.Sleep(time.Second)
		f.hear(beat("a", "cg1"))
		f.wantHolders(tablet(), "b") // a restart does not bring it back
		must(t, f.SetDecommissioned(t.Context(), 10001, false))
		f.wantHolders(tablet(), "a", "b")

		must(t, f.SetSuspended(t.Context(), "cg2", true))
		f.wantHolders(tablet(), "a")
		f.restart()
		f.wantHolders(tablet(), "a")
		must(t, f.SetSuspended(t.Context(), "cg2", false))
		f.wantHolders(tablet(), "a", "b")
	})
}

func TestS82_BackendsHaveTheColumnsOfTheReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		h := beat("10.0.0.1", "cg_write_01")
		h.CloudUniqueID, h.GroupName = "1:xxx:yyy", "write_group"
		h.HeartbeatPort, h.BePort, h.HTTPPort, h.ArrowFlightSQLPort = 9050, 9060, 8040, 8050
		h.CPUCores, h.MemoryBytes, h.CacheCapacityBytes, h.CacheUsedBytes = 8, 32<<30, 200, 50
		f.hear(h)
		now := time.Now()
		want := placement.BackendView{
			BackendID: 10001, Host: "10.0.0.1", HeartbeatPort: 9050, BePort: 9060, HTTPPort: 8040, BrpcPort: 8060,
			ArrowFlightSQLPort: 8050, LastStartTime: now.UTC(), LastHeartbeat: now, Alive: true,
			DataUsedCapacity: 50, AvailCapacity: 150, TotalCapacity: 200, UsedPct: 25, MaxDiskUsedPct: 25,
			Tag: `{"cloud_unique_id" : "1:xxx:yyy", "compute_group_id" : "cg_write_01", ` +
				`"compute_group_name" : "write_group", "compute_group_status" : "NORMAL", "location" : "default"}`,
			Version: "1.0", Status: `{"isLeaving" : false, "isDecommissioned" : false}`,
			CPUCores: 8, Memory: 32 << 30, LiveSince: now, NodeRole: "computation",
			NodeID: h.NodeID, GroupID: "cg_write_01", GroupName: "write_group", Location: "default",
		}
		got := f.Backends()[0]
		if !got.LastStartTime.Equal(now) {
			t.Errorf("started %s, want %s", got.LastStartTime, now)
		}
		got.LastStartTime = want.LastStartTime
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

func TestS82_TagTellsTheGroupsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		a, b := beat("a", "cg1"), beat("b", "cg1")
		b.GroupName = `a "name" \ of ünïcode <&>`
		f.hear(a, b)
		status := func(want string) {
			t.Helper()
			if got := f.Groups(); len(got) != 1 || got[0].Status != want || got[0].Backends != 2 || got[0].Alive != 2 {
				t.Fatalf("groups %+v, want one %s with two backends", got, want)
			}
			for _, v := range f.Backends() {
				if got := tagOf(t, v); got["compute_group_status"] != want || got["compute_group_name"] != v.GroupName {
					t.Fatalf("tag %s, want %s", v.Tag, want)
				}
			}
		}
		status("NORMAL")
		a.Leaving = true
		f.hear(a)
		status("NORMAL") // one of two drains
		must(t, f.SetDecommissioned(t.Context(), 10002, true))
		status("DRAINED")
		must(t, f.SetSuspended(t.Context(), "cg1", true))
		status("SUSPENDED")
	})
}

// brokenStore fails every save while broken is set.
type brokenStore struct {
	placement.Store
	broken error
}

func (s *brokenStore) Save(ctx context.Context, c placement.Change) error {
	if s.broken != nil {
		return s.broken
	}
	return s.Store.Save(ctx, c)
}

func TestS86_FailingStoreNeverMakesKnownBackendsSeemDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		s := &brokenStore{Store: f.bolt}
		var err error
		f.Directory, err = placement.NewDirectory(t.Context(), s, f.settings, f.options)
		must(t, err)
		f.hear(beat("a", "cg1"))
		time.Sleep(time.Second)

		s.broken = errors.New("disk full")
		restarted := beat("a", "cg1")
		restarted.GroupName = "renamed"
		f.hear(restarted)
		time.Sleep(4 * time.Second)
		f.hear(restarted)
		f.wantHolders(tablet(), "a")
		if _, err := f.Heartbeat(t.Context(), beat("b", "cg1")); !errors.Is(err, s.broken) {
			t.Errorf("a new backend whose number can't be kept: %v", err)
		}
		moved := beat("a", "cg2")
		if _, err := f.Heartbeat(t.Context(), moved); !errors.Is(err, s.broken) {
			t.Errorf("a known backend in a group that can't be kept: %v", err)
		}
		if err := f.SetDecommissioned(t.Context(), 10001, true); !errors.Is(err, s.broken) {
			t.Errorf("an order that can't be kept: %v", err)
		}
		f.wantHolders(tablet(), "a")
		if m := f.Metrics(); m.SaveFailures != 5 {
			t.Errorf("%d failed saves, want 5", m.SaveFailures)
		}

		s.broken = nil
		f.hear(restarted)
		f.restart()
		if g := f.Groups(); len(g) != 1 || g[0].Name != "renamed" {
			t.Errorf("groups %+v", g)
		}
		if v := f.Backends(); len(v) != 1 || v[0].NodeID != restarted.NodeID {
			t.Errorf("the store was not brought up to date: %+v", v)
		}
	})
}
