package rpc

import (
	"context"
	"sync/atomic"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/gopkg/protocol/thrift"

	"headstart/engine/block"
	"headstart/pools"
	"headstart/rpc/kitex_gen/headstart"
)

// Reader is what a Server serves.
type Reader interface {
	// ServeBlocks answers for each block that f wants. It fills reply and keeps
	// neither reply nor f; the server releases the leases in reply when their
	// bytes are out. ctx has the caller's deadline and ends when the caller
	// cancels the call or goes away.
	ServeBlocks(ctx context.Context, from block.Node, f *block.Fetch, reply *block.Reply)
	// Stat returns what the node knows of an object. It asks nobody.
	Stat(ctx context.Context, o block.Object, v block.Version) (block.Meta, error)
	// Read reads at most limit bytes of what r asks for, whose names and kinds
	// are not checked. The receiver releases the leases of the views, which it
	// gets with an error too.
	Read(ctx context.Context, r *block.Read, limit int64) ([]block.View, block.Meta, error)
}

// Server serves other BEs, and HTTP on the same port.
type Server struct {
	*acceptor
	reader Reader
	calls  calls

	cancels, bytes, overLimit atomic.Int64
}

// ServerMetrics is what a Server has counted so far.
type ServerMetrics struct {
	// Accepts are connections accepted, Conns those that are open.
	Accepts int64
	Conns   int
	// Calls are calls of all methods, Refused those of strangers, Cancels those
	// that a Cancel message has ended. BadFrames are connections closed because
	// what came was no call.
	Calls, Refused, Cancels, BadFrames int64
	// OverLimit are calls refused because their group's bytes were on their way.
	OverLimit int64
	// Bytes are payload bytes handed to the network.
	Bytes int64
}

// NewServer returns a server; Serve runs it and Shutdown stops it.
func NewServer(o ServerOptions, r Reader) (*Server, error) {
	s := &Server{reader: r}
	s.calls.init()
	a, err := newAcceptor(o, peerService(), s)
	if err != nil {
		return nil, err
	}
	s.acceptor = a
	return s, nil
}

// Serve accepts connections until Shutdown.
func (s *Server) Serve() error { return s.serveAll() }

// Shutdown answers new calls with "going away" from now on, waits for those
// that run until ctx ends, and closes all connections.
func (s *Server) Shutdown(ctx context.Context) error { return s.shutdown(ctx) }

// Metrics returns what the server has counted so far.
func (s *Server) Metrics() ServerMetrics {
	return ServerMetrics{
		Accepts:   s.accepts.Load(),
		Conns:     int(s.ConnCount()),
		Calls:     s.acceptor.calls.Load(),
		Refused:   s.refused.Load(),
		Cancels:   s.cancels.Load(),
		BadFrames: s.badFrames.Load(),
		OverLimit: s.overLimit.Load(),
		Bytes:     s.bytes.Load(),
	}
}

// fetchArgs and fetchResult are the arguments and the result of FetchBlocks
// with our codec: what they hold is kept with the connection.
type fetchArgs struct{ conn *serverConn }

// Read implements the reading side of Kitex's Thrift codec.
func (a *fetchArgs) Read(ctx context.Context, _ string, size int, r bufiox.Reader) error {
	c, ok := ctx.Value(connKey{}).(*serverConn)
	if !ok {
		return errNoConnection
	}
	a.conn = c
	b, err := r.Next(size)
	if err != nil {
		return err
	}
	c.cursor = over(b)
	return c.request.read(&c.cursor)
}

type fetchResult struct{ conn *serverConn }

// Write implements the writing side of Kitex's Thrift codec.
func (r *fetchResult) Write(_ context.Context, _ string, w bufiox.Writer) error {
	return r.conn.write(w)
}

// fetchBlocks serves one FetchBlocks call.
func (s *Server) fetchBlocks(_ context.Context, args *fetchArgs, result *fetchResult) error {
	c := args.conn
	result.conn = c
	c.reply.Meta = block.UnknownMeta("") // until the reader says more
	f := &c.request.fetch
	node, err := c.peer.meet(s.opts.Identity, c.request.base, request, strict)
	if err != nil {
		s.refuse(c, err)
	} else {
		err = checkFetch(f)
	}
	switch {
	case err != nil:
	case s.leaving.Load():
		answerAll(&c.reply, f.Run, block.StatusGoingAway)
	case !s.reserve(c, node.GroupID, int64(f.Run.Count())*f.BlockSize):
		answerAll(&c.reply, f.Run, block.StatusQueueFull)
	default:
		s.serveBlocks(c, node, f)
	}
	s.encode(c, failureOf(err))
	c.reserved.keep(int64(c.total))
	s.bytes.Add(int64(c.total))
	s.extend(c, c.total)
	return nil
}

// reserve takes n bytes of what a compute group may have on its way.
func (s *Server) reserve(c *serverConn, group string, n int64) bool {
	if s.opts.GroupBytes == nil {
		return true
	}
	if !s.opts.GroupBytes.TryAcquire(group, n) {
		s.overLimit.Add(1)
		return false
	}
	c.reserved = reservation{s.opts.GroupBytes, group, n}
	return true
}

// reservation is what a reply takes of a group's bytes until it is out.
type reservation struct {
	of    *pools.Shares
	group string
	n     int64
}

// keep gives back all but n bytes.
func (r *reservation) keep(n int64) {
	if r.of != nil && r.n > n {
		r.of.Release(r.group, r.n-n)
		r.n = n
	}
}

// serveBlocks asks the reader, for as long as the caller waits.
func (s *Server) serveBlocks(c *serverConn, node block.Node, f *block.Fetch) {
	running := &call{name: callName{node.ID, c.request.callID}}
	c.begin(running, c.request.wait)
	defer c.endCall(running)
	s.calls.begin(running)
	defer s.calls.end(running)
	if running.cause() == causeNone {
		s.reader.ServeBlocks(running, node, f, &c.reply)
	}
	if running.cause() == causeCancel {
		s.cancels.Add(1)
		c.reply.Release()
		answerAll(&c.reply, f.Run, block.StatusCancelled)
	}
}

// answerAll answers for all blocks of a run alike.
func answerAll(r *block.Reply, run block.Run, status block.Status) {
	r.Meta = block.UnknownMeta("")
	for i := range uint64(block.MaxRun) {
		if run.Has(run.First + i) {
			r.Answers = append(r.Answers, block.Answer{Index: run.First + i, Status: status})
		}
	}
}

// encode makes the reply out of what the reader has answered.
func (s *Server) encode(c *serverConn, failure *headstart.Failure) {
	c.newReply()
	b := appendField(c.head, thrift.STRUCT, 0)
	b = append(appendField(b, thrift.STRUCT, repBase), s.opts.Identity.now.Load().reply...)
	if failure != nil {
		b = appendFailure(b, repFailure, failure)
	}
	b = appendMeta(b, repMeta, &c.reply.Meta)
	b = appendList(b, repBlocks, thrift.STRUCT, len(c.reply.Answers))
	for i := range c.reply.Answers {
		a := &c.reply.Answers[i]
		length, crc := 0, uint32(0)
		if a.Status == block.StatusData {
			length, crc = a.Lease.Len(), a.Lease.CRC()
			if err := c.add(&a.Lease, 0, length); err != nil {
				// Its bytes are gone: the cache knows, the caller reads elsewhere.
				a.Status, length, crc = block.StatusNotFound, 0, 0
			}
		}
		b = appendI64(b, 1, int64(a.Index))
		b = appendI32(b, 2, int32(a.Status))
		b = appendI32(b, 3, int32(length))
		b = appendStop(appendI32(b, 4, int32(crc)))
	}
	if us := c.reply.Waited.Microseconds(); us > 0 {
		b = appendI64(b, repWaited, us)
	}
	c.head = b
}

// cancel serves Cancel.
func (s *Server) cancel(ctx context.Context, req *headstart.CancelRequest) *headstart.CancelReply {
	rep := &headstart.CancelReply{Base: s.base()}
	node, err := s.greet(ctx, req.GetBase(), strict)
	if err == nil {
		rep.Found = s.calls.cancel(callName{node.ID, uint64(req.CallId)})
	}
	rep.Failure = failureOf(err)
	return rep
}

// stat serves Stat.
func (s *Server) stat(ctx context.Context, req *headstart.StatRequest) *headstart.StatReply {
	rep := &headstart.StatReply{Base: s.base()}
	_, err := s.greet(ctx, req.GetBase(), strict)
	if err == nil {
		err = s.available()
	}
	if err == nil {
		var m block.Meta
		m, err = s.reader.Stat(ctx, objectOf(orEmpty(req.Object)), block.Version(req.Version))
		rep.Meta = wireMeta(m)
	}
	rep.Failure = failureOf(err)
	return rep
}

func objectOf(o *headstart.Object) block.Object {
	return block.Object{Store: o.Store, Bucket: o.Bucket, Key: o.Key}
}

func wireObject(o block.Object) *headstart.Object {
	return &headstart.Object{Store: o.Store, Bucket: o.Bucket, Key: o.Key}
}

func wireMeta(m block.Meta) *headstart.Meta {
	return &headstart.Meta{
		Size: m.Size, Version: string(m.Version), Etag: m.ETag,
		Modified: unixNano(m.Modified), ContentType: m.ContentType,
	}
}

func metaOf(m *headstart.Meta) block.Meta {
	if m == nil {
		return block.UnknownMeta("")
	}
	return block.Meta{
		Size: m.Size, Version: block.Version(m.Version), ETag: m.Etag,
		Modified: timeOf(m.Modified), ContentType: m.ContentType,
	}
}
