package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/remote/trans/gonet"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/stats"
	"github.com/cloudwego/kitex/pkg/utils"
	"github.com/cloudwego/kitex/server"

	"headstart/engine/block"
	"headstart/pools"
	"headstart/rpc/kitex_gen/headstart"
)

// ServerOptions configure a Server or a DirectoryServer. Only Listener and
// Identity must be set.
type ServerOptions struct {
	Listener net.Listener
	Identity *Identity
	// HTTP serves a connection that speaks HTTP, until it returns; nil closes
	// such connections.
	HTTP func(net.Conn)
	// IdleTimeout is how long a connection without a call is kept, 2 minutes by
	// default: longer than clients keep theirs.
	IdleTimeout time.Duration
	// ReceiveTimeout is how long a request may take to arrive from its first
	// byte on, 10 s by default.
	ReceiveTimeout time.Duration
	// SendTimeout is how long a reply may take to be sent, 10 s by default, and
	// a tenth of it more for each MiB of the reply. Then the receiver is cut off.
	SendTimeout time.Duration
	// MaxConns bounds the connections, DefaultMaxConns by default; those beyond are
	// closed.
	MaxConns int
	// ReadToken returns what callers of Read must present now; nil, and "", ask
	// for nothing.
	ReadToken func() string
	// GroupBytes bounds what is being sent to the nodes of one compute group at a
	// time, in bytes; nil bounds nothing.
	GroupBytes *pools.Shares
	// TLS is nil for plain text.
	TLS *TLS
	// Control is what a Server does for FEs; nil does nothing for them.
	Control Control
	Logger  *slog.Logger
}

// Validate reports what is missing or out of range.
func (o *ServerOptions) Validate() error {
	switch {
	case o.Listener == nil:
		return errors.New("rpc server: Listener is not set")
	case o.Identity == nil:
		return errors.New("rpc server: Identity is not set")
	case o.IdleTimeout < 0 || o.ReceiveTimeout < 0 || o.SendTimeout < 0 || o.MaxConns < 0:
		return errors.New("rpc server: a time-out or a bound is negative")
	}
	return nil
}

// DefaultMaxConns is how many connections a server has at most if its options
// don't say, and ConnBytes about what one of them takes, beside the blocks that
// it is sending: its stack, its buffers and its share of Kitex.
const (
	DefaultMaxConns = 10_000
	ConnBytes       = 32 << 10
)

// acceptor accepts the connections of one Kitex server, checks what they
// announce, and knows which calls run, so that it can stop without cutting
// them. It implements Kitex's TransServer and its factory.
type acceptor struct {
	opts    ServerOptions
	kitex   server.Server
	handler remote.ServerTransHandler
	// ctx ends when the acceptor is closed.
	ctx   context.Context
	close context.CancelFunc
	// running is closed by Kitex's asking for an exit signal: from then on it
	// can bear that accepting ends.
	running chan struct{}
	// leaving is set once and for all by shutdown; calls that see it answer
	// "going away".
	leaving atomic.Bool

	mu struct {
		sync.Mutex
		conns   map[*serverConn]struct{}
		running int
		closed  bool
		// quiet is closed when no call runs and leaving is set.
		quiet chan struct{}
	}
	accepts, badFrames, calls, refused atomic.Int64
	// toldAt is when a refusal was logged last, in Unix nanoseconds.
	toldAt atomic.Int64
}

// tellEvery is how often refusals are logged: a node that was set up wrongly
// knocks again and again.
const tellEvery = 30 * time.Second

func newAcceptor(o ServerOptions, service *serviceinfo.ServiceInfo, handler any) (*acceptor, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.IdleTimeout = orDefault(o.IdleTimeout, serverIdle)
	o.ReceiveTimeout = orDefault(o.ReceiveTimeout, 10*time.Second)
	o.SendTimeout = orDefault(o.SendTimeout, 10*time.Second)
	o.MaxConns = orDefault(o.MaxConns, DefaultMaxConns)
	o.Logger = orDefault(o.Logger, slog.Default())
	a := &acceptor{opts: o, running: make(chan struct{})}
	a.ctx, a.close = context.WithCancel(context.Background())
	a.mu.conns = make(map[*serverConn]struct{})
	a.kitex = server.NewServer(
		server.WithListener(o.Listener),
		server.WithTransServerFactory(a),
		server.WithTransHandlerFactory(gonet.NewSvrTransHandlerFactory()),
		// Signals are the business of cmd: Kitex waits for the listener alone.
		server.WithExitSignal(func() <-chan error {
			close(a.running)
			return nil
		}),
		server.WithStatsLevel(stats.LevelDisabled),
		// What these carry from call to call has no place in a frame.
		server.Option{F: func(o *server.Options, _ *utils.Slice) { o.MetaHandlers = nil }},
	)
	if err := a.kitex.RegisterService(service, handler); err != nil {
		return nil, fmt.Errorf("kitex server of %s: %w", service.ServiceName, err)
	}
	return a, nil
}

// NewTransServer implements remote.TransServerFactory.
func (a *acceptor) NewTransServer(_ *remote.ServerOption, h remote.ServerTransHandler) remote.TransServer {
	a.handler = h
	return a
}

// CreateListener implements remote.TransServer; there is one already.
func (a *acceptor) CreateListener(net.Addr) (net.Listener, error) { return a.opts.Listener, nil }

// BootstrapServer implements remote.TransServer: it accepts until the listener
// is closed.
func (a *acceptor) BootstrapServer(ln net.Listener) error {
	a.accept(ln)
	<-a.running
	return nil
}

func (a *acceptor) accept(ln net.Listener) {
	for pause := time.Millisecond; ; {
		conn, err := ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// Out of descriptors, most likely: those that are open go on.
			a.opts.Logger.Warn("accept failed", "addr", ln.Addr(), "err", err, "pause", pause)
			select {
			case <-time.After(pause):
			case <-a.ctx.Done():
				return
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		a.accepts.Add(1)
		if c := a.admit(conn); c != nil {
			go a.serve(c) // ends with its connection, which Shutdown closes
		}
	}
}

// ConnCount implements remote.TransServer.
func (a *acceptor) ConnCount() utils.AtomicInt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return utils.AtomicInt(len(a.mu.conns))
}

// Shutdown implements remote.TransServer for Kitex, which calls it when the
// listener is closed. What is to be done then is done by shutdown.
func (a *acceptor) Shutdown() error { return nil }

func (a *acceptor) admit(conn net.Conn) *serverConn {
	c := newServerConn(a.ctx, conn)
	a.mu.Lock()
	refused := a.mu.closed || len(a.mu.conns) >= a.opts.MaxConns
	if !refused {
		a.mu.conns[c] = struct{}{}
	}
	a.mu.Unlock()
	if refused {
		c.Close()
		return nil
	}
	return c
}

// serve serves one connection until it ends.
func (a *acceptor) serve(c *serverConn) {
	defer func() {
		if p := recover(); p != nil { // one connection's death is enough
			a.opts.Logger.Error("panic while serving a connection", "panic", p, "stack", string(debug.Stack()))
		}
		c.finish()
		c.Close()
		c.r.Release(nil)
		a.mu.Lock()
		delete(a.mu.conns, c)
		a.mu.Unlock()
	}()
	if err := a.open(c); err != nil {
		if !hungUp(err) {
			a.refuse(c, err)
		}
		return
	}
	ctx, err := a.handler.OnActive(c.ctx, c)
	if err != nil {
		return
	}
	for a.serveOne(ctx, c) == nil {
	}
}

// open makes a connection secure if that is wanted.
func (a *acceptor) open(c *serverConn) error {
	if !a.opts.TLS.on() {
		return nil
	}
	c.expectRead(time.Now(), a.opts.IdleTimeout)
	first, err := c.r.Peek(1)
	if err != nil || first[0] != firstOfTLS {
		return nil // serveOne knows what to say
	}
	end := time.Now().Add(a.opts.ReceiveTimeout)
	c.hurryRead(end)
	c.SetWriteDeadline(end)
	return c.open(a.opts.TLS)
}

// hungUp reports that a handshake has ended because the other side went away or
// said nothing more, as a health check or a scan does: nobody was refused then.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// serveOne waits for the next request and answers it.
func (a *acceptor) serveOne(ctx context.Context, c *serverConn) error {
	c.expectRead(time.Now(), a.opts.IdleTimeout)
	first, err := c.r.Peek(1)
	if err != nil {
		return err
	}
	if c.sealed == nil && (first[0] == firstOfTLS || a.opts.TLS.on()) {
		return a.disagree(c, first[0])
	}
	if c.sealed != nil {
		if err := a.opts.TLS.admits(c.sealed.tls, &c.sealed.allowed); err != nil {
			a.refuse(c, err)
			return err
		}
	}
	if first[0] >= 'A' { // no frame is that long, all methods of HTTP are words
		return a.serveHTTP(c)
	}
	now := time.Now()
	if err := a.receive(c, now); err != nil {
		a.badFrames.Add(1)
		return err
	}
	c.now = now
	c.expectWrite(now, a.opts.SendTimeout)
	a.enter()
	defer a.leave()
	defer c.finish()
	err = a.handler.OnRead(ctx, c)
	if err == nil && c.sealed != nil {
		err = c.sealed.flush()
	}
	if errors.Is(err, syscall.EFAULT) {
		c.lost()
	}
	return err
}

// firstOfTLS is the first byte of a TLS handshake; no frame is that long.
const firstOfTLS = 22

// exceptionRefused is the type of the exception that a node gets which speaks
// plain text to one that doesn't.
const exceptionRefused = 1001

// disagree tells a caller that the two nodes don't agree on TLS, in the words of
// whatever it speaks.
func (a *acceptor) disagree(c *serverConn, first byte) error {
	why := errTLSOn
	if first == firstOfTLS {
		why = errTLSOff
	}
	a.refuse(c, why) // before the caller hears of it
	now := time.Now()
	c.expectWrite(now, a.opts.SendTimeout)
	switch {
	case first == firstOfTLS:
		c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) // a fatal alert: handshake failure
	case first >= 'A':
		io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"+
			"this port speaks TLS only (enable_peer_tls)\n")
	default:
		if a.receive(c, now) == nil {
			c.Write(exceptionFor(c.r, exceptionRefused, "this node speaks TLS only: enable_peer_tls is on"))
		}
	}
	return why
}

// receive waits for the rest of a request and refuses what is none.
func (a *acceptor) receive(c *serverConn, now time.Time) error {
	if c.r.Buffered() < lengthLen+8 {
		c.hurryRead(now.Add(a.opts.ReceiveTimeout))
	}
	f, err := peekFrame(c.r, maxRequest)
	if err == nil && f.kind != thriftCall {
		err = errWire
	}
	if err != nil {
		return err
	}
	if c.r.Buffered() >= f.head+f.body {
		// All is here. Our own codec believes no length, that of the other methods
		// must not see any that lies.
		if f.calls(c.r, methodFetch) {
			return nil
		}
	} else {
		c.hurryRead(now.Add(a.opts.ReceiveTimeout))
	}
	return f.peekWhole(c.r)
}

func (a *acceptor) serveHTTP(c *serverConn) error {
	if a.opts.HTTP != nil {
		c.SetDeadline(time.Time{})
		a.opts.HTTP(c)
	}
	return net.ErrClosed
}

// greet checks who calls a method of generated code.
func (a *acceptor) greet(ctx context.Context, b *headstart.Base, p policy) (block.Node, error) {
	c, ok := ctx.Value(connKey{}).(*serverConn)
	if !ok {
		return block.Node{}, errNoConnection
	}
	node, err := c.peer.meetBase(a.opts.Identity, b, request, p)
	if err != nil {
		a.refuse(c, err)
	}
	return node, err
}

// refuse counts a stranger, and at times says who it is.
func (a *acceptor) refuse(c *serverConn, why error) {
	a.refused.Add(1)
	now, told := time.Now().UnixNano(), a.toldAt.Load()
	if told != 0 && now-told < int64(tellEvery) || !a.toldAt.CompareAndSwap(told, now) {
		return
	}
	a.opts.Logger.Warn("a caller was refused", "from", c.RemoteAddr().String(), "error", why, "refused", a.refused.Load())
}

// base is the Base of a reply of generated code.
func (a *acceptor) base() *headstart.Base { return a.opts.Identity.now.Load().base(reply) }

// extend gives the reply of n bytes its time, from now on.
func (a *acceptor) extend(c *serverConn, n int) {
	c.expectWrite(time.Now(), a.opts.SendTimeout+time.Duration(n>>20)*a.opts.SendTimeout/10)
}

func (a *acceptor) enter() {
	a.calls.Add(1)
	a.mu.Lock()
	a.mu.running++
	a.mu.Unlock()
}

func (a *acceptor) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.running--; a.mu.running == 0 && a.mu.quiet != nil {
		close(a.mu.quiet)
		a.mu.quiet = nil
	}
}

// serveAll serves until shutdown.
func (a *acceptor) serveAll() error {
	if err := a.kitex.Run(); err != nil {
		return fmt.Errorf("kitex server on %v: %w", a.opts.Listener.Addr(), err)
	}
	return nil
}

// shutdown lets new calls be told that the node is going away, waits for those
// that run until ctx ends, and closes everything.
func (a *acceptor) shutdown(ctx context.Context) error {
	a.leaving.Store(true)
	quiet := make(chan struct{})
	a.mu.Lock()
	if a.mu.running == 0 || a.mu.quiet != nil {
		close(quiet)
	} else {
		a.mu.quiet = quiet
	}
	a.mu.Unlock()
	var err error
	select {
	case <-quiet:
	case <-ctx.Done():
		err = ctx.Err()
	}
	a.close()
	a.opts.Listener.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	for c := range a.mu.conns {
		c.Close()
	}
	return err
}
