package framing

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// Conn is a connection whose reader gets to see well-framed requests only. The
// first one that is not ends it: Read then fails with an *Error, for good.
type Conn struct {
	net.Conn
	scan   Scanner
	failed error
	alone  bool
	// turn says who may go on with the connection, and who closes it. Whoever moves it
	// first has it:
	//
	//	serving ◀──────── bytes are there ────────┐
	//	 │ │ └─── Read waits for a request's header ──▶ waiting ── leave, Close ──▶ left
	//	 │ └───── something wrong is there ──▶ refused
	//	 └─────── Hold ──▶ held ── Close ──▶ closing ── Let ──▶ left
	//	             ◀─ Let ─┘
	turn atomic.Uint32
	// server is told of the connection's end; nil where there is none.
	server *Server
}

const (
	serving uint32 = iota
	waiting
	left
	refused // for good, by its reader
	held
	closing
)

// NewConn returns c behind a Scanner.
func NewConn(c net.Conn, l Limits) *Conn { return &Conn{Conn: c, scan: Scanner{Limits: l}} }

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	// Nothing of a request has run before its header has ended, and nothing of an
	// answer is left to be sent when the server waits for the next one.
	waits := c.scan.at <= headerLine
	if waits && (!c.turn.CompareAndSwap(serving, waiting) || c.server.Stopping() && c.leave()) {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p)
	if waits && !c.turn.CompareAndSwap(waiting, serving) {
		return 0, net.ErrClosed
	}
	before, between := c.scan.done, c.scan.between()
	good, wrong := c.scan.Scan(p[:n])
	c.alone = wrong == nil && between && c.scan.between() && c.scan.done == before+1 && c.scan.bodiless()
	if wrong == nil {
		return n, err
	}
	c.failed = wrong
	c.turn.Store(refused)
	if good > 0 {
		return good, nil
	}
	return 0, wrong
}

// leave ends the connection unless a request is under way on it, and reports
// whether it has.
func (c *Conn) leave() bool {
	if !c.turn.CompareAndSwap(waiting, left) {
		return false
	}
	_ = c.Conn.Close() // the reader's Close says what there is to say
	return true
}

// Alone reports whether the bytes of the last Read are one request, from its first
// to its last byte, which has no body.
func (c *Conn) Alone() bool { return c.alone }

// Refused returns why the connection c was refused, nil when it was not or is
// no Conn. A server's own error does not always say: fasthttp loses the cause of
// what goes wrong between chunks.
func Refused(c net.Conn) *Error {
	behind, ok := c.(*Conn)
	if !ok {
		return nil
	}
	wrong, _ := errors.AsType[*Error](behind.failed)
	return wrong
}

// What Close spends on a client that is still sending when it is refused. To
// close at once would reset the connection, and the client might never read why.
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 32 << 20
)

// Hold keeps the connection open until Let, whoever closes it: for an answer that the
// HTTP server, which is still waiting for a request, knows nothing of. It reports
// false when the connection is closed. Only the reader calls it.
func (c *Conn) Hold() bool { return c.turn.CompareAndSwap(serving, held) }

// Let ends that. It reports false when somebody has wanted to close the connection
// meanwhile, and does it.
func (c *Conn) Let() bool {
	if c.turn.CompareAndSwap(held, serving) {
		return true
	}
	c.turn.Store(left)
	_ = c.Conn.Close() // whoever asked for it has been answered
	return false
}

// Close implements net.Conn. It may come from elsewhere than the reader.
func (c *Conn) Close() error {
	if c.server != nil {
		c.server.forget(c)
	}
	for {
		at := c.turn.Load()
		to := left
		switch at {
		case held, closing:
			to = closing
		case refused:
			c.linger()
			to = refused
		}
		if !c.turn.CompareAndSwap(at, to) {
			continue
		}
		if to == closing {
			return nil // Let does it
		}
		return c.Conn.Close()
	}
}

func (c *Conn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.Conn.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	var scrap [16 << 10]byte
	for n := 0; n < lingerBytes; {
		k, err := c.Conn.Read(scrap[:])
		if err != nil {
			return
		}
		n += k
	}
}
