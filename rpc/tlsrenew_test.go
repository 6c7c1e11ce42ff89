package rpc

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

// TestS65_ANarrowerListCountsOnOpenConnections: whoever is taken off the list has
// a connection most of the time, and calls over it would keep it open for ever.
func TestS65_ANarrowerListCountsOnOpenConnections(t *testing.T) {
	ca := newAuthority(t, "ca")
	theirs, ours := startTLS(t, ca.sign(t, t.TempDir(), nil)), startTLS(t, ca.sign(t, t.TempDir(), nil))
	_, addr := startServer(t, ServerOptions{TLS: theirs, Logger: slog.New(slog.DiscardHandler)}, whole(2*testBlock+100))
	client := startClient(t, ClientOptions{TLS: ours}, &memory{})
	for i, step := range []struct {
		list    *TLS
		allowed string
		welcome bool
	}{
		{theirs, "node", true}, {theirs, "another", false}, {theirs, "nod?", true},
		{ours, "be1.*", true}, {ours, "another", false}, {ours, "node", true},
	} {
		step.list.SetAllowed([]string{step.allowed})
		if err := fetchSome(t, client, addr); (err == nil) != step.welcome {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if dials := client.Metrics().Dials; dials > 5 {
		t.Errorf("%d connections: a list that still has the other side must not cost one", dials)
	}
}

// TestS65_FilesThatCouldNotBeReadAreTriedAgain: neither a change of rights nor a
// descriptor that is free again shows in size, time or inode.
func TestS65_FilesThatCouldNotBeReadAreTriedAgain(t *testing.T) {
	ca := newAuthority(t, "ca")
	o := ca.sign(t, t.TempDir(), nil)
	var log logged
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := startTLS(t, o)
	look := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reloadLocked()
		return s.mu.err
	}
	key, err := os.ReadFile(o.KeyPath)
	info, err2 := os.Stat(o.KeyPath)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	// The same size, time and inode as the key itself: what differs is what a read
	// of it gives.
	put := func(b []byte) {
		if err := errors.Join(os.WriteFile(o.KeyPath, b, 0o600), os.Chtimes(o.KeyPath, time.Time{}, info.ModTime().Add(time.Minute))); err != nil {
			t.Fatal(err)
		}
	}
	put([]byte(strings.Repeat("x", len(key))))
	for range 3 {
		if err := look(); err == nil {
			t.Fatal("a key of x was read")
		}
	}
	put(key)
	if err := look(); err != nil {
		t.Errorf("readable again: %v", err)
	}
	warned := 0
	for _, line := range log.lines() {
		if strings.Contains(line, "can't be used") {
			warned++
		}
	}
	if warned != 1 {
		t.Errorf("warned %d times, want once:\n%s", warned, strings.Join(log.lines(), "\n"))
	}
	if _, err := s.current(); err != nil {
		t.Error(err)
	}
}
