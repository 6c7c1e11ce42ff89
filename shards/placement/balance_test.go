package placement_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// know looks tablets up, which makes them known, and returns who serves them.
func (f *fe) know(n int) []string {
	f.t.Helper()
	var hosts []string
	for id := range n {
		hosts = append(hosts, f.holders(block.TabletRoute(int64(id)))...)
	}
	return hosts
}

func (f *fe) memberships() []placement.Membership {
	var all []placement.Membership
	for _, v := range f.Backends() {
		all = append(all, v.Membership)
	}
	return all
}

func (f *fe) wantMemberships(want ...placement.Membership) {
	f.t.Helper()
	if got := f.memberships(); !slices.Equal(got, want) {
		f.t.Fatalf("memberships %q, want %q", got, want)
	}
}

func TestS83_BackendWaitsForARoundUnlessThereIsNothingToMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		a, b := beat("a", "cg"), beat("b", "cg")
		f.hear(a, b) // nothing is known yet
		f.wantMemberships(placement.Member, placement.Member)
		before := f.know(50)
		f.hear(beat("c", "cg"), beat("x", "other")) // x is the first of its group
		f.wantMemberships(placement.Member, placement.Member, placement.Waiting, placement.Member)
		if got := f.DueGroups(); !slices.Equal(got, []string{"cg"}) {
			t.Errorf("groups that need a round: %q", got)
		}
		must(t, f.SetBalance(t.Context(), "cg", placement.WithoutWarmup, 0))
		f.hear(beat("d", "cg"))
		f.wantMemberships(placement.Member, placement.Member, placement.Waiting, placement.Member, placement.Member)
		must(t, f.SetBalance(t.Context(), "cg", "", 0))
		f.restart()
		f.wantMemberships(placement.Member, placement.Member, placement.Waiting, placement.Member, placement.Member)
		must(t, f.Drop(t.Context(), 10005))
		f.hear(a, b)
		for id, host := range before {
			f.wantHolders(block.TabletRoute(int64(id)), host, "x")
		}
	})
}

func TestS83_GroupWhoseMembersAreDeadTakesANewcomerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		f.hear(beat("a", "cg"))
		f.know(5)
		time.Sleep(10 * time.Second)
		f.hear(beat("b", "cg"))
		f.wantHolders(tablet(), "b")
	})
}

// The steps of a round, one by one, as a conductor takes them.
func TestS83_StepsOfARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		ctx := t.Context()
		f.hear(beat("a", "cg"))
		f.know(100)
		f.hear(beat("b", "cg"))
		must(t, f.SetDecommissioned(ctx, 10001, true)) // b, which waits, can take its place
		r, err := f.StartRound(ctx, "cg")
		must(t, err)
		f.wantMemberships(placement.Leaving, placement.Joining)
		if r.Moves != 100 || r.Type != placement.AsyncWarmup {
			t.Fatalf("round %+v", r)
		}
		if _, err := f.StartRound(ctx, "cg"); !errors.Is(err, placement.ErrOver) {
			t.Errorf("a second round: %v", err)
		}
		c := beat("c", "cg")
		f.hear(c)
		f.wantMemberships(placement.Leaving, placement.Joining, placement.Waiting)

		buckets, moves, next := f.Moves("cg", 0, 10, &placement.Buckets{})
		if len(moves) < 10 || next == 0 || next > 2000 || buckets.Len() != next {
			t.Fatalf("%d moves of %d buckets up to %d", len(moves), buckets.Len(), next)
		}
		must(t, f.Switch(ctx, &r, &buckets, placement.RoundCounts{Moved: len(moves)}))
		inBatch := map[uint64]bool{}
		for _, m := range moves {
			inBatch[m.Tablet] = true
		}
		check := func() {
			t.Helper()
			for id := range uint64(100) {
				want := "a"
				if inBatch[id] {
					want = "b"
				}
				f.wantHolders(block.TabletRoute(int64(id)), want)
			}
		}
		check()
		f.restart()
		check()
		f.hear(beat("b", "cg"), c)
		if v := f.Rounds(); len(v) != 1 || !v[0].Waited || !v[0].Unheard || v[0].Moved != len(moves) {
			t.Errorf("the round shows %+v", v)
		}
		must(t, f.EndRound(ctx, &r))
		f.wantMemberships(placement.Out, placement.Member, placement.Waiting)
		for id := range int64(100) {
			f.wantHolders(block.TabletRoute(id), "b")
		}
		for what, err := range map[string]error{
			"switch": f.Switch(ctx, &r, &buckets, placement.RoundCounts{}), "end": f.EndRound(ctx, &r), "send back": f.SendBack(ctx, 10002, ""),
		} {
			if !errors.Is(err, placement.ErrOver) {
				t.Errorf("%s after the end: %v", what, err)
			}
		}
		must(t, f.SetDecommissioned(ctx, 10001, false))
		f.wantMemberships(placement.Waiting, placement.Member, placement.Waiting)
	})
}

func TestS83_AssignedTabletsMoveOnlyWithTheirBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		ctx := t.Context()
		f.hear(beat("a", "cg"), beat("b", "cg"))
		f.know(60)
		var mine []block.Route
		for id := range int64(60) {
			mine = append(mine, block.TabletRoute(id))
		}
		must(t, f.Assign(ctx, 10001, mine))
		f.hear(beat("c", "cg"))
		r, err := f.StartRound(ctx, "cg")
		must(t, err)
		if r.Moves != 0 {
			t.Errorf("%d assigned tablets would move to c", r.Moves)
		}
		must(t, f.Assign(ctx, 10003, mine[:1])) // an order goes before the round
		f.wantHolders(mine[0], "c")
		must(t, f.EndRound(ctx, &r))

		must(t, f.SetDecommissioned(ctx, 10001, true))
		r, err = f.StartRound(ctx, "cg")
		must(t, err)
		if r.Moves != 59 {
			t.Errorf("%d tablets would leave a, want 59", r.Moves)
		}
		must(t, f.EndRound(ctx, &r))
		for _, route := range mine {
			if host := f.holders(route)[0]; host == "a" {
				t.Fatalf("%s is still on a", route)
			}
		}
		if v := f.Backends(); v[0].Assigned != 0 || v[2].Assigned != 1 {
			t.Errorf("assigned are %d to a and %d to c", v[0].Assigned, v[2].Assigned)
		}
	})
}

// Heartbeats go on while somebody looks; the race detector watches.
func TestS82_HeartbeatsGoOnWhileTabletsAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		a := beat("a", "cg")
		f.hear(a)
		f.holders(block.TabletRoute(1))
		id := f.Backends()[0].BackendID
		var beats sync.WaitGroup
		beats.Go(func() {
			for range 100 {
				if _, err := f.Heartbeat(t.Context(), a); err != nil {
					t.Error(err)
				}
			}
		})
		for range 100 {
			if of, err := f.TabletsOf(id, 10); err != nil || len(of) != 1 {
				t.Errorf("%v, %v", of, err)
			}
			f.Groups()
			f.Backends()
		}
		beats.Wait()
	})
}

func TestS82_TabletNumCountsTheTabletsThatABackendServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		f.hear(beat("a", "cg"), beat("b", "cg"), beat("x", "other"))
		before := map[string]int{}
		for id := range int64(200) {
			for _, host := range f.holders(block.TabletRoute(id)) {
				before[host]++
			}
		}
		f.holders(block.Route{Kind: block.RouteExternal, ID: 1}) // not a tablet
		for _, v := range f.Backends() {
			if v.TabletNum != before[v.Host] {
				t.Errorf("%s: TabletNum %d, serves %d", v.Host, v.TabletNum, before[v.Host])
			}
			of, err := f.TabletsOf(v.BackendID, 1000)
			must(t, err)
			if len(of) != before[v.Host] {
				t.Errorf("%s: %d tablets are listed", v.Host, len(of))
			}
			if few, _ := f.TabletsOf(v.BackendID, 3); !slices.Equal(few, of[:3]) {
				t.Errorf("%s: the first three are %v", v.Host, few)
			}
		}
		if _, err := f.TabletsOf(9, 1); !errors.Is(err, placement.ErrUnknown) {
			t.Errorf("tablets of no backend: %v", err)
		}
	})
}

// run lets the Directory run until the returned function is called.
func (f *fe) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

func TestS86_KnownTabletsSurviveRestartsUntilNobodyAsksForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		a := beat("a", "cg")
		known := func(want int64) {
			t.Helper()
			if n, _ := f.Tablets(); n != want {
				t.Fatalf("%d tablets are known, want %d", n, want)
			}
		}
		f.hear(a)
		stop := f.run()
		f.know(50)
		time.Sleep(6 * time.Second)
		saves := f.Metrics().Saves
		f.know(50)
		time.Sleep(6 * time.Second)
		if got := f.Metrics().Saves; got != saves {
			t.Errorf("%d saves although nothing new became known", got-saves)
		}
		f.know(51)
		stop() // saves what is left
		f.restart()
		known(51)
		time.Sleep(4 * 24 * time.Hour)
		f.know(20)
		time.Sleep(4 * 24 * time.Hour)
		stop = f.run()
		time.Sleep(2 * time.Second)
		known(20)
		stop()
		f.restart()
		known(20)
	})
}

func TestS80_SilenceIsNoticedThoughNobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		var log bytes.Buffer
		f.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		f.restart()
		f.hear(beat("a", "cg"))
		stop := f.run()
		time.Sleep(7 * time.Second)
		stop()
		if got := strings.Count(log.String(), "backend silent"); got != 1 {
			t.Errorf("%d lines say that a is silent:\n%s", got, log.String())
		}
	})
}
