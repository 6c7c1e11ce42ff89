package engine

import (
	"context"
	"errors"
	"math"
	"time"

	"headstart/engine/block"
	"headstart/engine/flight"
	"headstart/engine/object"
	"headstart/engine/plan"
)

// Hit serves a read that one block in the cache answers: it asks nobody, takes
// no lock and allocates nothing. known is what Fresh has returned for the read. The
// caller releases the view's lease.
func (e *Engine) Hit(req *block.Read, known *object.Known) (v block.View, ok bool) {
	rng, ok := plan.Clamp(e.geometry, req.Offset, req.Size, known.Meta.Size)
	if !ok || rng.Count != 1 || req.Packed != nil { // of a packed file, the offset is another one
		return block.View{}, false
	}
	lease, ok := e.Cache.Get(known.Base.At(rng.First))
	if !ok {
		return block.View{}, false
	}
	v = block.View{Lease: lease, Source: block.SourceLocal}
	v.From, v.To = e.cut(rng, rng.First)
	known.NoteRoute(req.Route, false)
	e.used(req, known, rng.First)
	e.count.local.Add(1, 1, int64(v.To-v.From))
	if req.QueryID != "" {
		e.Profiles.Get(req.QueryID).AddLocal(req.Kind, 1, int64(v.To-v.From))
	}
	return v, true
}

// Hits is Hit for a read of two blocks or more, at most most, that the cache all
// has. It returns none of them when one is missing: what is found then counts for
// the read that fetches the others.
func (e *Engine) Hits(req *block.Read, known *object.Known, most int) []block.View {
	rng, ok := plan.Clamp(e.geometry, req.Offset, req.Size, known.Meta.Size)
	if !ok || rng.Count < 2 || rng.Count > uint64(most) || req.Packed != nil {
		return nil
	}
	for i := range rng.Count {
		if !e.Cache.Has(known.Base.At(rng.First + i)) {
			return nil
		}
	}
	views := make([]block.View, 0, rng.Count)
	for i := range rng.Count {
		lease, ok := e.Cache.Get(known.Base.At(rng.First + i))
		if !ok {
			for i := range views {
				views[i].Lease.Release()
			}
			return nil
		}
		v := block.View{Lease: lease, Source: block.SourceLocal}
		v.From, v.To = e.cut(rng, rng.First+i)
		views = append(views, v)
	}
	for i := range rng.Count {
		e.used(req, known, rng.First+i)
	}
	known.NoteRoute(req.Route, false)
	e.count.local.Add(1, int64(rng.Count), rng.End-rng.Offset)
	if req.QueryID != "" {
		e.Profiles.Get(req.QueryID).AddLocal(req.Kind, int64(rng.Count), rng.End-rng.Offset)
	}
	return views
}

// Fresh returns what the node knows of the object of a read, nil when that is
// nothing or too old for it.
func (e *Engine) Fresh(req *block.Read) *object.Known {
	known := e.objects.Get(object.KeyOf(req.Object, req.Version))
	if known == nil || e.stale(known, req.Version, req.MaxAge) {
		return nil
	}
	return known
}

// Stat returns what the object of a read is. The store is asked, once for all
// who want to know, when the node does not know or req.MaxAge says so. What was
// asked before the call and longer ago than MaxAge does not count, whenever the
// answer comes.
func (e *Engine) Stat(ctx context.Context, req *block.Read) (*object.Known, error) {
	if known := e.Fresh(req); known != nil {
		return known, nil
	}
	key := object.KeyOf(req.Object, req.Version)
	notBefore := time.Now().Add(-max(0, req.MaxAge))
	for range maxAgain {
		f, lead := e.learning.Join(block.BaseID(req.Object, req.Version).At(math.MaxUint64 - 2))
		if lead {
			known := e.objects.Get(key)
			fetch := flight.NewFetch(context.Background())
			fetch.Lead(f)
			if !e.start(func() { e.revalidate(fetch, key, known, f) }) { // ends with the store's answer, or fetch
				f.Land(flight.Result{Err: &block.Error{Op: "stat", Object: req.Object, Err: errClosed}})
			}
		}
		res, err := f.Wait(ctx)
		if err == nil {
			err = res.Err
		}
		f.Leave()
		known := e.objects.Get(key)
		switch {
		case err == nil && known != nil && (req.MaxAge <= 0 || !known.Asked.Before(notBefore)):
			return known, nil
		case err != nil && !errors.Is(err, flight.ErrRetry):
			return nil, err
		}
	}
	return nil, &block.Error{Op: "stat", Object: req.Object, Err: flight.ErrRetry}
}

// Changed notes that somebody has changed the object, or may have: reads that
// begin from now on ask the store, and never a peer, what it is.
func (e *Engine) Changed(o block.Object) {
	if known := e.objects.Change(object.KeyOf(o, ""), time.Now()); known != nil {
		e.count.changed.Add(1)
		e.Cache.DropObject(known.Base, e.geometry.Blocks(known.Meta.Size))
	}
}
