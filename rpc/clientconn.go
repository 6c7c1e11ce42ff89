package rpc

import (
	"context"
	"crypto/tls"
	"io"
	"iter"
	"net"
	"syscall"
	"time"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/kitex/pkg/discovery"

	"headstart/engine/block"
)

// clientConn is one connection to another node. One call at a time uses it;
// only cut and Close may come from elsewhere.
type clientConn struct {
	net.Conn
	// secure is Conn if that is TLS, allowed the list of names that the other side
	// was found on last.
	secure  *tls.Conn
	allowed *[]string
	raw     syscall.RawConn
	r       *bufiox.DefaultReader
	w       *bufiox.DefaultWriter
	addr    block.Addr
	// ctx carries the connection to Kitex, which asks pool for one.
	ctx      context.Context
	instance discovery.Instance
	peer     acquaintance
	// out holds the request while it is sent, cursor walks the reply. meta is
	// the last object that a reply told of.
	out    []byte
	cursor cursor
	meta   block.Meta
	// limit is the largest reply that the call expects, in bytes.
	limit int
	// healthy is Kitex's word, after a call, that the next one can follow.
	healthy   bool
	idleSince time.Time
	tail      tail
	// next and stop belong to the coroutine that the calls of streams run on,
	// which is there from the first one on; yield is its way back. stream is the
	// call that it runs. over and err tell how that has ended.
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	stream *stream
	over   bool
	err    error
}

func newClientConn(conn net.Conn, addr block.Addr) *clientConn {
	c := &clientConn{
		Conn:     conn,
		w:        bufiox.NewDefaultWriter(single{conn}),
		addr:     addr,
		instance: discovery.NewInstance("tcp", addr.String(), discovery.DefaultWeight, nil),
	}
	c.r = bufiox.NewDefaultReader(heads{c})
	c.tail.fill = c.tail.readv
	if secure, ok := conn.(*tls.Conn); ok {
		c.secure, conn = secure, secure.NetConn()
	}
	if s, ok := conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	c.ctx = context.WithValue(context.Background(), connKey{}, c)
	return c
}

// readStep is how much is read at a time: so little that it is still in a
// processor's cache when it is summed up.
const readStep = 256 << 10

// connKey is the context key that Kitex's extension points find the connection
// of a call by.
type connKey struct{}

// Reader and Writer are what Kitex's gonet transport works with.
func (c *clientConn) Reader() *bufiox.DefaultReader { return c.r }

// Writer implements gonet's connection.
func (c *clientConn) Writer() *bufiox.DefaultWriter { return c.w }

// Read implements net.Conn over what is buffered.
func (c *clientConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// SetReadDeadline does nothing: Kitex calls it with the time-outs of its own,
// which are off, and would undo a cut.
func (c *clientConn) SetReadDeadline(time.Time) error { return nil }

// heads lets bufiox read the heads of messages and little more. It would read
// ahead as much as the last messages had, and the payload is to go straight to
// where it belongs; a small block still comes along with its head.
type heads struct{ c *clientConn }

// Read implements io.Reader.
func (h heads) Read(b []byte) (int, error) { return h.c.read(b[:min(len(b), 8<<10)]) }

// single hides from bufiox that the socket can take several buffers at once:
// requests are one, and the plain call costs less.
type single struct{ io.Writer }

// bodies read the socket itself.
type bodies struct{ c *clientConn }

// Read implements io.Reader.
func (b bodies) Read(p []byte) (int, error) { return b.c.read(p) }

// read reads what follows, from the socket unless it is there already. When the
// caller of a stream leaves meanwhile, it lets the caller go and reads on for
// whoever takes the call over.
func (c *clientConn) read(b []byte) (int, error) {
	if n := copy(b, c.tail.bytes()); n > 0 {
		c.tail.from += n
		return n, nil
	}
	for {
		n, err := c.receive(b)
		if n > 0 || err == nil || c.stream == nil || !c.stream.leaves() {
			return n, err
		}
		c.pause()
	}
}

// resume runs the call of s until it pauses, false, or is over. A coroutine
// costs less than handing the call to another goroutine and back, and its stack
// has grown to what Kitex needs.
func (c *clientConn) resume(s *stream) (over bool) {
	c.stream, c.over = s, false
	if c.next == nil {
		c.next, c.stop = iter.Pull(c.run)
	}
	c.next()
	if c.over {
		c.stream = nil
	}
	return c.over
}

// run is the coroutine.
func (c *clientConn) run(yield func(struct{}) bool) {
	c.yield = yield
	for more := true; more; more = yield(struct{}{}) {
		c.err = c.stream.client.caller.do(c, methodFetch, c.stream, c.stream)
		c.over = true
	}
}

// pause lets the one who has resumed the call go on.
func (c *clientConn) pause() { c.yield(struct{}{}) }

// halt ends the coroutine of a connection without a call.
func (c *clientConn) halt() {
	if c.stop != nil {
		c.stop()
	}
}

// walk returns a cursor over the next size bytes.
func (c *clientConn) walk(size int) *cursor {
	c.cursor = cursor{r: c.r, left: size, tape: c.cursor.tape}
	return &c.cursor
}

// cut ends whatever the connection is doing, for good.
func (c *clientConn) cut() { c.Conn.SetDeadline(time.Unix(1, 0)) }

// interrupt ends a read, calm lets reads go on.
func (c *clientConn) interrupt() { c.Conn.SetReadDeadline(time.Unix(1, 0)) }

func (c *clientConn) calm() { c.Conn.SetReadDeadline(time.Time{}) }

// wanted reports whether the connection is what t asks for now.
func (c *clientConn) wanted(t *TLS) bool {
	if c.secure == nil || !t.on() {
		return c.secure == nil && !t.on()
	}
	return t.admits(c.secure, &c.allowed) == nil
}

// alive reports whether an idle connection is still open and silent.
func (c *clientConn) alive() bool { return c.raw == nil || peekSocket(c.raw) == socketQuiet }

// readFull fills b from what is buffered, then straight from the socket, and
// returns the checksum of it.
func (c *clientConn) readFull(b []byte) (sum uint32, err error) {
	n := min(len(b), c.r.Buffered())
	if _, err := c.r.ReadBinary(b[:n]); err != nil {
		return 0, err
	}
	sum = block.ExtendChecksum(0, b[:n])
	for n < len(b) {
		got, err := c.read(b[n:min(len(b), n+readStep)])
		sum = block.ExtendChecksum(sum, b[n:n+got])
		if n += got; err != nil && n < len(b) {
			return 0, noEOF(err)
		}
	}
	return sum, nil
}

// noEOF: a reply that ends too early is no end of anything.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// discard reads over n bytes.
func (c *clientConn) discard(n int) error {
	buffered := min(n, c.r.Buffered())
	if err := c.r.Skip(buffered); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, bodies{c}, int64(n-buffered))
	return noEOF(err)
}
