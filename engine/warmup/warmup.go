// Package warmup copies what an FE names into the File Cache: blocks that other
// BEs have of tablets, and whole objects.
//
// Bytes belong to the cache or to nobody: they pass through in leases that are
// given back at once. Nothing here ever makes a reader wait: its reads keep away
// from peers (S10), its bytes per second are bounded, and a source BE that fails
// costs a GET of object storage.
package warmup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/shards"
	"headstart/shards/placement"
)

// Settings may be changed while batches run.
type Settings struct {
	// BytesPerSecond bounds what is copied
	// (file_cache_warmup_download_rate_limit_bytes_per_second); 0 and less don't.
	BytesPerSecond atomic.Int64
	// FromPeer copies blocks of tablets from the BE that has them, not from object
	// storage (warm_up_from_peer).
	FromPeer atomic.Bool
}

// NewSettings returns the defaults of the configuration.
func NewSettings() *Settings {
	s := &Settings{}
	s.BytesPerSecond.Store(100 << 20)
	return s
}

// Peers is how other BEs are asked.
type Peers interface {
	block.Peers
	// Hot returns what the node at addr has cached of tablets.
	Hot(ctx context.Context, addr block.Addr, tablets []uint64) (placement.HotReply, error)
}

// Options are what a Service is made of. All but Peers, Settings and Logger are
// needed.
type Options struct {
	Engine *engine.Engine
	Cache  *blockcache.Cache
	Table  *shards.Table
	// Peers may be nil: then only objects can be warmed up.
	Peers    Peers
	Settings *Settings
	// Workers is how many batches run at the same time; 0 means 4.
	Workers int
	Logger  *slog.Logger
}

// Validate reports what is missing or out of range.
func (o *Options) Validate() error {
	switch {
	case o.Engine == nil, o.Cache == nil, o.Table == nil:
		return errors.New("warm-up: Engine, Cache and Table must be set")
	case o.Workers < 0:
		return errors.New("warm-up: Workers is negative")
	}
	return nil
}

const (
	// maxQueued bounds the batches that wait; a further one is not taken, and the
	// FE says it again.
	maxQueued = 1024
	// maxEnded is how many batches that have ended are remembered.
	maxEnded = 4096
)

// Service warms up. All methods may be called at the same time.
type Service struct {
	Options
	pace  pace
	queue chan *batch
	// ctx ends with Close, which waits for the workers.
	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu struct {
		sync.Mutex
		batches map[string]*batch
		// ended has the ids of those that have ended, oldest first.
		ended []string
	}
	count struct{ batches, failed, peerBlocks, peerBytes, storeBlocks, storeBytes atomic.Int64 }
	// scan is held by the one walk over all objects.
	scan sync.Mutex
}

// Metrics is what a Service has done so far.
type Metrics struct {
	// Batches have ended, Failed of them not well.
	Batches, Failed int64
	// The blocks and bytes copied, by where they came from.
	PeerBlocks, PeerBytes, StoreBlocks, StoreBytes int64
	// Queued and Running are batches now.
	Queued, Running int
}

// New returns a Service at work; Close stops it.
func New(o Options) (*Service, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Settings == nil {
		o.Settings = NewSettings()
	}
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{Options: o, queue: make(chan *batch, maxQueued)}
	s.mu.batches = make(map[string]*batch)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for range o.Workers {
		s.workers.Go(s.work) // ends with s.ctx
	}
	return s, nil
}

// Close gives up what is under way and waits for it.
func (s *Service) Close() {
	s.cancel()
	s.workers.Wait()
}

// Metrics returns a snapshot.
func (s *Service) Metrics() Metrics {
	m := Metrics{
		Batches: s.count.batches.Load(), Failed: s.count.failed.Load(),
		PeerBlocks: s.count.peerBlocks.Load(), PeerBytes: s.count.peerBytes.Load(),
		StoreBlocks: s.count.storeBlocks.Load(), StoreBytes: s.count.storeBytes.Load(),
		Queued: len(s.queue),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.mu.batches {
		if b.state.Load() == uint32(placement.WarmRunning) {
			m.Running++
		}
	}
	return m
}

// Warm takes a call of the FE. Who moves tablets to this node is recorded as
// their first candidate before anything else happens (S84), and greeted: with
// peer_read_async_warmup the FE sends readers here as soon as this returns.
func (s *Service) Warm(ctx context.Context, call placement.WarmCall) []placement.WarmProgress {
	for i := range call.Start {
		if call.Start[i].Balance {
			s.recordSources(call.Start[i].Groups)
		}
	}
	s.greet(ctx, call.Start)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range call.Drop {
		if b := s.mu.batches[id]; b != nil {
			b.cancel()
		}
	}
	var progress []placement.WarmProgress
	for _, start := range call.Start {
		b := s.mu.batches[start.ID]
		if b == nil {
			b = newBatch(s.ctx, start)
			select {
			case s.queue <- b:
				s.mu.batches[start.ID] = b
			default:
				continue // not mentioned: the FE will say it again
			}
		}
		progress = append(progress, b.progress())
	}
	for _, id := range call.Ask {
		if b := s.mu.batches[id]; b != nil {
			progress = append(progress, b.progress())
		} else {
			progress = append(progress, placement.WarmProgress{ID: id, State: placement.WarmUnknown})
		}
	}
	return progress
}

func (s *Service) recordSources(groups []placement.WarmGroup) {
	for _, g := range groups {
		for i := len(g.Sources) - 1; i >= 0; i-- { // the best one last: it gets to the front
			source := g.Sources[i]
			for _, id := range g.Tablets {
				s.Table.PutSource(block.Route{Kind: block.RouteTablet, ID: id},
					shards.Candidate{Addr: source.Addr, GroupID: source.GroupID, Location: source.Location})
			}
		}
	}
}

// work runs batches until Close.
func (s *Service) work() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case b := <-s.queue:
			s.run(b)
		}
	}
}

// run runs a batch to its end.
func (s *Service) run(b *batch) {
	defer s.forget(b)
	defer b.cancel()
	if !b.begin() {
		return
	}
	began := time.Now()
	err := s.copyAll(b)
	s.count.batches.Add(1)
	if err != nil {
		s.count.failed.Add(1)
	}
	b.end(err)
	p := b.progress()
	s.Logger.Debug("warm-up batch ended", "batch", b.ID, "balance", b.Balance, "blocks", p.Blocks, "bytes", p.Bytes, "took", time.Since(began), "error", err)
}

// forget lets the oldest of the batches that have ended go, when there are many,
// and those that were dropped.
func (s *Service) forget(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.state.Load() == uint32(placement.WarmUnknown) {
		delete(s.mu.batches, b.ID)
		return
	}
	s.mu.ended = append(s.mu.ended, b.ID)
	if len(s.mu.ended) > maxEnded {
		delete(s.mu.batches, s.mu.ended[0])
		s.mu.ended = s.mu.ended[1:]
	}
}

// copyAll copies all of a batch. What one object or source lacks does not keep
// the others away; the error is the first one.
func (s *Service) copyAll(b *batch) (first error) {
	note := func(err error) {
		if first == nil && err != nil {
			first = err
		}
	}
	if s.Cache.Disabled() {
		return errors.New("enable_file_cache is off here, or there is no file_cache_path")
	}
	for _, g := range b.Groups {
		for from := 0; from < len(g.Tablets); from += maxAsked {
			note(s.copyTablets(b, g.Sources, g.Tablets[from:min(from+maxAsked, len(g.Tablets))]))
		}
	}
	for _, o := range b.Objects {
		if o.Object.Store == "" {
			o.Object.Store = block.DefaultStore
		}
		note(s.copyObject(b, copying{WarmObject: o, route: block.ExternalRoute(o.Object)}))
	}
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	return first
}

// maxAsked is how many tablets a source is asked about at a time.
const maxAsked = 64

// copyTablets copies what the first source that answers has of some tablets.
func (s *Service) copyTablets(b *batch, sources []placement.Holder, tablets []uint64) error {
	if len(sources) == 0 || s.Peers == nil {
		return nil // nobody knows what is hot
	}
	var failed error
	for _, source := range sources {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(b.ctx, hotTimeout)
		hot, err := s.Peers.Hot(ctx, source.Addr, tablets)
		cancel()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("source %v: %w", source.Addr, err))
			continue
		}
		var first error
		// All of them are learned before the first is copied: who knows what a file is
		// asks a peer once, not twice.
		var wanted []copying
		for _, o := range hot.Objects {
			if c, ok := s.wanted(o, hot.BlockSize, source.Addr); ok {
				wanted = append(wanted, c)
			}
		}
		for _, c := range wanted {
			if err := s.copyObject(b, c); err != nil && first == nil {
				first = err
			}
		}
		return first
	}
	return failed
}

// hotTimeout bounds how long a source may take to say what it has.
const hotTimeout = 10 * time.Second
