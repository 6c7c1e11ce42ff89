package rpc

import (
	"context"
	"io"
	"net"
	"sync"
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
	raw  syscall.RawConn
	r    *bufiox.DefaultReader
	w    *bufiox.DefaultWriter
	addr block.Addr
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
	// calls hands streams to the goroutine that makes their calls, which stop
	// ends. started is set when there is one.
	calls   chan *stream
	started bool
	stop    chan struct{}
	closing sync.Once
}

func newClientConn(conn net.Conn, addr block.Addr) *clientConn {
	c := &clientConn{
		Conn:     conn,
		r:        bufiox.NewDefaultReader(heads{conn}),
		w:        bufiox.NewDefaultWriter(conn),
		addr:     addr,
		instance: discovery.NewInstance("tcp", addr.String(), discovery.DefaultWeight, nil),
		calls:    make(chan *stream),
		stop:     make(chan struct{}),
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
type heads struct{ io.Reader }

// Read implements io.Reader.
func (h heads) Read(b []byte) (int, error) { return h.Reader.Read(b[:min(len(b), 8<<10)]) }

// Close closes the connection and ends its goroutine.
func (c *clientConn) Close() error {
	c.closing.Do(func() { close(c.stop) })
	return c.Conn.Close()
}

// start makes the call of a stream behind its caller's back. The connection
// keeps a goroutine for its calls, whose stack has grown to what Kitex needs;
// only when that has not come back from the last call yet there is another.
func (c *clientConn) start(s *stream) {
	if !c.started {
		c.started = true
		go c.run(s) // ends with Close
		return
	}
	select {
	case c.calls <- s:
	default:
		go s.call() // ends with its reply, or soon after the stream is closed
	}
}

func (c *clientConn) run(s *stream) {
	for {
		s.call()
		select {
		case s = <-c.calls:
		case <-c.stop:
			return
		}
	}
}

// walk returns a cursor over the next size bytes.
func (c *clientConn) walk(size int) *cursor {
	c.cursor = cursor{r: c.r, left: size, tape: c.cursor.tape}
	return &c.cursor
}

// cut ends whatever the connection is doing, for good.
func (c *clientConn) cut() { c.Conn.SetDeadline(time.Unix(1, 0)) }

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
		got, err := c.Conn.Read(b[n:min(len(b), n+readStep)])
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
	_, err := io.CopyN(io.Discard, c.Conn, int64(n-buffered))
	return noEOF(err)
}
