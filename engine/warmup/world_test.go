package warmup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
	"headstart/engine/profile"
	"headstart/pools"
	"headstart/shards"
	"headstart/shards/placement"
)

const testBlock = 4096

// content is what an object holds: each 16 bytes tell object and offset.
func content(o block.Object, off int64, n int) []byte {
	h := block.BaseID(o, "").Hi
	out := make([]byte, 0, n+16)
	for p := off; p < off+int64(n); p += 16 {
		out = binary.BigEndian.AppendUint64(out, h)
		out = binary.BigEndian.AppendUint64(out, uint64(p))
	}
	return out[:n]
}

func file(i int) block.Object {
	return block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprintf("data/%d.dat", i)}
}

// world is object storage, whose objects all have one size, and some nodes.
type world struct {
	t     *testing.T
	bufs  atomic.Int64
	nodes []*node

	mu struct {
		sync.Mutex
		size int64
		gets int
		err  error
		// deaf nodes refuse their peers' calls, silent ones keep them waiting.
		deaf, silent map[block.Addr]bool
	}
}

// node is one BE.
type node struct {
	*Service
	addr block.Addr
	dir  string
	// hots, greetings and fetches count what peers have asked.
	hots, greetings, fetches atomic.Int64
}

// inWorld runs f in a bubble with n nodes. Any goroutine or block left over fails
// the test.
func inWorld(t *testing.T, n int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		w.mu.size, w.mu.deaf, w.mu.silent = 20*testBlock+100, map[block.Addr]bool{}, map[block.Addr]bool{}
		for i := range n {
			w.nodes = append(w.nodes, w.newNode(block.Addr{Host: fmt.Sprintf("10.0.0.%d", i+1), Port: 8060}))
		}
		f(w)
		for _, n := range w.nodes {
			n.end(t)
		}
		synctest.Wait()
		if left := w.bufs.Load(); left != 0 {
			t.Errorf("%d blocks were not given back", left)
		}
	})
}

func (n *node) end(t *testing.T) {
	n.Close()
	n.Engine.Close()
	if err := n.Cache.Close(); err != nil {
		t.Error(err)
	}
}

func (w *world) newNode(addr block.Addr) *node { return w.newNodeIn(addr, w.t.TempDir()) }

// newNodeIn starts a node with the File Cache that a folder has.
func (w *world) newNodeIn(addr block.Addr, dir string) *node {
	w.t.Helper()
	n := &node{addr: addr, dir: dir}
	cache, err := blockcache.Open(blockcache.Options{
		Logger: slog.New(slog.DiscardHandler), BlockSize: testBlock, Paths: []blockcache.Path{{Dir: dir, TotalBytes: 4 << 20}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	rules := shards.NewSettings()
	breakers := shards.NewBreakers(rules)
	table := shards.NewTable(shards.Options{Self: []block.Addr{addr}}, rules, breakers)
	e, err := engine.New(engine.Options{
		Cache: cache, Origin: w, Peers: peers{w, n}, Table: table, Breakers: breakers, Profiles: profile.New(10),
		Settings: engine.NewSettings(), Races: pools.NewTokens(64), RaceGets: pools.NewTokens(32), BlockSize: testBlock, GroupID: "cg",
	})
	if err != nil {
		w.t.Fatal(err)
	}
	e.Settings.EnableCacheReadFromPeer.Store(true)
	if n.Service, err = New(Options{Engine: e, Cache: cache, Table: table, Peers: peers{w, n}}); err != nil {
		w.t.Fatal(err)
	}
	n.Settings.BytesPerSecond.Store(0)
	return n
}

// Head implements engine.Origin.
func (w *world) Head(context.Context, block.Object) (block.Meta, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return block.Meta{Size: w.mu.size, Version: "v1", ETag: "v1"}, w.mu.err
}

// Fetch implements block.Store: a GET takes 40 ms.
func (w *world) Fetch(ctx context.Context, f *block.Fetch) (block.Stream, error) {
	w.mu.Lock()
	w.mu.gets++
	size, err := w.mu.size, w.mu.err
	w.mu.Unlock()
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(40 * time.Millisecond):
	}
	if err != nil {
		return nil, &block.Error{Op: "get", Object: f.Object, Source: block.SourceStore, Err: err}
	}
	meta := block.Meta{Size: size, Version: "v1", ETag: "v1"}
	if f.Meta.Version == block.Immutable {
		meta.Version = block.Immutable
	}
	s := &stream{meta: meta}
	for i := range uint64(block.MaxRun) {
		index := f.Run.First + i
		if n := block.Geometry(testBlock).Len(index, size); f.Run.Has(index) && n > 0 {
			s.add(w, index, content(f.Object, int64(index)*testBlock, n))
		}
	}
	return s, nil
}

func (w *world) gets() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.gets
}

// stream is a reply that is all there.
type stream struct {
	meta   block.Meta
	pieces []block.Piece
}

func (s *stream) add(w *world, index uint64, data []byte) {
	w.bufs.Add(1)
	buf := block.NewBuf(data, func(*block.Buf) { w.bufs.Add(-1) })
	buf.Seal()
	s.pieces = append(s.pieces, block.Piece{Index: index, Status: block.StatusData, Buf: buf})
}

func (s *stream) Next() (block.Piece, error) {
	if len(s.pieces) == 0 {
		return block.Piece{}, io.EOF
	}
	p := s.pieces[0]
	s.pieces = s.pieces[1:]
	return p, nil
}

func (s *stream) Meta() block.Meta { return s.meta }

func (s *stream) Close() {
	for _, p := range s.pieces {
		p.Buf.Release()
	}
	s.pieces = nil
}

// peers calls the nodes of a world for one of them; a call takes 1 ms.
type peers struct {
	w    *world
	from *node
}

func (p peers) find(addr block.Addr) (*node, error) {
	time.Sleep(time.Millisecond)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, n := range p.w.nodes {
		if n.addr == addr && !p.w.mu.deaf[addr] {
			return n, nil
		}
	}
	return nil, errors.New("connection refused")
}

func (p peers) Hot(ctx context.Context, addr block.Addr, tablets []uint64) (placement.HotReply, error) {
	p.w.mu.Lock()
	silent := p.w.mu.silent[addr]
	p.w.mu.Unlock()
	if silent {
		<-ctx.Done()
		return placement.HotReply{}, ctx.Err()
	}
	n, err := p.find(addr)
	if err != nil {
		return placement.HotReply{}, err
	}
	if len(tablets) == 0 {
		n.greetings.Add(1)
	} else {
		n.hots.Add(1)
	}
	return n.Hot(tablets), nil
}

func (p peers) FetchFrom(_ context.Context, addr block.Addr, f *block.Fetch) (block.Stream, error) {
	n, err := p.find(addr)
	if err != nil {
		return nil, err
	}
	n.fetches.Add(1)
	s := &stream{meta: f.Meta}
	base := block.BaseID(f.Object, f.Meta.Version)
	for i := range uint64(block.MaxRun) {
		index := f.Run.First + i
		lease, ok := n.Cache.Peek(base.At(index))
		if !ok || !f.Run.Has(index) {
			lease.Release()
			continue
		}
		data := make([]byte, lease.Len())
		if _, err := lease.CopyAt(data, 0); err == nil {
			s.add(p.w, index, data)
		}
		lease.Release()
	}
	return s, nil
}

// read reads blocks of a tablet's file and checks them.
func (n *node) read(w *world, tablet int64, o block.Object, first, count int) block.Source {
	w.t.Helper()
	dst := make([]byte, count*testBlock)
	got, src, err := n.Engine.Read(w.t.Context(), &block.Read{
		Object: o, Version: block.Immutable, Route: block.TabletRoute(tablet), Offset: int64(first) * testBlock,
	}, dst)
	if err != nil || string(dst[:got]) != string(content(o, int64(first)*testBlock, got)) {
		w.t.Errorf("%v on %v: wrong bytes or %v", o, n.addr, err)
	}
	synctest.Wait() // until the cache has them
	return src
}

// finish waits for a batch to end.
func (n *node) finish(w *world, id string) placement.WarmProgress {
	w.t.Helper()
	for range 100_000 {
		p := n.Warm(w.t.Context(), placement.WarmCall{Ask: []string{id}})[0]
		if p.State != placement.WarmQueued && p.State != placement.WarmRunning {
			return p
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("batch %s does not end", id)
	return placement.WarmProgress{}
}

func holder(n *node) placement.Holder {
	return placement.Holder{Addr: n.addr, GroupID: "cg", Location: "default"}
}

func move(id string, tablets []uint64, sources ...*node) placement.WarmCall {
	g := placement.WarmGroup{Tablets: tablets}
	for _, s := range sources {
		g.Sources = append(g.Sources, holder(s))
	}
	return placement.WarmCall{Start: []placement.WarmBatch{{ID: id, Balance: true, Groups: []placement.WarmGroup{g}}}}
}
