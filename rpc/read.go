package rpc

import (
	"context"
	"crypto/subtle"
	"fmt"
	"time"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/gopkg/protocol/thrift"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
)

// MaxRead is the most bytes that one Read brings; longer reads take several.
const MaxRead = 16 << 20

// repSource is the field of ReadReply that FetchReply does not have.
const repSource = 4

// ReadResult is what a Read has brought.
type ReadResult struct {
	// N is how many bytes were read: less than asked for at the end of the
	// object, and where the node at the other end has set a bound.
	N int
	// Meta is what the node knows of the object.
	Meta block.Meta
	// Source says where the first byte came from.
	Source block.Source
}

// Read reads bytes of an object through the node at addr, as one who is not a
// node of the cluster: r.Size bytes from r.Offset on, up to the end when that
// is negative, but no more than dst holds or MaxRead. Nothing is written into
// dst once Read has returned.
func (c *Client) Read(ctx context.Context, addr block.Addr, r *block.Read, dst []byte) (ReadResult, error) {
	if len(dst) > MaxRead {
		dst = dst[:MaxRead]
	}
	if r.Size >= 0 && r.Size < int64(len(dst)) {
		dst = dst[:r.Size]
	}
	offset, packed, err := unpacked(r)
	if err == nil && len(r.Trace) > maxName {
		err = fmt.Errorf("%w: a traceparent of %d bytes", block.ErrInvalid, len(r.Trace))
	}
	if err != nil {
		return ReadResult{}, peerError("read", r.Object, addr, err)
	}
	if packed != nil {
		dst = dst[:min(int64(len(dst)), r.Packed.Size-r.Offset)]
	}
	call := readCall{client: c, dst: dst}
	args := headstart.PeerReadArgs{Req: &headstart.ReadRequest{
		Base:       c.caller.id.now.Load().base(request),
		ReadToken:  c.readToken,
		Object:     wireObject(r.Object),
		Version:    string(r.Version),
		Route:      &headstart.Route{Kind: int32(r.Route.Kind), Id: int64(r.Route.ID)},
		Offset:     offset,
		Packed:     packed,
		Size:       int64(len(dst)),
		Kind:       int32(r.Kind),
		Queue:      int32(r.Queue),
		QueryId:    r.QueryID,
		DeadlineMs: milliseconds(within(ctx)),
	}}
	if r.Trace != "" {
		args.Req.Traceparent = &r.Trace
	}
	conn, err := c.caller.call(ctx, addr, methodRead, maxHead+len(dst), &args, &call)
	if err == nil {
		c.caller.release(conn)
		err = call.refused
	}
	if err != nil {
		return ReadResult{}, peerError("read", r.Object, addr, err)
	}
	return call.result, nil
}

// unpacked returns where in its object a read begins, and the file in it that
// the read is of, if it is a packed one.
func unpacked(r *block.Read) (int64, *headstart.Slice, error) {
	p := r.Packed
	if p == nil {
		return r.Offset, nil, nil
	}
	if p.Offset < 0 || p.Offset+p.Size < p.Offset || r.Offset < 0 || r.Offset > p.Size {
		return 0, nil, fmt.Errorf("%w: offset %d of a packed file of %d bytes at %d", block.ErrRange, r.Offset, p.Size, p.Offset)
	}
	return p.Offset + r.Offset, &headstart.Slice{Offset: p.Offset, Size: p.Size}, nil
}

// readCall is the result of one Read call on its way into the caller's memory.
type readCall struct {
	client *Client
	// conn is the call's connection; its context brings it.
	conn   *clientConn
	dst    []byte
	result ReadResult
	// refused is why the call gave nothing, although the reply was well formed.
	refused error
}

// Read implements the reading side of Kitex's Thrift codec.
func (r *readCall) Read(ctx context.Context, _ string, size int, _ bufiox.Reader) error {
	conn, err := carriedBy(ctx)
	if err != nil {
		return err
	}
	r.conn = conn
	return conn.walk(size).arguments(0, r.readReply)
}

func (r *readCall) readReply(c *cursor) {
	known, seen := false, false // a Base, a payload
	for t, id, ok := c.field(); ok; t, id, ok = c.field() {
		switch {
		case seen && id <= repSource:
			c.fail(fmt.Errorf("%w: a field behind the payload", errWire))
		case id == repBase && c.is(t, thrift.STRUCT):
			known = true
			// The node may be of a cluster that this caller knows nothing of.
			_, err := r.conn.peer.meet(r.client.caller.id, c.record(), reply, joining)
			r.refuse(err)
		case id == repFailure && c.is(t, thrift.STRUCT):
			r.refuse(errorOf(c.failure()))
		case id == repMeta && c.is(t, thrift.STRUCT):
			r.result.Meta = c.meta(&r.result.Meta)
		case id == repSource && c.is(t, thrift.I32):
			r.result.Source = block.Source(c.small())
		case id == repPayload && c.is(t, thrift.STRING):
			seen = true
			r.readPayload(c)
		default:
			c.skip(t, maxDepth)
		}
	}
	if c.err == nil && !(known && seen) {
		c.fail(fmt.Errorf("%w: a reply without a base or a payload", errWire))
	}
}

// refuse keeps the first reason.
func (r *readCall) refuse(err error) {
	if r.refused == nil {
		r.refused = err
	}
}

func (r *readCall) readPayload(c *cursor) {
	size := int(c.i32())
	if c.err != nil || size < 0 || size > min(c.left, len(r.dst)) {
		c.fail(fmt.Errorf("%w: %d bytes, at most %d were asked for", errWire, size, len(r.dst)))
		return
	}
	c.left -= size
	c.settle()
	r.client.metrics.bytes.Add(int64(size))
	_, err := r.conn.readFull(r.dst[:size])
	c.fail(err)
	r.result.N = size
}

// readResult is the result of a Read at the server: what it holds is kept with
// the connection.
type readResult struct{ conn *serverConn }

// Write implements the writing side of Kitex's Thrift codec.
func (r *readResult) Write(_ context.Context, _ string, w bufiox.Writer) error {
	return r.conn.write(w)
}

// read serves Read.
func (s *Server) read(ctx context.Context, args *headstart.PeerReadArgs, result *readResult) error {
	c, ok := ctx.Value(connKey{}).(*serverConn)
	if !ok {
		return errNoConnection
	}
	result.conn = c
	meta := block.UnknownMeta("")
	r, err := s.admitRead(c, orEmpty(args.Req))
	if err == nil && !s.reserve(c, readGroup, s.wanted(ctx, r)) {
		err = fmt.Errorf("%w: too much is on its way to callers of Read", block.ErrBusy)
	}
	if err == nil {
		meta, err = s.readViews(c, r, duration(args.Req.DeadlineMs))
	}
	s.encodeRead(c, &meta, err)
	c.reserved.keep(int64(c.total))
	s.bytes.Add(int64(c.total))
	s.extend(c, c.total)
	return nil
}

// readGroup is the compute group that all callers of Read count as: they need
// not say whose they are, and nothing proves what they say. No node's group has
// that name.
const readGroup = "\x00read"

// wanted is how many bytes the reply to r may have, as far as the node knows: most
// callers ask for more than small objects have. One that has grown since is the rare
// exception to the bound.
func (s *Server) wanted(ctx context.Context, r *block.Read) int64 {
	n := int64(MaxRead)
	if r.Size >= 0 {
		n = min(n, r.Size)
	}
	if r.Packed != nil {
		return min(n, max(0, r.Packed.Size-r.Offset))
	}
	if meta, err := s.reader.Stat(ctx, r.Object, r.Version); err == nil && meta.Size >= 0 {
		n = min(n, max(0, meta.Size-r.Offset))
	}
	return n
}

// readViews asks the reader, for as long as the caller waits.
func (s *Server) readViews(c *serverConn, r *block.Read, wait time.Duration) (meta block.Meta, err error) {
	running := &call{}
	c.begin(running, wait)
	defer c.endCall(running)
	c.views, meta, err = s.reader.Read(running, r, MaxRead)
	return meta, err
}

// admitRead checks who asks and for what.
func (s *Server) admitRead(c *serverConn, req *headstart.ReadRequest) (*block.Read, error) {
	_, err := c.peer.meetBase(s.opts.Identity, req.Base, request, guest)
	if err == nil && !s.readable(req.ReadToken) {
		err = fmt.Errorf("%w: its read_token is not this node's", block.ErrRefused)
	}
	if err != nil {
		s.refuse(c, err)
		return nil, err
	}
	route := orEmpty(req.Route)
	r := &block.Read{
		Object:  objectOf(orEmpty(req.Object)),
		Version: block.Version(req.Version),
		Route:   block.Route{Kind: block.RouteKind(route.Kind), ID: uint64(route.Id)},
		Offset:  req.Offset,
		Size:    req.Size,
		Kind:    block.Kind(req.Kind),
		Queue:   block.Queue(req.Queue),
		QueryID: req.QueryId,
		Trace:   req.GetTraceparent(),
	}
	if p := req.Packed; p != nil {
		r.Packed = &block.Slice{Offset: p.Offset, Size: p.Size}
		r.Offset -= p.Offset
	}
	if r.Object.Store == "" {
		r.Object.Store = block.DefaultStore
	}
	if err := checkNames(r.Object, r.Version, "", r.QueryID); err != nil {
		return nil, err
	}
	if len(r.Trace) > maxName {
		return nil, fmt.Errorf("%w: a traceparent of %d bytes", block.ErrInvalid, len(r.Trace))
	}
	if r.Offset < 0 || req.Offset < 0 || r.Object.Bucket == "" || r.Object.Key == "" ||
		int32(r.Kind) != req.Kind || int32(r.Queue) != req.Queue || int32(r.Route.Kind) != route.Kind {
		return nil, fmt.Errorf("%w: offset %d, kind %d, queue %d of %s", block.ErrInvalid, r.Offset, req.Kind, req.Queue, r.Object)
	}
	return r, s.available()
}

// readable reports whether token opens Read. It takes as long for a token that
// is nearly right as for any other of its length.
func (s *Server) readable(token string) bool {
	if s.opts.ReadToken == nil {
		return true
	}
	want := s.opts.ReadToken()
	return want == "" || subtle.ConstantTimeCompare([]byte(token), []byte(want)) == 1
}

// encodeRead makes the reply out of the views of c.
func (s *Server) encodeRead(c *serverConn, meta *block.Meta, err error) {
	c.newReply()
	source := block.SourceNone
	for i := 0; i < len(c.views) && err == nil; i++ {
		v := &c.views[i]
		if i == 0 {
			source = v.Source
		}
		err = c.add(&v.Lease, v.From, min(v.To, v.From+MaxRead-c.total))
	}
	if c.total > 0 {
		err = nil // a part is gone from the cache: the caller comes back for the rest
	}
	b := appendField(c.head, thrift.STRUCT, 0)
	b = append(appendField(b, thrift.STRUCT, repBase), s.opts.Identity.now.Load().reply...)
	if err != nil {
		b = appendFailure(b, repFailure, failureOf(err))
	}
	b = appendMeta(b, repMeta, meta)
	c.head = appendI32(b, repSource, int32(source))
}
