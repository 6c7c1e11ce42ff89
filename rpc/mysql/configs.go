package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// configTimeout bounds what one backend may take to say or change its
// configuration.
const configTimeout = 5 * time.Second

// maxAsked is how many backends are asked at the same time.
const maxAsked = 32

// each calls ask for all of backends at once, and returns their errors joined;
// that of a backend names it.
func each(ctx context.Context, backends []placement.BackendView, ask func(ctx context.Context, i int, addr block.Addr) error) error {
	errs := make([]error, len(backends))
	slots := make(chan struct{}, maxAsked)
	var asking sync.WaitGroup
	for i, b := range backends {
		slots <- struct{}{}
		asking.Go(func() { // ends with configTimeout
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, configTimeout)
			defer cancel()
			if err := ask(ctx, i, block.Addr{Host: b.Host, Port: b.BrpcPort}); err != nil {
				errs[i] = fmt.Errorf("backend %d: %w", b.BackendID, err)
			}
		})
	}
	asking.Wait()
	return errors.Join(errs...)
}

// some returns the backend of that number, all that are alive for 0.
func (s *session) some(id int64) (backends []placement.BackendView, err error) {
	for _, b := range s.server.directory.Backends() {
		if b.BackendID == id || id == 0 && b.Alive {
			backends = append(backends, b)
		}
	}
	if id != 0 && backends == nil {
		return nil, fmt.Errorf("%w backend %d", placement.ErrUnknown, id)
	}
	return backends, nil
}

// showConfig is SHOW BACKEND CONFIG, of all backends for 0.
type showConfig struct {
	like    string
	backend int64
}

func parseShowConfig(p *parser) statement {
	st := showConfig{like: parseLike(p)}
	if p.accept("FROM") {
		st.backend = p.number("a backend id")
	}
	return st
}

func (showConfig) columns() []string {
	return []string{"BackendId", "Host", "Key", "Value", "Type", "IsMutable"}
}

// run shows what it can: a backend that does not answer has no rows, unless it
// was asked for by itself, or none answers.
func (s showConfig) run(ctx context.Context, of *session) ([]row, error) {
	backends, err := of.some(s.backend)
	if err != nil {
		return nil, err
	}
	answers := make([][]placement.ConfigItem, len(backends))
	err = each(ctx, backends, func(ctx context.Context, i int, addr block.Addr) (err error) {
		answers[i], err = of.server.backends.ShowConfig(ctx, addr)
		return err
	})
	var rows []row
	answered := false
	for i, items := range answers {
		answered = answered || items != nil
		for _, item := range items {
			if like(item.Key, s.like) {
				b := backends[i]
				rows = append(rows, row{num(b.BackendID), str(b.Host), str(item.Key), str(item.Value), str(item.Type), yes(item.Mutable)})
			}
		}
	}
	if err != nil && answered {
		of.server.log.Warn("SHOW BACKEND CONFIG lacks backends", "error", err)
		err = nil
	}
	return rows, err
}

// showFrontendConfig is SHOW FRONTEND CONFIG.
type showFrontendConfig struct{ like string }

func parseShowFrontendConfig(p *parser) statement { return showFrontendConfig{parseLike(p)} }

func (showFrontendConfig) columns() []string { return []string{"Key", "Value", "Type", "IsMutable"} }

func (s showFrontendConfig) run(_ context.Context, of *session) (rows []row, err error) {
	for _, item := range of.server.config.Show() {
		if like(item.Key, s.like) {
			rows = append(rows, row{str(item.Key), str(item.Value), str(item.Type), yes(item.Mutable)})
		}
	}
	return rows, nil
}

// setConfig is ADMIN SET … CONFIG.
type setConfig struct {
	frontend bool
	// backend is 0 for all that are alive.
	backend int64
	values  map[string]string
	persist bool
}

func parseSetConfig(p *parser) statement {
	var st setConfig
	switch {
	case p.accept("FRONTEND"):
		st.frontend = true
	case p.accept("ALL BACKENDS"):
	case p.accept("BACKEND"):
		if st.backend = p.number("a backend id"); st.backend == 0 {
			p.fail("a backend id above 0")
		}
	default:
		p.fail("ALL BACKENDS, BACKEND or FRONTEND")
	}
	p.expect("CONFIG")
	st.values = p.properties()
	switch st.values["persist"] {
	case "true":
		st.persist = true
	case "", "false":
	default:
		p.refuse(syntaxError("persist: want true or false"))
	}
	delete(st.values, "persist")
	return st
}

func (setConfig) columns() []string { return nil }

func (c setConfig) run(ctx context.Context, s *session) ([]row, error) {
	if c.frontend {
		return nil, s.server.config.Set(ctx, c.values, c.persist)
	}
	backends, err := s.some(c.backend)
	if err != nil {
		return nil, err
	}
	if len(backends) == 0 {
		return nil, fmt.Errorf("%w: no backend is alive", placement.ErrUnknown)
	}
	return nil, each(ctx, backends, func(ctx context.Context, _ int, addr block.Addr) error {
		return s.server.backends.SetConfig(ctx, addr, c.values, c.persist)
	})
}
