package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/shards/placement"
)

// DirectoryClientOptions configure a DirectoryClient. Identity and Endpoints
// must be set.
type DirectoryClientOptions struct {
	Identity *Identity
	// Endpoints are the FEs, any of which will do.
	Endpoints []block.Addr
	// Timeout bounds one attempt at one FE, 2 s by default.
	Timeout time.Duration
	// ConnectTimeout is 1 s by default. No reader waits for an FE, which may be
	// far away; and when the first packet is lost there may be no other FE.
	ConnectTimeout time.Duration
	// TLS is nil for plain text.
	TLS *TLS
}

// Validate reports what is missing or out of range.
func (o *DirectoryClientOptions) Validate() error {
	switch {
	case o.Identity == nil:
		return errors.New("rpc directory client: Identity is not set")
	case len(o.Endpoints) == 0:
		return errors.New("rpc directory client: there are no Endpoints")
	case o.Timeout < 0 || o.ConnectTimeout < 0:
		return errors.New("rpc directory client: a time-out is negative")
	}
	return nil
}

// DirectoryClient asks the FEs. It stays with the one that has answered last
// and tries each of the others once when that fails.
type DirectoryClient struct {
	caller    *caller
	pool      *pool
	endpoints []block.Addr
	timeout   time.Duration
	// preferred is the index of the FE that has answered last.
	preferred       atomic.Int64
	calls, failures atomic.Int64
}

// DirectoryClientMetrics is what a DirectoryClient has counted so far.
type DirectoryClientMetrics struct {
	// Calls are attempts at one FE, Failures those that gave nothing.
	Calls, Failures int64
	Conns           int
	Dials           int64
}

// NewDirectoryClient returns a client; Close stops it.
func NewDirectoryClient(o DirectoryClientOptions) (*DirectoryClient, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &DirectoryClient{
		endpoints: o.Endpoints,
		timeout:   orDefault(o.Timeout, 2*time.Second),
		pool:      newPool(o.TLS, orDefault(o.ConnectTimeout, time.Second), clientIdle, 16),
	}
	var err error
	if c.caller, err = newCaller(o.Identity, c.pool, directoryService()); err != nil {
		c.pool.close()
		return nil, err
	}
	return c, nil
}

// Close closes all connections: running calls fail.
func (c *DirectoryClient) Close() error {
	c.pool.close()
	return nil
}

// Metrics returns what the client has counted so far.
func (c *DirectoryClient) Metrics() DirectoryClientMetrics {
	m := DirectoryClientMetrics{Calls: c.calls.Load(), Failures: c.failures.Load(), Dials: c.pool.dials.Load()}
	m.Conns, _ = c.pool.counts()
	return m
}

// Heartbeat tells an FE of this BE. When the identity does not know its cluster
// yet, it takes the FE's. NodeID, GroupID and Location travel as those of the
// identity.
func (c *DirectoryClient) Heartbeat(ctx context.Context, h placement.Heartbeat) (placement.HeartbeatReply, error) {
	var out placement.HeartbeatReply
	err := c.each(ctx, func(ctx context.Context, addr block.Addr) (err error) {
		out, err = c.heartbeatAt(ctx, addr, h)
		return err
	})
	c.learn(out, err)
	return out, err
}

// learn takes the cluster's id from the first FE that has answered.
func (c *DirectoryClient) learn(r placement.HeartbeatReply, err error) {
	if err == nil && c.caller.id.ClusterID() == "" {
		c.caller.id.SetClusterID(r.ClusterID)
	}
}

func (c *DirectoryClient) heartbeatAt(ctx context.Context, addr block.Addr, h placement.Heartbeat) (out placement.HeartbeatReply, err error) {
	var args headstart.DirectoryHeartbeatArgs
	var result headstart.DirectoryHeartbeatResult
	args.Req = heartbeatRequest(h)
	args.Req.Base = c.caller.id.now.Load().base(request)
	conn, err := c.caller.call(ctx, addr, methodHeartbeat, maxHead, &args, &result)
	if err != nil {
		return out, err
	}
	defer c.caller.release(conn)
	rep := result.GetSuccess()
	if rep == nil {
		return out, errWire
	}
	if err := c.caller.accept(conn, rep.Base, rep.Failure, joining); err != nil {
		return out, err
	}
	return placement.HeartbeatReply{BackendID: rep.BackendId, ClusterID: rep.ClusterId, Interval: duration(rep.IntervalMs)}, nil
}

func heartbeatRequest(h placement.Heartbeat) *headstart.HeartbeatRequest {
	return &headstart.HeartbeatRequest{
		Host:               h.Host,
		HeartbeatPort:      int32(h.HeartbeatPort),
		BePort:             int32(h.BePort),
		HttpPort:           int32(h.HTTPPort),
		BrpcPort:           int32(h.BrpcPort),
		ArrowFlightSqlPort: int32(h.ArrowFlightSQLPort),
		ComputeGroupName:   h.GroupName,
		CloudUniqueId:      h.CloudUniqueID,
		Version:            h.Version,
		Started:            unixNano(h.Started),
		CpuCores:           int32(h.CPUCores),
		MemoryBytes:        h.MemoryBytes,
		CacheCapacityBytes: h.CacheCapacityBytes,
		CacheUsedBytes:     h.CacheUsedBytes,
		Leaving:            h.Leaving,
	}
}

// errNotJoined ends lookups that every FE would refuse.
var errNotJoined = errors.New("no FE has taken a heartbeat of this node yet, so its cluster is not known")

// Lookup returns the holders of each route, in the order of the routes.
func (c *DirectoryClient) Lookup(ctx context.Context, routes []block.Route) ([][]placement.Holder, error) {
	if c.caller.id.ClusterID() == "" {
		return nil, errNotJoined
	}
	out := make([][]placement.Holder, 0, len(routes))
	for len(routes) > 0 {
		batch := routes[:min(len(routes), maxRoutes)]
		routes = routes[len(batch):]
		err := c.each(ctx, func(ctx context.Context, addr block.Addr) error {
			holders, err := c.lookupAt(ctx, addr, batch)
			out = append(out, holders...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *DirectoryClient) lookupAt(ctx context.Context, addr block.Addr, routes []block.Route) ([][]placement.Holder, error) {
	var args headstart.DirectoryLookupArgs
	var result headstart.DirectoryLookupResult
	args.Req = &headstart.LookupRequest{Base: c.caller.id.now.Load().base(request)}
	for _, r := range routes {
		args.Req.Routes = append(args.Req.Routes, &headstart.Route{Kind: int32(r.Kind), Id: int64(r.ID)})
	}
	conn, err := c.caller.call(ctx, addr, methodLookup, maxLookup, &args, &result)
	if err != nil {
		return nil, err
	}
	defer c.caller.release(conn)
	rep := result.GetSuccess()
	if rep == nil {
		return nil, errWire
	}
	if err := c.caller.accept(conn, rep.Base, rep.Failure, strict); err != nil {
		return nil, err
	}
	if len(rep.Routes) != len(routes) {
		return nil, fmt.Errorf("%w: %d answers for %d routes", errWire, len(rep.Routes), len(routes))
	}
	out := make([][]placement.Holder, len(routes))
	for i, r := range rep.Routes {
		for _, h := range r.Holders {
			out[i] = append(out[i], placement.Holder{
				Addr: block.Addr{Host: h.Host, Port: int(h.BrpcPort)}, GroupID: h.ComputeGroupId, Location: h.Location,
			})
		}
	}
	return out, nil
}

// each calls try with one FE after another until one has answered. An error
// that names its FE is joined to those of the others.
func (c *DirectoryClient) each(ctx context.Context, try func(context.Context, block.Addr) error) error {
	first := c.preferred.Load()
	var failed error
	for i := range int64(len(c.endpoints)) {
		n := (first + i) % int64(len(c.endpoints))
		attempt, done := context.WithTimeout(ctx, c.timeout)
		c.calls.Add(1)
		err := try(attempt, c.endpoints[n])
		done()
		if err == nil {
			c.preferred.Store(n)
			return nil
		}
		c.failures.Add(1)
		failed = errors.Join(failed, fmt.Errorf("directory at %v: %w", c.endpoints[n], err))
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}
