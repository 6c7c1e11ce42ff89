package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"headstart/cmd/config"
	"headstart/engine/block"
	"headstart/rpc"
	"headstart/shards"
	"headstart/shards/placement"
)

// directory lets the engine ask the FE in its own words.
type directory struct{ fes *rpc.DirectoryClient }

// Lookup implements engine.Directory.
func (d directory) Lookup(ctx context.Context, routes []block.Route) ([][]shards.Candidate, error) {
	found, err := d.fes.Lookup(ctx, routes)
	if err != nil {
		return nil, err
	}
	lists := make([][]shards.Candidate, len(found))
	for i, holders := range found {
		for _, h := range holders {
			lists[i] = append(lists[i], shards.Candidate{Addr: h.Addr, GroupID: h.GroupID, Location: h.Location})
		}
	}
	return lists, nil
}

// agent tells all FEs again and again that this BE is alive.
type agent struct {
	fes    *rpc.DirectoryClient
	say    func(leaving bool) placement.Heartbeat
	log    *slog.Logger
	cancel context.CancelFunc
	done   sync.WaitGroup
	// every is the interval of the configuration, in nanoseconds; the FE's wish
	// comes first.
	every interface{ Load() int64 }
}

// heartbeatTimeout bounds one heartbeat.
const heartbeatTimeout = 2 * time.Second

// warnEvery is how often a BE complains that no FE answers (PR-14).
const warnEvery = 30 * time.Second

func startAgent(fes *rpc.DirectoryClient, say func(bool) placement.Heartbeat, conf *config.Set, log *slog.Logger) *agent {
	ctx, cancel := context.WithCancel(context.Background())
	a := &agent{fes: fes, say: say, log: log, cancel: cancel}
	a.every = interval(conf)
	a.done.Go(func() { a.run(ctx) }) // ends with leave
	return a
}

func (a *agent) run(ctx context.Context) {
	var warned time.Time
	known := false
	for {
		began := time.Now()
		reply, err := a.beat(ctx, false)
		wait := time.Duration(a.every.Load())
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if known || time.Since(warned) >= warnEvery {
				what := "no FE answers"
				if errors.Is(err, block.ErrRefused) {
					what = "the FE refuses this node"
				}
				a.log.Warn(what+"; reads go on without it", "error", err)
				warned = time.Now()
			}
			known = false
		case !known:
			known = true
			a.log.Info("registered with the FE", "backend_id", reply.BackendID, "cluster_id", reply.ClusterID)
		}
		if err == nil && reply.Interval > 0 {
			wait = min(wait, reply.Interval)
		}
		// An FE that does not answer takes time, which the others must not miss.
		wait = max(wait-time.Since(began), wait/10)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (a *agent) beat(ctx context.Context, leaving bool) (placement.HeartbeatReply, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	return a.fes.HeartbeatAll(ctx, a.say(leaving))
}

// leave stops the heartbeats and tells the FE not to hand this BE out any more.
// An FE that does not answer will find out by itself.
func (a *agent) leave(ctx context.Context) {
	a.cancel()
	a.done.Wait()
	if _, err := a.beat(ctx, true); err != nil {
		a.log.Debug("could not take leave of the FE", "error", err)
	}
}
