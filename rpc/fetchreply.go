package rpc

import (
	"context"
	"fmt"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/gopkg/protocol/thrift"

	"headstart/engine/block"
)

// A stream is also the arguments and the result of its Kitex call: what is
// below runs inside of Kitex, on the coroutine of the connection.

// answer is what a reply says of one block.
type answer struct {
	index  uint64
	status block.Status
	length int
	crc    uint32
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
		case id == repWaited && c.is(t, thrift.I64):
			s.waitedUS.Store(c.i64())
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
			return s.stopShort(err, left)
		}
		sum, err := s.conn.readFull(buf.Bytes())
		if err != nil {
			buf.Release()
			return err
		}
		left -= a.length
		if sum != a.crc {
			buf.Release()
			return s.stopShort(fmt.Errorf("block %d: %w", a.index, block.ErrCorrupt), left)
		}
		buf.SetCRC(sum)
		if !s.queue(block.Piece{Index: a.index, Status: a.status, Buf: buf}) {
			s.client.metrics.wasted.Add(int64(a.length))
			buf.Release()
		}
		if left > 0 {
			s.conn.pause()
		}
	}
	return nil
}

// stopShort tells the caller of err before what is left is read over.
func (s *stream) stopShort(err error, left int) error {
	s.settle(s.fail(err))
	s.conn.pause()
	return s.waste(left)
}

// waste reads over bytes that nobody wants.
func (s *stream) waste(n int) error {
	s.client.metrics.wasted.Add(int64(n))
	return s.conn.discard(n)
}

// judge checks what a reply says before a byte of its payload is read: every
// wanted block once, each as long as it must be, and the payload their sum.
func (s *stream) judge(size int) error {
	if s.version != "" && s.meta.Version != "" && s.version != s.meta.Version {
		return fmt.Errorf("it answers for version %q instead of %q", s.meta.Version, s.version)
	}
	if s.size >= 0 && s.meta.Size >= 0 && s.size != s.meta.Size {
		return fmt.Errorf("it answers for an object of %d bytes instead of %d", s.meta.Size, s.size)
	}
	objectSize := max(s.size, s.meta.Size)
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
