package engine

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"headstart/engine/block"
	"headstart/engine/flight"
	"headstart/engine/object"
	"headstart/engine/race"
	"headstart/engine/timeline"
)

// get is the store leg of a task that reads object storage itself.
func (t *task) get(ctx context.Context, run block.Run) (block.Stream, error) {
	req := *t.req
	req.Run = run
	t.e.count.storeReads.Add(1)
	began := time.Now()
	trace := t.mode.trace
	step := trace.Start(timeline.Store, block.Addr{}, run)
	stream, err := t.e.Origin.Fetch(ctx, &req)
	if err != nil {
		trace.End(step, ended(err), 0)
		return nil, err
	}
	return &countedStream{
		Stream: stream, bytes: &t.e.count.storeBytes, began: began, e: t.e, trace: trace, step: step,
	}, nil
}

// shareGets is the store leg of a race: it joins the GETs that are under way
// for its blocks, whoever started them, and starts those that are missing.
func (t *task) shareGets(twin bool) race.Open {
	return func(ctx context.Context, run block.Run) (block.Stream, error) {
		s := &flightStream{ctx: ctx, t: t, twin: twin, known: t.known}
		s.join(run)
		return s, nil
	}
}

// shareLearning is the store leg of a race about an object that nothing is known
// of: it learns what the object is as reads without peers do, with whoever does
// so at the moment, and then joins the GETs of its blocks.
func (t *task) shareLearning(ctx context.Context, run block.Run) (block.Stream, error) {
	read := block.Read{
		Object: t.req.Object, Version: t.req.Meta.Version, Route: t.req.Route,
		Offset: t.e.geometry.Offset(run.First), Size: int64(run.Count()) * t.e.BlockSize,
		Kind: t.req.Kind, Queue: t.req.Queue, QueryID: t.req.QueryID, NoPeer: true, ForPeer: t.req.ForPeer,
	}
	// It has no timeline of its own: what it starts goes into this task's.
	alone := mode{flights: t.e.gets, query: t.mode.query, trace: t.mode.trace}
	r := &Reader{e: t.e, req: read, query: t.mode.query, mode: alone}
	known, first, err := t.e.resolve(ctx, r)
	if err != nil {
		return nil, err
	}
	s := &flightStream{ctx: ctx, t: t, known: known}
	if first.lease.Valid() && run.Has(first.index) {
		s.learned = block.Piece{Index: first.index, Status: block.StatusData, Buf: first.result.Buf.Retain(), Shared: first.result.Shared}
		run = run.Without(first.index)
	}
	first.lease.Release()
	s.join(run)
	return s, nil
}

// flightStream waits for flights of Engine.gets. They may belong to several
// GETs: what one of them has brought does not wait for another one, and is not
// lost when that fails.
type flightStream struct {
	ctx   context.Context
	t     *task
	twin  bool
	known *object.Known
	// learned is a block that came with the word on what the object is.
	learned block.Piece
	waiting []*flight.Flight
	again   int
	// failed is why the first flight that failed did; it ends the stream behind
	// the other ones.
	failed error
}

func (s *flightStream) join(run block.Run) {
	e := s.t.e
	var led []*flight.Flight
	for i := range uint64(block.MaxRun) {
		index := run.First + i
		if !run.Has(index) || e.geometry.Len(index, s.known.Meta.Size) == 0 {
			continue
		}
		f, lead := e.gets.Join(s.known.Base.At(index))
		if lead {
			led = append(led, f)
		}
		s.waiting = append(s.waiting, f)
	}
	if len(led) > 0 {
		req := *s.t.req
		req.Meta = s.known.Meta
		e.fetch(mode{flights: e.gets, query: s.t.mode.query, trace: s.t.mode.trace, twin: s.twin, asked: s.t.mode.asked}, &req, s.known, led)
	}
}

// Next implements block.Stream.
func (s *flightStream) Next() (block.Piece, error) {
	if piece := s.learned; piece.Buf != nil {
		s.learned = block.Piece{}
		return piece, nil
	}
	for len(s.waiting) > 0 {
		i, err := s.first()
		if err != nil {
			return block.Piece{}, err
		}
		f := s.waiting[i]
		res, err := f.Wait(s.ctx)
		if err != nil {
			return block.Piece{}, err
		}
		s.waiting = slices.Delete(s.waiting, i, i+1)
		if res.Err == nil {
			res.Buf.Retain()
		}
		f.Leave()
		switch {
		case res.Err == nil:
			return block.Piece{Index: f.ID().Index, Status: block.StatusData, Buf: res.Buf, Shared: res.Shared}, nil
		case errors.Is(res.Err, flight.ErrRetry) && s.again < maxAgain:
			s.again++
			s.join(block.NewRun(f.ID().Index, 1))
		case s.failed == nil:
			s.failed = res.Err
		}
	}
	if s.failed != nil {
		return block.Piece{}, s.failed
	}
	return block.Piece{}, io.EOF
}

// first waits until one of the flights is over, and returns which.
func (s *flightStream) first() (int, error) {
	if len(s.waiting) == 1 {
		return 0, nil // Wait does
	}
	over := make([]reflect.SelectCase, len(s.waiting)+1)
	for i, f := range s.waiting {
		over[i] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(f.Done())}
	}
	over[len(s.waiting)] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.ctx.Done())}
	i, _, _ := reflect.Select(over)
	if i == len(s.waiting) {
		return 0, context.Cause(s.ctx)
	}
	return i, nil
}

// Meta implements block.Stream.
func (s *flightStream) Meta() block.Meta { return s.known.Meta }

// Close implements block.Stream. It is called by the goroutine that calls Next.
func (s *flightStream) Close() {
	if s.learned.Buf != nil {
		s.t.waste(s.learned, int64(len(s.learned.Buf.Bytes())))
		s.learned.Buf.Release()
		s.learned = block.Piece{}
	}
	for _, f := range s.waiting {
		s.t.e.count.wastedBytes.Add(f.Leave()) // with a block that the race did not wait for
	}
	s.waiting = nil
}

// countedStream counts the bytes that come from the wire.
type countedStream struct {
	block.Stream
	bytes *atomic.Int64
	// began is when a GET did whose first block has not come; zero means that
	// nobody asks how long it takes.
	began time.Time
	e     *Engine
	// trace has the GET as step, and is nil for a call to a peer.
	trace *timeline.Read
	step  timeline.ID
}

// Next implements block.Stream.
func (s *countedStream) Next() (block.Piece, error) {
	p, err := s.Stream.Next()
	if err == nil && p.Buf != nil {
		s.bytes.Add(int64(len(p.Buf.Bytes())))
		if !s.began.IsZero() {
			s.e.observeGet(s.began)
			s.began = time.Time{}
		}
		s.trace.Got(s.step, len(p.Buf.Bytes()))
	}
	if err != nil {
		s.trace.End(s.step, ended(err), 0)
	}
	return p, err
}

// Close implements block.Stream.
func (s *countedStream) Close() {
	s.Stream.Close()
	s.trace.End(s.step, "given up", 0)
}

// Waited implements block.Queued.
func (s *countedStream) Waited() time.Duration {
	if q, ok := s.Stream.(block.Queued); ok {
		return q.Waited()
	}
	return 0
}

// ended says in a timeline how a GET has ended.
func ended(err error) string {
	switch {
	case err == io.EOF:
		return "all of it"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return err.Error()
}
