package fill

import (
	"context"
	"io"
	"sync/atomic"

	"headstart/engine/block"
)

// Stat answers what this node knows of an object; block.ErrNotFound when that
// is nothing. It asks nobody.
func (s *Server) Stat(_ context.Context, o block.Object, version block.Version) (block.Meta, error) {
	known := s.Engine.Known(o, version)
	if known == nil {
		return block.Meta{}, &block.Error{Op: "stat", Object: o, Source: block.SourceLocal, Err: block.ErrNotFound}
	}
	return known.Meta, nil
}

// Read reads up to most bytes for a remote caller. The views are in order and
// belong to the caller, who releases them.
func (s *Server) Read(ctx context.Context, req *block.Read, most int64) ([]block.View, block.Meta, error) {
	want := *req
	if want.Size < 0 || want.Size > most {
		want.Size = most
	}
	r, err := s.Engine.Open(ctx, &want)
	if err != nil {
		return nil, block.Meta{}, err
	}
	defer r.Close()
	var views []block.View
	for {
		v, err := r.Next(ctx)
		if err == io.EOF {
			return views, r.Meta(), nil
		}
		if err != nil {
			for i := range views {
				views[i].Lease.Release()
			}
			return nil, block.Meta{}, err
		}
		views = append(views, v)
	}
}

type counters struct {
	requests, success, failed, queueTimeout atomic.Int64
	fillRequested, fillSuccess, fillTimeout atomic.Int64
	fillRejected, fillFailed, panics        atomic.Int64
	shared                                  atomic.Int64
}

// Metrics is the serving side's books at one moment; all values only grow.
type Metrics struct {
	// Requests is Success plus Failed plus those under way. A request that got at
	// least one block counts as a success.
	Requests, Success, Failed, QueueTimeout int64
	// FillRequested is the sum of the others plus those under way, switched off, or
	// for blocks that do not exist.
	FillRequested, FillSuccess, FillTimeout, FillRejected, FillFailed int64
	// Shared are blocks of GETs that were under way for somebody else.
	Shared, Panics int64
}

// Metrics returns a snapshot.
func (s *Server) Metrics() Metrics {
	c := &s.count
	return Metrics{
		Requests: c.requests.Load(), Success: c.success.Load(), Failed: c.failed.Load(),
		QueueTimeout:  c.queueTimeout.Load(),
		FillRequested: c.fillRequested.Load(), FillSuccess: c.fillSuccess.Load(),
		FillTimeout: c.fillTimeout.Load(), FillRejected: c.fillRejected.Load(), FillFailed: c.fillFailed.Load(),
		Shared: c.shared.Load(), Panics: c.panics.Load(),
	}
}
