package main

import (
	"context"
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
	if url, ok := strings.CutPrefix(f.conf.String("fe_store"), "etcd://"); ok {
		hosts, prefix, _ := strings.Cut(url, "/")
		name, err := json.Marshal(f.frontend())
		if err != nil {
			return nil, err
		}
		o := store.EtcdOptions{Endpoints: strings.Split(hosts, ","), Name: string(name), Logger: f.log}
		if prefix = strings.Trim(prefix, "/"); prefix != "" {
			o.Prefix = "/" + prefix + "/"
		}
		e, err := store.OpenEtcd(o)
		if err != nil {
			return nil, fmt.Errorf("fe_store: %w", err)
		}
		return &shared{e}, nil
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
		if err := s.Watch(ctx, f.directory.Follow); err != nil {
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
