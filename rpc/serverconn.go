package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/gopkg/protocol/thrift"

	"headstart/engine/block"
)

// watchAfter is how long a call may take before its connection is watched: a
// caller that has gone then ends the call. Shorter calls don't pay for it.
const watchAfter = 5 * time.Millisecond

// serverConn is one connection of an acceptor. It belongs to the goroutine
// that serves it; only end and Close may come from elsewhere.
type serverConn struct {
	net.Conn
	raw  syscall.RawConn
	r    *bufiox.DefaultReader
	w    *bufiox.DefaultWriter
	peer acquaintance
	// ctx ends with the connection or with the acceptor.
	ctx context.Context
	end context.CancelFunc

	// cursor walks the request. request and reply are those of the FetchBlocks call that is being served,
	// views what a Read has given.
	cursor  cursor
	request fetchRequest
	reply   block.Reply
	views   []block.View
	// head is the reply up to its payload, parts the payload. Parts of less
	// than smallPart are in small.
	head, small []byte
	parts       [][]byte
	total       int

	// readBy and writeBy are the deadlines that are set.
	readBy, writeBy time.Time

	watch struct {
		sync.Mutex
		// timer starts the watch of a call that takes its time. armed is set
		// while a call runs, done is closed when its watch has ended.
		timer *time.Timer
		armed bool
		done  chan struct{}
	}
}

func newServerConn(ctx context.Context, conn net.Conn) *serverConn {
	c := &serverConn{Conn: conn, r: bufiox.NewDefaultReader(conn), w: bufiox.NewDefaultWriter(conn)}
	if s, ok := conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	c.ctx, c.end = context.WithCancel(context.WithValue(ctx, connKey{}, c))
	return c
}

// Reader and Writer are what Kitex's gonet transport works with.
func (c *serverConn) Reader() *bufiox.DefaultReader { return c.r }

// Writer implements gonet's connection. It writes to the socket itself, so
// that a reply is one writev.
func (c *serverConn) Writer() *bufiox.DefaultWriter { return c.w }

// Read implements net.Conn over what is buffered.
func (c *serverConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// Close ends the calls of the connection and closes it.
func (c *serverConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// expectRead and expectWrite see to it that a read or a write ends, not before
// wait is over and not much later. A deadline that is still good enough stays:
// to set one costs as much as a small call has to spare.
func (c *serverConn) expectRead(now time.Time, wait time.Duration) {
	if end := now.Add(wait); c.readBy.Before(end) || c.readBy.After(end.Add(wait/2)) {
		c.readBy = end.Add(wait / 4)
		c.Conn.SetReadDeadline(c.readBy)
	}
}

func (c *serverConn) expectWrite(now time.Time, wait time.Duration) {
	if end := now.Add(wait); c.writeBy.Before(end) || c.writeBy.After(end.Add(wait/2)) {
		c.writeBy = end.Add(wait / 4)
		c.Conn.SetWriteDeadline(c.writeBy)
	}
}

// hurryRead ends a read at a time that is near; the next expectRead says
// otherwise.
func (c *serverConn) hurryRead(end time.Time) {
	c.readBy = time.Time{}
	c.Conn.SetReadDeadline(end)
}

// smallPart is the size below which bufiox copies what it is told to write.
// Go code must not copy from a lease, whose pages may be gone: the lease does.
const smallPart = 4 << 10

// begin starts the next reply.
func (c *serverConn) begin() {
	c.head, c.small, c.total = c.head[:0], c.small[:0], 0
	clear(c.parts)
	c.parts = c.parts[:0]
}

// add makes bytes from to to of a lease part of the payload. The lease stays
// its owner's and must last until finish.
func (c *serverConn) add(l *block.Lease, from, to int) error {
	part := l.Raw()[from:to]
	if len(part) < smallPart {
		start := len(c.small)
		c.small = append(c.small, make([]byte, len(part))...)
		part = c.small[start:]
		if n, err := l.CopyAt(part, from); err != nil || n < len(part) {
			return fmt.Errorf("copied %d of %d bytes: %w", n, len(part), err)
		}
	}
	c.parts = append(c.parts, part)
	c.total += len(part)
	return nil
}

// write writes head, payload and the ends of the two structs around them.
func (c *serverConn) write(w bufiox.Writer) error {
	c.head = binary.BigEndian.AppendUint32(appendField(c.head, thrift.STRING, repPayload), uint32(c.total))
	if _, err := w.WriteBinary(c.head); err != nil {
		return err
	}
	for _, part := range c.parts {
		if _, err := w.WriteBinary(part); err != nil {
			return err
		}
	}
	_, err := w.WriteBinary([]byte{byte(thrift.STOP), byte(thrift.STOP)})
	return err
}

// finish gives back what the last reply was made of. It is called when the
// reply has been flushed, or will never be.
func (c *serverConn) finish() {
	c.reply.Release()
	for i := range c.views {
		c.views[i].Lease.Release()
	}
	c.views = nil
	clear(c.parts)
	c.parts = c.parts[:0]
}

// within returns the context of a call whose caller waits that long; 0 says
// nothing.
func (c *serverConn) within(wait time.Duration) (context.Context, context.CancelFunc) {
	if wait > 0 {
		return context.WithTimeout(c.ctx, wait)
	}
	return context.WithCancel(c.ctx)
}

// startWatch ends the connection's context when the caller goes away before
// stopWatch is called.
func (c *serverConn) startWatch() {
	if c.raw == nil {
		return
	}
	c.watch.Lock()
	defer c.watch.Unlock()
	c.watch.armed = true
	if c.watch.timer == nil {
		c.watch.timer = time.AfterFunc(watchAfter, c.watchCaller)
	} else {
		c.watch.timer.Reset(watchAfter)
	}
}

// watchCaller runs beside a call; stopWatch ends it.
func (c *serverConn) watchCaller() {
	c.watch.Lock()
	if !c.watch.armed || c.watch.done != nil {
		c.watch.Unlock()
		return
	}
	done := make(chan struct{})
	c.watch.done = done
	c.watch.Unlock()
	if awaitSocket(c.raw) == socketDead {
		c.end()
	}
	close(done)
}

func (c *serverConn) stopWatch() {
	if c.raw == nil {
		return
	}
	c.watch.Lock()
	c.watch.armed = false
	c.watch.timer.Stop()
	done := c.watch.done
	c.watch.done = nil
	c.watch.Unlock()
	if done != nil {
		c.hurryRead(time.Unix(1, 0)) // wakes the watch
		<-done
	}
}
