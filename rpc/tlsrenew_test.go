package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
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

// TestS65_FilesThatCantBeUsedAreNamed: what is said names the key of the
// configuration, the file, and what is wrong with it.
func TestS65_FilesThatCantBeUsedAreNamed(t *testing.T) {
	ca := newAuthority(t, "ca")
	other := ca.sign(t, t.TempDir(), nil)
	write := func(path string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		spoil func(o *TLSOptions)
		says  []string
		file  func(o *TLSOptions) string
	}{
		"no authority": {func(o *TLSOptions) { os.Remove(o.CAPath) }, []string{"peer_tls_ca_path", "no such file"},
			func(o *TLSOptions) string { return o.CAPath }},
		"garbage for an authority": {func(o *TLSOptions) { write(o.CAPath, []byte("x")) }, []string{"peer_tls_ca_path", "no certificate"},
			func(o *TLSOptions) string { return o.CAPath }},
		"no certificate": {func(o *TLSOptions) { os.Remove(o.CertPath) }, []string{"peer_tls_cert_path", "no such file"},
			func(o *TLSOptions) string { return o.CertPath }},
		"garbage for a certificate": {func(o *TLSOptions) { write(o.CertPath, []byte("x")) }, []string{"peer_tls_cert_path", "no certificate"},
			func(o *TLSOptions) string { return o.CertPath }},
		"a damaged certificate": {func(o *TLSOptions) {
			write(o.CertPath, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
		}, []string{"peer_tls_cert_path", "malformed certificate"}, func(o *TLSOptions) string { return o.CertPath }},
		"a key for a certificate": {func(o *TLSOptions) { o.CertPath = o.KeyPath }, []string{"peer_tls_cert_path", "no certificate"},
			func(o *TLSOptions) string { return o.CertPath }},
		"a directory for a key": {func(o *TLSOptions) { o.KeyPath = t.TempDir() }, []string{"peer_tls_key_path", "is a directory"},
			func(o *TLSOptions) string { return o.KeyPath }},
		"garbage for a key": {func(o *TLSOptions) { write(o.KeyPath, []byte("x")) }, []string{"peer_tls_key_path", "is not the key of"},
			func(o *TLSOptions) string { return o.KeyPath }},
		"another's key": {func(o *TLSOptions) { o.KeyPath = other.KeyPath }, []string{"peer_tls_key_path", "is not the key of", "does not match"},
			func(o *TLSOptions) string { return o.KeyPath }},
		"an expired certificate": {func(o *TLSOptions) {
			*o = ca.sign(t, t.TempDir(), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
		}, []string{"peer_tls_cert_path", "has expired"}, func(o *TLSOptions) string { return o.CertPath }},
		"a certificate of tomorrow": {func(o *TLSOptions) {
			*o = ca.sign(t, t.TempDir(), func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
		}, []string{"peer_tls_cert_path", "does not hold before"}, func(o *TLSOptions) string { return o.CertPath }},
	} {
		o := ca.sign(t, t.TempDir(), nil)
		c.spoil(&o)
		s := NewTLS(o)
		s.SetEnabled(true)
		err := s.Check()
		if err == nil {
			t.Errorf("%s: nothing is said", name)
			continue
		}
		for _, says := range append(c.says, c.file(&o)) {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %q does not say %q", name, err, says)
			}
		}
	}
}

// TestS65_WhoHangsUpIsNotRefused: health checks and scans open a connection and
// close it. Who speaks TLS and shows no certificate is refused.
func TestS65_WhoHangsUpIsNotRefused(t *testing.T) {
	ca := newAuthority(t, "ca")
	server, addr := startServer(t, ServerOptions{
		TLS: startTLS(t, ca.sign(t, t.TempDir(), nil)), ReceiveTimeout: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}, whole(100))
	for _, said := range []string{"", "\x16", "\x16\x03\x01\x02"} {
		dialRaw(t, addr).(*net.TCPConn).Close()
		c := dialRaw(t, addr)
		c.Write([]byte(said))
		c.(*net.TCPConn).CloseWrite()
		slow := dialRaw(t, addr)
		slow.Write([]byte(said)) // and nothing more
	}
	eventually(t, "they are gone", func() bool { m := server.Metrics(); return m.Accepts == 9 && m.Conns <= 1 }) // the idle one
	if n := server.Metrics().Refused; n != 0 {
		t.Errorf("%d of those who hung up count as refused", n)
	}
	c := tls.Client(dialRaw(t, addr), &tls.Config{InsecureSkipVerify: true})
	c.Handshake()
	eventually(t, "a stranger is refused", func() bool { return server.Metrics().Refused == 1 })
}
