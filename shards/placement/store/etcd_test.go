package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"headstart/engine/block"
	"headstart/shards/placement"
	"headstart/shards/placement/store/etcdtest"
)

// sharing is one FE above a shared store.
type sharing struct {
	*placement.Directory
	store *Etcd
}

func startSharing(t *testing.T, at, name string) *sharing {
	t.Helper()
	s := openSharing(t, at, name)
	s.watch(t)
	return s
}

// openSharing starts an FE that does not hear of others before watch.
func openSharing(t *testing.T, at, name string) *sharing {
	t.Helper()
	e, err := OpenEtcd(EtcdOptions{Endpoints: []string{at}, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	s, settings := &sharing{store: e}, placement.NewSettings()
	settings.HeartbeatTimeoutMS.Store(3_600_000) // who has reported is alive, however late the next look at it is
	if s.Directory, err = placement.NewDirectory(t.Context(), e, settings, placement.Options{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *sharing) watch(t *testing.T) {
	e := s.store
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Watch(ctx, s.Directory) }() // ends with ctx
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		e.Close()
	})
}

func heartbeat(i int) placement.Heartbeat {
	return placement.Heartbeat{
		NodeID: fmt.Sprint("n", i), Host: fmt.Sprintf("10.0.%d.%d", i/200, 1+i%200), BrpcPort: 8060, GroupID: fmt.Sprint("cg", i%3),
		GroupName: "g", Started: time.Unix(1000, 0),
	}
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not after a minute: %s", what)
		case <-tick.C:
		}
	}
}

// seen is what an FE knows, less what each finds out by itself.
func (s *sharing) seen() string {
	var all []string
	for _, b := range s.Backends() {
		all = append(all, fmt.Sprint(b.BackendID, b.Host, b.GroupID, b.SystemDecommissioned, b.Membership))
	}
	for _, j := range s.Jobs() {
		all = append(all, fmt.Sprint(j.ID, j.Status, j.DstGroup))
	}
	for _, g := range s.Groups() {
		all = append(all, fmt.Sprint(g.ID, g.BalanceType, g.Round.Started, g.Round.Moved))
	}
	known, _ := s.Tablets()
	return fmt.Sprint(all, known, s.ClusterID())
}

// TestS86_FEsThatShareTheirStateAgree: backends register at all of three FEs at
// once, and people change things at each: nothing is lost, no number is given
// twice, and all end up with the same.
func TestS86_FEsThatShareTheirStateAgree(t *testing.T) {
	at := etcdtest.Start(t)
	fes := []*sharing{startSharing(t, at, "a"), startSharing(t, at, "b"), startSharing(t, at, "c")}
	const backends = 30
	var ids [3][backends]int64
	var all sync.WaitGroup
	for f, fe := range fes {
		all.Go(func() {
			for i := range backends {
				reply, err := fe.Heartbeat(t.Context(), heartbeat(i))
				if err != nil {
					t.Errorf("%d at FE %d: %v", i, f, err)
				}
				ids[f][i] = reply.BackendID
			}
		})
	}
	all.Wait()
	if ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("the FEs number the backends differently: %v", ids)
	}
	var jobs sync.Map
	for f, fe := range fes {
		all.Go(func() {
			for i := range 10 {
				id, err := fe.CreateJob(t.Context(), placement.Job{Type: placement.JobTablet, DstGroup: "cg0", Tablets: []uint64{uint64(100*f + i)}})
				if _, twice := jobs.LoadOrStore(id, true); err != nil || twice {
					t.Errorf("job %d: %v, given before: %t", id, err, twice)
				}
			}
			if _, err := fe.Lookup(t.Context(), []block.Route{block.TabletRoute(int64(f)), block.TabletRoute(77)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := fes[2].SetBalance(t.Context(), "cg1", placement.SyncWarmup, 5); err != nil {
		t.Error(err)
	}
	if err := fes[1].SetDecommissioned(t.Context(), ids[0][4], true); err != nil {
		t.Error(err)
	}
	if err := fes[0].Assign(t.Context(), ids[0][5], []block.Route{block.TabletRoute(9)}); err != nil {
		t.Error(err)
	}
	if err := fes[1].Drop(t.Context(), ids[0][5]); err != nil { // with what was assigned to it
		t.Error(err)
	}
	for _, fe := range fes { // Run saves what has become known when it ends
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		fe.Run(ctx)
	}
	eventually(t, "all FEs know the same", func() bool { return fes[0].seen() == fes[1].seen() && fes[1].seen() == fes[2].seen() })
	if n := len(fes[0].Backends()); n != backends-1 {
		t.Errorf("%d backends", n)
	}
	late := startSharing(t, at, "late")
	if known, _ := late.Tablets(); known < 4 || late.seen() != fes[0].seen() {
		t.Errorf("an FE that starts afterwards knows\n%s, the others\n%s", late.seen(), fes[0].seen())
	}
}

// TestS86_OneLeadsAndAnotherTakesOver: a leader that loses etcd is followed by
// another within seconds, and what it then still wants to save is refused.
func TestS86_OneLeadsAndAnotherTakesOver(t *testing.T) {
	at := etcdtest.Start(t)
	fes := map[string]*sharing{"a": startSharing(t, at, "a"), "b": startSharing(t, at, "b")}
	if _, err := fes["a"].Heartbeat(t.Context(), heartbeat(0)); err != nil {
		t.Fatal(err)
	}
	type term struct {
		name string
		ctx  context.Context
	}
	leads := make(chan term, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for name, fe := range fes {
		running.Go(func() {
			fe.store.Lead(ctx, func(ctx context.Context) {
				leads <- term{name, ctx}
				<-ctx.Done()
			})
		})
	}
	first := <-leads
	second := "a"
	if first.name == "a" {
		second = "b"
	}
	eventually(t, "both FEs stand for election", func() bool {
		names, err := fes["a"].store.Frontends(t.Context())
		return err == nil && reflect.DeepEqual(names, []string{first.name, second})
	})
	old := fes[first.name]
	eventually(t, "the leader has heard of the group", func() bool { return len(old.Groups()) == 1 })
	if err := old.SetBalance(first.ctx, "cg0", placement.SyncWarmup, 1); err != nil {
		t.Errorf("the leader can't save: %v", err)
	}
	keys, err := old.store.client.Get(t.Context(), old.store.leader+"/", clientv3.WithFirstCreate()...)
	if err != nil || len(keys.Kvs) != 1 {
		t.Fatal(keys, err)
	}
	// What happens to a leader that was not heard of for the time of its lease.
	if _, err := old.store.client.Revoke(t.Context(), clientv3.LeaseID(keys.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	if next := <-leads; next.name != second {
		t.Errorf("%s leads next", next.name)
	}
	if err := old.SetBalance(context.WithoutCancel(first.ctx), "cg0", placement.AsyncWarmup, 2); !errors.Is(err, placement.ErrOver) {
		t.Errorf("what the old leader was about to save: %v", err)
	}
	<-first.ctx.Done()
	if err := old.SetBalance(t.Context(), "cg0", placement.WithoutWarmup, 3); err != nil {
		t.Errorf("a person at the old leader: %v", err)
	}
	eventually(t, "the other FE knows", func() bool { return fes[second].Groups()[0].BalanceType == placement.WithoutWarmup })
	cancel()
	running.Wait()
}

// heard notes the first warning that an FE logs.
type heard struct {
	slog.Handler
	warned chan string
}

func (h heard) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h heard) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	select {
	case h.warned <- text:
	default:
	}
	return nil
}

// TestS86_AnFEAtAMemberThatIsCutOffReadsAnew: a member of etcd that has lost the
// others goes on to answer, and knows nothing new: an FE that watches there has to
// leave it, and has all when the others are back.
func TestS86_AnFEAtAMemberThatIsCutOffReadsAnew(t *testing.T) {
	members := etcdtest.StartCluster(t, 3)
	far := startSharing(t, members[0].Addr, "far")
	near := openSharing(t, members[2].Addr, "near")
	log := heard{slog.DiscardHandler, make(chan string, 1)}
	near.store.log = slog.New(log)
	near.watch(t)
	register := func(i int) {
		t.Helper()
		if _, err := far.Heartbeat(t.Context(), heartbeat(i)); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprint("the other FE knows of backend ", i), func() bool { return len(near.Backends()) == i+1 })
	}
	register(0)
	for _, m := range members[:2] {
		if err := m.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case text := <-log.warned:
		if !strings.Contains(text, rpctypes.ErrNoLeader.Error()) {
			t.Errorf("the FE says %q", text)
		}
	case <-time.After(time.Minute):
		t.Error("an FE stays at a member of etcd that knows nothing new")
	}
	for _, m := range members[:2] {
		if err := m.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	register(1)
}
