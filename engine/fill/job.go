package fill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"headstart/engine/block"
)

// job is one fill: its done is closed when its blocks are in the cache, or will
// not come, its slot is free and it is counted.
type job struct {
	ids  []block.ID
	done chan struct{}
}

// jobs are the fills under way, by block, so that two requests never fill one
// block.
type jobs struct {
	mu      sync.Mutex
	running map[block.ID]*job
}

// claim makes a job of those of ids that nobody fills, nil when there are none,
// and returns the jobs that fill the others.
func (j *jobs) claim(ids []block.ID) (mine *job, others []*job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range ids {
		switch other := j.running[id]; {
		case other == nil && mine == nil:
			mine = &job{done: make(chan struct{})}
			fallthrough
		case other == nil || other == mine:
			mine.ids = append(mine.ids, id)
			j.running[id] = mine
		case !slices.Contains(others, other):
			others = append(others, other)
		}
	}
	return mine, others
}

// drop ends a job.
func (j *jobs) drop(ended *job) {
	j.mu.Lock()
	for _, id := range ended.ids {
		delete(j.running, id)
	}
	j.mu.Unlock()
	close(ended.done)
}

// mayFill: a node without a cache has nothing to fill (S50).
func (s *Server) mayFill() bool {
	return s.Settings.EnablePeerServerCacheFill.Load() && !s.Cache.Disabled()
}

// limit is how long one request to fill may take.
func (s *Server) limit() time.Duration {
	return time.Duration(s.Settings.PeerServerCacheFillTimeoutMS.Load()) * time.Millisecond
}

// fill starts to read what is missing from object storage, unless somebody does
// so already, marks it in the reply and returns the jobs that bring it. A fill
// goes on when its requester has gone, up to the time that it may take: the next
// one finds the blocks.
func (s *Server) fill(from block.Node, f *block.Fetch, reply *block.Reply) []*job {
	base := block.BaseID(f.Object, f.Meta.Version)
	var missing []block.ID
	for i := range reply.Answers {
		if a := &reply.Answers[i]; a.Status == block.StatusNotFound {
			missing = append(missing, base.At(a.Index))
		}
	}
	mine, jobs := s.jobs.claim(missing)
	if mine != nil {
		s.count.fillRequested.Add(1)
		status := s.begin(from.ID, f, mine)
		for i := range reply.Answers {
			if a := &reply.Answers[i]; a.Status == block.StatusNotFound && slices.Contains(mine.ids, base.At(a.Index)) {
				a.Status = status
			}
		}
		if status == block.StatusFilling {
			jobs = append(jobs, mine)
		} else {
			s.jobs.drop(mine)
		}
	}
	mark(reply, block.StatusFilling)
	return jobs
}

// begin starts a job if there is a slot for it, and for the node that wants it.
func (s *Server) begin(node string, f *block.Fetch, j *job) block.Status {
	if !s.Fills.TryAcquire(node, 1) {
		s.count.fillRejected.Add(1)
		return block.StatusFillRejected
	}
	req := *f
	if !s.start(func() { s.run(node, &req, j) }) { // ends with its reads, its time-out or s.ctx
		s.Fills.Release(node, 1)
		return block.StatusGoingAway
	}
	return block.StatusFilling
}

// mark gives the blocks that are missing a status.
func mark(reply *block.Reply, status block.Status) {
	for i := range reply.Answers {
		if reply.Answers[i].Status == block.StatusNotFound {
			reply.Answers[i].Status = status
		}
	}
}

// run fills blocks and counts how that ended.
func (s *Server) run(node string, f *block.Fetch, j *job) {
	ctx, cancel := context.WithTimeout(s.ctx, s.limit())
	defer cancel()
	defer s.jobs.drop(j)
	defer s.Fills.Release(node, 1)
	defer func() {
		if p := recover(); p != nil {
			s.count.panics.Add(1)
			s.Logger.Error("fill panicked", "object", f.Object.String(), "panic", fmt.Sprint(p))
		}
	}()
	var run block.Run
	run.First = f.Run.First
	for _, id := range j.ids {
		run.Want |= 1 << (id.Index - run.First)
	}
	meta := f.Meta
	err := s.each(ctx, f, &meta, run, func(v *block.View, _ uint64) { v.Lease.Release() })
	switch {
	case err == nil:
		s.count.fillSuccess.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		s.count.fillTimeout.Add(1)
	default:
		s.count.fillFailed.Add(1)
	}
}

// wait answers the blocks that are being filled when they are there. It reads
// them as any reader would: the flights that it joins are those of the jobs. It
// answers when the jobs have ended, so that whoever has the answer finds their
// slots free.
func (s *Server) wait(ctx context.Context, f *block.Fetch, reply *block.Reply, jobs []*job) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, s.limit())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	run, meta := block.Run{First: f.Run.First}, f.Meta
	for i := range reply.Answers {
		switch a := &reply.Answers[i]; a.Status {
		case block.StatusFilling:
			run.Want |= 1 << (a.Index - run.First)
			a.Status = block.StatusNotFound // until a view comes
		case block.StatusData:
			meta = reply.Meta // a reply is of one version
		}
	}
	if run.Want == 0 {
		return
	}
	next := 0
	err := s.each(ctx, f, &meta, run, func(v *block.View, index uint64) {
		for reply.Answers[next].Index != index {
			next++
		}
		reply.Answers[next].Status, reply.Answers[next].Lease = block.StatusData, v.Lease
		reply.Meta = meta // what look knew may be older than these bytes
	})
	if err != nil {
		status := failure(err, s.ctx.Err() != nil)
		if caller.Err() != nil {
			status = block.StatusCancelled
		}
		mark(reply, status)
	}
	for _, j := range jobs {
		select {
		case <-j.done: // its time is up no later than ours
		case <-caller.Done():
		}
	}
	if known := s.Engine.Known(f.Object, versionAsked(f)); known != nil && !reply.Meta.Known() {
		reply.Meta = known.Meta
	}
}

// failure is what a requester is told of a fill that failed. A fault of object
// storage is not this node's: it must cost it neither its place among the
// candidates nor its circuit, or nobody would ask for what it has.
func failure(err error, stopping bool) block.Status {
	switch {
	case stopping:
		return block.StatusGoingAway
	case errors.Is(err, context.DeadlineExceeded):
		return block.StatusFillTimeout
	case errors.Is(err, block.ErrChanged), errors.Is(err, block.ErrNotFound), errors.Is(err, block.ErrRange):
		return block.StatusNotFound
	}
	return block.StatusFillRejected
}

// versionAsked is how this node reads the object: a file of a tablet by that
// name, any other as it is now.
func versionAsked(f *block.Fetch) block.Version {
	if f.Meta.Version == block.Immutable {
		return block.Immutable
	}
	return ""
}

// each reads the blocks of run without asking peers and passes on a view of each.
// All are of meta's version; the first one sets meta if that is not known. A
// block that the object does not have is passed over.
func (s *Server) each(ctx context.Context, f *block.Fetch, meta *block.Meta, run block.Run, take func(*block.View, uint64)) error {
	for run.Want != 0 {
		var span block.Run
		span, run = run.Span()
		if err := s.span(ctx, f, meta, span, take); err != nil && !errors.Is(err, block.ErrRange) {
			return err
		}
	}
	return nil
}

// span reads neighbouring blocks for each.
func (s *Server) span(ctx context.Context, f *block.Fetch, meta *block.Meta, span block.Run, take func(*block.View, uint64)) error {
	if span.First > uint64(math.MaxInt64/f.BlockSize-block.MaxRun) {
		return block.ErrRange // its offset is no number: the product would be another block's
	}
	r, err := s.Engine.Open(ctx, &block.Read{
		Object: f.Object, Version: versionAsked(f), Route: f.Route,
		Offset: int64(span.First) * f.BlockSize, Size: int64(span.Count()) * f.BlockSize,
		Kind: f.Kind, Queue: f.Queue, NoPeer: true, ForPeer: true, Trace: f.Trace,
	})
	if err != nil {
		return err
	}
	defer r.Close()
	for index := span.First; ; index++ {
		view, err := r.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !meta.Known() && (meta.Version == "" || meta.Version == r.Meta().Version) {
			*meta = r.Meta()
		}
		if r.Meta().Version != meta.Version {
			view.Lease.Release()
			return block.ErrChanged
		}
		take(&view, index)
	}
}
