package store

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"headstart/engine/block"
	"headstart/shards/placement"
	"headstart/shards/placement/store/etcdtest"
)

func routes(n int) []block.Route {
	all := make([]block.Route, n)
	for i := range all {
		all[i] = block.TabletRoute(int64(i))
	}
	return all
}

// holds reports whether an FE answers that a backend's host serves all routes.
func (s *sharing) holds(t *testing.T, all []block.Route, host string) bool {
	t.Helper()
	found, err := s.Lookup(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, holders := range found {
		if len(holders) != 1 || holders[0].Addr.Host != host {
			return false
		}
	}
	return true
}

// unfinished reports whether a large change has not been written to the end.
func unfinished(t *testing.T, e *Etcd) bool {
	t.Helper()
	found, err := e.client.Get(t.Context(), e.pending())
	if err != nil {
		t.Fatal(err)
	}
	return len(found.Kvs) > 0
}

// TestS86_AChangeOfAnySizeHoldsAsOne: etcd takes 128 operations in a transaction.
// A larger change is made all the same, others see all of it, and when the FE that
// makes it dies after the first step, whoever comes next makes it whole.
func TestS86_AChangeOfAnySizeHoldsAsOne(t *testing.T) {
	at := etcdtest.Start(t)
	a, b := startSharing(t, at, "a"), startSharing(t, at, "b")
	all := routes(1000)
	var ids [2]int64
	for i := range ids {
		h := heartbeat(3 * i) // one group
		reply, err := a.Heartbeat(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = reply.BackendID
	}
	eventually(t, "both know both", func() bool { return len(b.Backends()) == 2 })
	for i, fe := range []*sharing{a, b} {
		for j := range ids {
			if _, err := fe.Heartbeat(t.Context(), heartbeat(3*j)); err != nil {
				t.Fatal(i, err)
			}
		}
	}
	host := heartbeat(0).Host
	if err := a.Assign(t.Context(), ids[0], all); err != nil {
		t.Fatal(err)
	}
	if unfinished(t, a.store) || !a.holds(t, all, host) {
		t.Error("the change was not made, or not to its end")
	}
	eventually(t, "the other FE knows all of the change", func() bool { return b.holds(t, all, host) })

	// An FE dies after the first step of another one.
	host = heartbeat(3).Host
	first := make([]pendingRow, len(all))
	for i, r := range all {
		rows, _, err := rowsOf(placement.Change{Assignments: []placement.Assignment{{Route: r, GroupID: "cg0", BackendID: ids[1]}}})
		if err != nil {
			t.Fatal(err)
		}
		first[i] = pendingRow{rows[0].table, rows[0].key, rows[0].value}
	}
	value, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	dying := openSharing(t, at, "dying")
	if err := dying.store.saveNext(t.Context(), []clientv3.Op{clientv3.OpPut(dying.store.pending(), string(value))}, 0); err != nil {
		t.Fatal(err)
	}
	dying.store.Close()
	eventually(t, "the others know all of it", func() bool { return a.holds(t, all, host) && b.holds(t, all, host) })
	if !unfinished(t, a.store) {
		t.Fatal("somebody has finished it already, so this tests nothing")
	}
	if err := b.SetBalance(t.Context(), "cg0", placement.SyncWarmup, 7); err != nil {
		t.Error(err)
	}
	if unfinished(t, a.store) {
		t.Error("a change was made before the one ahead of it was whole")
	}
	late := startSharing(t, at, "late")
	if _, err := late.Heartbeat(t.Context(), heartbeat(3)); err != nil {
		t.Fatal(err)
	}
	if g := late.Groups()[0]; !late.holds(t, all, host) || g.BalanceType != placement.SyncWarmup {
		t.Errorf("an FE that starts afterwards lacks a part of the change, or the next one: %+v", g)
	}
}

// TestS86_AnFEThatMissedChangesReadsTheStateAnew: etcd has compacted what an FE has
// not heard yet. It goes on with all of it, what was taken away included.
func TestS86_AnFEThatMissedChangesReadsTheStateAnew(t *testing.T) {
	at := etcdtest.Start(t)
	a := startSharing(t, at, "a")
	for i := range 4 {
		if _, err := a.Heartbeat(t.Context(), heartbeat(i)); err != nil {
			t.Fatal(err)
		}
	}
	gone := a.Backends()[1].BackendID
	if err := a.Assign(t.Context(), gone, routes(3)); err != nil {
		t.Fatal(err)
	}
	job, err := a.CreateJob(t.Context(), placement.Job{Type: placement.JobTablet, DstGroup: "cg0", Tablets: []uint64{1}})
	if err != nil {
		t.Fatal(err)
	}
	late := openSharing(t, at, "late")
	if err := a.Drop(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	again := heartbeat(1) // another process at the same address
	again.NodeID, again.GroupID = "other", "cg7"
	if _, err := a.Heartbeat(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if err := a.CancelJob(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	now, err := a.store.client.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.store.client.Compact(t.Context(), now.Header.Revision); err != nil {
		t.Fatal(err)
	}
	late.watch(t)
	eventually(t, "the late FE knows what the other knows", func() bool { return late.seen() == a.seen() })
	if err := late.SetBalance(t.Context(), "cg0", placement.SyncWarmup, 7); err != nil {
		t.Errorf("it can't change anything: %v", err)
	}
	eventually(t, "the other hears of it", func() bool { return late.seen() == a.seen() })
}

// TestS86_AStateOfAnotherClusterIsNotTakenIn: somebody has emptied etcd under a
// running FE, and another cluster has begun there.
func TestS86_AStateOfAnotherClusterIsNotTakenIn(t *testing.T) {
	at := etcdtest.Start(t)
	a := openSharing(t, at, "a")
	defer a.store.Close()
	if _, err := a.store.client.Delete(t.Context(), a.store.state, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	b := openSharing(t, at, "b")
	defer b.store.Close()
	a.store.mu.Lock()
	seen := a.store.mu.seen
	a.store.mu.Unlock()
	err := a.store.replace(t.Context(), a.Directory)
	if !errors.Is(err, placement.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	a.store.mu.Lock()
	if a.store.mu.seen != seen {
		t.Error("the FE takes what it has not applied for seen, and may change it")
	}
	a.store.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := b.Heartbeat(ctx, heartbeat(1)); err != nil {
		t.Error(err)
	}
}

// TestS86_PasswordOfEtcd: with etcd's authentication on, an FE needs the right one.
func TestS86_PasswordOfEtcd(t *testing.T) {
	at := etcdtest.Start(t)
	setUp := openSharing(t, at, "set up")
	c := setUp.store.client
	_, errUser := c.UserAdd(t.Context(), "root", "secret")
	_, errRole := c.RoleAdd(t.Context(), "root")
	_, errGrant := c.UserGrantRole(t.Context(), "root", "root")
	_, errOn := c.AuthEnable(t.Context())
	if err := errors.Join(errUser, errRole, errGrant, errOn, setUp.store.Close()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		user, password string
		ok             bool
	}{{"root", "secret", true}, {"root", "wrong", false}, {"", "", false}} {
		e, err := OpenEtcd(EtcdOptions{Endpoints: []string{at}, Name: "a", User: tt.user, Password: tt.password})
		if err == nil {
			_, err = placement.NewDirectory(t.Context(), e, placement.NewSettings(), placement.Options{})
			e.Close()
		}
		if (err == nil) != tt.ok {
			t.Errorf("%q with %q: %v", tt.user, tt.password, err)
		}
	}
}

// TestS86_HowLargeAChangeMayBeIsForEtcdToSay: what is above etcd's bound is refused
// with words that name it, however far above, and what is below it is made.
func TestS86_HowLargeAChangeMayBeIsForEtcdToSay(t *testing.T) {
	const rows = 40_000 // 2.4 MiB
	for flag, fits := range map[string]bool{"--max-request-bytes=1572864": false, "--max-request-bytes=2400000": false, "--max-request-bytes=8388608": true} {
		a := startSharing(t, etcdtest.Start(t, flag), "a")
		reply, err := a.Heartbeat(t.Context(), heartbeat(0))
		if err != nil {
			t.Fatal(err)
		}
		err = a.Assign(t.Context(), reply.BackendID, routes(rows))
		if fits && err != nil || !fits && (!errors.Is(err, placement.ErrFull) || !strings.Contains(err.Error(), "--max-request-bytes")) {
			t.Errorf("%s: %v", flag, err)
		}
		if err := a.SetBalance(t.Context(), "cg0", placement.SyncWarmup, 7); err != nil {
			t.Errorf("%s: the next change: %v", flag, err)
		}
	}
}

// TestS86_ALargeChangeIsFinishedHoweverHastyItsCallers: each who wants to make the
// next change has too little time to write the rows of the one ahead of it.
func TestS86_ALargeChangeIsFinishedHoweverHastyItsCallers(t *testing.T) {
	a := startSharing(t, etcdtest.Start(t), "a")
	reply, err := a.Heartbeat(t.Context(), heartbeat(0))
	if err != nil {
		t.Fatal(err)
	}
	var rows []pendingRow
	for _, r := range routes(10 * rowsPerTxn) {
		one, _, err := rowsOf(placement.Change{Assignments: []placement.Assignment{{Route: r, GroupID: "cg0", BackendID: reply.BackendID}}})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, pendingRow{one[0].table, one[0].key, one[0].value})
	}
	value, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	put, err := a.store.client.Put(t.Context(), a.store.pending(), string(value))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	found, err := a.store.client.Get(t.Context(), a.store.pending(), clientv3.WithRev(put.Header.Revision))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.store.finish(gone, found.Kvs[0]); err != nil || unfinished(t, a.store) {
		t.Errorf("%v: the change is not whole", err)
	}
}

// TestS86_AStateOfANewerProgramEndsAnOlderFE: it could only spoil it. One that
// somebody has emptied may come back.
func TestS86_AStateOfANewerProgramEndsAnOlderFE(t *testing.T) {
	a := openSharing(t, etcdtest.Start(t), "a")
	defer a.store.Close()
	key := a.store.key("meta", []byte("schema"))
	for value, ends := range map[string]bool{"99": true, "": false} {
		if _, err := a.store.client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		err := a.store.replace(t.Context(), a.Directory)
		if err == nil || errors.Is(err, placement.ErrInvalid) != ends {
			t.Errorf("schema %q: %v", value, err)
		}
	}
}
