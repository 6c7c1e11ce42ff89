package fill

import (
	"context"
	"slices"
	"time"

	"headstart/engine/block"
)

// share promises the blocks that this node is reading from object storage for
// its own readers, or for other nodes, though it has no slot to read them for
// this one: they are "filling" too, and who comes back with the wait flag waits
// for that GET. So a cluster that misses a block everywhere at once, when object
// storage is slow, GETs it once and not once a node (BP-09). A share costs no
// slot and starts nothing, and like a fill it joins only what reads object
// storage itself, so that no two nodes wait for each other (S34).
// What has not come at until has timed out (S33).
func (s *Server) share(ctx context.Context, until time.Time, f *block.Fetch, reply *block.Reply) {
	if !slices.ContainsFunc(reply.Answers, lacking) || !reply.Meta.Known() {
		return // all is there, or nobody knows what the object is
	}
	base := block.BaseID(f.Object, reply.Meta.Version)
	if f.Wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
	}
	for i := range reply.Answers {
		a := &reply.Answers[i]
		switch id := base.At(a.Index); {
		case !lacking(*a):
		case f.Wait:
			s.await(ctx, a, id)
		case s.Engine.Getting(id):
			a.Status = block.StatusFilling
		}
	}
}

// lacking reports whether a block is neither there nor promised.
func lacking(a block.Answer) bool {
	return a.Status == block.StatusNotFound || a.Status == block.StatusFillRejected
}

// await answers one block when its GET has ended; without one its answer stays.
func (s *Server) await(ctx context.Context, a *block.Answer, id block.ID) {
	lease, err := s.Engine.Await(ctx, id)
	switch {
	case lease.Valid():
		a.Status, a.Lease = block.StatusData, lease
		s.count.shared.Add(1)
	case err != nil && ctx.Err() != nil:
		a.Status = failure(ctx.Err(), s.ctx.Err() != nil)
	case err != nil:
		a.Status = failure(err, false)
	}
}
