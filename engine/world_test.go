package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
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

// storedObject is one object of the scripted store.
type storedObject struct {
	size    int64
	version string
}

// world is a store, some peers and an FE, all scripted, around one engine.
type world struct {
	t     *testing.T
	start time.Time
	e     *Engine
	rules *shards.Settings
	// bufs counts the blocks that somebody holds.
	bufs atomic.Int64

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
		// headTakes, headErr and headPanics script the store's HEAD.
		headTakes  time.Duration
		headErr    error
		headPanics bool
	}
}

func testObject() block.Object {
	return block.Object{Store: "s3", Bucket: "b", Key: "data/t1/segment.dat"}
}

func peerAddr(n int) block.Addr { return block.Addr{Host: fmt.Sprintf("10.0.0.%d", n), Port: 8060} }

func candidate(n int, group string) shards.Candidate {
	return shards.Candidate{Addr: peerAddr(n), GroupID: group, Location: "default"}
}

// inWorld runs f in a bubble of virtual time with a fresh engine, built with
// Options that change may alter. When it returns, the engine is closed; any
// goroutine or block left over fails the test.
func inWorld(t *testing.T, f func(w *world), change ...func(*Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, change)
		f(w)
		w.e.Close()
		if err := w.e.Cache.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := w.bufs.Load(); n != 0 {
			t.Errorf("%d blocks were not given back", n)
		}
		if r, g := w.e.Races.InUse(), w.e.RaceGets.InUse(); r != 0 || g != 0 {
			t.Errorf("%d races and %d of their GETs still hold a slot", r, g)
		}
	})
}

// openCache opens a cache whose scrubber rests: to read the same few blocks again
// and again through hours of virtual time is most of what a test would cost.
func openCache(dir string) (*blockcache.Cache, error) {
	upkeep := blockcache.NewSettings()
	upkeep.ScrubBytesPerSecond.Store(0)
	return blockcache.Open(blockcache.Options{
		Logger: slog.New(slog.DiscardHandler), BlockSize: testBlock, Settings: upkeep,
		Paths: []blockcache.Path{{Dir: dir, TotalBytes: 4 << 20}},
	})
}

func newWorld(t *testing.T, change []func(*Options)) *world {
	t.Helper()
	w := &world{t: t, start: time.Now()}
	w.mu.objects = map[block.Object]*storedObject{testObject(): {size: 20*testBlock + 100, version: "v1"}}
	w.mu.peers = map[string]func(int, *block.Fetch) reply{}
	w.mu.store = func(int, *block.Fetch) reply { return reply{after: 40 * time.Millisecond} }
	cache, err := openCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w.rules = shards.NewSettings()
	breakers := shards.NewBreakers(w.rules)
	settings := NewSettings()
	settings.EnableCacheReadFromPeer.Store(true)
	settings.ObjectStorageGetMaxBlocks.Store(1)       // GETs are countable; S39 has tests of its own
	settings.EnableAdaptivePeerRaceHedge.Store(false) // times are exact; S36 has tests of its own
	options := Options{
		Cache: cache, Origin: w, Peers: w, Directory: w,
		Table: shards.NewTable(shards.Options{Location: "default"}, w.rules, breakers), Breakers: breakers,
		Profiles: profile.New(10), Settings: settings,
		Races: pools.NewTokens(64), RaceGets: pools.NewTokens(32),
		BlockSize: testBlock, GroupID: "cg_read",
	}
	for _, c := range change {
		c(&options)
	}
	if w.e, err = New(options); err != nil {
		t.Fatal(err)
	}
	return w
}

// put replaces the object, as a writer would.
func (w *world) put(blocks int64, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.objects[testObject()] = &storedObject{size: blocks * testBlock, version: version}
}

// setStore changes how the store answers from now on.
func (w *world) setStore(script func(n int, f *block.Fetch) reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.store = script
}

// setLookup changes what the FE answers.
func (w *world) setLookup(answer func(block.Route) ([]shards.Candidate, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.lookup = answer
}

// at reads ten bytes of block n and says where they came from and how long it
// took.
func (w *world) at(n int) (block.Source, time.Duration, error) {
	w.t.Helper()
	begin := w.since()
	src, err := w.read(int64(n)*testBlock, 10)
	return src, w.since() - begin, err
}

// one is at for a reader on its own: it returns when all that the read has set
// in motion has come to rest.
func (w *world) one(n int) (block.Source, time.Duration, error) {
	w.t.Helper()
	src, took, err := w.at(n)
	synctest.Wait()
	return src, took, err
}

// learn reads block 0 without asking a peer or the FE: the object is known then.
func (w *world) learn() {
	w.t.Helper()
	req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), NoPeer: true}
	if _, err := w.readAs(context.Background(), req, 10); err != nil {
		w.t.Error(err)
	}
	synctest.Wait()
}

// circuit is the breaker of peer n.
func (w *world) circuit(n int) shards.BreakerView {
	for _, v := range w.e.Breakers.Show() {
		if v.Address == peerAddr(n).String() {
			return v
		}
	}
	return shards.BreakerView{State: "closed"}
}

// candidates is the list of tablet 1, in its own order, as numbers of peers.
func (w *world) candidates() []int {
	var list []int
	view, _ := w.e.Table.Show(tablet())
	for _, c := range view.Candidates {
		n := 0
		for peerAddr(n).Host != c.Host {
			n++
		}
		list = append(list, n)
	}
	return list
}

// askedPeers are the peers called since from, in order.
func (w *world) askedPeers(from int) []int {
	var list []int
	for _, c := range w.calls()[from:] {
		n := 0
		for peerAddr(n).String() != c.addr {
			n++
		}
		list = append(list, n)
	}
	return list
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
		Object: testObject(), Version: block.Immutable, Route: block.TabletRoute(1), Offset: off,
	}, n)
}

func (w *world) readAs(ctx context.Context, req *block.Read, n int) (block.Source, error) {
	w.t.Helper()
	dst := make([]byte, n)
	k, src, err := w.e.Read(ctx, req, dst)
	w.mu.Lock()
	o := w.mu.objects[req.Object]
	w.mu.Unlock()
	if o == nil {
		return src, err
	}
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
