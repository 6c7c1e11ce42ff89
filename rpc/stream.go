package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

const (
	// cancelGrace is how long a cancelled call may take to be answered, and
	// drainGrace how long the rest of a reply that is under way, before the
	// connection is cut.
	cancelGrace = 200 * time.Millisecond
	drainGrace  = 50 * time.Millisecond
)

var errClosed = errors.New("stream is closed")

// stream is one FetchBlocks call. It runs on the coroutine of its connection,
// up to the next piece each time that the caller asks for one: on the caller's
// own goroutine, that is, which waits for the socket and for nothing else. When
// the caller gives up, the stream goes on behind its back until the reply has
// ended or the connection is cut.
//
//	              Next                give up: the read is interrupted
//	waiting ◀──────────────▶ stepping ──────────────▶ orphaned
//	   └──────give up──────────▶ orphaned                │
//	               stepping, orphaned ──the reply ends───┴──▶ ended
//
// Whoever steps owns connection and buffers until it has queued a piece.
type stream struct {
	client *Client
	conn   *clientConn
	addr   block.Addr
	object block.Object
	// size and version are what the caller knows of the object, geometry and run
	// what was asked for.
	size     int64
	version  block.Version
	geometry block.Geometry
	run      block.Run
	callID   uint64
	meta     block.Meta
	blocks   []answer
	// waitedUS is how long the peer says that the request has waited: written with
	// the head of the reply, read by the caller, who may have left by then.
	waitedUS atomic.Int64
	// refused is why the call gave nothing, although the reply was well formed.
	refused error
	// unwatch ends the watch over the caller's context.
	unwatch func() bool

	mu struct {
		sync.Mutex
		queue []block.Piece
		// err is what Next answers when the queue is empty.
		err error
		// stepping is set while somebody runs the call, givenUp once nobody wants
		// it, ended when it is over.
		stepping, givenUp, ended bool
		// interrupted is set while a read is to end although nothing is wrong, cut
		// when the connection has been given up.
		interrupted, cut bool
		// paying is set from the payload on.
		paying bool
		cutter *time.Timer
	}
	// Most calls are for one block: room for what the slices above hold then.
	oneAnswer [1]answer
	oneQueued [1]block.Piece
}

// start sends the request; the end of ctx ends the stream from then on.
func (s *stream) start(ctx context.Context) {
	s.mu.queue = s.oneQueued[:0]
	s.mu.stepping = true
	s.unwatch = context.AfterFunc(ctx, func() { s.giveUp(ctx.Err()) })
	s.step()
}

// Meta implements block.Stream.
func (s *stream) Meta() block.Meta { return s.meta }

// Waited implements block.Queued.
func (s *stream) Waited() time.Duration {
	return time.Duration(min(max(s.waitedUS.Load(), 0), int64(time.Hour/time.Microsecond))) * time.Microsecond
}

// Next implements block.Stream.
func (s *stream) Next() (block.Piece, error) {
	for {
		if p, err, ok := s.take(); ok {
			return p, err
		}
		s.step()
	}
}

// take returns the next piece or the end. When there is neither, ok is false
// and the caller has to step.
func (s *stream) take() (p block.Piece, err error, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.queue) > 0 {
		p, s.mu.queue = s.mu.queue[0], s.mu.queue[1:]
		return p, nil, true
	}
	s.mu.stepping = s.mu.err == nil
	return p, s.mu.err, s.mu.err != nil
}

// step runs the call as far as it gets.
func (s *stream) step() {
	if s.conn.resume(s) {
		s.end()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stepping = s.mu.givenUp; s.mu.givenUp {
		go s.finish() // ends with the reply, or is cut
	}
}

// finish runs the call to its end when its caller has left.
func (s *stream) finish() {
	s.mu.Lock()
	s.calmLocked()
	s.mu.Unlock()
	for !s.conn.resume(s) {
	}
	s.end()
}

// end follows the end of the call. The connection is back before the caller
// knows: its next call finds it.
func (s *stream) end() {
	s.mu.Lock()
	s.mu.ended = true
	if s.mu.cutter != nil && !s.mu.cutter.Stop() {
		s.conn.healthy = false
	}
	s.calmLocked()
	s.mu.Unlock()
	s.unwatch()
	err := s.conn.err
	s.client.caller.release(s.conn)
	switch {
	case err != nil:
		s.settle(s.fail(err))
	case s.refused != nil:
		s.settle(s.fail(s.refused))
	default:
		s.settle(io.EOF)
	}
}

// Close implements block.Stream.
func (s *stream) Close() { s.giveUp(errClosed) }

// fail wraps err as the error of this call.
func (s *stream) fail(err error) error { return peerError("fetch", s.object, s.addr, err) }

// settle makes err the end of the stream, behind what is queued.
func (s *stream) settle(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err == nil {
		s.mu.err = err
	}
}

// giveUp ends the stream for its caller, who gets why from Next. It does not
// wait: the reply that is still to come is asked to be short.
func (s *stream) giveUp(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.givenUp || s.mu.ended && len(s.mu.queue) == 0 {
		return
	}
	s.mu.givenUp = true
	for _, p := range s.mu.queue {
		if p.Buf != nil {
			s.client.metrics.wasted.Add(int64(len(p.Buf.Bytes())))
			p.Buf.Release()
		}
	}
	s.mu.queue = nil
	if s.mu.err == nil || s.mu.err == io.EOF {
		s.mu.err = s.fail(why)
	}
	switch {
	case s.mu.ended:
	case s.mu.stepping:
		s.hurryLocked(why)
		s.mu.interrupted = true
		s.conn.interrupt()
	default:
		s.hurryLocked(why)
		s.mu.stepping = true
		go s.finish() // ends with the reply, or is cut
	}
}

// calmLocked takes an interruption back, unless it was meant to be the end.
func (s *stream) calmLocked() {
	if s.mu.interrupted && !s.mu.cut {
		s.conn.calm()
	}
	s.mu.interrupted = false
}

// hurryLocked makes the reply end soon: by a Cancel as long as it has not
// begun, by cutting the connection when it goes on for too long. The deadline
// of the call is the peer's as well, who needs no Cancel then: one that is late
// has too much to do already.
func (s *stream) hurryLocked(why error) {
	grace := drainGrace
	if !s.mu.paying {
		grace = s.client.grace
		if why != context.DeadlineExceeded {
			s.client.cancel(s.addr, s.callID)
		}
	}
	s.mu.cutter = time.AfterFunc(grace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.mu.ended { // the connection may have its next call by now
			s.client.metrics.cuts.Add(1)
			s.mu.cut = true
			s.conn.cut()
		}
	})
}

// leaves reports whether a read that has failed was to end because the caller
// leaves, and only because of that.
func (s *stream) leaves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.interrupted && !s.mu.cut
}

// abandoned reports whether nobody wants the rest.
func (s *stream) abandoned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.givenUp
}

// queue hands a piece to the caller; false means that nobody wants it.
func (s *stream) queue(p block.Piece) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.givenUp {
		s.mu.queue = append(s.mu.queue, p)
	}
	return !s.mu.givenUp
}
