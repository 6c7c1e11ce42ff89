package s3

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"headstart/rpc/framing"
)

// conn is a connection that answers what it can by itself (see Read), and whose
// header of a reply can be held back, to leave with the first bytes of the body in
// one system call. It is used by one goroutine; only Close comes from others.
type conn struct {
	*framing.Conn
	raw   net.Conn
	front *Front
	hold  bool
	held  []byte
	out   outgoing
	// given is when giveTime has set the connection's deadlines, zero when others
	// have since.
	given time.Time
}

// giveTime gives the client its time: BlockTimeout for an answer, idleTimeout for
// the next request. To set a deadline costs more than a small answer has to spare,
// so both last a quarter longer and are left alone until that is used up.
func (c *conn) giveTime(now time.Time) error {
	out := c.front.BlockTimeout
	if !c.given.IsZero() && now.Sub(c.given) < min(out, idleTimeout)/4 {
		return nil
	}
	if err := c.raw.SetWriteDeadline(now.Add(out + out/4)); err != nil {
		return err
	}
	c.given = now
	return c.raw.SetReadDeadline(now.Add(idleTimeout + idleTimeout/4))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.given = time.Time{}
	return c.raw.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.given = time.Time{}
	return c.raw.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.given = time.Time{}
	return c.raw.SetDeadline(t)
}

// newConn returns a client's connection.
func (f *Front) newConn(c *framing.Conn) net.Conn {
	made := &conn{Conn: c, raw: c.Conn, front: f}
	if tcp, ok := c.Conn.(syscall.Conn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			made.out.raw, made.out.step = raw, made.out.sendmsg
		}
	}
	return made
}

// Write implements io.Writer.
func (c *conn) Write(p []byte) (int, error) {
	if c.hold {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	return c.raw.Write(p)
}

// holdHeader keeps what is written until writeBody.
func (c *conn) holdHeader() { c.hold = true }

// writeBody sends p behind what is held. It returns how much of p was sent. more
// says that the next bytes come at once: what does not fill a packet waits for
// them.
func (c *conn) writeBody(p []byte, more bool) (int, error) {
	head := len(c.held)
	n, err := c.out.send(c.raw, c.held, p, more)
	c.hold, c.held = false, c.held[:0]
	return max(0, n-head), err
}

// watch notices that a client has gone while its request waits for somebody
// else. Nothing is read from the connection.
type watch struct {
	ctx  context.Context
	stop func()
}

// unwatched is for answers that wait for nobody else.
func unwatched() watch { return watch{context.Background(), func() {}} }

// watchClient returns a context that ends when the client closes the
// connection, or with stop, which waits for the goroutine.
func watchClient(c *conn) watch {
	ctx, cancel := context.WithCancel(context.Background())
	tcp, ok := c.raw.(syscall.Conn)
	if !ok {
		return watch{ctx, cancel}
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return watch{ctx, cancel}
	}
	// The deadline of the request's header would end the wait.
	if c.SetReadDeadline(time.Time{}) != nil {
		cancel()
	}
	var done sync.WaitGroup
	done.Go(func() { // ends with the client's next byte, its end, or stop
		if gone(raw) {
			cancel()
		}
	})
	return watch{ctx, sync.OnceFunc(func() {
		_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed connection
		done.Wait()
		_ = c.raw.SetReadDeadline(time.Time{})
		cancel()
	})}
}

// gone waits for the connection to become readable and reports whether that is
// its end.
func gone(raw syscall.RawConn) bool {
	ended := false
	err := raw.Read(func(fd uintptr) bool {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err == syscall.EAGAIN || err == syscall.EINTR {
			return false
		}
		ended = err != nil || n <= 0
		return true
	})
	return err == nil && ended
}
