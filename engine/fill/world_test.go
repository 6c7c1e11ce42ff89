package fill_test

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/fill"
	"headstart/engine/profile"
	"headstart/pools"
	"headstart/shards"
)

const testBlock = 4096

// content is what version v of an object holds: each 16 bytes tell object,
// version and offset.
func content(o block.Object, v block.Version, off int64, n int) []byte {
	h := block.BaseID(o, v).Hi
	out := make([]byte, 0, n+32)
	for p := off &^ 15; p < off+int64(n); p += 16 {
		out = binary.BigEndian.AppendUint64(out, h)
		out = binary.BigEndian.AppendUint64(out, uint64(p))
	}
	return out[off&15:][:n]
}

func testObject() block.Object {
	return block.Object{Store: "s3", Bucket: "b", Key: "data/t1/segment.dat"}
}

func tablet() block.Route { return block.TabletRoute(1) }

// store is object storage: all objects have the same size and version, which
// may change.
type store struct {
	bufs *atomic.Int64
	mu   struct {
		sync.Mutex
		blocks  int64
		version string
		after   time.Duration
		err     error
		panics  bool
		runs    []block.Run
		heads   int
	}
	// turns, if there are any, is what a GET waits for before it is one.
	turns chan struct{}
}

func (s *store) set(change func(s *store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *store) gets() []block.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]block.Run(nil), s.mu.runs...)
}

// Head implements engine.Origin.
func (s *store) Head(context.Context, block.Object) (block.Meta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.heads++
	return s.metaLocked(""), s.mu.err
}

func (s *store) metaLocked(v block.Version) block.Meta {
	if v != block.Immutable {
		v = block.Version(s.mu.version)
	}
	return block.Meta{Size: s.mu.blocks * testBlock, Version: v, ETag: s.mu.version}
}

// Fetch implements block.Store.
func (s *store) Fetch(ctx context.Context, f *block.Fetch) (block.Stream, error) {
	s.mu.Lock()
	if s.turns == nil {
		s.mu.runs = append(s.mu.runs, f.Run)
	}
	after, err, panics, meta := s.mu.after, s.mu.err, s.mu.panics, s.metaLocked(f.Meta.Version)
	version := block.Version(s.mu.version)
	s.mu.Unlock()
	if panics {
		panic("decoder")
	}
	if s.turns != nil {
		select {
		case <-ctx.Done():
		case <-s.turns:
			s.set(func(s *store) { s.mu.runs = append(s.mu.runs, f.Run) })
		}
	}
	if after > 0 { // a timer of no time can crash the race detector (golang/go#78156)
		select {
		case <-ctx.Done():
		case <-time.After(after):
		}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil && f.Meta.ETag != "" && f.Meta.ETag != meta.ETag {
		err = block.ErrChanged
	}
	if err != nil {
		return nil, &block.Error{Op: "get", Object: f.Object, Source: block.SourceStore, Err: err}
	}
	var pieces []block.Piece
	for i := range uint64(block.MaxRun) {
		index := f.Run.First + i
		if n := block.Geometry(testBlock).Len(index, meta.Size); f.Run.Has(index) && n > 0 {
			s.bufs.Add(1)
			buf := block.NewBuf(content(f.Object, version, int64(index)*testBlock, n), func(*block.Buf) { s.bufs.Add(-1) })
			buf.Seal()
			pieces = append(pieces, block.Piece{Index: index, Status: block.StatusData, Buf: buf})
		}
	}
	return &stream{meta: meta, pieces: pieces}, nil
}

// stream is a reply that is all there.
type stream struct {
	meta   block.Meta
	pieces []block.Piece
	err    error
}

// Next implements block.Stream.
func (s *stream) Next() (block.Piece, error) {
	if len(s.pieces) == 0 {
		if s.err != nil {
			return block.Piece{}, s.err
		}
		return block.Piece{}, io.EOF
	}
	p := s.pieces[0]
	s.pieces = s.pieces[1:]
	return p, nil
}

// Meta implements block.Stream.
func (s *stream) Meta() block.Meta { return s.meta }

// Close implements block.Stream.
func (s *stream) Close() {
	for _, p := range s.pieces {
		if p.Buf != nil {
			p.Buf.Release()
		}
	}
	s.pieces = nil
}

// node is one BE.
type node struct {
	addr     block.Addr
	dir      string
	engine   *engine.Engine
	server   *fill.Server
	cache    *blockcache.Cache
	queue    *pools.Queue
	fills    *pools.Shares
	settings *fill.Settings
	// served and asked count peer requests that it answered and sent.
	served, asked atomic.Int64
}

// cluster is some nodes wired to each other by plain calls, and their store.
type cluster struct {
	t     *testing.T
	store *store
	bufs  atomic.Int64
	nodes []*node
	// cacheBytes is the size of a node's cache, maxObjects how many objects it
	// remembers.
	cacheBytes int64
	maxObjects int
}

// inCluster runs f in a bubble with n nodes that change may make different. Any goroutine, block or fill slot
// left over fails the test.
func inCluster(t *testing.T, n int, f func(c *cluster), change ...func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, cacheBytes: 4 << 20, maxObjects: 4}
		for _, set := range change {
			set(c)
		}
		c.store = &store{bufs: &c.bufs}
		c.store.mu.blocks, c.store.mu.version, c.store.mu.after = 20, "v1", 40*time.Millisecond
		for i := range n {
			c.nodes = append(c.nodes, c.newNode(block.Addr{Host: "10.0.0." + string(rune('1'+i)), Port: 8060}))
		}
		f(c)
		for _, n := range c.nodes {
			n.server.Close()
			n.engine.Close()
			if err := n.queue.Close(); err != nil {
				t.Error(err)
			}
			if used := n.fills.InUse(); used != 0 {
				t.Errorf("%s: %d fill slots are held", n.addr, used)
			}
			if err := n.cache.Close(); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if left := c.bufs.Load(); left != 0 {
			t.Errorf("%d blocks were not given back", left)
		}
	})
}

func (c *cluster) newNode(addr block.Addr) *node {
	c.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	n := &node{addr: addr, dir: c.t.TempDir(), fills: pools.NewShares(32), settings: &fill.Settings{}}
	upkeep := blockcache.NewSettings()
	upkeep.ScrubBytesPerSecond.Store(0) // hours of virtual time would go into it
	var err error
	if n.cache, err = blockcache.Open(blockcache.Options{
		Logger: quiet, BlockSize: testBlock, Settings: upkeep, Paths: []blockcache.Path{{Dir: n.dir, TotalBytes: c.cacheBytes}},
	}); err != nil {
		c.t.Fatal(err)
	}
	rules := shards.NewSettings()
	breakers := shards.NewBreakers(rules)
	settings := engine.NewSettings()
	settings.EnableCacheReadFromPeer.Store(true)
	if n.engine, err = engine.New(engine.Options{
		Cache: n.cache, Origin: c.store, Peers: peers{c, n},
		Table:    shards.NewTable(shards.Options{Self: []block.Addr{addr}}, rules, breakers),
		Breakers: breakers, Profiles: profile.New(10), Settings: settings,
		Races: pools.NewTokens(64), RaceGets: pools.NewTokens(32), BlockSize: testBlock, GroupID: "cg",
		MaxObjects: c.maxObjects,
	}); err != nil {
		c.t.Fatal(err)
	}
	if n.queue, err = pools.NewQueue(pools.QueueOptions{Name: "peers", Workers: 4, MaxQueue: 16, Timeout: 100 * time.Millisecond}); err != nil {
		c.t.Fatal(err)
	}
	n.settings.EnablePeerServerCacheFill.Store(true)
	n.settings.PeerServerCacheFillTimeoutMS.Store(6000)
	n.server = fill.NewServer(fill.Options{
		Engine: n.engine, Cache: n.cache, Settings: n.settings, Queue: n.queue, Fills: n.fills, Logger: quiet,
	})
	return n
}

// know makes nodes candidates of a tablet(), with fill if so.
func (n *node) know(c *cluster, filling bool, candidates ...*node) {
	if filling {
		group := "cg"
		n.engine.Settings.PeerCacheFillComputeGroupID.Store(&group)
	}
	var list []shards.Candidate
	for _, other := range candidates {
		list = append(list, shards.Candidate{Addr: other.addr, GroupID: "cg"})
	}
	if !n.engine.Table.BeginLookup(tablet()) {
		c.t.Fatal("a look-up is under way")
	}
	n.engine.Table.EndLookup(tablet(), list, nil)
}

// read reads a block's first bytes and checks them.
func (n *node) read(c *cluster, index int) (block.Source, error) {
	dst := make([]byte, 100)
	_, src, err := n.engine.Read(context.Background(), &block.Read{
		Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: int64(index) * testBlock,
	}, dst)
	if err == nil && string(dst) != string(content(testObject(), "v1", int64(index)*testBlock, 100)) {
		c.t.Errorf("block %d on %s from %s: wrong bytes", index, n.addr, src)
	}
	return src, err
}

// peers calls the nodes of a cluster for one of them.
type peers struct {
	c    *cluster
	from *node
}

// FetchFrom implements block.Peers: a call takes a millisecond each way.
func (p peers) FetchFrom(ctx context.Context, addr block.Addr, f *block.Fetch) (block.Stream, error) {
	p.from.asked.Add(1)
	for _, n := range p.c.nodes {
		if n.addr != addr {
			continue
		}
		time.Sleep(time.Millisecond)
		n.served.Add(1)
		reply := n.serve(ctx, f)
		defer reply.Release()
		s := &stream{meta: reply.Meta}
		for pass := range 2 {
			for i := range reply.Answers {
				if a := &reply.Answers[i]; (a.Status == block.StatusData) == (pass == 1) {
					s.pieces = append(s.pieces, p.piece(a))
				}
			}
		}
		time.Sleep(time.Millisecond)
		if ctx.Err() != nil {
			s.Close()
			return nil, ctx.Err()
		}
		return s, nil
	}
	return nil, io.ErrUnexpectedEOF
}

func (p peers) piece(a *block.Answer) block.Piece {
	piece := block.Piece{Index: a.Index, Status: a.Status}
	if a.Status == block.StatusData {
		data := make([]byte, a.Lease.Len())
		a.Lease.CopyAt(data, 0)
		p.c.bufs.Add(1)
		piece.Buf = block.NewBuf(data, func(*block.Buf) { p.c.bufs.Add(-1) })
		if !piece.Buf.Verify(a.Lease.CRC()) {
			p.c.t.Errorf("block %d came with another block's checksum", a.Index)
		}
	}
	return piece
}

// serve asks the node's server.
func (n *node) serve(ctx context.Context, f *block.Fetch) *block.Reply {
	reply := &block.Reply{}
	n.server.ServeBlocks(ctx, block.Node{ID: "x"}, f, reply)
	return reply
}

// request is what a peer asks for that knows the tablet file.
func request(run block.Run, filling bool) *block.Fetch {
	return &block.Fetch{
		Object: testObject(), Meta: block.UnknownMeta(block.Immutable), BlockSize: testBlock,
		Run: run, Route: tablet(), Fill: filling, Wait: filling,
	}
}
