package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"headstart/rpc/mysql"
	"headstart/shards/placement"
	"headstart/shards/placement/store"
)

// feStore is where an FE keeps its state, and what decides whether it leads.
type feStore interface {
	placement.Store
	// lead lets the FE conduct rounds and jobs whenever it leads, until ctx ends.
	lead(ctx context.Context, f *fe)
	// frontends are the FEs that share the state.
	frontends(ctx context.Context) ([]mysql.Frontend, error)
	Close() error
}

var (
	_ feStore = (*alone)(nil)
	_ feStore = (*shared)(nil)
)

func (f *fe) openStore() (feStore, error) {
	if url := f.conf.String("fe_store"); url != "" {
		return f.openEtcd(url)
	}
	dir := f.conf.String("meta_dir")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("meta_dir: %w", err)
	}
	b, err := store.Open(filepath.Join(dir, "fe.db"))
	if err != nil {
		return nil, fmt.Errorf("meta_dir: %w", err)
	}
	return &alone{b, f.frontend()}, nil
}

// openEtcd connects to the etcd that several FEs share.
func (f *fe) openEtcd(url string) (feStore, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	hosts, prefix, _ := strings.Cut(rest, "/")
	name, err := json.Marshal(f.frontend())
	if err != nil {
		return nil, err
	}
	o := store.EtcdOptions{
		Endpoints: strings.Split(hosts, ","), Name: string(name), Logger: f.log,
		User: f.conf.String("fe_store_user"), Password: f.conf.String("fe_store_password"),
	}
	for i := range o.Endpoints {
		o.Endpoints[i] = strings.TrimSpace(o.Endpoints[i])
	}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		o.Prefix = "/" + prefix + "/"
	}
	if scheme == "etcds" {
		if o.TLS, err = f.etcdTLS(); err != nil {
			return nil, err
		}
	}
	e, err := store.OpenEtcd(o)
	if err != nil {
		return nil, fmt.Errorf("fe_store: %w", err)
	}
	return &shared{e}, nil
}

// etcdTLS is how the FE speaks TLS with etcd.
func (f *fe) etcdTLS() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := f.conf.String("fe_store_tls_ca_path"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("fe_store_tls_ca_path: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("fe_store_tls_ca_path = %s: there is no certificate in it", path)
		}
	}
	if path := f.conf.String("fe_store_tls_cert_path"); path != "" {
		cert, err := tls.LoadX509KeyPair(path, f.conf.String("fe_store_tls_key_path"))
		if err != nil {
			return nil, fmt.Errorf("fe_store_tls_cert_path: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

// frontend is what the FE says of itself.
func (f *fe) frontend() mysql.Frontend {
	return mysql.Frontend{
		Host: f.conf.String("host"), HTTPPort: portOf(f.httpLn), QueryPort: portOf(f.queryLn), RPCPort: portOf(f.rpcLn),
		Version: version(), Started: time.Now().UTC(),
	}
}

// alone is the state of the only FE there is.
type alone struct {
	*store.Bolt
	self mysql.Frontend
}

func (a *alone) lead(ctx context.Context, f *fe) { f.conductor.Run(ctx) }

func (a *alone) frontends(context.Context) ([]mysql.Frontend, error) {
	return []mysql.Frontend{a.self}, nil
}

// shared is the state of several FEs.
type shared struct{ *store.Etcd }

func (s *shared) lead(ctx context.Context, f *fe) {
	f.running.Go(func() { // ends with ctx
		if err := s.Watch(ctx, f.directory); err != nil {
			f.errs <- err
		}
	})
	s.Lead(ctx, f.conductor.Run)
}

func (s *shared) frontends(ctx context.Context) ([]mysql.Frontend, error) {
	names, err := s.Frontends(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]mysql.Frontend, len(names))
	for i, name := range names {
		if err := json.Unmarshal([]byte(name), &list[i]); err != nil {
			return nil, fmt.Errorf("an FE calls itself %q: %w", name, err)
		}
	}
	return list, nil
}
