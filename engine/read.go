package engine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"headstart/engine/block"
	"headstart/engine/flight"
	"headstart/engine/object"
	"headstart/engine/plan"
	"headstart/engine/profile"
	"headstart/engine/timeline"
)

// maxAgain bounds how often one read looks again for a block whose fetch ended
// without it, and how often it starts over on a changed object.
const maxAgain = 3

// Read fills dst from req.Object, from req.Offset on; req.Size is taken from
// dst. It returns how many bytes it has read, less than len(dst) only at the
// end of the object or with an error, and where the first of them came from.
// All of them are of one version: a read that meets a change starts over.
func (e *Engine) Read(ctx context.Context, req *block.Read, dst []byte) (int, block.Source, error) {
	want := *req
	want.Size = int64(len(dst))
	if err := unpack(&want); err != nil {
		e.count.reads.Add(1)
		e.count.readErrors.Add(1)
		return 0, block.SourceNone, err
	}
	for again := 0; ; again++ {
		n, src, err := e.readOnce(ctx, &want, dst, again == 0)
		if err == nil || again == maxAgain || !errors.Is(err, block.ErrChanged) {
			if err != nil {
				e.count.readErrors.Add(1)
			}
			return n, src, err
		}
		want.NoPeer = true // a peer may still hold what has changed
	}
}

func (e *Engine) readOnce(ctx context.Context, req *block.Read, dst []byte, first bool) (int, block.Source, error) {
	n, known, done := e.readLocal(req, dst, first)
	src := block.SourceNone
	if n > 0 {
		src = block.SourceLocal
	}
	if done {
		return n, src, nil
	}
	r, err := e.open(ctx, req, n, known)
	if err != nil {
		return n, src, err
	}
	defer func() { r.Close() }()
	lost := -1 // where bytes vanished last
	for {
		v, err := r.Next(ctx)
		if err == io.EOF {
			return n, src, nil
		}
		if err != nil {
			return n, src, err
		}
		if src == block.SourceNone {
			src = v.Source
		}
		want := v.To - v.From
		k, err := v.Lease.CopyAt(dst[n:n+want], v.From)
		v.Lease.Release()
		if err == nil && k == want {
			n += k
			continue
		}
		// The disk has lost the block under us and the cache has dropped it: fetch it.
		if lost == n {
			return n, src, r.fail(io.ErrUnexpectedEOF)
		}
		lost = n
		again, err := e.open(ctx, req, n, r.known)
		if err != nil {
			return n, src, err
		}
		r.Close()
		r = again
	}
}

// cut returns the bytes of block index that lie in rng.
func (e *Engine) cut(rng plan.Range, index uint64) (from, to int) {
	start := e.geometry.Offset(index)
	return int(max(rng.Offset-start, 0)), int(min(rng.End-start, int64(e.geometry)))
}

// Reader hands out one read block by block, in order. It is used by one
// goroutine.
type Reader struct {
	e     *Engine
	req   block.Read
	query *profile.Query
	// trace begins with the first miss.
	trace *timeline.Read
	known *object.Known
	rng   plan.Range
	// next is the block to hand out, ahead the first one not asked for yet; ring
	// holds those in between.
	next, ahead uint64
	ring        []slot
	// mode is decided by the first miss: hits do no candidate work (S01). Until
	// then its flights are nil.
	mode  mode
	given int64
	// again counts the looks for the block at the head of the ring.
	again int
	// opened: the read was started by Open, which has no other place to count that
	// it fails.
	opened bool
	// learned is the run that this read fetched to find out what the object is,
	// origin where its first block came from: all of it was fetched for this read.
	learned block.Run
	origin  flight.Result
}

// slot is one block of a read: in hand, or on its way. A block that was not in
// the cache keeps the result that brought it, for the books.
type slot struct {
	index  uint64
	lease  block.Lease
	flight *flight.Flight
	result flight.Result
	lead   bool
}

// Open starts a read that hands out views of blocks. The caller closes the
// Reader.
func (e *Engine) Open(ctx context.Context, req *block.Read) (*Reader, error) {
	e.count.reads.Add(1)
	want := *req
	err := unpack(&want)
	var r *Reader
	if err == nil {
		r, err = e.open(ctx, &want, 0, nil)
	}
	if err != nil {
		e.count.readErrors.Add(1)
		return nil, err
	}
	r.opened = true
	return r, nil
}

// open starts a read whose first skip bytes have been read already, of the
// version that known names.
func (e *Engine) open(ctx context.Context, req *block.Read, skip int, known *object.Known) (*Reader, error) {
	r := &Reader{e: e, req: *req, query: e.Profiles.Get(req.QueryID), known: known, given: int64(skip)}
	if err := r.resolve(ctx); err != nil {
		r.end(err)
		return nil, err
	}
	return r, nil
}

// resolve finds out what the object is and where the read stands in it.
func (r *Reader) resolve(ctx context.Context) error {
	if r.req.Size == 0 {
		return nil
	}
	if r.req.Offset < 0 {
		return r.fail(fmt.Errorf("offset %d: %w", r.req.Offset, block.ErrRange))
	}
	known, first, err := r.e.resolve(ctx, r)
	if err != nil {
		return err
	}
	if r.given > 0 && known.Base != r.known.Base {
		first.lease.Release()
		return r.fail(block.ErrChanged)
	}
	rng, ok := r.e.clamp(&r.req, r.given, known.Meta.Size)
	if !ok {
		first.lease.Release()
		return r.fail(fmt.Errorf("offset %d of an object of %d bytes: %w", r.req.Offset, known.Meta.Size, block.ErrRange))
	}
	known.NoteRoute(r.req.Route, r.req.Packed != nil)
	r.known, r.rng, r.origin = known, rng, first.result
	r.origin.Buf = nil // the slot's
	r.next, r.ahead = rng.First, rng.First
	if first.lease.Valid() && first.index == rng.First && rng.Count > 0 {
		r.ring = append(r.ring, first)
		r.ahead++
	} else {
		first.lease.Release()
	}
	return nil
}

func (r *Reader) fail(err error) error {
	return &block.Error{Op: "read", Object: r.req.Object, Err: err}
}

// Meta returns what is known of the object.
func (r *Reader) Meta() block.Meta {
	if r.known == nil {
		return block.Meta{}
	}
	return r.known.Meta
}

// Len returns how many bytes the read has, clamped to the object.
func (r *Reader) Len() int64 { return r.rng.End - r.rng.Offset }

// Next returns the next view, io.EOF behind the last one. The caller releases
// the view's lease. An error ends the read: bytes handed out before are right.
func (r *Reader) Next(ctx context.Context) (block.View, error) {
	for r.next < r.rng.First+r.rng.Count {
		r.ask()
		view, err := r.receive(ctx)
		if err == nil {
			return view, nil
		}
		if ctx.Err() == nil && errors.Is(err, flight.ErrRetry) && r.again < maxAgain {
			r.again++
			r.retry()
			continue
		}
		r.drop()
		switch {
		case ctx.Err() != nil && errors.Is(err, flight.ErrRetry):
			err = context.Cause(ctx)
		case ctx.Err() != nil:
		case errors.Is(err, flight.ErrRetry):
			err = r.fail(err)
		case r.again >= maxAgain:
		case errors.Is(err, block.ErrChanged) && r.given == 0:
			// Nothing has been handed out: the whole read may be of the new version. A
			// peer may still hold the old one, so object storage tells.
			r.again++
			r.forget()
			r.req.NoPeer, r.mode = true, mode{}
			if err = r.resolve(ctx); err == nil {
				continue
			}
		case errors.Is(err, block.ErrChanged):
			r.forget()
		case r.mode.spare != nil && !errors.Is(err, block.ErrDenied):
			r.mode = *r.mode.spare
			continue
		}
		if r.opened {
			r.opened = false // counted once
			r.e.count.readErrors.Add(1)
		}
		r.end(err)
		return block.View{}, err
	}
	return block.View{}, io.EOF
}

// receive waits for the block at the head of the ring.
func (r *Reader) receive(ctx context.Context) (block.View, error) {
	s := &r.ring[0]
	if s.flight != nil {
		res, err := r.wait(ctx, s.flight, s.lead, s.index)
		if err == nil {
			err = res.Err
		}
		if err != nil {
			return block.View{}, err
		}
		s.lease, s.result = res.Buf.Retain().Lease(), res
		s.flight.Leave()
		s.flight = nil
	}
	v := block.View{Lease: s.lease, Source: s.result.Source}
	v.From, v.To = r.e.cut(r.rng, s.index)
	r.book(s, v.To-v.From)
	s.lease = block.Lease{}
	r.ring = r.ring[1:]
	r.next++
	r.again = 0
	r.given += int64(v.To - v.From)
	return v, nil
}

// retry asks anew for the block at the head of the ring, whose fetch has ended
// without it. The others are on their way.
func (r *Reader) retry() {
	s := &r.ring[0]
	s.flight.Leave()
	fresh, leads := r.find(s.index)
	*s = fresh
	if leads {
		r.fetch([]*flight.Flight{fresh.flight})
	}
}

// book counts a block of which the reader gets n bytes. A fetched block moved
// once, so only the reader that started the fetch counts its bytes.
func (r *Reader) book(s *slot, n int) {
	res := &s.result
	r.e.count.addBlock(res.Source, n, res.Source != block.SourceLocal && !s.lead)
	moved := int64(0)
	if s.lead {
		moved = int64(s.lease.Len())
	}
	switch res.Source {
	case block.SourceLocal:
		r.query.AddLocal(r.req.Kind, 1, int64(n))
	case block.SourcePeer:
		r.query.AddPeer(r.req.Kind, res.SameGroup, res.Peer, moved, res.Took)
	default:
		r.query.AddStore(r.req.Kind, moved, res.Took)
	}
}

// ask fills the ring: blocks that the cache has are leased, the others joined
// or led. It asks for more only when half the window is free, so that a long
// read goes in runs and not block by block.
func (r *Reader) ask() {
	window := uint64(r.e.Window)
	if r.req.Window > 0 {
		window = min(window, uint64(r.req.Window))
	}
	if uint64(len(r.ring)) > window/2 {
		return
	}
	end := min(r.rng.First+r.rng.Count, r.next+window)
	var led []*flight.Flight
	for ; r.ahead < end; r.ahead++ {
		s, leads := r.find(r.ahead)
		if leads {
			led = append(led, s.flight)
		}
		r.ring = append(r.ring, s)
	}
	if len(led) > 0 {
		r.fetch(led)
	}
}

func (r *Reader) fetch(led []*flight.Flight) {
	req := r.request(block.Run{}, r.known.Meta)
	r.e.fetch(r.mode, req, r.known, led)
	if !r.mode.looking {
		r.e.foresee(r.mode, req, r.known)
	}
}

// find gets a block from the cache, or a share in its fetch, which the read has
// to start when it leads.
func (r *Reader) find(index uint64) (s slot, leads bool) {
	id := r.known.Base.At(index)
	get := r.e.Cache.Get
	if r.req.ForPeer {
		get = r.e.Cache.Peek
	}
	if lease, ok := get(id); ok {
		s = slot{index: index, lease: lease, result: flight.Result{Source: block.SourceLocal}}
	} else if s = r.join(id); s.lead {
		leads = true
	}
	if !leads {
		r.e.used(&r.req, r.known, index)
	}
	if r.learned.Has(index) && r.origin.Source != block.SourceNone {
		s.lead = true
		if s.result.Source == block.SourceLocal {
			s.result = r.origin
		}
	}
	return s, leads
}

// join makes the read a waiter of block id, or its leader.
func (r *Reader) join(id block.ID) slot {
	if r.mode.flights == nil {
		r.begin()
		r.mode = r.e.decide(&r.req, r.query, r.trace)
	}
	f, lead := r.mode.flights.Join(id)
	if lead {
		// The block may have landed between the look into the cache and Join.
		if lease, ok := r.e.Cache.Peek(id); ok {
			f.Land(flight.Result{Err: flight.ErrRetry})
			f.Leave()
			return slot{index: id.Index, lease: lease, result: flight.Result{Source: block.SourceLocal}}
		}
	}
	return slot{index: id.Index, flight: f, lead: lead}
}

// begin begins the timeline of a read that has met its first miss.
func (r *Reader) begin() {
	if r.trace != nil || r.mode.flights != nil {
		return
	}
	hits := 0
	if r.rng.Count > 0 {
		hits = int(r.next-uint64(r.req.Offset/r.e.BlockSize)) + len(r.ring)
	}
	r.trace = r.e.Timelines.Begin(&r.req, hits)
}

// wait waits for a flight of block index.
func (r *Reader) wait(ctx context.Context, f *flight.Flight, lead bool, index uint64) (flight.Result, error) {
	at := r.trace.Now()
	res, err := f.Wait(ctx)
	r.trace.Waited(at, index, !lead)
	return res, err
}

// end ends the timeline, once.
func (r *Reader) end(err error) {
	r.e.Timelines.End(r.trace, err)
	r.trace = nil
}

// Close gives up what has not been handed out.
func (r *Reader) Close() {
	r.drop()
	r.end(nil)
}

// drop gives up what has been asked for.
func (r *Reader) drop() {
	for i := range r.ring {
		r.ring[i].lease.Release()
		if r.ring[i].flight != nil {
			r.e.count.wastedBytes.Add(r.ring[i].flight.Leave())
		}
	}
	r.ring, r.ahead = r.ring[:0], r.next
}

// forget drops what the node knows of a version that is gone.
func (r *Reader) forget() {
	r.e.count.changed.Add(1)
	r.e.forget(object.KeyOf(r.req.Object, r.req.Version), r.known)
}

// request returns a fetch of a run for this read.
func (r *Reader) request(run block.Run, meta block.Meta) *block.Fetch {
	return &block.Fetch{
		Object: r.req.Object, Meta: meta, BlockSize: r.e.BlockSize, Run: run,
		Route: r.req.Route, Kind: r.req.Kind, Queue: r.req.Queue, QueryID: r.req.QueryID, ForPeer: r.req.ForPeer,
		Trace: r.trace.Traceparent(r.req.Trace),
	}
}
