package sim

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/fill"
	"headstart/engine/profile"
	"headstart/fuzz/fault"
	"headstart/pools"
	"headstart/shards"
	"headstart/shards/placement"
)

// limits are the bounds of all nodes of one world.
type limits struct {
	cacheBlocks, bufferBlocks, window, objects int
	races, raceGets, fills, workers, queue     int
}

// node is one BE through all its lives.
type node struct {
	w           *world
	name, group string
	addr        block.Addr
	// dir is where its cache lies. Only whoever starts and ends lives touches it.
	dir string
	mu  struct {
		sync.Mutex
		life *life // nil while the node is down
	}
}

// life is one process of a node.
type life struct {
	n          *node
	id         string
	began      time.Time
	buffers    *pools.Buffers
	races      *pools.Tokens
	raceGets   *pools.Tokens
	fills      *pools.Tokens
	queue      *pools.Queue
	cache      *blockcache.Cache
	rules      *shards.Settings
	settings   *engine.Settings
	serving    *fill.Settings
	engine     *engine.Engine
	server     *fill.Server
	heartbeats sync.WaitGroup
	// ctx ends when the life does. users counts who is at it, readers and calls of
	// peers; it grows only while the life is the node's.
	ctx    context.Context
	cancel context.CancelFunc
	users  sync.WaitGroup
}

// enter makes the caller a user of the node's life, which he has to leave; nil
// when the node is down.
func (n *node) enter() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.life != nil {
		n.mu.life.users.Add(1)
	}
	return n.mu.life
}

func (l *life) leave() { l.users.Done() }

// start begins a life, with what the cache's directory holds.
func (n *node) start() {
	w, m := n.w, n.w.limits
	w.lives++
	l := &life{
		n: n, id: fmt.Sprintf("%s-%d", n.name, w.lives), began: time.Now(),
		races: pools.NewTokens(m.races), raceGets: pools.NewTokens(m.raceGets), fills: pools.NewTokens(m.fills),
		rules: shards.NewSettings(), settings: engine.NewSettings(), serving: &fill.Settings{},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.tune()
	quiet := slog.New(slog.DiscardHandler)
	var errs [4]error
	l.buffers, errs[0] = pools.NewBuffers(pools.BuffersOptions{BudgetBytes: int64(m.bufferBlocks) * blockSize, BlockSize: blockSize})
	l.cache, errs[1] = blockcache.Open(blockcache.Options{
		Logger: quiet, BlockSize: blockSize, WriteQueueBytes: 16 * blockSize,
		Paths: []blockcache.Path{{Dir: n.dir, TotalBytes: 64<<10 + int64(m.cacheBlocks)*blockSize}},
	})
	l.queue, errs[2] = pools.NewQueue(pools.QueueOptions{Name: n.name, Workers: m.workers, MaxQueue: m.queue, Timeout: 50 * time.Millisecond})
	w.must(errs[:3]...)
	breakers := shards.NewBreakers(l.rules)
	l.engine, errs[3] = engine.New(engine.Options{
		Cache:     l.cache,
		Origin:    witness{&fault.Origin{Inner: origin{w.bucket, l}, Plan: w.plan, Node: n.name}, w.bucket},
		Peers:     &fault.Peers{Inner: wire{w, l}, Plan: w.plan, Node: n.name},
		Directory: &fault.Directory{Inner: frontend{w}, Plan: w.plan, Node: n.name},
		Table:     shards.NewTable(shards.Options{Self: []block.Addr{n.addr}}, l.rules, breakers), Breakers: breakers,
		Profiles: profile.New(4), Settings: l.settings, Races: l.races, RaceGets: l.raceGets,
		BlockSize: blockSize, GroupID: n.group, Window: m.window, MaxObjects: m.objects,
	})
	w.must(errs[3])
	l.server = fill.NewServer(fill.Options{Engine: l.engine, Cache: l.cache, Settings: l.serving, Queue: l.queue, Fills: l.fills})
	l.heartbeats.Go(l.beat) // until the life ends
	n.mu.Lock()
	n.mu.life = l
	n.mu.Unlock()
}

// tune makes times short, so that a world sees many of them pass, and sets what
// the world's switches begin with.
func (l *life) tune() {
	l.rules.CircuitOpenSeconds.Store(3)
	l.rules.CooldownSeconds.Store(4)
	l.rules.RefreshSeconds.Store(5)
	l.rules.ExpirySeconds.Store(20)
	l.rules.SilenceProbeMS.Store(200)
	l.serving.EnablePeerServerCacheFill.Store(true)
	l.serving.PeerServerCacheFillTimeoutMS.Store(fillTimeout.Milliseconds())
	l.settings.PeerServerCacheFillTimeoutMS.Store(fillTimeout.Milliseconds())
	l.settings.PeerReadRPCTimeoutMS.Store(200)
	l.settings.EnableCacheReadFromPeer.Store(true)
	for i, s := range switches() {
		s.set(l, l.n.w.switched[i])
	}
}

// beat tells the FE that the node is alive, unless the FE can't be reached.
func (l *life) beat() {
	for {
		w := l.n.w
		if now := w.now(); !w.plan.Active(fault.DoorDirectory, l.n.name, now, now) {
			_, err := w.fe.Heartbeat(l.ctx, placement.Heartbeat{
				NodeID: l.id, Host: l.n.addr.Host, BrpcPort: l.n.addr.Port, GroupID: l.n.group, Started: l.began,
			})
			if err != nil {
				w.fail("the FE refuses %s: %v", l.id, err)
			}
		}
		if pause(l.ctx, time.Second) != nil {
			return
		}
	}
}

// end kills the process: calls and reads under way fail, then everything that it
// had borrowed must be back.
func (n *node) end() {
	n.mu.Lock()
	l := n.mu.life
	n.mu.life = nil
	n.mu.Unlock()
	if l == nil {
		return
	}
	l.cancel()
	l.heartbeats.Wait()
	l.server.Close()
	l.engine.Close()
	l.users.Wait()
	l.audit()
	n.w.must(l.queue.Close(), l.cache.Close())
	if lent := l.buffers.Metrics().LentBytes; lent != 0 {
		n.w.fail("%s: %d bytes of buffers were not given back", l.id, lent)
	}
	if r, g, f := l.races.InUse(), l.raceGets.InUse(), l.fills.InUse(); r+g+f != 0 {
		n.w.fail("%s: %d races, %d of their GETs and %d fills still hold a token", l.id, r, g, f)
	}
	m, s := l.engine.Metrics(), l.server.Metrics()
	if m.Panics+s.Panics+m.FlightsRacing+m.FlightsGetting != 0 {
		n.w.fail("%s: %d panics, %d flights left", l.id, m.Panics+s.Panics, m.FlightsRacing+m.FlightsGetting)
	}
	if s.Requests != s.Success+s.Failed {
		n.w.fail("%s: the books of its server: %+v", l.id, s)
	}
	n.w.tally(m)
}

// audit holds every block of the cache against the truth.
func (l *life) audit() {
	for _, o := range l.n.w.bucket.objects {
		for _, v := range o.between(0, l.n.w.now()) {
			name := o.meta(v).Version
			base := block.BaseID(o.Object, name)
			for index := range uint64(40) {
				lease, ok := l.cache.Peek(base.At(index))
				if !ok {
					continue
				}
				got := make([]byte, lease.Len())
				if _, err := lease.CopyAt(got, 0); err != nil || !bytes.Equal(got, l.n.w.bucket.truth(o.Object, name, index)) {
					l.n.w.fail("%s caches a wrong block %d of version %q of %s (%v)", l.id, index, name, o.Key, err)
				}
				lease.Release()
			}
		}
	}
}

// snapshot makes the next life find what the disk has at this moment, as if the
// power failed: pages in any order, nothing flushed.
func (n *node) snapshot() (dir string) {
	dir = n.w.tempDir()
	n.w.must(filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, d.Name()), data, 0o600)
	}))
	return dir
}
