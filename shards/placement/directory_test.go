package placement_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
	"headstart/shards/placement/store"
)

// fe is a Directory above a real store, which restart closes and opens anew.
type fe struct {
	*placement.Directory
	t        *testing.T
	path     string
	bolt     *store.Bolt
	settings *placement.Settings
	options  placement.Options
}

func newFE(t *testing.T) *fe {
	f := &fe{t: t, path: filepath.Join(t.TempDir(), "fe.db"), settings: placement.NewSettings()}
	f.open()
	t.Cleanup(func() {
		if err := f.bolt.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fe) open() {
	f.t.Helper()
	var err error
	if f.bolt, err = store.Open(f.path); err != nil {
		f.t.Fatal(err)
	}
	if f.Directory, err = placement.NewDirectory(f.t.Context(), f.bolt, f.settings, f.options); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fe) restart() {
	f.t.Helper()
	if err := f.bolt.Close(); err != nil {
		f.t.Fatal(err)
	}
	f.open()
}

// hear sends heartbeats that must be taken, and returns the last one's number.
func (f *fe) hear(beats ...placement.Heartbeat) int64 {
	f.t.Helper()
	var id int64
	for _, h := range beats {
		reply, err := f.Heartbeat(f.t.Context(), h)
		if err != nil {
			f.t.Fatal(err)
		}
		id = reply.BackendID
	}
	return id
}

// holders returns the hosts that serve a route, in the order of their groups.
func (f *fe) holders(route block.Route) []string {
	f.t.Helper()
	answer, err := f.Lookup(f.t.Context(), []block.Route{route})
	if err != nil {
		f.t.Fatal(err)
	}
	hosts := []string{}
	for _, h := range answer[0] {
		hosts = append(hosts, h.Addr.Host)
	}
	return hosts
}

func (f *fe) wantHolders(route block.Route, want ...string) {
	f.t.Helper()
	if got := f.holders(route); !slices.Equal(got, want) {
		f.t.Fatalf("%s is served by %q, want %q", route, got, want)
	}
}

// beat is a heartbeat of a process that was started now.
func beat(host, group string) placement.Heartbeat {
	now := time.Now()
	return placement.Heartbeat{
		NodeID: fmt.Sprintf("%s@%d", host, now.UnixNano()), Host: host, BrpcPort: 8060, GroupID: group,
		Version: "1.0", Started: now, CacheCapacityBytes: 1 << 30,
	}
}

// tablet is the route that most tests ask for.
func tablet() block.Route { return block.TabletRoute(10086) }

func TestS81_LookupNamesThePrimaryOfEveryGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		a := beat("a", "cg1")
		a.Location = "az1"
		f.hear(a, beat("b", "cg2"), beat("c", "cg2"))
		answer, err := f.Lookup(t.Context(), []block.Route{tablet(), block.ExternalRoute(block.Object{Key: "k"}), block.TabletRoute(7)})
		if err != nil {
			t.Fatal(err)
		}
		want := placement.Holder{Addr: block.Addr{Host: "a", Port: 8060}, GroupID: "cg1", Location: "az1"}
		for i, holders := range answer {
			if len(holders) != 2 || holders[0] != want || holders[1].GroupID != "cg2" {
				t.Errorf("route %d: %v, want one holder of each of two groups", i, holders)
			}
		}
		if _, err := f.Lookup(t.Context(), []block.Route{{Kind: 9}}); !errors.Is(err, placement.ErrInvalid) {
			t.Errorf("a kind nobody knows: %v", err)
		}
		if _, err := f.Lookup(t.Context(), make([]block.Route, placement.MaxLookup+1)); !errors.Is(err, placement.ErrInvalid) {
			t.Errorf("too many routes: %v", err)
		}
	})
}

func TestS80_SilentBackendIsNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		a, b := beat("a", "cg1"), beat("b", "cg2")
		f.hear(a, b)
		time.Sleep(4 * time.Second)
		f.hear(b)
		time.Sleep(time.Second - time.Nanosecond)
		f.wantHolders(tablet(), "a", "b")
		time.Sleep(time.Nanosecond)
		f.wantHolders(tablet(), "b")
		if v := f.Backends()[0]; v.Alive || v.HeartbeatFailureCounter != 4 || !v.LiveSince.IsZero() ||
			v.ErrMsg != "not heard for 5s" {
			t.Errorf("the silent backend shows %+v", v)
		}
		f.hear(a)
		f.wantHolders(tablet(), "a", "b")
		if v := f.Backends()[0]; !v.Alive || !v.LiveSince.Equal(time.Now()) || v.ErrMsg != "" {
			t.Errorf("the backend that is back shows %+v", v)
		}
	})
}

func TestS81_NextByRankServesWhileThePrimaryIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		beats := []placement.Heartbeat{beat("a", "cg"), beat("b", "cg"), beat("c", "cg")}
		f.hear(beats...)
		primary := f.holders(tablet())[0]
		time.Sleep(4 * time.Second)
		for _, h := range beats {
			if h.Host != primary {
				f.hear(h)
			}
		}
		time.Sleep(time.Second)
		if next := f.holders(tablet()); len(next) != 1 || next[0] == primary {
			t.Fatalf("with %s silent the tablet is served by %q", primary, next)
		}
		f.hear(beats...)
		f.wantHolders(tablet(), primary)
	})
}

func TestS80_ShorterTimeoutTakesEffectWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		f.settings.HeartbeatTimeoutMS.Store(600_000)
		f.hear(beat("a", "cg1"))
		time.Sleep(time.Minute)
		f.wantHolders(tablet(), "a")
		f.settings.HeartbeatTimeoutMS.Store(0) // less than two intervals: two
		time.Sleep(time.Second)
		f.wantHolders(tablet())
		f.settings.HeartbeatIntervalMS.Store(31_000)
		time.Sleep(time.Second)
		f.wantHolders(tablet())
		f.hear(beat("b", "cg1"))
		time.Sleep(61 * time.Second)
		f.wantHolders(tablet(), "b")
	})
}

func TestS80_LeavingBackendIsNotHandedOutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		a := beat("a", "cg1")
		f.hear(a, beat("b", "cg2"))
		leaving := a
		leaving.Leaving = true
		f.hear(leaving)
		f.wantHolders(tablet(), "b")
		f.hear(a) // the last heartbeat before the drain, late
		f.wantHolders(tablet(), "b")
		f.restart()
		f.wantHolders(tablet(), "b")
		time.Sleep(time.Second)
		id := f.hear(beat("a", "cg1"))
		f.hear(beat("b", "cg2"))
		f.wantHolders(tablet(), "a", "b")
		if id != 10001 {
			t.Errorf("after its restart the backend has number %d", id)
		}
	})
}

func TestS86_NumbersAndClusterSurviveRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		cluster := f.ClusterID()
		if len(cluster) < 20 {
			t.Fatalf("cluster id %q", cluster)
		}
		f.hear(beat("a", "cg1"), beat("b", "cg1"))
		if err := f.Drop(t.Context(), 10002); err != nil {
			t.Fatal(err)
		}
		f.restart()
		if f.ClusterID() != cluster {
			t.Errorf("cluster id %q has become %q", cluster, f.ClusterID())
		}
		time.Sleep(time.Second)
		if id := f.hear(beat("a", "cg1")); id != 10001 {
			t.Errorf("a has become %d", id)
		}
		if id := f.hear(beat("b", "cg1")); id != 10003 {
			t.Errorf("the number of a dropped backend was given again: %d", id)
		}
		other := beat("a", "cg1")
		other.BrpcPort = 8061
		if id := f.hear(other); id != 10004 {
			t.Errorf("another port is another backend, but it has number %d", id)
		}
	})
}

func TestS81_PlacementHoldsStillWhileTheFERestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		a, b := beat("a", "cg"), beat("b", "cg")
		f.hear(a, b)
		routes := make([]block.Route, 100)
		for i := range routes {
			routes[i] = block.TabletRoute(int64(i))
		}
		before, err := f.Lookup(t.Context(), routes)
		if err != nil {
			t.Fatal(err)
		}
		f.restart()
		f.hear(b)
		after, err := f.Lookup(t.Context(), routes)
		if err != nil {
			t.Fatal(err)
		}
		for i := range routes {
			if !slices.Equal(before[i], after[i]) {
				t.Fatalf("%s moved from %v to %v", routes[i], before[i], after[i])
			}
		}
		if v := f.Backends()[0]; v.Alive || v.ErrMsg != "not heard since this FE started" {
			t.Errorf("a shows %+v before its heartbeat", v)
		}
		time.Sleep(2 * time.Second) // two intervals: a does not come
		for _, route := range routes {
			f.wantHolders(route, "b")
		}
	})
}

func TestS80_StaleProcessNeverTakesAnAddressBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		old := beat("a", "cg_old")
		f.hear(old)
		time.Sleep(time.Second)
		fresh := beat("a", "cg_new")
		if id := f.hear(fresh); id != 10001 {
			t.Errorf("the restarted backend has number %d", id)
		}
		refused := func() {
			t.Helper()
			if _, err := f.Heartbeat(t.Context(), old); !errors.Is(err, placement.ErrStale) {
				t.Fatalf("the old process's heartbeat: %v", err)
			}
			if v := f.Backends()[0]; v.GroupID != "cg_new" || v.NodeID != fresh.NodeID {
				t.Fatalf("the address has gone to %s of %s", v.NodeID, v.GroupID)
			}
		}
		refused()
		time.Sleep(59 * time.Second)
		refused() // the new one is silent, but not for long enough
		f.restart()
		time.Sleep(59 * time.Second)
		refused()
		if got := f.Metrics(); got.Heartbeats != 1 || got.Refused != 1 {
			t.Errorf("metrics %+v", got)
		}
	})
}

func TestS80_ClockSetBackDoesNotLockABackendOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		ahead := beat("a", "cg1")
		ahead.Started = ahead.Started.Add(time.Hour)
		f.hear(ahead)
		time.Sleep(time.Second)
		next := beat("a", "cg1")
		if _, err := f.Heartbeat(t.Context(), next); !errors.Is(err, placement.ErrStale) {
			t.Fatalf("a heartbeat of an earlier process: %v", err)
		}
		time.Sleep(time.Minute)
		if id := f.hear(next); id != 10001 {
			t.Errorf("the restarted backend has number %d", id)
		}
	})
}

func TestS80_ProcessDoesNotChangeItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		h := beat("a", "cg1")
		f.hear(h)
		h.GroupID = "cg2"
		if _, err := f.Heartbeat(t.Context(), h); !errors.Is(err, placement.ErrInvalid) {
			t.Errorf("one process, two groups: %v", err)
		}
	})
}

func TestS80_OneHostHasOneSpelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		for _, hosts := range [][2]string{{"Node1", "node1"}, {"::ffff:10.0.0.1", "10.0.0.1"}, {"fd00:0::1", "fd00::1"}} {
			h := beat(hosts[0], "cg1")
			id := f.hear(h)
			h.Host = hosts[1]
			if got := f.hear(h); got != id {
				t.Errorf("%q is backend %d and %q backend %d", hosts[0], id, hosts[1], got)
			}
		}
	})
}

func TestHeartbeatsThatSayNothingNewAreNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		h := beat("a", "cg1")
		f.hear(h)
		for i := range 100 {
			h.CacheUsedBytes, h.MemoryBytes, h.CPUCores = int64(i), int64(i), i
			f.hear(h)
		}
		if got := f.Metrics().Saves; got != 1 {
			t.Errorf("%d saves, want 1", got)
		}
		if v := f.Backends()[0]; v.DataUsedCapacity != 99 || v.Memory != 99 || v.CPUCores != 99 {
			t.Errorf("the last heartbeat's figures don't show: %+v", v)
		}
		h.CacheCapacityBytes *= 2
		f.hear(h)
		if got := f.Metrics().Saves; got != 2 {
			t.Errorf("%d saves after a change, want 2", got)
		}
	})
}

func TestLookupsAndHeartbeatsRunAtTheSameTime(t *testing.T) {
	f := newFE(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			h := beat(fmt.Sprintf("be%d", i), "cg1")
			for range 200 {
				if _, err := f.Heartbeat(context.Background(), h); err != nil {
					t.Error(err)
				}
				if got, err := f.Lookup(context.Background(), []block.Route{tablet()}); err != nil || len(got[0]) != 1 {
					t.Errorf("lookup: %v, %v", got, err)
				}
				f.Backends()
			}
			id, err := f.Heartbeat(context.Background(), h)
			if err == nil {
				err = f.Assign(context.Background(), id.BackendID, []block.Route{tablet()})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A look-up allocates its answer and the list of answers, however long.
func TestLookupAllocatesTwice(t *testing.T) {
	f := newFE(t)
	f.settings.HeartbeatTimeoutMS.Store(3_600_000)
	for i := range 20 {
		f.hear(beat(fmt.Sprintf("be%d", i), fmt.Sprintf("cg%d", i%4)))
	}
	must(t, f.Assign(t.Context(), 10001, []block.Route{tablet()}))
	routes := slices.Repeat([]block.Route{tablet(), block.TabletRoute(1)}, 50)
	got := testing.AllocsPerRun(1000, func() {
		if _, err := f.Lookup(t.Context(), routes); err != nil {
			t.Error(err)
		}
	})
	// The average is rounded down: one new table in a second does not show.
	if got != 2 {
		t.Errorf("%.0f allocations, want 2", got)
	}
}

func BenchmarkLookup(b *testing.B) {
	bolt, err := store.Open(filepath.Join(b.TempDir(), "fe.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer bolt.Close()
	settings := placement.NewSettings()
	settings.HeartbeatTimeoutMS.Store(3_600_000)
	d, err := placement.NewDirectory(b.Context(), bolt, settings, placement.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		if _, err := d.Heartbeat(b.Context(), beat(fmt.Sprintf("be%d", i), fmt.Sprintf("cg%d", i%4))); err != nil {
			b.Fatal(err)
		}
	}
	routes := make([]block.Route, 64)
	for i := range routes {
		routes[i] = block.TabletRoute(int64(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Lookup(b.Context(), routes); err != nil {
			b.Fatal(err)
		}
	}
}
