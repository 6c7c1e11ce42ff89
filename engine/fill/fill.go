// Package fill is the serving side of peer read: it answers what other nodes
// ask of this one's File Cache, and on their behalf reads object storage for
// what is missing, within bounds of its own (S30-S34, S40-S44).
//
// The leases in a reply belong to whoever sends it. Serving never asks a peer,
// so a question never travels further than one hop.
package fill

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/pools"
)

// Settings are the keys that the serving side looks at for each request.
type Settings struct {
	EnablePeerServerCacheFill    atomic.Bool
	PeerServerCacheFillTimeoutMS atomic.Int64
	// PeerReadUpdatesEvictionOrder lets what peers read count as use (S43).
	PeerReadUpdatesEvictionOrder atomic.Bool
}

// Options is what a Server is built from. All fields but Logger are needed.
type Options struct {
	Engine   *engine.Engine
	Cache    *blockcache.Cache
	Settings *Settings
	// Queue is the pool of peer reads, Fills the slots for fills.
	Queue  *pools.Queue
	Fills  *pools.Shares
	Logger *slog.Logger
}

// Server answers peers. All methods may be called at the same time.
type Server struct {
	Options
	count counters
	jobs  jobs
	warm  warm
	// ctx ends with Close. fills counts the fills under way, for Close; it grows
	// while life is locked and not closed.
	fills  sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
	life   struct {
		sync.Mutex
		closed bool
	}
}

// NewServer returns a server.
func NewServer(o Options) *Server {
	s := &Server{Options: o, jobs: jobs{running: map[block.ID]*job{}}}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close cancels the fills under way and waits for them. What is in the cache is
// served on.
func (s *Server) Close() {
	s.life.Lock()
	s.life.closed = true
	s.life.Unlock()
	s.cancel()
	s.fills.Wait()
}

// start runs a fill that Close waits for; it ends with s.ctx. It reports false
// once the server closes.
func (s *Server) start(f func()) bool {
	s.life.Lock()
	defer s.life.Unlock()
	if s.life.closed {
		return false
	}
	s.fills.Go(f)
	return true
}

// ServeBlocks answers one request of a peer: a status for each block, and a
// lease for each block that is there. Its caller releases the reply. A request
// to fill is answered at once; the requester comes back with the wait flag and
// gets its answer when the fill has ended (S38).
func (s *Server) ServeBlocks(ctx context.Context, from block.Node, f *block.Fetch, reply *block.Reply) {
	s.count.requests.Add(1)
	if f.BlockSize != s.Engine.BlockSize {
		s.refuse(f, reply, block.StatusUnsupported) // its blocks are not ours
		return
	}
	began := time.Now()
	err := s.Queue.DoFor(ctx, from.GroupID, func(context.Context) {
		reply.Waited = time.Since(began)
		s.look(f, reply)
	})
	if err != nil {
		s.refuse(f, reply, statusOf(err))
		reply.Waited = time.Since(began)
		return
	}
	until := time.Now().Add(s.limit())
	switch {
	case !s.mayFill():
		if f.Fill {
			s.count.fillRequested.Add(1)
		}
	case f.Fill:
		if jobs := s.fill(from, f, reply); f.Wait {
			s.wait(ctx, f, reply, jobs)
		}
		fallthrough
	default:
		s.share(ctx, until, f, reply)
	}
	s.settle(reply)
}

// statusOf translates the pool's refusals.
func statusOf(err error) block.Status {
	switch {
	case errors.Is(err, pools.ErrQueueTimeout):
		return block.StatusQueueTimeout
	case errors.Is(err, pools.ErrQueueFull):
		return block.StatusQueueFull
	case errors.Is(err, pools.ErrCancelled):
		return block.StatusCancelled
	case errors.Is(err, pools.ErrClosed):
		return block.StatusGoingAway
	}
	return block.StatusFailed
}

// refuse answers all blocks with one status.
func (s *Server) refuse(f *block.Fetch, reply *block.Reply, status block.Status) {
	reply.Release()
	for i := range uint64(block.MaxRun) {
		if index := f.Run.First + i; f.Run.Has(index) {
			reply.Answers = append(reply.Answers, block.Answer{Index: index, Status: status})
		}
	}
	if status == block.StatusQueueTimeout {
		s.count.queueTimeout.Add(1)
	}
	s.count.failed.Add(1)
}

// look answers from the cache alone. The reader's version is a condition: a
// node that knows another one does not have the block. A reader that knows none
// gets the blocks of ours if we can tell that it is the present one.
func (s *Server) look(f *block.Fetch, reply *block.Reply) {
	reply.Meta = f.Meta
	known := s.Engine.Known(f.Object, f.Meta.Version)
	if f.Meta.Version == "" {
		known = s.Engine.Current(f.Object, "")
	}
	var base block.ID
	if known != nil && (f.Meta.Version == "" || f.Meta.Version == known.Meta.Version) {
		reply.Meta, base = known.Meta, known.Base
	} else {
		base = block.BaseID(f.Object, f.Meta.Version)
	}
	get := s.Cache.Peek // serving a peer does not change the eviction order (S43)
	if s.Settings.PeerReadUpdatesEvictionOrder.Load() {
		get = s.Cache.Get
	}
	for i := range uint64(block.MaxRun) {
		index := f.Run.First + i
		if !f.Run.Has(index) {
			continue
		}
		answer := block.Answer{Index: index, Status: block.StatusNotFound}
		if reply.Meta.Known() {
			id := base.At(index)
			lease, ok := get(id)
			switch {
			case !ok:
			case s.warm.resident(id, &lease) != nil:
				lost(&lease)
			default:
				answer.Status, answer.Lease = block.StatusData, lease
			}
		}
		reply.Answers = append(reply.Answers, answer)
	}
}

// settle counts the request by what it got.
func (s *Server) settle(reply *block.Reply) {
	for i := range reply.Answers {
		if reply.Answers[i].Status == block.StatusData {
			s.count.success.Add(1)
			return
		}
	}
	s.count.failed.Add(1)
}
