package rpc

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// logged is what a server has logged; its goroutines write at the same time.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.buf.String()), "\n")
}

// TestS65_ARefusalIsLoggedOnce: a node that was set up wrongly shows where it
// knocks, with the reason, and does not fill the log. What it is told does not
// hold the id of the cluster that it does not belong to.
func TestS65_ARefusalIsLoggedOnce(t *testing.T) {
	stranger := identity("stranger", "c2", "guess")
	calls := map[string]struct {
		says string
		call func(t *testing.T, log *slog.Logger) func() error
	}{
		"heartbeat": {"cluster_token", func(t *testing.T, log *slog.Logger) func() error {
			c := strangerOfDirectory(t, stranger, log)
			return func() error { _, err := c.Heartbeat(inTime(t), placement.Heartbeat{}); return err }
		}},
		"lookup": {"cluster_token", func(t *testing.T, log *slog.Logger) func() error {
			c := strangerOfDirectory(t, stranger, log)
			return func() error { _, err := c.Lookup(inTime(t), []block.Route{block.TabletRoute(1)}); return err }
		}},
		"fetch": {"cluster_token", func(t *testing.T, log *slog.Logger) func() error {
			_, addr := startServer(t, ServerOptions{Logger: log}, whole(testBlock))
			c := startClient(t, ClientOptions{Identity: stranger}, new(memory))
			return func() error {
				s, err := c.FetchFrom(inTime(t), addr, fetchOf("a", testBlock, block.Run{First: 0, Want: 1}))
				if err != nil {
					return err
				}
				defer s.Close()
				return drain(s, nil)
			}
		}},
		"stat": {"cluster_token", func(t *testing.T, log *slog.Logger) func() error {
			_, addr := startServer(t, ServerOptions{Logger: log}, whole(testBlock))
			c := startClient(t, ClientOptions{Identity: stranger}, new(memory))
			return func() error {
				_, err := c.Stat(inTime(t), addr, block.Object{Store: "s3", Bucket: "b", Key: "a"}, "")
				return err
			}
		}},
		"read": {"read_token", func(t *testing.T, log *slog.Logger) func() error {
			_, addr := startServer(t, ServerOptions{Logger: log, ReadToken: func() string { return "reading" }}, whole(testBlock))
			guest := guestOf(t, "guess")
			return func() error {
				_, err := guest.Read(inTime(t), addr, &block.Read{Object: block.Object{Bucket: "b", Key: "a"}}, make([]byte, 9))
				return err
			}
		}},
	}
	for name, tt := range calls {
		t.Run(name, func(t *testing.T) {
			var out logged
			call := tt.call(t, slog.New(slog.NewTextHandler(&out, nil)))
			for range 3 {
				err := call()
				if !errors.Is(err, block.ErrRefused) || strings.Contains(err.Error(), "c1") {
					t.Fatalf("want a refusal that does not name the cluster, got %v", err)
				}
			}
			lines := out.lines()
			if len(lines) != 1 || !strings.Contains(lines[0], tt.says) || !strings.Contains(lines[0], "from=127.0.0.1:") {
				t.Errorf("want one line that names the caller and the %s, got\n%s", tt.says, strings.Join(lines, "\n"))
			}
		})
	}
}

func strangerOfDirectory(t *testing.T, stranger *Identity, log *slog.Logger) *DirectoryClient {
	ln := listen(t)
	s, err := NewDirectoryServer(ServerOptions{Listener: ln, Identity: identity("fe", "c1", "secret"), Logger: log}, newFakeDirectory("c1"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }() // ends with Shutdown
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-ended); err != nil {
			t.Error(err)
		}
	})
	return startDirectoryClient(t, DirectoryClientOptions{Identity: stranger, Endpoints: []block.Addr{addrOf(ln)}})
}

// TestS89_NoLookupBeforeTheClusterIsKnown: a BE that has just started does not
// look like a stranger to its own FE.
func TestS89_NoLookupBeforeTheClusterIsKnown(t *testing.T) {
	addr := startDirectory(t, identity("fe", "c1", "secret"), newFakeDirectory("c1"))
	c := startDirectoryClient(t, DirectoryClientOptions{Identity: identity("be", "", "secret"), Endpoints: []block.Addr{addr}})
	routes := []block.Route{block.TabletRoute(1)}
	if _, err := c.Lookup(inTime(t), routes); !errors.Is(err, errNotJoined) || c.Metrics().Calls != 0 {
		t.Errorf("before: %v after %d calls", err, c.Metrics().Calls)
	}
	if _, err := c.Heartbeat(inTime(t), placement.Heartbeat{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Lookup(inTime(t), routes); err != nil {
		t.Errorf("after the first heartbeat: %v", err)
	}
}

// TestS24_WhatTheWireCannotCarryIsNobodysFailure: a reader that brings a long
// name must not open the circuit of a healthy peer.
func TestS24_WhatTheWireCannotCarryIsNobodysFailure(t *testing.T) {
	_, addr := startServer(t, ServerOptions{}, whole(testBlock))
	c := startClient(t, ClientOptions{}, new(memory))
	for name, spoil := range map[string]func(f *block.Fetch){
		"query id":   func(f *block.Fetch) { f.QueryID = strings.Repeat("q", maxName+1) },
		"key":        func(f *block.Fetch) { f.Object.Key = strings.Repeat("k", maxKey+1) },
		"bucket":     func(f *block.Fetch) { f.Object.Bucket = strings.Repeat("b", maxName+1) },
		"version":    func(f *block.Fetch) { f.Meta.Version = block.Version(strings.Repeat("v", maxName+1)) },
		"block size": func(f *block.Fetch) { f.BlockSize = MaxBlockSize + 1 },
		"no blocks":  func(f *block.Fetch) { f.Run.Want = 0 },
	} {
		f := fetchOf("a", testBlock, block.Run{First: 0, Want: 1})
		spoil(f)
		_, err := c.FetchFrom(inTime(t), addr, f)
		if got := block.OutcomeOf(err, false); got != block.OutcomeUnsupported {
			t.Errorf("%s: outcome %d of %v, want %d", name, got, err, block.OutcomeUnsupported)
		}
	}
}

// TestSE02_NothingConnectsToAddressesThatNoNodeHas: whoever names a candidate,
// by hand or by a heartbeat, must not make a node talk to the service that gives
// a machine its credentials, or to itself by another name.
func TestSE02_NothingConnectsToAddressesThatNoNodeHas(t *testing.T) {
	server, addr := startServer(t, ServerOptions{}, whole(testBlock))
	client := startClient(t, ClientOptions{}, &memory{})
	for _, host := range []string{
		"0.0.0.0", "::", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fe80::1%lo", "fd00:ec2::254",
		"224.0.0.1", "ff02::1", "255.255.255.255", "",
	} {
		to := block.Addr{Host: host, Port: addr.Port}
		_, err := client.FetchFrom(inTime(t), to, fetchOf("a", testBlock, block.NewRun(0, 1)))
		if !errors.Is(err, errNoNode) || !block.OutcomeOf(err, false).Failed() {
			t.Errorf("%q: %v", host, err)
		}
		places := startDirectoryClient(t, DirectoryClientOptions{Identity: identity("be", "c1", "secret"), Endpoints: []block.Addr{to}})
		if _, err := places.Heartbeat(inTime(t), placement.Heartbeat{}); err == nil {
			t.Errorf("%q is an FE", host)
		}
	}
	if _, err := client.FetchFrom(inTime(t), block.Addr{Host: "127.0.0.1"}, fetchOf("a", testBlock, block.NewRun(0, 1))); !errors.Is(err, errNoNode) {
		t.Errorf("port 0: %v", err)
	}
	if n := server.Metrics().Accepts; n != 0 {
		t.Errorf("%d connections came through", n)
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		fetchOne(t, client, block.Addr{Host: host, Port: addr.Port})
	}
}

// TestS80_AHeartbeatHasNoEndlessNames: what an FE keeps of a BE is bounded, and
// the BE learns why it is not taken.
func TestS80_AHeartbeatHasNoEndlessNames(t *testing.T) {
	d := newFakeDirectory("c1")
	addr := startDirectory(t, identity("fe", "c1", "secret"), d)
	c := startDirectoryClient(t, DirectoryClientOptions{Identity: identity("be", "c1", "secret"), Endpoints: []block.Addr{addr}})
	long := strings.Repeat("n", maxName+1)
	for name, h := range map[string]placement.Heartbeat{
		"host": {Host: long}, "group": {GroupName: long}, "unique id": {CloudUniqueID: long}, "version": {Version: long},
	} {
		if _, err := c.Heartbeat(inTime(t), h); !errors.Is(err, block.ErrInvalid) || !strings.Contains(err.Error(), "1024") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Heartbeat(inTime(t), placement.Heartbeat{Host: long[1:]}); err != nil {
		t.Errorf("a name of %d bytes: %v", maxName, err)
	}
}
