package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"headstart/engine/block"
	"headstart/engine/flight"
	"headstart/engine/object"
	"headstart/engine/plan"
	"headstart/engine/timeline"
)

// stale reports that an object which may change was learned too long ago for a
// read of that version with that MaxAge.
func (e *Engine) stale(known *object.Known, version block.Version, maxAge time.Duration) bool {
	if version == block.Immutable {
		return false
	}
	if maxAge == 0 {
		ms := e.Settings.ExternalRevalidateMS.Load()
		return ms >= 0 && time.Since(known.Learned) >= time.Duration(ms)*time.Millisecond
	}
	return maxAge > 0 && time.Since(known.Learned) >= maxAge
}

// Current returns what the node knows of the object as it is now, nil when that
// is nothing or too old to be relied on.
func (e *Engine) Current(o block.Object, version block.Version) *object.Known {
	known := e.objects.Get(object.KeyOf(o, version))
	if known == nil || e.stale(known, version, 0) {
		return nil
	}
	return known
}

// resolve returns what the object is. When the node does not know, the first
// run of the read is fetched without knowing, once for all readers; first is
// then a block of it, for the reader to use or release.
func (e *Engine) resolve(ctx context.Context, r *Reader) (known *object.Known, first slot, err error) {
	key := object.KeyOf(r.req.Object, r.req.Version)
	for again := 0; ; again++ {
		// A peer may still hold what has changed.
		r.req.NoPeer = r.req.NoPeer || e.objects.Changed(key)
		known = e.objects.Get(key)
		switch {
		case known != nil && !e.stale(known, r.req.Version, r.req.MaxAge):
			return known, slot{}, nil
		case again > maxAgain:
			return nil, slot{}, r.fail(flight.ErrRetry)
		}
		r.begin()
		f, lead := e.learning.Join(learningID(&r.req))
		if lead {
			e.startLearning(r, key, known, f)
		}
		res, err := r.wait(ctx, f, lead, uint64(max(r.req.Offset, 0)/e.BlockSize))
		if err == nil {
			err = res.Err
		}
		if err == nil && res.Buf != nil {
			first = slot{index: res.Index, lease: res.Buf.Retain().Lease(), result: res, lead: lead}
		}
		e.count.wastedBytes.Add(f.Leave())
		if known = e.objects.Get(key); known != nil && err == nil {
			if first.lease.Valid() && first.result.Base != known.Base { // younger news came in between
				first.lease.Release()
				first = slot{}
			}
			return known, first, nil
		}
		first.lease.Release()
		first = slot{}
		switch {
		case err == nil, errors.Is(err, flight.ErrRetry):
		case r.mode.spare != nil && !errors.Is(err, block.ErrDenied):
			r.mode = *r.mode.spare // object storage has failed: ask those that are slow
		default:
			return nil, slot{}, err
		}
	}
}

// learningID names the flight that finds out what an object is. It is no block:
// no object has as many. Reads that keep away from peers don't wait for those
// that don't, or two nodes could wait for each other.
func learningID(req *block.Read) block.ID {
	id := block.BaseID(req.Object, req.Version)
	if req.NoPeer {
		return id.At(math.MaxUint64 - 1)
	}
	return id.At(math.MaxUint64)
}

// startLearning starts the work behind a learning flight: a look at the store's
// headers when the object is known but old, else a fetch of the read's first run.
func (e *Engine) startLearning(r *Reader, key object.Key, known *object.Known, f *flight.Flight) {
	if known != nil {
		fetch := flight.NewFetch(context.Background())
		fetch.Lead(f)
		trace := r.trace
		step := trace.Start(timeline.Check, block.Addr{}, block.Run{})
		if !e.start(func() {
			e.revalidate(fetch, key, known, f)
			trace.End(step, "", 0)
		}) { // ends with the store's answer, or fetch
			f.Land(flight.Result{Err: r.fail(errClosed)})
		}
		return
	}
	most := min(int(e.Settings.ObjectStorageGetMaxBlocks.Load()), block.MaxRun)
	run := plan.Learn(e.geometry, r.req.Offset, r.req.Size, most)
	if r.mode.flights == nil {
		r.mode = e.decide(&r.req, r.query, r.trace)
	}
	r.learned = run
	t := e.newTask(r.mode, r.request(run, block.UnknownMeta(r.req.Version)), nil)
	t.fetch.Lead(f)
	t.learning = f
	t.run()
}

// revalidateTimeout is how long readers of a cached object wait for the store's
// word on whether it still is the one.
const revalidateTimeout = time.Second

// revalidate asks the store whether the object still is what we know, or what it
// is when known is nil. A store that does not answer leaves the old version in
// use: it is whole, if old.
func (e *Engine) revalidate(fetch *flight.Fetch, key object.Key, known *object.Known, f *flight.Flight) {
	defer fetch.End()
	defer context.AfterFunc(e.ctx, fetch.End)()
	result := flight.Result{Err: flight.ErrRetry}
	defer func() { f.Land(result) }()
	ctx, cancel := fetch.Context(), context.CancelFunc(func() {})
	if known != nil {
		ctx, cancel = context.WithTimeout(ctx, revalidateTimeout)
	}
	defer cancel()
	asked := time.Now()
	meta, err := e.head(ctx, key.Object)
	switch {
	case e.ctx.Err() != nil:
		result.Err = &block.Error{Op: "read", Object: key.Object, Err: errClosed}
		return // and not what is known: nobody has said that it still holds
	case fetch.Context().Err() != nil:
		return // nobody waits any more
	case known == nil && err != nil:
		result.Err = err
		return
	case errors.Is(err, block.ErrNotFound), errors.Is(err, block.ErrDenied):
		e.forget(key, known)
		result.Err = err
		return
	case err != nil && e.objects.Get(key) != known:
		return // news came in between: ask again
	case err != nil:
		e.count.staleMetaUsed.Add(1)
		meta = known.Meta
	case known != nil && meta.Version != known.Meta.Version:
		e.count.changed.Add(1)
		e.Cache.DropObject(known.Base, e.geometry.Blocks(known.Meta.Size))
	}
	e.objects.LearnAsked(key, meta, asked, time.Now())
	result.Err = nil
}

// head asks the store what an object is; a panic is no answer.
func (e *Engine) head(ctx context.Context, o block.Object) (meta block.Meta, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			e.panicked(o, err)
		}
	}()
	return e.Origin.Head(ctx, o)
}

// learn takes the first word of a reply on an object that nothing was known of:
// what it is. The rest of the run becomes flights that any reader can join, and
// whoever waited to learn goes on, with the first block if there is one.
func (t *task) learn(meta block.Meta, piece block.Piece, res flight.Result) bool {
	if !meta.Known() {
		return false
	}
	// A peer does not say how long ago it has learned, and a chain of peers could
	// pass on for ever what has changed: this read goes by it, the next one looks.
	asked, learned := time.Time{}, time.Time{}
	if t.direct || res.Source == block.SourceStore {
		asked, learned = t.started, time.Now()
	}
	t.known = t.e.objects.LearnAsked(object.KeyOf(t.req.Object, t.req.Meta.Version), meta, asked, learned)
	table := t.mode.flights
	for i := range uint64(block.MaxRun) {
		index := t.req.Run.First + i
		if !t.req.Run.Has(index) || index == piece.Index && piece.Buf != nil ||
			t.e.geometry.Len(index, meta.Size) == 0 {
			continue
		}
		// Where somebody else fetches the block, our copy is spare.
		t.flights[i] = table.Carry(t.known.Base.At(index), t.fetch)
	}
	t.e.growth.Grow(t.known.Base, t.req.Run, 0, 1, time.Since(t.e.began))
	t.e.foresee(t.mode, t.req, t.known)
	t.mode.looking = false
	res.Base = t.known.Base
	if piece.Buf != nil {
		t.keep(piece)
		res.Buf = piece.Buf.Retain()
	}
	t.learning.Land(res)
	t.learning = nil
	return true
}

// forget drops an object's version that is gone, with its blocks.
func (e *Engine) forget(key object.Key, known *object.Known) {
	e.objects.Forget(key, known)
	e.Cache.DropObject(known.Base, e.geometry.Blocks(known.Meta.Size))
}
