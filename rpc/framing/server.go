package framing

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// Server runs an HTTP server behind Scanners. It knows of each connection whether
// a request is under way on it: the server itself takes one for busy from its
// first byte on, and waits for the rest of its header as long as for an answer.
type Server struct {
	HTTP   *fasthttp.Server
	Limits Limits
	// Wrap, when not nil, makes of a connection what HTTP works with.
	Wrap func(*Conn) net.Conn

	// stopped is set by Shutdown, before it looks for connections that wait: one
	// that begins to wait later finds it set.
	stopped atomic.Bool
	mu      struct {
		sync.Mutex
		listeners []*listener
		conns     map[*Conn]struct{}
	}
}

// GiveTime gives clients WriteTimeout for what h says outside its handler's answers:
// 100 Continue, and that a request can't be read. h itself sets no deadline for
// these, and that of the answer before may be long past. Without an ExpectHandler
// every body is asked for.
func GiveTime(h *fasthttp.Server) {
	give := func(ctx *fasthttp.RequestCtx) {
		_ = ctx.Conn().SetWriteDeadline(time.Now().Add(h.WriteTimeout)) // fails only on a closed connection
	}
	expect, broken := h.ExpectHandler, h.ErrorHandler
	h.ExpectHandler = func(ctx *fasthttp.RequestCtx) int {
		give(ctx)
		if expect == nil {
			return fasthttp.StatusContinue
		}
		return expect(ctx)
	}
	h.ErrorHandler = func(ctx *fasthttp.RequestCtx, err error) {
		give(ctx)
		broken(ctx, err)
	}
}

// Serve answers on ln until Shutdown, which may have come before.
func (s *Server) Serve(ln net.Listener) error {
	l := &listener{Listener: ln, server: s}
	s.mu.Lock()
	s.mu.listeners = append(s.mu.listeners, l)
	s.mu.Unlock()
	if s.Stopping() {
		return l.Close()
	}
	err := s.HTTP.Serve(l)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Shutdown stops taking requests and waits for those under way, or for ctx.
// Connections without one, and those that have sent a part of a header, end at
// once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopped.Store(true)
	s.mu.Lock()
	var errs []error
	for _, ln := range s.mu.listeners { // the server may not know of them yet
		errs = append(errs, ln.Close())
	}
	for c := range s.mu.conns {
		c.leave()
	}
	s.mu.Unlock()
	return errors.Join(append(errs, s.HTTP.ShutdownWithContext(ctx))...)
}

// Stopping reports whether Shutdown has begun.
func (s *Server) Stopping() bool { return s != nil && s.stopped.Load() }

func (s *Server) remember(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.conns == nil {
		s.mu.conns = make(map[*Conn]struct{})
	}
	s.mu.conns[c] = struct{}{}
}

func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
}

// listener puts every connection that it accepts behind a Scanner. Two may close
// it.
type listener struct {
	net.Listener
	server *Server
	once   sync.Once
	err    error
}

// acceptPause is how long a server waits for what it needs for one more connection.
const acceptPause = 50 * time.Millisecond

// exhausted reports whether the system lacks what comes back when connections end.
// The HTTP server would take it for the end of its listener.
func exhausted(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && (errno.Temporary() || errno == syscall.ENOBUFS || errno == syscall.ENOMEM)
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	for exhausted(err) {
		time.Sleep(acceptPause)
		raw, err = l.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	c := NewConn(raw, l.server.Limits)
	c.server = l.server
	l.server.remember(c)
	if l.server.Wrap == nil {
		return c, nil
	}
	return l.server.Wrap(c), nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { l.err = l.Listener.Close() })
	return l.err
}
