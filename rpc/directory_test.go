package rpc

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// fakeDirectory answers what it is told to.
type fakeDirectory struct {
	heartbeats chan placement.Heartbeat
	reply      placement.HeartbeatReply
	err        error
	lookups    chan int
}

func newFakeDirectory(cluster string) *fakeDirectory {
	return &fakeDirectory{
		heartbeats: make(chan placement.Heartbeat, 10),
		lookups:    make(chan int, 100),
		reply:      placement.HeartbeatReply{BackendID: 10001, ClusterID: cluster, Interval: 1500 * time.Millisecond},
	}
}

func (d *fakeDirectory) Heartbeat(_ context.Context, h placement.Heartbeat) (placement.HeartbeatReply, error) {
	d.heartbeats <- h
	return d.reply, d.err
}

// Lookup names holders after the route, none for route 0.
func (d *fakeDirectory) Lookup(_ context.Context, routes []block.Route) ([][]placement.Holder, error) {
	d.lookups <- len(routes)
	out := make([][]placement.Holder, len(routes))
	for i, r := range routes {
		out[i] = holdersOf(r)
	}
	return out, d.err
}

func holdersOf(r block.Route) (holders []placement.Holder) {
	for i := range r.ID % 3 {
		holders = append(holders, placement.Holder{
			Addr:    block.Addr{Host: r.String(), Port: int(8060 + i)},
			GroupID: "cg", Location: "here",
		})
	}
	return holders
}

func startDirectory(t *testing.T, id *Identity, d Directory) block.Addr {
	t.Helper()
	ln := listen(t)
	s, err := NewDirectoryServer(ServerOptions{Listener: ln, Identity: id}, d)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(inTime(t)), <-ended); err != nil {
			t.Error(err)
		}
	})
	return addrOf(ln)
}

func startDirectoryClient(t *testing.T, o DirectoryClientOptions) *DirectoryClient {
	t.Helper()
	o.ConnectTimeout, o.Timeout = patience, orDefault(o.Timeout, patience)
	c, err := NewDirectoryClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestS80_HeartbeatTravelsWholeAndTeachesTheCluster(t *testing.T) {
	d := newFakeDirectory("c1")
	addr := startDirectory(t, identity("fe", "c1", "secret"), d)
	id := identity("be", "", "secret")
	c := startDirectoryClient(t, DirectoryClientOptions{Identity: id, Endpoints: []block.Addr{addr}})
	sent := placement.Heartbeat{
		NodeID: "be", Host: "10.0.0.1", HeartbeatPort: 1, BePort: 2, HTTPPort: 3, BrpcPort: 4, ArrowFlightSQLPort: -1,
		GroupID: "group of be", GroupName: "g", CloudUniqueID: "1:x:y", Location: "default", Version: "v",
		Started: time.Unix(5, 6), CPUCores: 7, MemoryBytes: 8, CacheCapacityBytes: 9, CacheUsedBytes: 10, Leaving: true,
	}
	got, err := c.Heartbeat(inTime(t), sent)
	if err != nil {
		t.Fatal(err)
	}
	if got != d.reply {
		t.Errorf("reply %+v, want %+v", got, d.reply)
	}
	if seen := <-d.heartbeats; !reflect.DeepEqual(seen, sent) {
		t.Errorf("FE saw %+v, sent %+v", seen, sent)
	}
	if id.ClusterID() != "c1" {
		t.Errorf("cluster id %q after the first heartbeat", id.ClusterID())
	}
	if _, err := c.Heartbeat(inTime(t), sent); err != nil {
		t.Errorf("second heartbeat: %v", err)
	}
}

func TestS81_LookupAnswersInOrder(t *testing.T) {
	d := newFakeDirectory("c1")
	addr := startDirectory(t, identity("fe", "c1", ""), d)
	c := startDirectoryClient(t, DirectoryClientOptions{Identity: identity("be", "c1", ""), Endpoints: []block.Addr{addr}})
	var routes []block.Route
	for i := range int64(150) {
		routes = append(routes, block.TabletRoute(i), block.Route{Kind: block.RouteExternal, ID: ^uint64(i)})
	}
	got, err := c.Lookup(inTime(t), routes)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range routes {
		if want := holdersOf(r); !equal(got[i], want) {
			t.Errorf("%v: %v, want %v", r, got[i], want)
		}
	}
	for _, want := range []int{64, 64, 64, 64, 44} {
		if n := <-d.lookups; n != want {
			t.Errorf("a batch of %d routes, want %d", n, want)
		}
	}
}

func TestS86_AnyFEAnswers(t *testing.T) {
	silent := listen(t) // accepts and says nothing
	defer silent.Close()
	gone := listen(t)
	gone.Close()
	d := newFakeDirectory("c1")
	addr := startDirectory(t, identity("fe", "c1", ""), d)
	c := startDirectoryClient(t, DirectoryClientOptions{
		Identity:  identity("be", "c1", ""),
		Endpoints: []block.Addr{addrOf(gone), addrOf(silent), addr},
		Timeout:   2 * time.Second, // one call waits for it; the others must not need it
	})
	for range 3 {
		if _, err := c.Heartbeat(inTime(t), placement.Heartbeat{}); err != nil {
			t.Fatal(err)
		}
	}
	// The two that fail are tried once; then the client stays with the third.
	if m := c.Metrics(); m.Calls != 5 || m.Failures != 2 {
		t.Errorf("%+v", m)
	}
}

func TestPR14_AFailedLookupNamesTheFE(t *testing.T) {
	gone := listen(t)
	gone.Close()
	c := startDirectoryClient(t, DirectoryClientOptions{Identity: identity("be", "c1", ""), Endpoints: []block.Addr{addrOf(gone)}})
	_, err := c.Lookup(inTime(t), []block.Route{block.TabletRoute(1)})
	var op *net.OpError
	if !errors.As(err, &op) || !strings.Contains(err.Error(), addrOf(gone).String()) {
		t.Errorf("%v", err)
	}
	if got := c.Metrics().Failures; got != 1 {
		t.Errorf("%d failures counted", got)
	}
}

func TestS89_HeartbeatsOfStrangersAreRefused(t *testing.T) {
	d := newFakeDirectory("c1")
	addr := startDirectory(t, identity("fe", "c1", "secret"), d)
	for name, tt := range map[string]struct{ cluster, token, says string }{
		"other cluster": {"c2", "secret", "cluster id"},
		"other token":   {"", "guess", "cluster_token"},
	} {
		t.Run(name, func(t *testing.T) {
			id := identity("be", tt.cluster, tt.token)
			c := startDirectoryClient(t, DirectoryClientOptions{Identity: id, Endpoints: []block.Addr{addr}})
			_, err := c.Heartbeat(inTime(t), placement.Heartbeat{})
			if !errors.Is(err, block.ErrRefused) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("want a refusal that names the %s, got %v", tt.says, err)
			}
			if id.ClusterID() != tt.cluster {
				t.Error("the cluster id of a stranger was taken over")
			}
			if len(d.heartbeats) != 0 {
				t.Error("the FE took a stranger's heartbeat")
			}
		})
	}
}
