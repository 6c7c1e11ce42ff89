package main

import (
	"context"
	"errors"
	"io"
	"time"

	"headstart/bench/load"
)

// libraryDoor reads from a BE in this process, by the call that all its servers
// make: what is left are the engine and the cache.
type libraryDoor struct {
	be     *be
	bucket string
}

// openLibrary starts a BE. It is a node like others: it tells the FE of itself
// and serves its ports.
func (o *benchOptions) openLibrary(ctx context.Context) (load.Door, error) {
	conf, code := loadConfig(beRole(), []string{"-conf", o.conf}, io.Discard, o.stderr)
	if conf == nil {
		if code == exitUsage {
			return nil, errors.New("-conf " + o.conf + ": no BE can be started with it")
		}
		return nil, errors.New("-conf: no BE was started")
	}
	b, err := startBE(ctx, conf, newLogger(conf, o.stderr).With("role", "be"))
	if err != nil {
		return nil, err
	}
	return &libraryDoor{b, o.bucket}, b.cache.AwaitLoaded(ctx)
}

// Read implements load.Door.
func (d *libraryDoor) Read(ctx context.Context, o *load.Object, r load.Read, dst []byte) (int, string, error) {
	n, from, err := d.be.engine.Read(ctx, load.Request(o, r, d.bucket), dst)
	return n, from.String(), err
}

// Close implements load.Door.
func (d *libraryDoor) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := d.be.drain(ctx); err != nil {
		d.be.log.Error("the BE did not end in time", "error", err)
	}
}
