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
	"fmt"
	"io"
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
}

// Options is what a Server is built from. All fields but Logger are needed.
type Options struct {
	Engine   *engine.Engine
	Cache    *blockcache.Cache
	Settings *Settings
	// Queue is the pool of peer reads, Fills the slots for fills.
	Queue  *pools.Queue
	Fills  *pools.Tokens
	Logger *slog.Logger
}

// Server answers peers. All methods may be called at the same time.
type Server struct {
	Options
	count counters
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
	s := &Server{Options: o}
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
// lease for each block that is there. Its caller releases the reply.
func (s *Server) ServeBlocks(ctx context.Context, from block.Node, f *block.Fetch, reply *block.Reply) {
	s.count.requests.Add(1)
	if f.BlockSize != s.Engine.BlockSize {
		s.refuse(f, reply, block.StatusUnsupported) // its blocks are not ours
		return
	}
	err := s.Queue.Do(ctx, func(context.Context) { s.look(f, reply) })
	if err != nil {
		s.refuse(f, reply, statusOf(err))
		return
	}
	if f.Fill && s.missing(reply) {
		s.fill(ctx, f, reply)
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
	base := block.BaseID(f.Object, f.Meta.Version)
	if f.Meta.Version == "" {
		if known := s.Engine.Current(f.Object, ""); known != nil {
			reply.Meta, base = known.Meta, known.Base
		}
	} else if known := s.Engine.Known(f.Object, f.Meta.Version); known != nil && known.Meta.Version == f.Meta.Version {
		reply.Meta = known.Meta
	}
	for i := range uint64(block.MaxRun) {
		index := f.Run.First + i
		if !f.Run.Has(index) {
			continue
		}
		answer := block.Answer{Index: index, Status: block.StatusNotFound}
		if reply.Meta.Known() {
			if lease, ok := s.Cache.Peek(base.At(index)); ok {
				answer.Status, answer.Lease = block.StatusData, lease
			}
		}
		reply.Answers = append(reply.Answers, answer)
	}
}

func (s *Server) missing(reply *block.Reply) bool {
	for i := range reply.Answers {
		if reply.Answers[i].Status == block.StatusNotFound {
			return true
		}
	}
	return false
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

// fill reads what is missing from object storage. The fill goes on when its
// requester has gone, up to the time that it may take: the next one finds the
// blocks in the cache.
func (s *Server) fill(ctx context.Context, f *block.Fetch, reply *block.Reply) {
	s.count.fillRequested.Add(1)
	if !s.Settings.EnablePeerServerCacheFill.Load() || s.Cache.Disabled() {
		return
	}
	if !s.Fills.TryAcquire() {
		s.count.fillRejected.Add(1)
		mark(reply, block.StatusFillRejected)
		return
	}
	job := newJob(s, f, reply)
	limit := time.Duration(s.Settings.PeerServerCacheFillTimeoutMS.Load()) * time.Millisecond
	jobCtx, cancel := context.WithTimeout(s.ctx, limit)
	started := s.start(func() { // ends with its reads, its time-out or s.ctx
		defer cancel()
		job.run(jobCtx)
	})
	if !started {
		cancel()
		s.Fills.Release()
		mark(reply, block.StatusGoingAway)
		return
	}
	select {
	case <-job.done:
		job.take(reply)
	case <-ctx.Done():
		mark(reply, block.StatusCancelled)
		job.abandon()
	}
}

// mark gives the blocks that are still missing a status.
func mark(reply *block.Reply, status block.Status) {
	for i := range reply.Answers {
		if reply.Answers[i].Status == block.StatusNotFound {
			reply.Answers[i].Status = status
		}
	}
}

// errPanic is the failure of a fill that panicked.
var errPanic = errors.New("the fill panicked")

// job is one fill. Its leases go to the requester if that still waits, else
// back.
type job struct {
	server *Server
	req    block.Fetch
	// version is that of the reply's blocks, "" until there is one.
	version block.Version
	missing []block.Answer
	meta    block.Meta
	done    chan struct{}

	mu struct {
		sync.Mutex
		abandoned, ended bool
	}
}

func newJob(s *Server, f *block.Fetch, reply *block.Reply) *job {
	j := &job{server: s, req: *f, version: f.Meta.Version, done: make(chan struct{})}
	for i := range reply.Answers {
		switch a := &reply.Answers[i]; a.Status {
		case block.StatusNotFound:
			j.missing = append(j.missing, *a)
		case block.StatusData:
			j.version = reply.Meta.Version
		}
	}
	return j
}

func (j *job) run(ctx context.Context) {
	s := j.server
	defer j.end()
	defer s.Fills.Release() // before the answer: whoever has it finds the slot free
	defer func() {
		if p := recover(); p != nil {
			s.count.panics.Add(1)
			s.Logger.Error("fill panicked", "object", j.req.Object.String(), "panic", fmt.Sprint(p))
			j.fail(errPanic)
		}
	}()
	for i := 0; i < len(j.missing); {
		n := 1
		for i+n < len(j.missing) && j.missing[i+n].Index == j.missing[i].Index+uint64(n) {
			n++
		}
		if err := j.read(ctx, j.missing[i:i+n]); err != nil {
			j.fail(err)
			return
		}
		i += n
	}
	s.count.fillSuccess.Add(1)
}

// read fills neighbouring answers with one read that keeps away from peers.
func (j *job) read(ctx context.Context, answers []block.Answer) error {
	version := j.req.Meta.Version
	if version != block.Immutable {
		version = ""
	}
	r, err := j.server.Engine.Open(ctx, &block.Read{
		Object: j.req.Object, Version: version, Route: j.req.Route,
		Offset: int64(answers[0].Index) * j.req.BlockSize, Size: int64(len(answers)) * j.req.BlockSize,
		Kind: j.req.Kind, Queue: j.req.Queue, NoPeer: true,
	})
	if errors.Is(err, block.ErrRange) {
		return nil // no such block in our version: "not found" is right
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if !j.learn(r.Meta()) {
		return block.ErrChanged
	}
	for i := range answers {
		view, err := r.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !j.learn(r.Meta()) { // the first Next may have met a new version
			view.Lease.Release()
			return block.ErrChanged
		}
		answers[i].Status, answers[i].Lease = block.StatusData, view.Lease
		j.version = j.meta.Version
	}
	return nil
}

// learn keeps the reply to one version; it reports false for another one.
func (j *job) learn(meta block.Meta) bool {
	if j.version != "" && j.version != meta.Version {
		return false
	}
	j.meta = meta
	return true
}

// fail gives the blocks that the fill has not brought the status of its error. A
// fault of object storage is not this node's: it must cost it neither its place
// among the candidates nor its circuit, or nobody would ask for what it has.
func (j *job) fail(err error) {
	status := block.StatusFillRejected
	switch {
	case err == errPanic:
		status = block.StatusFailed
		j.server.count.fillFailed.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		status = block.StatusFillTimeout
		j.server.count.fillTimeout.Add(1)
	case errors.Is(err, context.Canceled):
		status = block.StatusGoingAway
	case errors.Is(err, block.ErrChanged), errors.Is(err, block.ErrNotFound):
		status = block.StatusNotFound
	default:
		j.server.count.fillFailed.Add(1)
	}
	for i := range j.missing {
		if j.missing[i].Status == block.StatusNotFound {
			j.missing[i].Status = status
		}
	}
}

func (j *job) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.ended = true
	if j.mu.abandoned {
		j.release()
	}
	close(j.done)
}

// abandon leaves the job to itself.
func (j *job) abandon() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.abandoned = true
	if j.mu.ended {
		j.release()
	}
}

func (j *job) release() {
	for i := range j.missing {
		j.missing[i].Lease.Release()
	}
}

// take moves the job's answers into the reply.
func (j *job) take(reply *block.Reply) {
	if j.meta.Known() {
		reply.Meta = j.meta
	}
	for i := range reply.Answers {
		if a := &reply.Answers[i]; a.Status == block.StatusNotFound && len(j.missing) > 0 {
			*a = j.missing[0]
			j.missing = j.missing[1:]
		}
	}
}
