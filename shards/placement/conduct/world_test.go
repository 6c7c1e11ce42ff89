package conduct_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
	"headstart/shards/placement/conduct"
	"headstart/shards/placement/store"
)

// world is an FE above a real store, and backends that follow scripts. It
// lives in a synctest bubble.
type world struct {
	*placement.Directory
	t         *testing.T
	path      string
	bolt      *store.Bolt
	settings  *placement.Settings
	options   conduct.Options
	conductor *conduct.Conductor
	cancel    context.CancelFunc
	running   sync.WaitGroup
	// refuse makes the store fail at changes; nil for never. It is set before start.
	refuse func(placement.Change) bool

	mu struct {
		sync.Mutex
		backends map[string]*backend
		objects  []placement.WarmObject
		pages    int
	}
}

// backend is a BE: what it is told, and how it behaves.
type backend struct {
	beat placement.Heartbeat
	id   int64
	// took is how long it warms a batch up, slow how long each call takes, broken
	// why it can't do its work, deaf makes calls to it fail, down keeps its
	// heartbeats back as well.
	took, slow time.Duration
	broken     error
	deaf, down bool

	batches map[string]batchOf
	// calls counts what was started; sources is where each tablet comes from.
	starts  int
	sources map[uint64]block.Addr
	warmed  map[uint64]int
	objects map[string]int
	dropped int
}

type batchOf struct {
	placement.WarmBatch
	since time.Time
	done  bool
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, path: filepath.Join(t.TempDir(), "fe.db"), settings: placement.NewSettings()}
	w.mu.backends = make(map[string]*backend)
	w.start()
	t.Cleanup(w.stop)
	return w
}

// start opens the store and lets the FE and its conductor run.
func (w *world) start() {
	w.t.Helper()
	var err error
	if w.bolt, err = store.Open(w.path); err != nil {
		w.t.Fatal(err)
	}
	if w.Directory, err = placement.NewDirectory(w.t.Context(), refusing{w.bolt, w.refuse}, w.settings, placement.Options{}); err != nil {
		w.t.Fatal(err)
	}
	if w.conductor, err = conduct.New(w.Directory, w, w.options); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.running.Go(func() { w.Directory.Run(ctx) }) // all three end with stop
	w.running.Go(func() { w.conductor.Run(ctx) })
	w.running.Go(func() { w.heartbeats(ctx) })
}

// refusing is a store that fails at some changes.
type refusing struct {
	*store.Bolt
	refuse func(placement.Change) bool
}

// Save implements placement.Store.
func (r refusing) Save(ctx context.Context, c placement.Change) error {
	if r.refuse != nil && r.refuse(c) {
		return errors.New("the disk is full")
	}
	return r.Bolt.Save(ctx, c)
}

// stop ends the FE; what was under way with backends is not finished.
func (w *world) stop() {
	w.cancel()
	w.running.Wait()
	if err := w.bolt.Close(); err != nil {
		w.t.Error(err)
	}
}

func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

// heartbeats lets all backends that are up say so each second.
func (w *world) heartbeats(ctx context.Context) {
	for {
		w.mu.Lock()
		for _, b := range w.mu.backends {
			if !b.down {
				_, _ = w.Heartbeat(ctx, b.beat)
			}
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// join makes a backend and lets it register.
func (w *world) join(host, group string) *backend {
	w.t.Helper()
	b := &backend{
		took: time.Second, batches: make(map[string]batchOf), sources: make(map[uint64]block.Addr),
		warmed: make(map[uint64]int), objects: make(map[string]int),
		beat: placement.Heartbeat{
			NodeID: host, Host: host, BrpcPort: 8060, GroupID: group, Started: time.Now(), CacheCapacityBytes: 1 << 40,
		},
	}
	reply, err := w.Heartbeat(w.t.Context(), b.beat)
	if err != nil {
		w.t.Fatal(err)
	}
	b.id = reply.BackendID
	w.change(func() { w.mu.backends[b.beat.Addr().String()] = b })
	return b
}

// change alters or looks at backends under the world's lock.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// restartBE makes a backend forget its batches, as a restart does.
func (w *world) restartBE(b *backend) {
	w.change(func() {
		b.beat.NodeID += "'"
		b.beat.Started = time.Now()
		b.batches = make(map[string]batchOf)
		b.down, b.deaf = false, false
	})
}

// lockAfter takes as long as a call to the backend does, then the lock.
func (w *world) lockAfter(to block.Addr) *backend {
	w.mu.Lock()
	slow := w.mu.backends[to.String()].slow
	w.mu.Unlock()
	time.Sleep(slow)
	w.mu.Lock()
	return w.mu.backends[to.String()]
}

// Warm implements placement.Backends.
func (w *world) Warm(_ context.Context, to block.Addr, c placement.WarmCall) ([]placement.WarmProgress, error) {
	b := w.lockAfter(to)
	defer w.mu.Unlock()
	if b.deaf || b.down {
		return nil, errors.New("connection refused")
	}
	var reply []placement.WarmProgress
	for _, batch := range c.Start {
		b.starts++
		b.batches[batch.ID] = batchOf{WarmBatch: batch, since: time.Now()}
		for _, g := range batch.Groups {
			for _, id := range g.Tablets {
				if batch.Balance {
					b.sources[id] = g.Sources[0].Addr
				}
			}
		}
		reply = append(reply, b.progress(batch.ID))
	}
	for _, id := range c.Ask {
		reply = append(reply, b.progress(id))
	}
	for _, id := range c.Drop {
		b.dropped++
		delete(b.batches, id)
	}
	return reply, nil
}

// progress finishes a batch when its time has come.
func (b *backend) progress(id string) placement.WarmProgress {
	p := placement.WarmProgress{ID: id}
	batch, ok := b.batches[id]
	switch {
	case !ok:
	case b.broken != nil:
		p.State, p.Err = placement.WarmFailed, b.broken.Error()
	case batch.done || time.Since(batch.since) >= b.took:
		p.State, p.Blocks, p.Bytes = placement.WarmDone, 1, 1<<20
		if !batch.done {
			for _, g := range batch.Groups {
				for _, tablet := range g.Tablets {
					b.warmed[tablet]++
				}
			}
			for _, o := range batch.Objects {
				b.objects[o.Object.Key]++
			}
		}
		batch.done = true
		b.batches[id] = batch
	default:
		p.State = placement.WarmRunning
	}
	return p
}

// List implements placement.Backends, by pages of at most ten.
func (w *world) List(_ context.Context, to block.Addr, c placement.ListCall) (placement.ListReply, error) {
	b := w.lockAfter(to)
	defer w.mu.Unlock()
	if b.deaf || b.down {
		return placement.ListReply{}, errors.New("connection refused")
	}
	if b.broken != nil {
		return placement.ListReply{}, b.broken
	}
	w.mu.pages++
	var reply placement.ListReply
	for _, o := range w.mu.objects {
		if o.Object.Key <= c.After {
			continue
		}
		if len(reply.Objects) == 10 {
			reply.More = true
			break
		}
		reply.Objects = append(reply.Objects, o)
	}
	return reply, nil
}

// ShowConfig implements placement.Backends.
func (w *world) ShowConfig(context.Context, block.Addr) ([]placement.ConfigItem, error) {
	return nil, nil
}

// SetConfig implements placement.Backends.
func (w *world) SetConfig(context.Context, block.Addr, map[string]string, bool) error { return nil }

// know makes tablets known.
func (w *world) know(n int) {
	w.t.Helper()
	w.owners(n)
}

// owners returns who serves each of the first n tablets in the group "cg", by
// host, and fails the test unless it is one backend.
func (w *world) owners(n int) []string {
	w.t.Helper()
	routes := make([]block.Route, n)
	for i := range routes {
		routes[i] = block.TabletRoute(int64(i))
	}
	found, err := w.Lookup(w.t.Context(), routes)
	if err != nil {
		w.t.Fatal(err)
	}
	hosts := make([]string, n)
	for i, holders := range found {
		for _, h := range holders {
			if h.GroupID == "cg" {
				hosts[i] = h.Addr.Host
			}
		}
		if hosts[i] == "" {
			w.t.Fatalf("tablet %d has no holder in cg: %v", i, holders)
		}
	}
	return hosts
}

// until lets virtual time pass until ok holds.
func (w *world) until(limit time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within %s: %s; groups %+v", limit, what, w.Groups())
		}
	}
}

// round returns the last round of balance of the group "cg".
func (w *world) round() placement.Round {
	for _, g := range w.Groups() {
		if g.ID == "cg" {
			return g.Round
		}
	}
	return placement.Round{}
}

// ended waits for the round that is to come to end.
func (w *world) ended(limit time.Duration) placement.Round {
	w.t.Helper()
	w.until(limit, "the round ends", func() bool { return !w.round().Ended.IsZero() })
	return w.round()
}

// setType sets the balance type of the group "cg".
func (w *world) setType(t placement.BalanceType, timeoutS int) {
	w.t.Helper()
	if err := w.SetBalance(w.t.Context(), "cg", t, timeoutS); err != nil {
		w.t.Fatal(err)
	}
}

func count(hosts []string, host string) int {
	n := 0
	for _, h := range hosts {
		if h == host {
			n++
		}
	}
	return n
}

func (b *backend) String() string { return fmt.Sprintf("%s (%d)", b.beat.Host, b.id) }
