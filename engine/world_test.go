package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/blockcache"
	"headstart/engine/block"
	"headstart/engine/profile"
	"headstart/pools"
	"headstart/shards"
)

const testBlock = 4096

// content is what version v of object o holds from off on: each 16 bytes tell
// object, version and offset, so that any mix-up shows.
func content(o block.Object, v string, off int64, n int) []byte {
	h := block.BaseID(o, block.Version(v)).Hi
	out := make([]byte, 0, n+32)
	for p := off &^ 15; p < off+int64(n); p += 16 {
		out = binary.BigEndian.AppendUint64(out, h)
		out = binary.BigEndian.AppendUint64(out, uint64(p))
	}
	return out[off&15:][:n]
}

// reply is how a scripted peer or store answers one call.
type reply struct {
	after time.Duration
	// err ends the call; then pieces that came before it stand.
	err error
	// lacks are the blocks that a peer does not have; status what it says of them,
	// StatusNotFound when 0.
	lacks  map[uint64]bool
	all    bool // lacks all
	status block.Status
	// silent never answers.
	silent bool
	// corrupt flips a byte where the checksum finds it.
	corrupt bool
	// cut breaks the reply off after so many blocks, when positive.
	cut int
}

// call is one request that reached a scripted peer or the store.
type call struct {
	at   time.Duration
	addr string
	req  block.Fetch
	// ended is how the call's context stood when its stream was closed.
	cancelled bool
}

// object is one object of the scripted store.
type storedObject struct {
	size    int64
	version string
}

// world is a store, some peers and an FE, all scripted, around one engine.
type world struct {
	t     *testing.T
	start time.Time
	e     *Engine

	mu struct {
		sync.Mutex
		objects map[block.Object]*storedObject
		store   func(n int, f *block.Fetch) reply
		peers   map[string]func(n int, f *block.Fetch) reply
		lookup  func(r block.Route) ([]shards.Candidate, error)
		gets    []*call
		calls   []*call
		asked   []block.Route
		heads   int
	}
}

var testObject = block.Object{Store: "s3", Bucket: "b", Key: "data/t1/segment.dat"}

func peerAddr(n int) block.Addr { return block.Addr{Host: fmt.Sprintf("10.0.0.%d", n), Port: 8060} }

func candidate(n int, group string) shards.Candidate {
	return shards.Candidate{Addr: peerAddr(n), GroupID: group, Location: "default"}
}

// inWorld runs f in a bubble of virtual time with a fresh engine. When it
// returns, the engine is closed and any goroutine left fails the test.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f(w)
		w.e.Close()
		if err := w.e.Cache.Close(); err != nil {
			t.Error(err)
		}
	})
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, start: time.Now()}
	w.mu.objects = map[block.Object]*storedObject{testObject: {size: 20*testBlock + 100, version: "v1"}}
	w.mu.peers = map[string]func(int, *block.Fetch) reply{}
	w.mu.store = func(int, *block.Fetch) reply { return reply{after: 40 * time.Millisecond} }
	cache, err := blockcache.Open(blockcache.Options{
		BlockSize: testBlock, Paths: []blockcache.Path{{Dir: t.TempDir(), TotalBytes: 4 << 20}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ss := shards.NewSettings()
	breakers := shards.NewBreakers(ss)
	settings := NewSettings()
	settings.EnableCacheReadFromPeer.Store(true)
	w.e, err = New(Options{
		Cache: cache, Origin: w, Peers: w, Directory: w,
		Table: shards.NewTable(shards.Options{Location: "default"}, ss, breakers), Breakers: breakers,
		Profiles: profile.New(10), Settings: settings,
		Races: pools.NewTokens(64), RaceGets: pools.NewTokens(32),
		BlockSize: testBlock, GroupID: "cg_read",
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// since is the virtual time since the world began.
func (w *world) since() time.Duration { return time.Since(w.start) }

// peer scripts peer n; group is where it belongs.
func (w *world) peer(n int, script func(n int, f *block.Fetch) reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.peers[peerAddr(n).String()] = script
}

// know gives a route its candidates, as the FE would.
func (w *world) know(r block.Route, c ...shards.Candidate) {
	w.t.Helper()
	if !w.e.Table.BeginLookup(r) {
		w.t.Fatalf("%s: a look-up is under way", r)
	}
	w.e.Table.EndLookup(r, c, nil)
}

// lookups are the routes that the FE was asked for.
func (w *world) lookups() []block.Route {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]block.Route(nil), w.mu.asked...)
}

// read reads n bytes at off as a tablet file and checks them.
func (w *world) read(off int64, n int) (block.Source, error) {
	w.t.Helper()
	return w.readAs(context.Background(), &block.Read{
		Object: testObject, Version: block.Immutable, Route: block.TabletRoute(1), Offset: off,
	}, n)
}

func (w *world) readAs(ctx context.Context, req *block.Read, n int) (block.Source, error) {
	w.t.Helper()
	dst := make([]byte, n)
	k, src, err := w.e.Read(ctx, req, dst)
	w.mu.Lock()
	o := w.mu.objects[req.Object]
	w.mu.Unlock()
	if err == nil && string(dst[:k]) != string(content(req.Object, o.version, req.Offset, k)) {
		w.t.Errorf("read of %d bytes at %d from %s: wrong bytes", n, req.Offset, src)
	}
	if want := int(min(int64(n), o.size-req.Offset)); err == nil && k != want {
		w.t.Errorf("read of %d bytes at %d: %d bytes, want %d", n, req.Offset, k, want)
	}
	return src, err
}

// gets and calls are what has reached the store and the peers.
func (w *world) gets() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*call(nil), w.mu.gets...)
}
func (w *world) calls() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*call(nil), w.mu.calls...)
}

// Lookup implements Directory.
func (w *world) Lookup(ctx context.Context, routes []block.Route) ([][]shards.Candidate, error) {
	w.mu.Lock()
	w.mu.asked = append(w.mu.asked, routes...)
	lookup := w.mu.lookup
	w.mu.Unlock()
	time.Sleep(2 * time.Millisecond)
	found := make([][]shards.Candidate, len(routes))
	for i, r := range routes {
		if lookup != nil {
			c, err := lookup(r)
			if err != nil {
				return nil, err
			}
			found[i] = c
		}
	}
	return found, nil
}

// Head implements Origin.
func (w *world) Head(_ context.Context, o block.Object) (block.Meta, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.heads++
	obj := w.mu.objects[o]
	if obj == nil {
		return block.Meta{}, &block.Error{Op: "head", Object: o, Source: block.SourceStore, Err: block.ErrNotFound}
	}
	return w.meta(obj, ""), nil
}

func (w *world) meta(o *storedObject, v block.Version) block.Meta {
	if v == "" {
		v = block.Version(o.version)
	}
	return block.Meta{Size: o.size, Version: v, ETag: o.version}
}

// Fetch implements block.Store.
func (w *world) Fetch(ctx context.Context, f *block.Fetch) (block.Stream, error) {
	w.mu.Lock()
	c := &call{at: w.since(), req: *f}
	w.mu.gets = append(w.mu.gets, c)
	n, script := len(w.mu.gets)-1, w.mu.store
	obj := w.mu.objects[f.Object]
	w.mu.Unlock()
	r := script(n, f) // outside the lock: a script may panic
	if obj == nil && r.err == nil {
		r.err = block.ErrNotFound
	}
	if r.err == nil && f.Meta.ETag != "" && f.Meta.ETag != obj.version {
		r.err = block.ErrChanged
	}
	return w.answer(ctx, c, obj, r, block.SourceStore, "")
}

// FetchFrom implements block.Peers.
func (w *world) FetchFrom(ctx context.Context, addr block.Addr, f *block.Fetch) (block.Stream, error) {
	w.mu.Lock()
	c := &call{at: w.since(), addr: addr.String(), req: *f}
	n := 0
	for _, old := range w.mu.calls {
		if old.addr == c.addr {
			n++
		}
	}
	w.mu.calls = append(w.mu.calls, c)
	script := w.mu.peers[addr.String()]
	obj := w.mu.objects[f.Object]
	w.mu.Unlock()
	r := reply{err: errors.New("connection refused")}
	if script != nil {
		r = script(n, f)
	}
	return w.answer(ctx, c, obj, r, block.SourcePeer, addr.String())
}

func (w *world) answer(ctx context.Context, c *call, obj *storedObject, r reply, src block.Source, addr string) (block.Stream, error) {
	if r.err != nil && r.cut == 0 {
		if err := pause(ctx, r.after); err != nil {
			return nil, err
		}
		return nil, &block.Error{Op: "fetch", Object: c.req.Object, Source: src, Addr: addr, Err: r.err}
	}
	return &scripted{w: w, ctx: ctx, c: c, obj: obj, r: r, left: c.req.Run}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// scripted is the stream of one reply: first what the peer lacks, then the data.
type scripted struct {
	w     *world
	ctx   context.Context
	c     *call
	obj   *storedObject
	r     reply
	left  block.Run
	begun bool
	sent  int
}

// Next implements block.Stream.
func (s *scripted) Next() (block.Piece, error) {
	if s.r.silent {
		<-s.ctx.Done()
		return block.Piece{}, s.ctx.Err()
	}
	if !s.begun {
		if err := pause(s.ctx, s.r.after); err != nil {
			return block.Piece{}, err
		}
		s.begun = true
	}
	for pass := range 2 {
		for i := range uint64(block.MaxRun) {
			index := s.c.req.Run.First + i
			lacks := s.r.all || s.r.lacks[index]
			if !s.left.Has(index) || lacks != (pass == 0) {
				continue
			}
			return s.piece(index, lacks)
		}
	}
	return block.Piece{}, io.EOF
}

func (s *scripted) piece(index uint64, lacks bool) (block.Piece, error) {
	s.left = s.left.Without(index)
	n := block.Geometry(testBlock).Len(index, s.obj.size)
	if n == 0 {
		return s.Next()
	}
	if lacks {
		status := s.r.status
		if status == 0 {
			status = block.StatusNotFound
		}
		return block.Piece{Index: index, Status: status}, nil
	}
	if s.r.cut > 0 && s.sent == s.r.cut {
		return block.Piece{}, &block.Error{Op: "fetch", Object: s.c.req.Object, Err: s.r.err}
	}
	s.sent++
	if s.r.corrupt {
		return block.Piece{}, &block.Error{Op: "fetch", Object: s.c.req.Object, Source: block.SourcePeer, Err: block.ErrCorrupt}
	}
	buf := block.NewBuf(content(s.c.req.Object, s.obj.version, int64(index)*testBlock, n), nil)
	buf.Seal()
	return block.Piece{Index: index, Status: block.StatusData, Buf: buf}, nil
}

// Meta implements block.Stream.
func (s *scripted) Meta() block.Meta {
	v := s.c.req.Meta.Version
	if v != block.Immutable {
		v = ""
	}
	return s.w.meta(s.obj, v)
}

// Close implements block.Stream.
func (s *scripted) Close() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.c.cancelled = s.ctx.Err() != nil
}
