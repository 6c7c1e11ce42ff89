package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// TLSOptions configure a TLS.
type TLSOptions struct {
	// CAPath, CertPath and KeyPath are PEM files: the authorities that sign the
	// nodes' certificates, this node's certificate and its private key.
	CAPath, CertPath, KeyPath string
	Logger                    *slog.Logger
}

// TLS is mutual TLS 1.3 between nodes. The clients and servers of a node share
// one. It is off until SetEnabled; what is on and what is off don't talk with
// each other.
//
// The files may be replaced at any time: the next connection is made with the
// new ones, those that are open stay. Files that can't be used are reported and
// the last good ones used on, until they can.
type TLS struct {
	opts    TLSOptions
	enabled atomic.Bool
	// allowed is replaced as a whole; nil or empty allows all.
	allowed atomic.Pointer[[]string]
	memory  sync.Pool

	mu struct {
		sync.Mutex
		// keys are the last good ones, made of files that looked as seen says. err
		// is what was wrong with the files when they were looked at last.
		keys    *keys
		seen    [3]fileState
		err     error
		checked time.Time
	}
}

// keys are what a handshake needs.
type keys struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// fileState tells whether a file has been replaced.
type fileState struct {
	modified time.Time
	size     int64
	inode    any
}

const (
	// checkEvery is how often the files are looked at, at most.
	checkEvery = time.Second
	// handshakeTimeout is how long a client waits for a handshake, beside the
	// time-out for the connection.
	handshakeTimeout = time.Second
)

// errTLSOff and errTLSOn: two nodes don't agree on enable_peer_tls.
var (
	errTLSOff = errors.New("it speaks TLS, and enable_peer_tls is off at this node")
	errTLSOn  = errors.New("it speaks plain text, and enable_peer_tls is on at this node")
)

// NewTLS returns TLS that is off.
func NewTLS(o TLSOptions) *TLS {
	o.Logger = orDefault(o.Logger, slog.Default())
	return &TLS{opts: o}
}

// SetEnabled switches TLS on or off, for connections that are open as well.
func (t *TLS) SetEnabled(on bool) { t.enabled.Store(on) }

// SetAllowed says which names the certificates of other nodes may have, as
// patterns of path.Match: one of the common name, the DNS names, the addresses
// and the URIs of a certificate has to fit. None allows all that the
// authorities have signed. On a connection that is open it counts from the next
// call on.
func (t *TLS) SetAllowed(patterns []string) { t.allowed.Store(&patterns) }

// Check reports whether the files can be used: an error names the file, and the
// key of the configuration that names it. A certificate that has expired, or does not
// hold yet, is one that other nodes refuse.
func (t *TLS) Check() error {
	k, err := t.current()
	if err != nil {
		return err
	}
	switch leaf, now := k.cert.Leaf, time.Now(); {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("peer_tls_cert_path: %s has expired on %v", t.opts.CertPath, leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("peer_tls_cert_path: %s does not hold before %v", t.opts.CertPath, leaf.NotBefore)
	}
	return nil
}

// on reports whether connections have to be TLS; a nil TLS is off.
func (t *TLS) on() bool { return t != nil && t.enabled.Load() }

// current returns the keys to make a connection with.
func (t *TLS) current() (*keys, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.mu.checked) >= checkEvery {
		t.mu.checked = now
		t.reloadLocked()
	}
	if t.mu.keys == nil {
		return nil, t.mu.err
	}
	return t.mu.keys, nil
}

// reloadLocked looks at the files and reads them if they have changed.
func (t *TLS) reloadLocked() {
	var seen [3]fileState
	for i, name := range [...]string{t.opts.CAPath, t.opts.CertPath, t.opts.KeyPath} {
		if info, err := os.Stat(name); err == nil {
			seen[i] = stateOf(info)
		}
	}
	if seen == t.mu.seen && t.mu.keys != nil && t.mu.err == nil {
		return
	}
	// What could not be read is tried again: that it may not be read, or that there
	// are no descriptors left, does not show in how the files look.
	first, said := t.mu.keys == nil, seen == t.mu.seen && t.mu.err != nil
	k, err := t.load()
	t.mu.seen, t.mu.err = seen, err
	switch {
	case err == nil:
		t.mu.keys = k
		if !first {
			t.opts.Logger.Info("peer TLS: certificate files reloaded", "expires", k.cert.Leaf.NotAfter)
		}
	case !first && !said:
		t.opts.Logger.Warn("peer TLS: new certificate files can't be used, the last ones are", "error", err)
	}
}

func stateOf(info fs.FileInfo) fileState {
	return fileState{info.ModTime(), info.Size(), inode(info)}
}

func (t *TLS) load() (*keys, error) {
	pem, err := os.ReadFile(t.opts.CAPath)
	if err != nil {
		return nil, fmt.Errorf("peer_tls_ca_path: %w", err)
	}
	k := &keys{roots: x509.NewCertPool()}
	if !k.roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("peer_tls_ca_path: %s holds no certificate", t.opts.CAPath)
	}
	k.cert, err = t.loadCert()
	return k, err
}

// loadCert reads this node's certificate and its key.
func (t *TLS) loadCert() (tls.Certificate, error) {
	const cert, key = "peer_tls_cert_path", "peer_tls_key_path"
	certPEM, err := os.ReadFile(t.opts.CertPath)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", cert, err)
	}
	keyPEM, err := os.ReadFile(t.opts.KeyPath)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", key, err)
	}
	if err := checkCert(certPEM); err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %s: %w", cert, t.opts.CertPath, err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return pair, fmt.Errorf("%s: %s is not the key of %s: %w", key, t.opts.KeyPath, t.opts.CertPath, err)
	}
	return pair, nil
}

// checkCert looks at the first certificate of a file, which is the node's own.
func checkCert(file []byte) error {
	for {
		block, rest := pem.Decode(file)
		if block == nil {
			return errors.New("it holds no certificate")
		}
		if block.Type == "CERTIFICATE" {
			_, err := x509.ParseCertificate(block.Bytes)
			return err
		}
		file = rest
	}
}

// config is for both sides: either shows its certificate and looks at the
// other's in the same way. Nodes are told apart by their certificates' names,
// not by the addresses that they are reached at, which may be anything.
func (t *TLS) config() (*tls.Config, error) {
	k, err := t.current()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{k.cert},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // VerifyConnection does it
		VerifyConnection:       func(s tls.ConnectionState) error { return t.verify(k, s.PeerCertificates) },
		SessionTicketsDisabled: true,
	}, nil
}

func (t *TLS) verify(k *keys, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("it shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{
		Roots: k.roots, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return err
	}
	return allows(t.allowed.Load(), chain[0])
}

// admits reports why a secure connection that is open may not be used any more.
// seen is the list that it was found on last.
func (t *TLS) admits(c *tls.Conn, seen **[]string) error {
	now := t.allowed.Load()
	if now == *seen {
		return nil
	}
	*seen = now
	return allows(now, c.ConnectionState().PeerCertificates[0])
}

func allows(allowed *[]string, c *x509.Certificate) error {
	if allowed == nil || len(*allowed) == 0 {
		return nil
	}
	names := namesOf(c)
	for _, pattern := range *allowed {
		if slices.ContainsFunc(names, func(name string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		}) {
			return nil
		}
	}
	return fmt.Errorf("none of its names %q is allowed", names)
}

func namesOf(c *x509.Certificate) []string {
	names := append([]string{c.Subject.CommonName}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	return names
}

// connector makes connections.
type connector func(ctx context.Context, network, addr string) (net.Conn, error)

// over returns a connector that makes those of next secure while TLS is on.
func (t *TLS) over(next connector) connector {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil || !t.on() {
			return conn, err
		}
		c, err := t.client(ctx, conn)
		if err != nil {
			conn.Close()
			return nil, fmt.Errorf("%w: TLS handshake: %w", block.ErrRefused, err)
		}
		return c, nil
	}
}

func (t *TLS) client(ctx context.Context, conn net.Conn) (net.Conn, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(ctx, handshakeTimeout)
	defer done()
	c := tls.Client(conn, config)
	return c, c.HandshakeContext(ctx)
}

// server makes a connection that was accepted secure.
func (t *TLS) server(ctx context.Context, conn net.Conn) (*tls.Conn, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	c := tls.Server(conn, config)
	return c, c.HandshakeContext(ctx)
}

// rejected makes a refusal of what the other side of a secure connection has
// said in an alert: that of a client's certificate comes with the first reply.
func rejected(err error) error {
	var remote *net.OpError
	if errors.As(err, &remote) && remote.Op == "remote error" {
		return fmt.Errorf("%w: TLS: %w", block.ErrRefused, err)
	}
	return err
}
