package rpc

import (
	"context"
	"fmt"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/shards/placement"
)

// maxRoutes bounds the routes of one Lookup, and maxLookup its reply in bytes:
// enough for 60 groups that hold each of them.
const (
	maxRoutes = 64
	maxLookup = 256 << 10
)

// Directory is what a DirectoryServer serves.
type Directory interface {
	// Heartbeat takes a BE's word of itself.
	Heartbeat(context.Context, placement.Heartbeat) (placement.HeartbeatReply, error)
	// Lookup returns the holders of each route, in the order of the routes.
	Lookup(context.Context, []block.Route) ([][]placement.Holder, error)
}

// DirectoryServer serves BEs at an FE.
type DirectoryServer struct {
	*acceptor
	directory Directory
}

// DirectoryServerMetrics is what a DirectoryServer has counted so far; the
// fields mean what they mean in ServerMetrics.
type DirectoryServerMetrics struct {
	Accepts                   int64
	Conns                     int
	Calls, Refused, BadFrames int64
}

// NewDirectoryServer returns a server; Serve runs it and Shutdown stops it.
func NewDirectoryServer(o ServerOptions, d Directory) (*DirectoryServer, error) {
	s := &DirectoryServer{directory: d}
	a, err := newAcceptor(o, directoryService(), s)
	if err != nil {
		return nil, err
	}
	s.acceptor = a
	return s, nil
}

// Serve accepts connections until Shutdown.
func (s *DirectoryServer) Serve() error { return s.serveAll() }

// Shutdown answers new calls with "going away" from now on, waits for those
// that run until ctx ends, and closes all connections.
func (s *DirectoryServer) Shutdown(ctx context.Context) error { return s.shutdown(ctx) }

// Metrics returns what the server has counted so far.
func (s *DirectoryServer) Metrics() DirectoryServerMetrics {
	return DirectoryServerMetrics{
		Accepts:   s.accepts.Load(),
		Conns:     int(s.ConnCount()),
		Calls:     s.calls.Load(),
		Refused:   s.refused.Load(),
		BadFrames: s.badFrames.Load(),
	}
}

// heartbeat serves Heartbeat.
func (s *DirectoryServer) heartbeat(ctx context.Context, req *headstart.HeartbeatRequest) *headstart.HeartbeatReply {
	rep := &headstart.HeartbeatReply{Base: s.base()}
	node, err := s.greet(ctx, req.GetBase(), joining)
	if err == nil {
		err = s.available()
	}
	if err == nil && max(len(req.Host), len(req.ComputeGroupName), len(req.CloudUniqueId), len(req.Version)) > maxName {
		err = fmt.Errorf("%w: a name in the heartbeat is longer than %d bytes", block.ErrInvalid, maxName)
	}
	if err == nil {
		var r placement.HeartbeatReply
		r, err = s.directory.Heartbeat(ctx, heartbeatOf(node, req))
		rep.BackendId, rep.ClusterId, rep.IntervalMs = r.BackendID, r.ClusterID, milliseconds(r.Interval)
	}
	rep.Failure = failureOf(err)
	return rep
}

// available refuses calls of a server that is going away.
func (a *acceptor) available() error {
	if a.leaving.Load() {
		return fmt.Errorf("%w: the node is going away", block.ErrBusy)
	}
	return nil
}

func heartbeatOf(node block.Node, r *headstart.HeartbeatRequest) placement.Heartbeat {
	return placement.Heartbeat{
		NodeID:             node.ID,
		Host:               r.Host,
		HeartbeatPort:      int(r.HeartbeatPort),
		BePort:             int(r.BePort),
		HTTPPort:           int(r.HttpPort),
		BrpcPort:           int(r.BrpcPort),
		ArrowFlightSQLPort: int(r.ArrowFlightSqlPort),
		GroupID:            node.GroupID,
		GroupName:          r.ComputeGroupName,
		CloudUniqueID:      r.CloudUniqueId,
		Location:           node.Location,
		Version:            r.Version,
		Started:            timeOf(r.Started),
		CPUCores:           int(r.CpuCores),
		MemoryBytes:        r.MemoryBytes,
		CacheCapacityBytes: r.CacheCapacityBytes,
		CacheUsedBytes:     r.CacheUsedBytes,
		Leaving:            r.Leaving,
	}
}

// lookup serves Lookup.
func (s *DirectoryServer) lookup(ctx context.Context, req *headstart.LookupRequest) *headstart.LookupReply {
	rep := &headstart.LookupReply{Base: s.base()}
	_, err := s.greet(ctx, req.GetBase(), strict)
	if err == nil {
		err = s.available()
	}
	if err == nil {
		rep.Routes, err = s.holders(ctx, req.Routes)
	}
	rep.Failure = failureOf(err)
	return rep
}

func (s *DirectoryServer) holders(ctx context.Context, asked []*headstart.Route) ([]*headstart.Holders, error) {
	if len(asked) > maxRoutes {
		return nil, fmt.Errorf("%w: %d routes, at most %d are looked up at a time", block.ErrInvalid, len(asked), maxRoutes)
	}
	routes := make([]block.Route, len(asked))
	for i, r := range asked {
		routes[i] = block.Route{Kind: block.RouteKind(r.Kind), ID: uint64(r.Id)}
	}
	found, err := s.directory.Lookup(ctx, routes)
	if err != nil {
		return nil, err
	}
	answers := make([]*headstart.Holders, len(found))
	for i, holders := range found {
		answers[i] = &headstart.Holders{Holders: make([]*headstart.Holder, len(holders))}
		for j, h := range holders {
			answers[i].Holders[j] = &headstart.Holder{
				Host: h.Addr.Host, BrpcPort: int32(h.Addr.Port), ComputeGroupId: h.GroupID, Location: h.Location,
			}
		}
	}
	return answers, nil
}
