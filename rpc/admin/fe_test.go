package admin

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"headstart/cmd/config"
	"headstart/shards/placement"
	"headstart/shards/placement/store"
)

// startFE builds the HTTP side of an FE; it does not listen.
func startFE(t *testing.T, keys map[string]string) *FE {
	t.Helper()
	conf, err := config.FromMap(config.FE, keys)
	must(t, err)
	state, err := store.Open(filepath.Join(t.TempDir(), "fe.db"))
	must(t, err)
	t.Cleanup(func() { must(t, state.Close()) })
	directory, err := placement.NewDirectory(context.Background(), state, placement.NewSettings(), placement.Options{})
	must(t, err)
	return NewFE(FEOptions{
		Config: conf, Directory: directory, Health: new(Health), Tokens: new(Tokens), Logger: slog.New(slog.DiscardHandler),
	})
}

func TestSE01_AnFEGuardsWhatChangesToo(t *testing.T) {
	for _, r := range startFE(t, nil).all() {
		if r.method != "GET" && r.access != Changing {
			t.Errorf("%s %s op=%s is open to everybody", r.method, r.path, r.op)
		}
	}
}
