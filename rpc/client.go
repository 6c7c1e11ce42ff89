package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
)

// ClientOptions configure a Client. Only Identity and Alloc must be set.
type ClientOptions struct {
	Identity *Identity
	// Alloc gives the buffer that a block is read into, block.ErrBusy when
	// there is none.
	Alloc func(n int) (*block.Buf, error)
	// ConnectTimeout is 200 ms by default; a connection is tried once.
	ConnectTimeout time.Duration
	// IdleTimeout is how long a connection is kept without use, 30 s by default:
	// less than servers keep theirs.
	IdleTimeout time.Duration
	// MaxConnsPerAddr bounds the connections to one node, 256 by default. A
	// call for which there is none fails with block.ErrBusy.
	MaxConnsPerAddr int
	// ReadToken is what Read presents.
	ReadToken string
	// TLS is nil for plain text.
	TLS *TLS
}

// Validate reports what is missing or out of range.
func (o *ClientOptions) Validate() error {
	switch {
	case o.Identity == nil:
		return errors.New("rpc client: Identity is not set")
	case o.Alloc == nil:
		return errors.New("rpc client: Alloc is not set")
	case o.ConnectTimeout < 0 || o.IdleTimeout < 0 || o.MaxConnsPerAddr < 0:
		return errors.New("rpc client: a time-out or a bound is negative")
	}
	return nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Client reads from the File Cache of other BEs. It implements block.Peers.
type Client struct {
	caller    *caller
	pool      *pool
	alloc     func(n int) (*block.Buf, error)
	readToken string
	// callIDs counts from a random start, so that the ids of two processes of
	// one node don't meet.
	callIDs atomic.Uint64
	// grace is cancelGrace, but for tests.
	grace   time.Duration
	metrics clientCounters
}

var _ block.Peers = (*Client)(nil)

type clientCounters struct {
	calls, cancels, cuts, bytes, wasted atomic.Int64
}

// ClientMetrics is what a Client has counted so far.
type ClientMetrics struct {
	// Calls are FetchBlocks calls, Cancels the Cancel messages sent for them,
	// Cuts the connections closed because a cancelled call was not answered.
	Calls, Cancels, Cuts int64
	// Bytes are payload bytes received, WastedBytes those of them that nobody
	// wanted any more.
	Bytes, WastedBytes int64
	// Conns are open connections, Idle those without a call. Dials counts
	// connections made or tried, DialErrors those that failed.
	Conns, Idle       int
	Dials, DialErrors int64
}

// NewClient returns a client; Close stops it.
func NewClient(o ClientOptions) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Client{alloc: o.Alloc, readToken: o.ReadToken, grace: cancelGrace}
	c.callIDs.Store(rand.Uint64())
	c.pool = newPool(o.TLS,
		orDefault(o.ConnectTimeout, connectTimeout),
		orDefault(o.IdleTimeout, clientIdle),
		orDefault(o.MaxConnsPerAddr, 256))
	var err error
	if c.caller, err = newCaller(o.Identity, c.pool, peerService()); err != nil {
		c.pool.close()
		return nil, err
	}
	return c, nil
}

// Close closes all connections: running calls fail.
func (c *Client) Close() error {
	c.pool.close()
	return nil
}

// Metrics returns what the client has counted so far.
func (c *Client) Metrics() ClientMetrics {
	m := ClientMetrics{
		Calls:       c.metrics.calls.Load(),
		Cancels:     c.metrics.cancels.Load(),
		Cuts:        c.metrics.cuts.Load(),
		Bytes:       c.metrics.bytes.Load(),
		WastedBytes: c.metrics.wasted.Load(),
		Dials:       c.pool.dials.Load(),
		DialErrors:  c.pool.dialErrors.Load(),
	}
	m.Conns, m.Idle = c.pool.counts()
	return m
}

// FetchFrom implements block.Peers. ctx bounds the whole call, and its
// deadline travels; when it ends, or the stream is closed, the peer is told so
// and the connection stays usable. A stream that is not closed keeps its
// connection until ctx ends.
func (c *Client) FetchFrom(ctx context.Context, addr block.Addr, f *block.Fetch) (block.Stream, error) {
	if err := checkFetch(f); err != nil {
		return nil, peerError("fetch", f.Object, addr, err)
	}
	conn, err := c.pool.get(ctx, addr)
	if err != nil {
		return nil, peerError("fetch", f.Object, addr, err)
	}
	s := &stream{
		client:   c,
		conn:     conn,
		addr:     addr,
		object:   f.Object,
		size:     f.Meta.Size,
		version:  f.Meta.Version,
		geometry: block.Geometry(f.BlockSize),
		run:      f.Run,
		callID:   c.nextCallID(),
		meta:     block.UnknownMeta(""),
	}
	c.metrics.calls.Add(1)
	conn.limit = maxHead + f.Run.Count()*int(f.BlockSize)
	conn.out = appendFetch(conn.out[:0], c.caller.id.now.Load().request, f, s.callID, within(ctx))
	s.start(ctx)
	return s, nil
}

// nextCallID returns an id that is not 0, which means that there is none.
func (c *Client) nextCallID() uint64 {
	for {
		if id := c.callIDs.Add(1); id != 0 {
			return id
		}
	}
}

// checkFetch refuses what the wire cannot carry, before a peer is blamed.
func checkFetch(f *block.Fetch) error {
	switch {
	case f.BlockSize < 1 || f.BlockSize > MaxBlockSize:
		return fmt.Errorf("%w: block size %d is not in 1..%d", block.ErrInvalid, f.BlockSize, MaxBlockSize)
	case len(f.Trace) > maxName:
		return fmt.Errorf("%w: a traceparent of %d bytes", block.ErrInvalid, len(f.Trace))
	case f.Run.Want == 0 || f.Run.First > maxIndex(f.BlockSize):
		return fmt.Errorf("%w: no blocks, or blocks past every object (%v)", block.ErrInvalid, f.Run)
	}
	return checkNames(f.Object, f.Meta.Version, f.Meta.ETag, f.QueryID)
}

func checkNames(o block.Object, v block.Version, etag, queryID string) error {
	if max(len(o.Store), len(o.Bucket), len(v), len(etag), len(queryID)) > maxName || len(o.Key) > maxKey {
		return fmt.Errorf("%w: a name of the object is too long", block.ErrInvalid)
	}
	return nil
}

// maxIndex is the largest first block of a run whose bytes can be counted.
func maxIndex(blockSize int64) uint64 { return uint64(1<<62/blockSize - block.MaxRun) }

// Stat asks the node at addr what it knows, or can learn, of an object.
func (c *Client) Stat(ctx context.Context, addr block.Addr, o block.Object, v block.Version) (block.Meta, error) {
	var args headstart.PeerStatArgs
	var result headstart.PeerStatResult
	args.Req = &headstart.StatRequest{Base: c.caller.id.now.Load().base(request), Object: wireObject(o), Version: string(v)}
	conn, err := c.caller.call(ctx, addr, methodStat, maxHead, &args, &result)
	if err != nil {
		return block.Meta{}, peerError("stat", o, addr, err)
	}
	defer c.caller.release(conn)
	rep := result.GetSuccess()
	if rep == nil {
		return block.Meta{}, peerError("stat", o, addr, errWire)
	}
	if err := c.caller.accept(conn, rep.Base, rep.Failure, strict); err != nil {
		return block.Meta{}, peerError("stat", o, addr, err)
	}
	return metaOf(rep.Meta), nil
}

// cancel tells a node, behind the caller's back, that a call is not wanted any
// more. It tries for as long as the call's connection is kept.
func (c *Client) cancel(addr block.Addr, callID uint64) {
	c.metrics.cancels.Add(1)
	go func() { // ends with grace
		ctx, done := context.WithTimeout(context.Background(), c.grace)
		defer done()
		var args headstart.PeerCancelArgs
		var result headstart.PeerCancelResult
		args.Req = &headstart.CancelRequest{Base: c.caller.id.now.Load().base(request), CallId: int64(callID)}
		if conn, err := c.caller.call(ctx, addr, methodCancel, maxHead, &args, &result); err == nil {
			c.caller.release(conn)
		}
	}()
}
