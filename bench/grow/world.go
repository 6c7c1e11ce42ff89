// Package grow counts what reads of cold data cost while a cluster grows: GETs,
// bytes between locations and look-ups at the FE, with ten times the objects, the
// tablets or the BEs. Engines, caches, fill servers and the FE's directory are the
// real ones, in virtual time; object storage follows the law of bench/s3law, a
// call to a peer or an FE takes a millisecond each way.
//
//	GROW=10 go test -run ClusterGrows -v ./bench/grow
package grow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"headstart/bench/s3law"
	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/fill"
	"headstart/engine/profile"
	"headstart/pools"
	"headstart/shards"
	"headstart/shards/placement"
)

const (
	// blockSize is small because counts do not depend on it.
	blockSize    = 4 << 10
	objectBlocks = 16
	readPercent  = 50
	group        = "cg"
	// readers is how many objects a BE reads at once, transit how long a call takes
	// each way.
	readers = 4
	transit = time.Millisecond
)

// scale is the size of one world.
type scale struct {
	name                  string
	bes, tablets, objects int
}

// counts is what a world has cost.
type counts struct{ reads, gets, farBytes, lookups int64 }

// world is all BEs, their FE and their object storage.
type world struct {
	scale
	law   s3law.Law
	fe    *placement.Directory
	nodes map[block.Addr]*node
	gets  atomic.Int64
	zeros *block.Buf
}

// node is one BE.
type node struct {
	w      *world
	addr   block.Addr
	number int
	cache  *blockcache.Cache
	queue  *pools.Queue
	engine *engine.Engine
	server *fill.Server
}

// play lets all BEs of a world read at once, in a bubble of virtual time.
func play(s scale, peers bool, tmp string) (c counts, err error) {
	dir, err := os.MkdirTemp(tmp, "headstart-grow-")
	if err != nil {
		return c, err
	}
	defer os.RemoveAll(dir)
	w := &world{scale: s, law: s3law.Law{Seed: 1}, nodes: make(map[block.Addr]*node), zeros: block.NewBuf(make([]byte, blockSize), nil)}
	w.zeros.Seal()
	w.fe, err = placement.NewDirectory(context.Background(), ledger{}, placement.NewSettings(), placement.Options{})
	if err != nil {
		return c, err
	}
	for i := range s.bes {
		n, err := w.newNode(i, filepath.Join(dir, fmt.Sprint(i)), peers)
		if err != nil {
			return c, err
		}
		defer n.close()
		w.nodes[n.addr] = n
	}
	var all sync.WaitGroup
	errs := make([]error, s.bes)
	for _, n := range w.nodes {
		all.Go(func() { errs[n.number] = n.readShare() }) // ends with its share
	}
	all.Wait()
	for _, n := range w.nodes {
		m := n.engine.Metrics()
		c.farBytes += m.FarBytes
		c.lookups += m.Lookups
	}
	c.gets = w.gets.Load()
	c.reads = int64(s.bes * (s.objects * readPercent / 100) * objectBlocks)
	return c, errors.Join(errs...)
}

func (w *world) newNode(number int, dir string, peers bool) (n *node, err error) {
	n = &node{w: w, number: number, addr: block.Addr{Host: fmt.Sprintf("10.0.%d.%d", number/250, 1+number%250), Port: 8060}}
	location := [...]string{"zone-a", "zone-b"}[number%2]
	_, err = w.fe.Heartbeat(context.Background(), placement.Heartbeat{
		NodeID: n.addr.Host, Host: n.addr.Host, BrpcPort: n.addr.Port, GroupID: group, Location: location, Started: time.Now(),
	})
	if err != nil {
		return nil, err
	}
	quiet, upkeep := slog.New(slog.DiscardHandler), blockcache.NewSettings()
	upkeep.ScrubBytesPerSecond.Store(0) // virtual time would go into it
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	n.cache, err = blockcache.Open(blockcache.Options{
		Logger: quiet, BlockSize: blockSize, Settings: upkeep, WriteQueueBytes: 64 << 20,
		Paths: []blockcache.Path{{Dir: dir, TotalBytes: 8<<20 + 2*int64(w.objects)*objectBlocks*blockSize}},
	})
	if err != nil {
		return nil, err
	}
	rules, settings := shards.NewSettings(), engine.NewSettings() // with the defaults of a node
	settings.EnableCacheReadFromPeer.Store(peers)
	fills := group
	settings.PeerCacheFillComputeGroupID.Store(&fills)
	breakers := shards.NewBreakers(rules)
	n.engine, err = engine.New(engine.Options{
		Cache: n.cache, Origin: n, Peers: n, Directory: n, Breakers: breakers,
		Table:    shards.NewTable(shards.Options{Self: []block.Addr{n.addr}, Location: location}, rules, breakers),
		Profiles: profile.New(1), Settings: settings, Races: pools.NewTokens(64), RaceGets: pools.NewTokens(32),
		BlockSize: blockSize, GroupID: group, Location: location, MaxObjects: w.objects,
	})
	if err != nil {
		return nil, err
	}
	n.queue, err = pools.NewQueue(pools.QueueOptions{Name: "peers", Workers: 64, MaxQueue: 4096, Timeout: 100 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	serving := &fill.Settings{}
	serving.EnablePeerServerCacheFill.Store(true)
	serving.PeerServerCacheFillTimeoutMS.Store(6000)
	n.server = fill.NewServer(fill.Options{
		Engine: n.engine, Cache: n.cache, Settings: serving, Queue: n.queue, Fills: pools.NewShares(32), Logger: quiet,
	})
	return n, nil
}

func (n *node) close() {
	n.server.Close()
	n.engine.Close()
	_ = n.queue.Close()
	_ = n.cache.Close() // its files go away anyway
}

// readShare reads the node's share of the objects.
func (n *node) readShare() error {
	mine := rand.New(rand.NewPCG(1, uint64(n.number))).Perm(n.w.objects)[:n.w.objects*readPercent/100]
	errs := make([]error, readers)
	var next atomic.Int64
	var all sync.WaitGroup
	for r := range errs {
		all.Go(func() { // ends with the share
			dst := make([]byte, blockSize)
			for at := next.Add(1) - 1; int(at) < len(mine) && errs[r] == nil; at = next.Add(1) - 1 {
				errs[r] = n.readObject(mine[at], dst)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (n *node) readObject(o int, dst []byte) error {
	req := &block.Read{
		Object: block.Object{Store: block.DefaultStore, Bucket: "b", Key: fmt.Sprint(o)}, Version: block.Immutable,
		Route: block.TabletRoute(int64(1 + o%n.w.tablets)),
	}
	for ; req.Offset < objectBlocks*blockSize; req.Offset += blockSize {
		if got, _, err := n.engine.Read(context.Background(), req, dst); err != nil || got != blockSize {
			return fmt.Errorf("object %d at %d: %d bytes: %w", o, req.Offset, got, err)
		}
	}
	return nil
}

// Head implements engine.Origin; tablet files need none.
func (n *node) Head(context.Context, block.Object) (block.Meta, error) {
	return block.Meta{}, errors.ErrUnsupported
}

// Fetch implements block.Store: one GET.
func (n *node) Fetch(ctx context.Context, f *block.Fetch) (block.Stream, error) {
	if err := pause(ctx, n.w.law.FirstByte(uint64(n.w.gets.Add(1)))); err != nil {
		return nil, err
	}
	s := &stream{}
	for i := range uint64(block.MaxRun) {
		if index := f.Run.First + i; f.Run.Has(index) && index < objectBlocks {
			s.pieces = append(s.pieces, block.Piece{Index: index, Status: block.StatusData, Buf: n.w.zeros.Retain()})
		}
	}
	return s, nil
}

// FetchFrom implements block.Peers: the callee answers on the caller's goroutine.
func (n *node) FetchFrom(ctx context.Context, addr block.Addr, f *block.Fetch) (block.Stream, error) {
	if err := pause(ctx, transit); err != nil {
		return nil, err
	}
	reply := &block.Reply{}
	n.w.nodes[addr].server.ServeBlocks(ctx, block.Node{ID: n.addr.Host, GroupID: group}, f, reply)
	defer reply.Release()
	if err := pause(ctx, transit); err != nil {
		return nil, err
	}
	s := &stream{}
	for pass := range 2 { // what is not data comes first
		for i := range reply.Answers {
			a := &reply.Answers[i]
			if (a.Status == block.StatusData) != (pass == 1) {
				continue
			}
			p := block.Piece{Index: a.Index, Status: a.Status}
			if pass == 1 {
				p.Buf = n.w.zeros.Retain()
			}
			s.pieces = append(s.pieces, p)
		}
	}
	return s, nil
}

// pause lets time pass, or the call end.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Lookup implements engine.Directory by the FE's own.
func (n *node) Lookup(ctx context.Context, routes []block.Route) ([][]shards.Candidate, error) {
	if err := pause(ctx, 2*transit); err != nil {
		return nil, err
	}
	found, err := n.w.fe.Lookup(ctx, routes)
	lists := make([][]shards.Candidate, len(found))
	for i, holders := range found {
		for _, h := range holders {
			lists[i] = append(lists[i], shards.Candidate{Addr: h.Addr, GroupID: h.GroupID, Location: h.Location})
		}
	}
	return lists, err
}

// stream is a reply that is all there.
type stream struct{ pieces []block.Piece }

// Next implements block.Stream.
func (s *stream) Next() (block.Piece, error) {
	if len(s.pieces) == 0 {
		return block.Piece{}, io.EOF
	}
	p := s.pieces[0]
	s.pieces = s.pieces[1:]
	return p, nil
}

// Meta implements block.Stream.
func (s *stream) Meta() block.Meta {
	return block.Meta{Size: objectBlocks * blockSize, Version: block.Immutable}
}

// Close implements block.Stream.
func (s *stream) Close() {
	for _, p := range s.pieces {
		if p.Buf != nil {
			p.Buf.Release()
		}
	}
	s.pieces = nil
}

// ledger is the store of an FE that is never restarted.
type ledger struct{}

// Load implements placement.Store.
func (ledger) Load(_ context.Context, clusterID string) (placement.State, error) {
	return placement.State{ClusterID: clusterID}, nil
}

// Save implements placement.Store.
func (ledger) Save(context.Context, placement.Change) error { return nil }
