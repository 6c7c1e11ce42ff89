package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// The states of a stream. Who moves it to busy or leaving owns the fields that
// the state guards.
//
//	        Next                error, io.EOF
//	idle ──────────► busy ─────────────────────────► over
//	 │  ◄──────────   │                               ▲
//	 │   piece        │ Close: the request is         │
//	 │                ▼ cancelled                     │
//	 └───────────► leaving ───────────────────────────┘
//	    Close                whoever was in Next, else Close
const (
	idle uint32 = iota
	busy
	leaving
	over
)

// drainTime bounds how long a reply that is given up is read for the sake of
// its connection.
const drainTime = 100 * time.Millisecond

// stream reads one run: one GET for each span of it, or more when attempts
// fail.
type stream struct {
	s      *Store
	object block.Object
	size   int64 // of a block
	// parent is the caller's context. What is read ends with ctx, which ends
	// with parent, or later when a reply is drained.
	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	// detach stops parent from closing the stream.
	detach func() bool

	state atomic.Uint32
	// left is how much of the reply under way has not been read; unknown without
	// one. Close looks at it while Next reads.
	left atomic.Int64

	// The rest belongs to whoever has set the state.

	meta  block.Meta
	rest  block.Run // spans behind the one under way
	retry retrier
	// The span under way: the next block, its offset, and where the span ends.
	index   uint64
	at, end int64
	// buf is the next block's memory, got how much of it is there.
	buf *block.Buf
	got int
	// try and body are the reply under way, or nil.
	try  *attempt
	body io.ReadCloser
	// err is why the stream is over.
	err error
}

const (
	unknown      = math.MaxInt64
	maxBlockSize = 1 << 30
	maxIndex     = math.MaxInt64/maxBlockSize - block.MaxRun
)

// Fetch implements block.Store. It returns when object storage has answered:
// Meta of the stream is valid from then on. Blocks past the end of the object
// are left out; a run that has no others ends at once with io.EOF.
func (s *Store) Fetch(ctx context.Context, f *block.Fetch) (block.Stream, error) {
	st := &stream{s: s, object: f.Object, size: f.BlockSize, meta: f.Meta, rest: f.Run, retry: retrier{s: s}, parent: ctx}
	// No offset of the run, and none behind it, may overflow.
	if f.BlockSize <= 0 || f.BlockSize > maxBlockSize || f.Run.Want == 0 || f.Run.First > maxIndex {
		return nil, st.wrap(fmt.Errorf("%w: %v of %d bytes each", block.ErrRange, f.Run, f.BlockSize))
	}
	if err := context.Cause(ctx); err != nil {
		return nil, st.wrap(err) // Close would come in a goroutine of its own, perhaps behind the GET
	}
	st.left.Store(unknown)
	st.state.Store(busy)
	st.ctx, st.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	st.detach = context.AfterFunc(ctx, st.Close)
	if err := st.settle(nil, st.prepare()); err != nil && err != io.EOF {
		return nil, err
	}
	return st, nil
}

// Meta implements block.Stream.
func (st *stream) Meta() block.Meta { return st.meta }

// Next implements block.Stream.
func (st *stream) Next() (block.Piece, error) {
	if !st.state.CompareAndSwap(idle, busy) {
		if st.state.Load() == over {
			return block.Piece{}, st.err
		}
		return block.Piece{}, st.wrap(st.closed())
	}
	piece, err := st.read()
	if err = st.settle(piece.Buf, err); err != nil {
		return block.Piece{}, err
	}
	return piece, nil
}

// settle ends what Next has done: back to idle, or over.
func (st *stream) settle(buf *block.Buf, err error) error {
	if err == nil {
		if st.state.CompareAndSwap(busy, idle) {
			return nil
		}
		err = st.closed()
	}
	if buf != nil {
		st.s.count.discarded.Add(uint64(len(buf.Bytes())))
		buf.Release()
	}
	st.finish(err)
	return st.err
}

// Close implements block.Stream. A reply of which little is missing is read to
// its end for a moment, so that its connection can be used again; any other
// is cut off, and its connection with it.
func (st *stream) Close() {
	for {
		switch st.state.Load() {
		case idle:
			if st.state.CompareAndSwap(idle, leaving) {
				st.finish(st.closed())
				return
			}
		case busy:
			if !st.state.CompareAndSwap(busy, leaving) {
				continue
			}
			if st.left.Load() > st.s.opts.DrainBytes {
				st.cancel(st.closed())
			} else {
				time.AfterFunc(drainTime, func() { st.cancel(errClosed) })
			}
			return
		default:
			return
		}
	}
}

// closed is the error of a stream that was given up: the parent's, if it was
// the parent.
func (st *stream) closed() error {
	err, cause := st.parent.Err(), context.Cause(st.parent)
	switch {
	case err == nil:
		return errClosed
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (st *stream) wrap(err error) error {
	return &block.Error{Op: "get", Object: st.object, Source: block.SourceStore, Err: err}
}

// finish gives everything back and ends the stream with err.
func (st *stream) finish(err error) {
	st.detach()
	if st.buf != nil {
		st.s.count.discarded.Add(uint64(st.got))
		st.buf.Release()
		st.buf = nil
	}
	if left := st.left.Load(); st.body != nil && left <= st.s.opts.DrainBytes && left > 0 {
		go st.drain(st.try, st.body, left) // ends with the reply, or after drainTime
	} else {
		st.endReply()
		st.cancel(errClosed)
	}
	st.err = err
	if err != io.EOF {
		st.err = st.wrap(err)
	}
	st.state.Store(over)
}

// drain reads the rest of a reply that nobody needs.
func (st *stream) drain(try *attempt, body io.ReadCloser, left int64) {
	timer := time.AfterFunc(drainTime, func() { st.cancel(errClosed) })
	n, err := io.CopyN(io.Discard, body, left)
	st.s.count.discarded.Add(uint64(n))
	if err != nil {
		st.s.count.aborted.Add(1)
	}
	_ = body.Close()
	timer.Stop()
	try.end()
	st.cancel(errClosed)
}

// endReply ends the reply under way. If bytes of it are missing its connection
// is lost.
func (st *stream) endReply() {
	if st.try == nil {
		return
	}
	if st.left.Swap(unknown) > 0 {
		st.s.count.aborted.Add(1)
	}
	if st.body != nil {
		_ = st.body.Close()
	}
	st.try.end()
	st.try, st.body = nil, nil
}

// read reads the next block.
func (st *stream) read() (block.Piece, error) {
	for {
		if err := st.prepare(); err != nil {
			return block.Piece{}, err
		}
		err := st.fill()
		if err == nil {
			break
		}
		fail := classify(st.try.ctx, err)
		st.endReply()
		if err := st.retry.again(st.ctx, fail); err != nil {
			return block.Piece{}, err
		}
	}
	piece := block.Piece{Index: st.index, Status: block.StatusData, Buf: st.buf}
	piece.Buf.Seal()
	st.s.count.bytes.Add(uint64(st.got))
	st.index++
	st.at += int64(st.got)
	st.buf, st.got = nil, 0
	if st.at >= st.end {
		st.endReply() // others wait for our place
	}
	return piece, nil
}

// prepare sees to it that a reply with the next block is under way. It returns
// io.EOF when there is no next block.
func (st *stream) prepare() error {
	for st.at >= st.end || st.try == nil {
		if st.at >= st.end {
			st.endReply()
			if !st.nextSpan() {
				return io.EOF
			}
			continue
		}
		if fail := st.open(); fail.err != nil {
			st.endReply()
			if err := st.retry.again(st.ctx, fail); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextSpan goes on to the next neighbours that are wanted and exist.
func (st *stream) nextSpan() bool {
	var span block.Run
	if span, st.rest = st.rest.Span(); span.Want == 0 {
		return false
	}
	geometry := block.Geometry(st.size)
	st.index, st.at = span.First, geometry.Offset(span.First)
	st.end = geometry.Offset(span.First + uint64(span.Count()))
	if st.meta.Size >= 0 {
		st.end = min(st.end, st.meta.Size)
	}
	st.retry.tried = 0
	return st.at < st.end
}

// open makes one attempt to get a reply from the first missing byte on. A
// failed one is the caller's to end.
func (st *stream) open() failure {
	// Without memory for its first block the request would be sent in vain.
	if err := st.lend(); err != nil {
		return failure{ReasonBusy, err}
	}
	try, err := st.s.begin(st.ctx)
	if err != nil {
		return classify(st.ctx, err)
	}
	st.try = try
	st.retry.tried++
	w := want{from: st.at + int64(st.got), to: st.end, known: st.meta}
	body, h, err := try.get(st.object, w)
	if err != nil {
		status := statusOf(err)
		if status > 0 {
			st.left.Store(0) // an error is read whole, its connection lives
		}
		if status == http.StatusRequestedRangeNotSatisfiable {
			st.endReply()
			return st.pastEnd(w.from)
		}
		return classify(try.ctx, err)
	}
	st.body = body
	try.watchdog.Stop()
	meta, to, err := w.check(h)
	if err != nil {
		return classify(try.ctx, err)
	}
	st.left.Store(to - w.from)
	st.learn(meta)
	return failure{}
}

// pastEnd finds out what an object is of which object storage says that it has
// no byte from on: an empty one, as a rule.
func (st *stream) pastEnd(from int64) failure {
	meta, fail := st.s.headOnce(st.ctx, st.object)
	if fail.err != nil {
		return fail
	}
	if st.meta.Version == block.Immutable {
		meta.Version = block.Immutable
	}
	if err := sameObject(st.meta, meta); err != nil {
		return failure{ReasonChanged, err}
	}
	if meta.Size > from {
		return failure{ReasonReply, fmt.Errorf("%w: no byte %d in an object of %d", errReply, from, meta.Size)}
	}
	st.learn(meta)
	return failure{}
}

// learn takes over what a reply has told. The first one settles the version:
// later ones are held against it.
func (st *stream) learn(meta block.Meta) {
	st.meta = meta
	st.end = min(st.end, meta.Size)
	if rest := max(st.end-st.at, 0); int64(len(st.buf.Bytes())) > rest {
		st.buf.Truncate(int(rest))
	}
}

// lend gets memory for the next block.
func (st *stream) lend() error {
	if st.buf != nil {
		return nil
	}
	buf, err := st.s.opts.Buffers.Get(int(min(st.size, st.end-st.at)))
	st.buf = buf
	return err
}

// fill reads the next block.
func (st *stream) fill() error {
	if err := st.lend(); err != nil {
		return err
	}
	st.try.progress()
	defer st.try.watchdog.Stop() // between two blocks the reader takes its time
	for b := st.buf.Bytes(); st.got < len(b); {
		n, err := st.body.Read(b[st.got:])
		st.got += n
		st.left.Add(-int64(n))
		switch {
		case st.got == len(b):
		case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("%w: %d bytes are missing", errShort, st.left.Load())
		case err != nil:
			return fmt.Errorf("%w: %w", errShort, err)
		case n > 0:
			st.try.progress()
		}
	}
	return nil
}
