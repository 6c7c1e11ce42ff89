package mysql

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// loginTimeout is how long a client may take to log in, loginBytes what it
	// may send until it has.
	loginTimeout = 10 * time.Second
	loginBytes   = 64 << 10
	// commandBytes is what it may send before the next answer.
	commandBytes = maxStatement + 64<<10
	// sendTimeout is how long a client may take for each piece of an answer.
	sendTimeout = 30 * time.Second
)

// gate is the listener that the protocol's library gets: it bounds how many
// clients there are and what each may send, and waits for statements to end.
type gate struct {
	net.Listener
	max int
	mu  struct {
		sync.Mutex
		conns map[*guard]struct{}
		// running counts statements; quiet is closed when shut is set and none runs.
		running int
		shut    bool
		quiet   chan struct{}
	}
	// gone is closed by shut, for an Accept that pauses.
	gone chan struct{}
}

func newGate(ln net.Listener, maxConns int) *gate {
	g := &gate{Listener: ln, max: maxConns, gone: make(chan struct{})}
	g.mu.conns = make(map[*guard]struct{})
	g.mu.quiet = make(chan struct{})
	return g
}

// Accept implements net.Listener. It fails only when the gate is shut, or the
// listener was closed by somebody else.
func (g *gate) Accept() (net.Conn, error) {
	for pause := time.Millisecond; ; {
		conn, err := g.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, err
		case err != nil:
			// Out of descriptors, most likely: those that are open go on.
			select {
			case <-time.After(pause):
			case <-g.gone:
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		if c := g.admit(conn); c != nil {
			return c, nil
		}
	}
}

func (g *gate) admit(conn net.Conn) *guard {
	c := &guard{Conn: conn, gate: g, allowed: loginBytes}
	c.SetDeadline(time.Now().Add(loginTimeout))
	g.mu.Lock()
	refused := g.mu.shut || len(g.mu.conns) >= g.max
	if !refused {
		g.mu.conns[c] = struct{}{}
	}
	g.mu.Unlock()
	if refused {
		conn.Write(tooMany())
		conn.Close()
		return nil
	}
	return c
}

// tooMany is the packet that a client gets instead of a greeting: error 1040.
func tooMany() []byte {
	const text = "Too many connections"
	return append([]byte{byte(3 + len(text)), 0, 0, 0, 0xff, 1040 & 0xff, 1040 >> 8}, text...)
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.mu.conns)
}

// isShut reports whether the end of Accept was wanted.
func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.shut
}

// shut takes no more clients and statements, waits for those that run until ctx
// ends, and closes all connections.
func (g *gate) shut(ctx context.Context) error {
	g.mu.Lock()
	if !g.mu.shut {
		g.mu.shut = true
		close(g.gone)
		if g.mu.running == 0 {
			close(g.mu.quiet)
		}
	}
	g.mu.Unlock()
	g.Listener.Close()
	var err error
	select {
	case <-g.mu.quiet:
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	conns := make([]*guard, 0, len(g.mu.conns))
	for c := range g.mu.conns {
		conns = append(conns, c)
	}
	g.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	return err
}

// guard is a client's connection. But for Close it belongs to the goroutine
// that serves the client.
type guard struct {
	net.Conn
	gate *gate
	// allowed is what the client may still send before it gets an answer.
	allowed int
	// in is set when the client has logged in.
	in bool
}

var errTooLong = errors.New("the client has sent more than a statement may have")

// guardOf returns the guard of a connection, which TLS may have wrapped.
func guardOf(conn net.Conn) *guard {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapped.NetConn()
	}
	c, _ := conn.(*guard)
	return c
}

// Read implements net.Conn.
func (c *guard) Read(b []byte) (int, error) {
	if c.allowed <= 0 {
		return 0, errTooLong
	}
	n, err := c.Conn.Read(b[:min(len(b), c.allowed)])
	c.allowed -= n
	return n, err
}

// Write implements net.Conn. What a client is told ends what it has sent.
func (c *guard) Write(b []byte) (int, error) {
	if c.in {
		c.allowed = commandBytes
		c.SetWriteDeadline(time.Now().Add(sendTimeout))
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *guard) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.mu.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// letIn is called when the client has logged in.
func (c *guard) letIn() {
	c.in, c.allowed = true, commandBytes
	c.SetDeadline(time.Time{})
}

// begin and end stand around a statement. After shut there is none to begin.
func (c *guard) begin() bool {
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.shut {
		return false
	}
	g.mu.running++
	return true
}

func (c *guard) end() {
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.running--; g.mu.running == 0 && g.mu.shut {
		close(g.mu.quiet)
	}
}
