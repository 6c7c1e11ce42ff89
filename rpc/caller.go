package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/proxy"
	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/remote/trans/gonet"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/rpcinfo/remoteinfo"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/stats"
	"github.com/cloudwego/kitex/pkg/utils"
	"github.com/cloudwego/kitex/transport"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
)

// caller makes calls of one service over the connections of a pool. Kitex
// encodes, sends, receives and decodes; which connection, for how long and
// whether again is decided here: its resolver, load balancer, time-outs,
// retries and backup requests are off.
type caller struct {
	id    *Identity
	pool  *pool
	kitex client.Client
}

func newCaller(id *Identity, p *pool, service *serviceinfo.ServiceInfo) (*caller, error) {
	k, err := client.NewClient(service,
		client.WithDestService(service.ServiceName),
		client.WithTransportProtocol(transport.Framed),
		client.WithConnPool(carried{}),
		client.WithProxy(carried{}),
		client.WithTransHandlerFactory(gatedFactory{gonet.NewCliTransHandlerFactory()}),
		client.WithStatsLevel(stats.LevelDisabled),
		// What these carry from call to call has no place in a frame.
		client.Option{F: func(o *client.Options, _ *utils.Slice) { o.MetaHandlers = nil }},
	)
	if err != nil {
		return nil, fmt.Errorf("kitex client of %s: %w", service.ServiceName, err)
	}
	return &caller{id: id, pool: p, kitex: k}, nil
}

// call makes one call whose messages are generated code, and returns when it
// has ended or ctx has. limit bounds the reply in bytes.
func (c *caller) call(ctx context.Context, addr block.Addr, method string, limit int, args, result any) (*clientConn, error) {
	conn, err := c.pool.get(ctx, addr)
	if err != nil {
		return nil, err
	}
	conn.limit = limit
	stop := context.AfterFunc(ctx, conn.cut)
	err = c.do(conn, method, args, result)
	if !stop() {
		c.pool.drop(conn)
		return nil, ctx.Err()
	}
	if err != nil {
		c.pool.drop(conn)
		return nil, err
	}
	return conn, nil
}

// do makes one call over conn; after an error, and when conn is not healthy,
// no other call can follow on it.
func (c *caller) do(conn *clientConn, method string, args, result any) error {
	conn.healthy = false
	err := c.kitex.Call(conn.ctx, method, args, result)
	if d, ok := err.(*kerrors.DetailedError); ok && d.Unwrap() != nil {
		err = d.Unwrap() // the cause alone: Kitex's words around it tell nothing more
	}
	var said *remote.TransError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said) && said.TypeID() == exceptionRefused:
		return fmt.Errorf("%w: %w", block.ErrRefused, err)
	}
	return rejected(err)
}

// release gives a connection back whose call is over.
func (c *caller) release(conn *clientConn) {
	if conn.healthy {
		c.pool.put(conn)
	} else {
		c.pool.drop(conn)
	}
}

// accept checks the Base of a reply and its Failure.
func (c *caller) accept(conn *clientConn, b *headstart.Base, f *headstart.Failure, p policy) error {
	_, err := conn.peer.meetBase(c.id, b, reply, p)
	if f != nil && (err == nil || f.Code == failRefused) {
		return errorOf(f)
	}
	return err
}

// carried gives Kitex the connection that the context of a call carries, in
// the two places where it asks for one: as a proxy, which knows the address,
// and as a connection pool.
type carried struct{}

var errNoConnection = errors.New("call without a connection")

func carriedBy(ctx context.Context) (*clientConn, error) {
	c, ok := ctx.Value(connKey{}).(*clientConn)
	if !ok {
		return nil, errNoConnection
	}
	return c, nil
}

// Configure implements proxy.ForwardProxy.
func (carried) Configure(*proxy.Config) error { return nil }

// ResolveProxyInstance implements proxy.ForwardProxy.
func (carried) ResolveProxyInstance(ctx context.Context) error {
	c, err := carriedBy(ctx)
	if err != nil {
		return err
	}
	remoteinfo.AsRemoteInfo(rpcinfo.GetRPCInfo(ctx).To()).SetInstance(c.instance)
	return nil
}

// Get implements remote.ConnPool.
func (carried) Get(ctx context.Context, _, _ string, _ remote.ConnOption) (net.Conn, error) {
	return carriedBy(ctx)
}

// Put implements remote.ConnPool.
func (carried) Put(conn net.Conn) error {
	conn.(*clientConn).healthy = true
	return nil
}

// Discard implements remote.ConnPool.
func (carried) Discard(net.Conn) error { return nil }

// Close implements remote.ConnPool.
func (carried) Close() error { return nil }

// gatedFactory and gated put the check of frames before Kitex's decoding.
type gatedFactory struct {
	remote.ClientTransHandlerFactory
}

// NewTransHandler implements remote.ClientTransHandlerFactory.
func (f gatedFactory) NewTransHandler(o *remote.ClientOption) (remote.ClientTransHandler, error) {
	h, err := f.ClientTransHandlerFactory.NewTransHandler(o)
	if err != nil {
		return nil, err
	}
	return gated{h}, nil
}

type gated struct{ remote.ClientTransHandler }

// reading is the reading side of Kitex's Thrift codec.
type reading interface {
	Read(ctx context.Context, method string, size int, r bufiox.Reader) error
}

var (
	_ reading = (*stream)(nil)
	_ reading = (*readCall)(nil)
)

// Read implements remote.TransReadWriter.
func (g gated) Read(ctx context.Context, conn net.Conn, m remote.Message) (context.Context, error) {
	c := conn.(*clientConn)
	_, streamed := m.Data().(*stream)
	if streamed {
		c.pause() // the request is out
	}
	f, err := peekFrame(c.r, c.limit)
	if err == nil && f.kind == thriftCall {
		err = errWire
	}
	// What has a codec of ours is not looked at as a whole: its payload is long,
	// and its lengths are checked one by one.
	if _, ours := m.Data().(reading); err == nil && !(ours && f.kind == thriftReply) {
		err = f.peekWhole(c.r)
	}
	if err != nil {
		return ctx, err
	}
	return g.ClientTransHandler.Read(ctx, conn, m)
}

// within returns how long a call may take that ctx bounds, 0 without a bound.
func within(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(deadline), time.Millisecond)
}
