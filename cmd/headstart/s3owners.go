package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"headstart/engine"
	"headstart/engine/block"
	"headstart/rpc"
	"headstart/shards"
)

const (
	// placeLife is how long the FE's word on an object's owner holds, placeRetry how
	// long it is not asked again when it did not answer.
	placeLife  = time.Minute
	placeRetry = 2 * time.Second
	// placeTimeout is how long a reader waits for that word, once.
	placeTimeout = 50 * time.Millisecond
	maxPlaces    = 1 << 16
)

// owners knows which BE of the own group is to hold an object that is read through
// the S3 front: the FE's primary. So a group keeps one copy, whichever of its BEs
// is asked.
type owners struct {
	fes      engine.Directory
	settings *engine.Settings
	table    *shards.Table
	peers    *rpc.Client
	self     block.Addr
	group    string
	// wait is placeTimeout, but in tests.
	wait time.Duration
	log  *slog.Logger
	mu   struct {
		sync.Mutex
		places map[block.Route]place
	}
}

type place struct {
	owner block.Addr
	until time.Time
}

// place returns the owner, the zero address when that is this node or not known.
// The first read of an object waits a moment for the FE.
func (o *owners) place(ctx context.Context, route block.Route) block.Addr {
	if !o.settings.EnableCacheReadFromPeer.Load() || !o.settings.EnableExternalPeerRead.Load() {
		return block.Addr{}
	}
	now := time.Now()
	o.mu.Lock()
	p, ok := o.mu.places[route]
	o.mu.Unlock()
	if ok && now.Before(p.until) {
		return p.owner
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	asks := o.table.BeginLookup(route)
	found, err := o.fes.Lookup(ctx, []block.Route{route})
	p = place{until: now.Add(placeRetry)}
	var holders []shards.Candidate
	if err == nil && len(found) == 1 {
		holders, p.until = found[0], now.Add(placeLife)
	}
	if asks {
		o.table.EndLookup(route, holders, err)
	}
	for _, h := range holders {
		if h.GroupID == o.group && h.Addr != o.self {
			p.owner = h.Addr
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.places) >= maxPlaces {
		clear(o.mu.places)
	}
	o.mu.places[route] = p
	return p.owner
}

// changed tells the owners of objects, in all groups, that somebody has changed
// them. Who can't be told finds out when what it knows is too old.
func (o *owners) changed(ctx context.Context, objects []block.Object) {
	routes := make([]block.Route, len(objects))
	for i := range objects {
		routes[i] = block.ExternalRoute(objects[i])
	}
	told := make(map[block.Addr][]block.Object)
	for from := 0; from < len(routes); from += maxAsk {
		to := min(from+maxAsk, len(routes))
		found, err := o.fes.Lookup(ctx, routes[from:to])
		if err != nil || len(found) != to-from {
			o.log.Warn("the owners of changed objects are not known: they may serve what they know for a while", "objects", to-from, "error", err)
			continue
		}
		for i, holders := range found {
			for _, h := range holders {
				if h.Addr != o.self {
					told[h.Addr] = append(told[h.Addr], objects[from+i])
				}
			}
		}
	}
	var all sync.WaitGroup
	for addr, list := range told {
		all.Go(func() { // ends with ctx
			if err := o.peers.Forget(ctx, addr, list); err != nil {
				o.log.Warn("a node was not told of changed objects: it may serve what it knows for a while", "node", addr.String(), "error", err)
			}
		})
	}
	all.Wait()
}

// maxAsk bounds the routes of one question to the FE.
const maxAsk = 256
