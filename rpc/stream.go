package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/gopkg/protocol/thrift"

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

// stream is one FetchBlocks call: the arguments and the result of the Kitex
// call, and the block.Stream that its caller reads.
//
// The call runs in a goroutine of its own and owns connection and buffers
// until it has queued a piece. So the caller can leave at any time: the call
// then drops what comes and gives the connection back when the reply ends.
//
//	running ──give up──▶ given up ──reply ends or is cut──▶ ended
//	   └───────────────────reply ends─────────────────────▶ ended
type stream struct {
	// ctx is watched by Next: it ends the stream for its caller.
	ctx    context.Context
	client *Client
	conn   *clientConn
	addr   block.Addr
	object block.Object
	// known, geometry and run are what was asked for.
	known    block.Meta
	geometry block.Geometry
	run      block.Run
	callID   uint64
	meta     block.Meta
	blocks   []answer
	// refused is why the call gave nothing, although the reply was well formed.
	refused error
	// wake has a token when the queue or the state may have changed.
	wake chan struct{}

	mu struct {
		sync.Mutex
		queue []block.Piece
		// err is what Next answers when the queue is empty; set when the stream
		// is given up or has ended.
		err            error
		givenUp, ended bool
		// paying is set while the payload is being read.
		paying bool
		cutter *time.Timer
	}
	// Most calls are for one block: room for what the slices above hold then.
	oneAnswer [1]answer
	oneQueued [1]block.Piece
}

// answer is what a reply says of one block.
type answer struct {
	index  uint64
	status block.Status
	length int
	crc    uint32
}

// Meta implements block.Stream.
func (s *stream) Meta() block.Meta { return s.meta }

// Next implements block.Stream.
func (s *stream) Next() (block.Piece, error) {
	for {
		if p, err, ok := s.take(); ok {
			return p, err
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			s.giveUp(s.fail(s.ctx.Err()))
		}
	}
}

// take returns the next piece or the end; ok is false when it has to wait.
func (s *stream) take() (p block.Piece, err error, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.queue) > 0 {
		p, s.mu.queue = s.mu.queue[0], s.mu.queue[1:]
		return p, nil, true
	}
	return p, s.mu.err, s.mu.err != nil
}

// Close implements block.Stream.
func (s *stream) Close() { s.giveUp(s.fail(errClosed)) }

// fail wraps err as the error of this call.
func (s *stream) fail(err error) error { return peerError("fetch", s.object, s.addr, err) }

// giveUp ends the stream for its caller, who gets err from Next. It does not
// wait: the reply that is still to come is asked to be short.
func (s *stream) giveUp(err error) {
	s.mu.Lock()
	if !s.mu.givenUp {
		s.mu.givenUp = true
		for _, p := range s.mu.queue {
			if p.Buf != nil {
				s.client.metrics.wasted.Add(int64(len(p.Buf.Bytes())))
				p.Buf.Release()
			}
		}
		s.mu.queue = nil
		if s.mu.err == nil || s.mu.err == io.EOF {
			s.mu.err = err
		}
		if !s.mu.ended {
			s.hurryLocked()
		}
	}
	s.mu.Unlock()
	s.signal()
}

// hurryLocked makes the reply end soon: by a Cancel as long as it has not
// begun, by cutting the connection when it goes on for too long.
func (s *stream) hurryLocked() {
	grace := drainGrace
	if !s.mu.paying {
		grace = cancelGrace
		s.client.cancel(s.addr, s.callID)
	}
	s.mu.cutter = time.AfterFunc(grace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.mu.ended { // the connection may have its next call by now
			s.client.metrics.cuts.Add(1)
			s.conn.cut()
		}
	})
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// call makes the call and ends the stream. The connection is back before the
// caller knows: its next call finds it.
func (s *stream) call() {
	err := s.client.caller.do(s.conn, methodFetch, s, s)
	s.mu.Lock()
	s.mu.ended = true
	if s.mu.cutter != nil && !s.mu.cutter.Stop() {
		s.conn.healthy = false
	}
	s.mu.Unlock()
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

// queue hands a piece to the caller; false means that nobody wants it.
func (s *stream) queue(p block.Piece) bool {
	s.mu.Lock()
	wanted := !s.mu.givenUp
	if wanted {
		s.mu.queue = append(s.mu.queue, p)
	}
	s.mu.Unlock()
	if wanted {
		s.signal()
	}
	return wanted
}

// Write implements the writing side of Kitex's Thrift codec: FetchFrom has
// encoded the request.
func (s *stream) Write(_ context.Context, _ string, w bufiox.Writer) error {
	_, err := w.WriteBinary(s.conn.out)
	return err
}

// Read implements the reading side of Kitex's Thrift codec.
func (s *stream) Read(_ context.Context, _ string, size int, _ bufiox.Reader) error {
	return s.conn.walk(size).arguments(0, s.readReply)
}

// settle makes err the end of the stream, behind what is queued.
func (s *stream) settle(err error) {
	s.mu.Lock()
	if s.mu.err == nil {
		s.mu.err = err
	}
	s.mu.Unlock()
	s.signal()
}

// readReply reads a FetchReply. Why the call gave nothing goes to refused,
// errors of the wire stay in c.
func (s *stream) readReply(c *cursor) {
	known, seen := false, false // a Base, a payload
	for t, id, ok := c.field(); ok; t, id, ok = c.field() {
		switch {
		case seen && (id == repBase || id == repFailure || id == repMeta || id == repBlocks || id == repPayload):
			c.fail(fmt.Errorf("%w: a field behind the payload", errWire))
		case id == repBase && c.is(t, thrift.STRUCT):
			known = true
			_, err := s.conn.peer.meet(s.client.caller.id, c.record(), reply, strict)
			s.refuse(err)
		case id == repFailure && c.is(t, thrift.STRUCT):
			f := c.failure()
			if f.Code == failRefused { // it says more than what follows from it here
				s.refused = nil
			}
			s.refuse(errorOf(f))
		case id == repMeta && c.is(t, thrift.STRUCT):
			s.conn.meta = c.meta(&s.conn.meta)
			s.meta = s.conn.meta
		case id == repBlocks && c.is(t, thrift.LIST):
			s.readAnswers(c)
		case id == repPayload && c.is(t, thrift.STRING):
			if seen = true; !known {
				c.fail(fmt.Errorf("%w: a payload of nobody", errWire))
			}
			s.readPayload(c)
		default:
			c.skip(t, maxDepth)
		}
	}
	if c.err == nil && !seen {
		c.fail(fmt.Errorf("%w: a reply without a payload field", errWire))
	}
}

// refuse keeps the first reason.
func (s *stream) refuse(err error) {
	if s.refused == nil {
		s.refused = err
	}
}

func (s *stream) readAnswers(c *cursor) {
	n := c.list(block.MaxRun)
	if s.blocks = s.oneAnswer[:0]; n > cap(s.blocks) {
		s.blocks = make([]answer, 0, n)
	}
	s.blocks = s.blocks[:n]
	for i := range s.blocks {
		a := &s.blocks[i]
		for t, id, ok := c.field(); ok; t, id, ok = c.field() {
			switch {
			case id == 1 && c.is(t, thrift.I64):
				a.index = uint64(c.i64())
			case id == 2 && c.is(t, thrift.I32):
				a.status = statusOf(c.i32())
			case id == 3 && c.is(t, thrift.I32):
				a.length = int(c.i32())
			case id == 4 && c.is(t, thrift.I32):
				a.crc = uint32(c.i32())
			default:
				c.skip(t, maxDepth)
			}
		}
	}
}

// statusOf takes a status that this node does not know for a failure, never
// for a miss.
func statusOf(v int32) block.Status {
	if v < int32(block.StatusData) || v > int32(block.StatusFailed) {
		return block.StatusFailed
	}
	return block.Status(v)
}

// readPayload reads the blocks' bytes and queues all pieces. A payload that is
// refused is read over, so that the connection stays usable.
func (s *stream) readPayload(c *cursor) {
	size := int(c.i32())
	if c.err != nil || size < 0 || size > c.left {
		c.fail(errWire)
		return
	}
	c.left -= size
	c.settle()
	s.client.metrics.bytes.Add(int64(size))
	s.mu.Lock()
	s.mu.paying = true
	s.mu.Unlock()
	s.refuse(s.judge(size))
	if s.refused != nil {
		c.fail(s.waste(size))
		return
	}
	for _, a := range s.blocks {
		if a.status != block.StatusData {
			s.queue(block.Piece{Index: a.index, Status: a.status})
		}
	}
	c.fail(s.readBlocks(size))
}

// readBlocks reads the payload block by block, each into a buffer of its own
// that nobody else knows before it is queued. The first one that can't be had
// ends the stream at once; what is left is read over.
func (s *stream) readBlocks(left int) error {
	for _, a := range s.blocks {
		if a.status != block.StatusData {
			continue
		}
		if s.abandoned() {
			return s.waste(left)
		}
		buf, err := s.client.alloc(a.length)
		if err != nil {
			s.settle(s.fail(err))
			return s.waste(left)
		}
		sum, err := s.conn.readFull(buf.Bytes())
		if err != nil {
			buf.Release()
			return err
		}
		left -= a.length
		if sum != a.crc {
			buf.Release()
			s.settle(s.fail(fmt.Errorf("block %d: %w", a.index, block.ErrCorrupt)))
			return s.waste(left)
		}
		buf.SetCRC(sum)
		if !s.queue(block.Piece{Index: a.index, Status: a.status, Buf: buf}) {
			s.client.metrics.wasted.Add(int64(a.length))
			buf.Release()
		}
	}
	return nil
}

// waste reads over bytes that nobody wants.
func (s *stream) waste(n int) error {
	s.client.metrics.wasted.Add(int64(n))
	return s.conn.discard(n)
}

func (s *stream) abandoned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.givenUp
}

// judge checks what a reply says before a byte of its payload is read: every
// wanted block once, each as long as it must be, and the payload their sum.
func (s *stream) judge(size int) error {
	if s.known.Version != "" && s.meta.Version != "" && s.known.Version != s.meta.Version {
		return fmt.Errorf("it answers for version %q instead of %q", s.meta.Version, s.known.Version)
	}
	if s.known.Size >= 0 && s.meta.Size >= 0 && s.known.Size != s.meta.Size {
		return fmt.Errorf("it answers for an object of %d bytes instead of %d", s.meta.Size, s.known.Size)
	}
	objectSize := max(s.known.Size, s.meta.Size)
	missing, total := s.run, 0
	for _, a := range s.blocks {
		if !missing.Has(a.index) {
			return fmt.Errorf("it answers for block %d, which was not asked for", a.index)
		}
		missing = missing.Without(a.index)
		if a.status != block.StatusData {
			continue
		}
		want := a.length
		if objectSize >= 0 {
			want = s.geometry.Len(a.index, objectSize)
		}
		if a.length != want || a.length < 0 || a.length > int(s.geometry) || a.length == 0 && objectSize < 0 {
			return fmt.Errorf("it says that block %d has %d bytes", a.index, a.length)
		}
		total += a.length
	}
	if missing.Want != 0 {
		return fmt.Errorf("it says nothing of %v", missing)
	}
	if total != size {
		return fmt.Errorf("its payload has %d bytes, its blocks have %d", size, total)
	}
	return nil
}
