package rpc

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t testing.TB, name string) *authority {
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// sign writes a certificate and its key into dir, and the authorities that it
// trusts, and returns where they are.
func (a *authority) sign(t testing.TB, dir string, change func(*x509.Certificate), trusts ...*authority) TLSOptions {
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "node"}, DNSNames: []string{"be1.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	der2, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var ca []byte
	for _, b := range append(trusts, a) {
		ca = append(ca, b.pem...)
	}
	o := TLSOptions{filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key"), slog.New(slog.DiscardHandler)}
	for name, data := range map[string][]byte{
		o.CAPath:   ca,
		o.CertPath: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		o.KeyPath:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der2}),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func startTLS(t testing.TB, o TLSOptions, allowed ...string) *TLS {
	s := NewTLS(o)
	s.SetAllowed(allowed)
	s.SetEnabled(true)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

// fetchSome fetches one block and returns what became of it.
func fetchSome(t *testing.T, client *Client, addr block.Addr) error {
	s, err := client.FetchFrom(inTime(t), addr, fetchOf("a", 2*testBlock+100, block.NewRun(0, 3)))
	if err != nil {
		return err
	}
	err = drain(s, func(p block.Piece) {
		if !bytes.Equal(p.Buf.Bytes(), content("a", p.Index, len(p.Buf.Bytes()))) {
			t.Errorf("block %d: wrong bytes", p.Index)
		}
	})
	if err == io.EOF {
		err = nil
	}
	return err
}

func TestS65_NodesSpeakMutualTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	reader := whole(2*testBlock + 100)
	entered, left := make(chan struct{}), make(chan error, 1)
	give := reader.serve
	reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
		if f.Object.Key == "slow" {
			close(entered)
			<-ctx.Done()
			left <- ctx.Err()
		}
		give(ctx, n, f, reply)
	}
	vars := func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nvars")
	}
	server, addr := startServer(t, ServerOptions{TLS: startTLS(t, ca.sign(t, t.TempDir(), nil)), HTTP: vars}, reader)
	var m memory
	mine := startTLS(t, ca.sign(t, t.TempDir(), nil))
	client := startClient(t, ClientOptions{TLS: mine}, &m)
	client.grace = patience
	for range 3 {
		if err := fetchSome(t, client, addr); err != nil {
			t.Fatal(err)
		}
	}
	s, err := client.FetchFrom(inTime(t), addr, fetchOf("slow", testBlock, block.NewRun(0, 1)))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	s.Close()
	if err := <-left; err != context.Canceled {
		t.Errorf("a cancelled call: %v", err)
	}
	eventually(t, "both connections are idle", func() bool { return client.Metrics().Idle == 2 })
	if err := fetchSome(t, client, addr); err != nil {
		t.Error(err)
	}
	if m := server.Metrics(); m.Accepts != 2 || m.Refused != 0 {
		t.Errorf("%+v", m)
	}
	config, err := mine.config()
	if err != nil {
		t.Fatal(err)
	}
	https := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	resp, err := https.Get("https://" + addr.String() + "/vars")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "vars" {
		t.Errorf("/vars: %q, %v", body, err)
	}
	eventually(t, "all memory is back", func() bool { return reader.balanced() && m.balanced() })
}

func TestS44_ACallEndsWithItsCallerWithinTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	reader := &fakeReader{}
	entered, left := make(chan struct{}), make(chan error, 1)
	reader.serve = func(ctx context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		close(entered)
		<-ctx.Done()
		left <- ctx.Err()
		answerAll(reply, f.Run, block.StatusCancelled)
	}
	_, addr := startServer(t, ServerOptions{TLS: startTLS(t, ca.sign(t, t.TempDir(), nil))}, reader)
	config, err := startTLS(t, ca.sign(t, t.TempDir(), nil)).config()
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", addr.String(), config)
	if err != nil {
		t.Fatal(err)
	}
	c.Write(message(thriftCall, methodFetch, 1,
		appendFetch(nil, identity("client", "c1", "secret").now.Load().request, fetchOf("a", testBlock, block.NewRun(0, 1)), 9, 0)))
	<-entered
	c.Close()
	if err := <-left; err != context.Canceled {
		t.Errorf("the call's context ended with %v", err)
	}
}

// gone lends bytes that Go code must not read: only a copy of them is right.
type gone struct{ copied []byte }

func (g gone) CopyLease(_ uint64, _ []byte, off int, dst []byte) (int, error) {
	return copy(dst, g.copied[off:]), nil
}

func (gone) ReleaseLease(uint64) {}

func TestLC10_WithinTLSLeasesAreCopiedByTheirOwner(t *testing.T) {
	ca := newAuthority(t, "ca")
	const size = 3*sealStep + 5000
	want := content("a", 0, size)
	reader := &fakeReader{serve: func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		reply.Meta = block.Meta{Size: size, Version: "v1"}
		reply.Answers = append(reply.Answers, block.Answer{
			Status: block.StatusData, Lease: block.NewLease(gone{want}, 0, make([]byte, size), block.Checksum(want)),
		})
	}}
	_, addr := startServer(t, ServerOptions{TLS: startTLS(t, ca.sign(t, t.TempDir(), nil))}, reader)
	client := startClient(t, ClientOptions{TLS: startTLS(t, ca.sign(t, t.TempDir(), nil))}, &memory{})
	f := fetchOf("a", size, block.NewRun(0, 1))
	f.BlockSize = size
	s, err := client.FetchFrom(inTime(t), addr, f)
	if err == nil {
		err = drain(s, func(p block.Piece) {
			if !bytes.Equal(p.Buf.Bytes(), want) {
				t.Error("wrong bytes")
			}
		})
	}
	if err != io.EOF {
		t.Error(err)
	}
}

func TestS65_WhoseCertificateIsBelieved(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	good := func() TLSOptions { return ours.sign(t, t.TempDir(), nil, theirs) }
	expired := NewTLS(ours.sign(t, t.TempDir(), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
	expired.SetEnabled(true)
	for name, tt := range map[string]struct {
		server, client *TLS
		says           string // "" is welcome
	}{
		"both of one authority": {startTLS(t, ours.sign(t, t.TempDir(), nil)), startTLS(t, ours.sign(t, t.TempDir(), nil)), ""},
		"two authorities, both trusted": {
			startTLS(t, good()), startTLS(t, theirs.sign(t, t.TempDir(), nil, ours)), ""},
		"names that are allowed": {startTLS(t, good(), "x", "be*.example"), startTLS(t, good(), "node"), ""},
		"the server's authority is unknown": {
			startTLS(t, theirs.sign(t, t.TempDir(), nil, ours)), startTLS(t, ours.sign(t, t.TempDir(), nil)), "unknown authority"},
		"the client's authority is unknown": {
			startTLS(t, ours.sign(t, t.TempDir(), nil)), startTLS(t, theirs.sign(t, t.TempDir(), nil, ours)), "bad certificate"},
		"the server's name is not allowed": {startTLS(t, good()), startTLS(t, good(), "fe*", "be2.example"), `["node" "be1.example"]`},
		"the client's name is not allowed": {startTLS(t, good(), "fe*"), startTLS(t, good()), "bad certificate"},
		"the server's has expired": {
			expired, startTLS(t, good()), "expired"},
		"the client's is for something else": {
			startTLS(t, good()),
			startTLS(t, ours.sign(t, t.TempDir(), func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} })),
			"bad certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := whole(2*testBlock + 100)
			_, addr := startServer(t, ServerOptions{TLS: tt.server, Logger: slog.New(slog.DiscardHandler)}, reader)
			client := startClient(t, ClientOptions{TLS: tt.client}, &memory{})
			err := fetchSome(t, client, addr)
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, block.ErrRefused) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("want a refusal that says %q, got %v", tt.says, err)
			}
			if reader.loans() != 0 {
				t.Error("it was served all the same")
			}
			eventually(t, "no connection is left", func() bool { return client.Metrics().Conns == 0 })
		})
	}
}

func TestS65_BothSidesMustAgreeOnTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	on := startTLS(t, ca.sign(t, t.TempDir(), nil))
	for _, tt := range []struct {
		server, client *TLS
		says, logs     string
	}{
		{on, nil, "speaks TLS only", "plain text"},
		{nil, on, "handshake failure", "speaks TLS"},
		{on, NewTLS(TLSOptions{}), "speaks TLS only", "plain text"},
		{NewTLS(TLSOptions{}), NewTLS(TLSOptions{}), "", ""},
	} {
		var log logged
		reader := whole(2*testBlock + 100)
		server, addr := startServer(t, ServerOptions{TLS: tt.server, Logger: slog.New(slog.NewTextHandler(&log, nil))}, reader)
		client := startClient(t, ClientOptions{TLS: tt.client}, &memory{})
		err := fetchSome(t, client, addr)
		if tt.says == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, block.ErrRefused) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("want a refusal that says %q, got %v", tt.says, err)
		}
		eventually(t, "the server has said why", func() bool { return strings.Contains(log.lines()[0], tt.logs) })
		if server.Metrics().Refused == 0 || reader.loans() != 0 {
			t.Error("not refused")
		}
	}
	_, addr := startServer(t, ServerOptions{TLS: on, Logger: slog.New(slog.DiscardHandler)}, whole(testBlock))
	resp, err := http.Get("http://" + addr.String() + "/vars")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "TLS") {
		t.Errorf("plain HTTP: %d %s", resp.StatusCode, body)
	}
}

func TestS65_TLSIsSwitchedAtRunTime(t *testing.T) {
	ca := newAuthority(t, "ca")
	theirs, ours := startTLS(t, ca.sign(t, t.TempDir(), nil)), startTLS(t, ca.sign(t, t.TempDir(), nil))
	_, addr := startServer(t, ServerOptions{TLS: theirs, Logger: slog.New(slog.DiscardHandler)}, whole(2*testBlock+100))
	client := startClient(t, ClientOptions{TLS: ours}, &memory{})
	for i, step := range []struct{ server, client, welcome bool }{
		{true, true, true}, {false, false, true}, {true, false, false}, {true, true, true},
		{false, true, true}, // on the connection that is there, which is no worse for it
		{false, false, true}, {false, true, false},
	} {
		theirs.SetEnabled(step.server)
		ours.SetEnabled(step.client)
		if err := fetchSome(t, client, addr); (err == nil) != step.welcome || err != nil && !errors.Is(err, block.ErrRefused) {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

func TestS65_CertificatesAreReplacedWithoutDroppingCalls(t *testing.T) {
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	var log logged
	serverDir, clientDir := t.TempDir(), t.TempDir()
	o := first.sign(t, serverDir, nil)
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	theirs, ours := startTLS(t, o), startTLS(t, first.sign(t, clientDir, nil))
	lookAgain := func() { // as if a second had passed
		for _, s := range []*TLS{theirs, ours} {
			s.mu.Lock()
			s.mu.checked = time.Time{}
			s.mu.Unlock()
		}
	}
	reader := whole(2*testBlock + 100)
	entered, release := make(chan struct{}), make(chan struct{})
	give := reader.serve
	reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
		if f.Object.Key == "slow" {
			close(entered)
			<-release
		}
		give(ctx, n, f, reply)
	}
	_, addr := startServer(t, ServerOptions{TLS: theirs, Logger: slog.New(slog.DiscardHandler)}, reader)
	client := startClient(t, ClientOptions{TLS: ours}, &memory{})
	slow, err := client.FetchFrom(inTime(t), addr, fetchOf("slow", 2*testBlock+100, block.NewRun(0, 3)))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	// The server goes first: new certificate, new authority, and nobody trusts it.
	second.sign(t, serverDir, nil, first)
	lookAgain()
	if err := fetchSome(t, client, addr); !errors.Is(err, block.ErrRefused) {
		t.Errorf("a new connection to the new certificate: %v", err)
	}
	first.sign(t, clientDir, nil, second)
	lookAgain()
	if err := fetchSome(t, client, addr); err != nil {
		t.Errorf("with the new authority: %v", err)
	}
	// Files that can't be used change nothing and are reported.
	if err := os.WriteFile(o.CertPath, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	lookAgain()
	other := startClient(t, ClientOptions{TLS: ours}, &memory{})
	if err := fetchSome(t, other, addr); err != nil {
		t.Errorf("after files that can't be used: %v", err)
	}
	if text := strings.Join(log.lines(), "\n"); !strings.Contains(text, "reloaded") || !strings.Contains(text, "can't be used") {
		t.Errorf("log:\n%s", text)
	}
	close(release)
	if err := drain(slow, nil); err != io.EOF {
		t.Errorf("the call that was running: %v", err)
	}
}

func TestS65_TLSWithoutFilesSaysWhich(t *testing.T) {
	ca := newAuthority(t, "ca")
	for name, spoil := range map[string]func(o *TLSOptions){
		"peer_tls_ca_path":   func(o *TLSOptions) { o.CAPath += "-" },
		"peer_tls_cert_path": func(o *TLSOptions) { o.CertPath = o.KeyPath },
		"holds no cert":      func(o *TLSOptions) { o.CAPath = o.KeyPath },
	} {
		o := ca.sign(t, t.TempDir(), nil)
		spoil(&o)
		broken := NewTLS(o)
		broken.SetEnabled(true)
		if err := broken.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		client := startClient(t, ClientOptions{TLS: broken}, &memory{})
		_, addr := startServer(t, ServerOptions{TLS: startTLS(t, ca.sign(t, t.TempDir(), nil)), Logger: slog.New(slog.DiscardHandler)}, whole(testBlock))
		if err := fetchSome(t, client, addr); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: a call: %v", name, err)
		}
	}
}

func TestS65_BEAndFESpeakTLSToo(t *testing.T) {
	ca := newAuthority(t, "ca")
	d := newFakeDirectory("c1")
	ln := listen(t)
	s, err := NewDirectoryServer(ServerOptions{Listener: ln, Identity: identity("fe", "c1", "secret"), TLS: startTLS(t, ca.sign(t, t.TempDir(), nil))}, d)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }() // ends with Shutdown
	o := DirectoryClientOptions{Identity: identity("be", "", "secret"), Endpoints: []block.Addr{addrOf(ln)}}
	plain := startDirectoryClient(t, o)
	if _, err := plain.Heartbeat(inTime(t), placement.Heartbeat{}); !errors.Is(err, block.ErrRefused) {
		t.Errorf("a plain heartbeat: %v", err)
	}
	o.TLS = startTLS(t, ca.sign(t, t.TempDir(), nil))
	if _, err := startDirectoryClient(t, o).Heartbeat(inTime(t), placement.Heartbeat{}); err != nil {
		t.Errorf("a heartbeat: %v", err)
	}
	if err := errors.Join(s.Shutdown(inTime(t)), <-served); err != nil {
		t.Error(err)
	}
}
