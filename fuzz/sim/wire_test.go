package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"headstart/engine/block"
	"headstart/shards"
	"headstart/shards/placement"
)

var errRefused = errors.New("connection refused")

// wire carries the calls of one life of a node to the other nodes. Like the real
// one it copies bytes into buffers of the caller's node and holds them against
// their checksum.
type wire struct {
	w    *world
	from *life
}

// FetchFrom implements block.Peers.
func (p wire) FetchFrom(ctx context.Context, addr block.Addr, f *block.Fetch) (block.Stream, error) {
	c := &call{p: p, addr: addr, f: *f, done: make(chan struct{})}
	if err := pause(ctx, p.w.transit(addr, f.Run)); err != nil {
		return nil, c.wrap(err)
	}
	to := p.w.nodeAt(addr).enter()
	if to == nil {
		return nil, c.wrap(errRefused)
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.mu.meta = f.Meta
	go c.serve(to) // ends with the answer, or with either node
	return c, nil
}

// call is one call on the wire, and its reply as the caller's node reads it.
type call struct {
	p      wire
	addr   block.Addr
	f      block.Fetch
	ctx    context.Context
	cancel context.CancelFunc
	// done is closed when the reply has come.
	done chan struct{}
	mu   struct {
		sync.Mutex
		closed bool
		meta   block.Meta
		pieces []block.Piece
		err    error
	}
}

// serve is the callee's side.
func (c *call) serve(to *life) {
	defer to.leave()
	defer close(c.done)
	defer context.AfterFunc(to.ctx, c.cancel)()
	reply := &block.Reply{}
	to.server.ServeBlocks(c.ctx, block.Node{ID: c.p.from.id, GroupID: c.p.from.n.group}, &c.f, reply)
	err := pause(c.ctx, c.p.w.transit(c.addr, c.f.Run))
	c.mu.Lock()
	defer c.mu.Unlock()
	defer reply.Release()
	switch {
	case c.mu.closed:
	case err != nil:
		c.mu.err = c.wrap(err)
		if to.ctx.Err() != nil {
			c.mu.err = c.wrap(io.ErrUnexpectedEOF)
		}
	default:
		c.mu.meta = reply.Meta
		c.receiveLocked(reply)
	}
}

// receiveLocked copies the answers, those without data first.
func (c *call) receiveLocked(reply *block.Reply) {
	for i := range reply.Answers {
		if a := &reply.Answers[i]; a.Status != block.StatusData {
			c.mu.pieces = append(c.mu.pieces, block.Piece{Index: a.Index, Status: a.Status})
		}
	}
	for i := range reply.Answers {
		a := &reply.Answers[i]
		if a.Status != block.StatusData {
			continue
		}
		buf, err := c.p.from.buffers.Get(a.Lease.Len())
		if err != nil {
			c.mu.err = c.wrap(err)
			return
		}
		if _, err := a.Lease.CopyAt(buf.Bytes(), 0); err != nil || !buf.Verify(a.Lease.CRC()) {
			c.p.w.fail("%s has sent block %d of %s with a wrong checksum (%v)", c.addr, a.Index, c.f.Object, err)
		}
		if !bytes.Equal(buf.Bytes(), c.p.w.bucket.truth(c.f.Object, reply.Meta.Version, a.Index)) {
			c.p.w.fail("%s has sent a block %d of %s that is not of version %q", c.addr, a.Index, c.f.Object, reply.Meta.Version)
		}
		c.mu.pieces = append(c.mu.pieces, block.Piece{Index: a.Index, Status: a.Status, Buf: buf})
	}
}

// Next implements block.Stream.
func (c *call) Next() (block.Piece, error) {
	select {
	case <-c.done:
	case <-c.ctx.Done():
		return block.Piece{}, c.wrap(context.Cause(c.ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.pieces) > 0 {
		p := c.mu.pieces[0]
		c.mu.pieces = c.mu.pieces[1:]
		return p, nil
	}
	if c.mu.err != nil {
		return block.Piece{}, c.mu.err
	}
	return block.Piece{}, io.EOF
}

// Meta implements block.Stream.
func (c *call) Meta() block.Meta {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.meta
}

// Close implements block.Stream.
func (c *call) Close() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	for _, p := range c.mu.pieces {
		if p.Buf != nil {
			p.Buf.Release()
		}
	}
	c.mu.pieces = nil
}

func (c *call) wrap(err error) error {
	return &block.Error{Op: "fetch", Object: c.f.Object, Source: block.SourcePeer, Addr: c.addr.String(), Err: err}
}

// frontend is how a node reaches the FE.
type frontend struct{ w *world }

// Lookup implements engine.Directory.
func (f frontend) Lookup(ctx context.Context, routes []block.Route) ([][]shards.Candidate, error) {
	if err := pause(ctx, time.Millisecond); err != nil {
		return nil, err
	}
	found, err := f.w.fe.Lookup(ctx, routes)
	lists := make([][]shards.Candidate, len(found))
	for i, holders := range found {
		for _, h := range holders {
			lists[i] = append(lists[i], shards.Candidate{Addr: h.Addr, GroupID: h.GroupID, Location: h.Location})
		}
	}
	return lists, err
}

// ledger is the FE's store of a world whose FE is never restarted.
type ledger struct{}

// Load implements placement.Store.
func (ledger) Load(_ context.Context, clusterID string) (placement.State, error) {
	return placement.State{ClusterID: clusterID}, nil
}

// Save implements placement.Store.
func (ledger) Save(context.Context, placement.Change) error { return nil }
