// Package engine reads ranges of objects: from the local File Cache, else by a
// race of a peer BE against object storage, with one fetch for all readers of
// a block. read.go holds the order of a read from top to bottom.
//
// What readers get are views of leased blocks, or copies in their own buffers.
// The engine does no network and no disk I/O itself: it asks the Origin, the
// Peers, the Directory and the cache that it was built with.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"headstart/blockcache"
	"headstart/engine/block"
	"headstart/engine/flight"
	"headstart/engine/object"
	"headstart/engine/plan"
	"headstart/engine/profile"
	"headstart/engine/timeline"
	"headstart/pools"
	"headstart/shards"
)

// Origin is the object storage of last resort.
type Origin interface {
	block.Store
	// Head asks what the object is now.
	Head(ctx context.Context, o block.Object) (block.Meta, error)
}

// Directory is the FE: it knows who serves which tablet.
type Directory interface {
	// Lookup returns the candidates of each route, in the order of routes.
	Lookup(ctx context.Context, routes []block.Route) ([][]shards.Candidate, error)
}

// Settings are the keys of the configuration that the engine looks at while it
// runs. Each is read once a run or a read; a change takes effect with the next.
type Settings struct {
	EnableCacheReadFromPeer        atomic.Bool
	EnablePeerS3Race               atomic.Bool
	EnableSameComputeGroupPeerRead atomic.Bool
	EnableCrossComputeGroupRead    atomic.Bool
	EnableExternalPeerRead         atomic.Bool
	EnableAdaptivePeerRaceHedge    atomic.Bool
	PeerRaceHedgeDelayMS           atomic.Int64
	PeerRaceHedgeBudgetPercent     atomic.Int64
	PeerReadRPCTimeoutMS           atomic.Int64
	PeerServerCacheFillTimeoutMS   atomic.Int64
	ObjectStorageGetMaxBlocks      atomic.Int64
	ExternalRevalidateMS           atomic.Int64
	// PeerCrossLocationBytesPerSecond bounds what is read from peers of another
	// location; 0 means no bound.
	PeerCrossLocationBytesPerSecond atomic.Int64
	// PeerReadAllowedComputeGroups are the groups that may be asked; nil or empty
	// means all. Its holder never changes it.
	PeerReadAllowedComputeGroups atomic.Pointer[[]string]
	// PeerCacheFillComputeGroupID is nil or "" for no fill group.
	PeerCacheFillComputeGroupID atomic.Pointer[string]
}

// NewSettings returns the defaults of the configuration.
func NewSettings() *Settings {
	s := &Settings{}
	s.EnablePeerS3Race.Store(true)
	s.EnableSameComputeGroupPeerRead.Store(true)
	s.EnableCrossComputeGroupRead.Store(true)
	s.EnableExternalPeerRead.Store(true)
	s.EnableAdaptivePeerRaceHedge.Store(true)
	s.PeerRaceHedgeDelayMS.Store(20)
	s.PeerRaceHedgeBudgetPercent.Store(5)
	s.PeerReadRPCTimeoutMS.Store(1000)
	s.PeerServerCacheFillTimeoutMS.Store(6000)
	s.ObjectStorageGetMaxBlocks.Store(block.MaxRun)
	s.ExternalRevalidateMS.Store(1000)
	return s
}

// Options is what an engine is built from. Peers and Directory may be nil: the
// node then reads from its cache and from object storage alone.
type Options struct {
	Cache     *blockcache.Cache
	Origin    Origin
	Peers     block.Peers
	Directory Directory
	Table     *shards.Table
	Breakers  *shards.Breakers
	Profiles  *profile.Profiles
	// Timelines keeps what slow reads have waited for; it may be nil.
	Timelines *timeline.Log
	Settings  *Settings
	// Races bounds max_concurrent_peer_races, RaceGets the store legs beside
	// them (max_peer_race_s3_thread_num).
	Races, RaceGets *pools.Tokens
	// BlockSize is in bytes.
	BlockSize int64
	// GroupID is the node's own compute group, Location its own location.
	GroupID, Location string
	// Window is how many blocks one read may have under way or in hand, 64 when 0.
	Window int
	// MaxObjects bounds the object table, object.DefaultMaxObjects when 0.
	MaxObjects int
	Logger     *slog.Logger
}

// Validate says what is missing.
func (o *Options) Validate() error {
	switch {
	case o.Cache == nil || o.Origin == nil || o.Settings == nil || o.Profiles == nil:
		return errors.New("engine: Options need Cache, Origin, Settings and Profiles")
	case o.BlockSize <= 0:
		return errors.New("engine: Options.BlockSize must be positive")
	case o.Peers != nil && (o.Table == nil || o.Breakers == nil || o.Races == nil || o.RaceGets == nil):
		return errors.New("engine: Options.Peers needs Table, Breakers, Races and RaceGets")
	}
	return nil
}

// Engine reads objects. All methods may be called at the same time.
type Engine struct {
	Options
	geometry block.Geometry
	objects  *object.Table
	// races holds the flights that may wait for a peer, gets those that read
	// object storage themselves, learning those that find out what an object is.
	// A fill joins gets only, so two nodes never wait for each other.
	races, gets, learning *flight.Table
	lookups               chan lookup
	count                 counters
	// growth decides how large a GET is; it counts time from began.
	growth *plan.Growth
	began  time.Time
	// budget bounds extra GETs; the latencies of GETs and fills say when one is due.
	budget, sourceBudget    budget
	far                     allowance
	getLatency, fillLatency shards.Latency
	// unmatched is the fill group that was warned of last.
	unmatched atomic.Pointer[string]

	// ctx ends with Close. done counts the engine's goroutines; it grows while
	// life is locked and not closed.
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	life   struct {
		sync.Mutex
		closed bool
	}
}

// errClosed is the error of reads that need more than the cache has.
var errClosed = errors.New("the engine is closed")

// New returns a running engine; Close stops it.
func New(o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Window == 0 {
		o.Window = 64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		Options:  o,
		geometry: block.Geometry(o.BlockSize),
		objects:  object.NewTable(o.MaxObjects),
		races:    flight.NewTable(),
		gets:     flight.NewTable(),
		learning: flight.NewTable(),
		lookups:  make(chan lookup, maxLookups),
		growth:   plan.NewGrowth(),
		began:    time.Now(),
	}
	e.budget.milli.Store(burstGets)
	e.LearnCached()
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if o.Directory != nil && o.Table != nil {
		e.done.Go(e.runLookups) // ends with e.ctx
	}
	return e, nil
}

// LearnCached takes over what the cache knows of objects. New does so; whoever
// opens the cache without waiting for all of it does so again when it is there.
func (e *Engine) LearnCached() {
	for cached := range e.Cache.Objects {
		// Learned before the restart, nobody knows when: what may change is looked at
		// again before it is used.
		key := object.KeyOf(cached.Object, cached.Meta.Version)
		if e.objects.Get(key) == nil {
			e.objects.Learn(key, cached.Meta, time.Time{}).NoteRoute(cached.Route, true)
		}
	}
}

// Close cancels the fetches under way, stops the engine's goroutines and waits
// for them. From then on reads that miss the cache fail.
func (e *Engine) Close() {
	e.life.Lock()
	e.life.closed = true
	e.life.Unlock()
	e.cancel()
	e.done.Wait()
}

// start runs f in a goroutine that Close waits for; f ends with e.ctx. It
// reports false once the engine closes.
func (e *Engine) start(f func()) bool {
	e.life.Lock()
	defer e.life.Unlock()
	if e.life.closed {
		return false
	}
	e.done.Go(f)
	return true
}

// Known returns what the node knows of an object, nil when that is nothing.
// version is block.Immutable for tablet files.
func (e *Engine) Known(o block.Object, version block.Version) *object.Known {
	return e.objects.Get(object.KeyOf(o, version))
}
