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
	// sealed is what a secure connection is read and written by, nil for plain
	// text.
	sealed *sealed
	raw    syscall.RawConn
	r      *bufiox.DefaultReader
	w      *bufiox.DefaultWriter
	peer   acquaintance
	// ctx ends with the connection or with the acceptor.
	ctx context.Context
	end context.CancelFunc

	// cursor walks the request. request and reply are those of the FetchBlocks call that is being served,
	// views what a Read has given.
	cursor  cursor
	request fetchRequest
	reply   block.Reply
	views   []block.View
	// reserved is what the reply takes of its group's bytes.
	reserved reservation
	// head is the reply up to its payload, parts the payload. Parts of less
	// than smallPart are in small.
	head, small []byte
	parts       []part
	total       int

	// readBy and writeBy are the deadlines that are set.
	readBy, writeBy time.Time

	// now is when the call that is being served came.
	now time.Time

	watch struct {
		sync.Mutex
		// call is the call that is being served, since is when that began.
		call  *call
		since time.Time
		// timer looks after calls that take their time. It is set from one call to
		// the next, because most are over when it fires: fires says when that is,
		// or is zero.
		timer *time.Timer
		fires time.Time
		// watched is the call that the watch over the socket was started for, nil when
		// there is none. It may have ended since.
		watched *call
	}
}

// part is a piece of a payload: bytes of a lease, unless they have been copied.
type part struct {
	bytes []byte
	lease *block.Lease
	from  int
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

// Close ends the call of the connection and closes it.
func (c *serverConn) Close() error {
	c.end()
	c.watch.Lock()
	if c.watch.call != nil {
		c.watch.call.cancelFor(causeGone)
	}
	if c.watch.timer != nil {
		c.watch.timer.Stop()
	}
	c.watch.Unlock()
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

// newReply starts the next reply.
func (c *serverConn) newReply() {
	c.head, c.small, c.total = c.head[:0], c.small[:0], 0
	clear(c.parts)
	c.parts = c.parts[:0]
}

// add makes bytes from to to of a lease part of the payload. The lease stays
// its owner's and must last until finish.
func (c *serverConn) add(l *block.Lease, from, to int) error {
	p := part{l.Raw()[from:to], l, from}
	if len(p.bytes) < smallPart {
		start := len(c.small)
		c.small = append(c.small, make([]byte, len(p.bytes))...)
		p = part{bytes: c.small[start:]}
		if n, err := l.CopyAt(p.bytes, from); err != nil || n < len(p.bytes) {
			return fmt.Errorf("copied %d of %d bytes: %w", n, len(p.bytes), err)
		}
	}
	c.parts = append(c.parts, p)
	c.total += len(p.bytes)
	return nil
}

// write writes head, payload and the ends of the two structs around them.
func (c *serverConn) write(w bufiox.Writer) error {
	c.head = binary.BigEndian.AppendUint32(appendField(c.head, thrift.STRING, repPayload), uint32(c.total))
	if _, err := w.WriteBinary(c.head); err != nil {
		return err
	}
	for i := range c.parts {
		if _, err := w.WriteBinary(c.parts[i].bytes); err != nil {
			return err
		}
	}
	_, err := w.WriteBinary([]byte{byte(thrift.STOP), byte(thrift.STOP)})
	return err
}

// lost tells the owners of leases that the kernel could not read what they have
// lent, as it does when a file has been cut short: whose bytes they are finds
// out by a copy. The receiver has got a part and is cut off.
func (c *serverConn) lost() {
	for i := range c.parts {
		if p := &c.parts[i]; p.lease != nil {
			_, _ = p.lease.CopyAt(make([]byte, len(p.bytes)), p.from) // that it fails is the point
		}
	}
}

// finish gives back what the last reply was made of. It is called when the
// reply has been flushed, or will never be.
func (c *serverConn) finish() {
	c.reply.Release()
	c.reserved.keep(0)
	for i := range c.views {
		c.views[i].Lease.Release()
	}
	c.views = nil
	clear(c.parts)
	c.parts = c.parts[:0]
}

// begin makes c the connection of a call, whose caller waits that long from now
// on; 0 says nothing.
func (c *serverConn) begin(call *call, wait time.Duration) {
	call.values = c.ctx
	if wait > 0 {
		call.deadline = c.now.Add(wait)
	}
	c.watch.Lock()
	defer c.watch.Unlock()
	c.watch.call, c.watch.since = call, c.now
	if c.ctx.Err() != nil { // the end came before the call
		call.cancelFor(causeGone)
	}
	if first := c.now.Add(watchAfter); c.watch.fires.IsZero() || c.watch.fires.After(first) {
		c.setLocked(first)
	}
}

func (c *serverConn) setLocked(at time.Time) {
	c.watch.fires = at
	if c.watch.timer == nil {
		c.watch.timer = time.AfterFunc(time.Until(at), c.look)
	} else {
		c.watch.timer.Reset(time.Until(at))
	}
}

// look is what the timer runs: a call that takes its time is ended at its
// deadline, and its connection is watched, so that it ends with its caller.
func (c *serverConn) look() {
	c.watch.Lock()
	c.watch.fires = time.Time{}
	call, now := c.watch.call, time.Now()
	if call == nil {
		c.watch.Unlock()
		return
	}
	first := c.watch.since.Add(watchAfter)
	switch {
	case now.Before(first):
		c.setLocked(first)
	case call.deadline.IsZero():
	case now.Before(call.deadline):
		c.setLocked(call.deadline)
	default:
		call.cancelFor(causeDeadline)
	}
	watch := !now.Before(first) && c.raw != nil && c.watch.watched != call
	if watch && c.watch.watched != nil { // the watch of an earlier call is about to end
		c.setLocked(now.Add(watchAfter))
		watch = false
	}
	if watch {
		c.watch.watched = call
	}
	c.watch.Unlock()
	if watch {
		c.await(call)
	}
}

// await watches the socket for as long as nothing comes: a call whose caller has
// gone ends.
func (c *serverConn) await(call *call) {
	// Within TLS, what comes during a call is the word that the caller closes.
	if s := awaitSocket(c.raw); s == socketDead || s == socketReadable && c.sealed != nil {
		call.cancelFor(causeGone)
	}
	c.watch.Lock()
	c.watch.watched = nil
	c.watch.Unlock()
}

// endCall ends what begin has begun. A watch over the socket goes on: to end it
// would cost the answer two turns of other goroutines, and it ends by itself with
// the next byte, which whoever reads then gets right behind it.
func (c *serverConn) endCall(call *call) {
	c.watch.Lock()
	c.watch.call = nil
	c.watch.Unlock()
	call.cancelFor(causeServed)
}
