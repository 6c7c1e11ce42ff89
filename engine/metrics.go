package engine

import (
	"sync/atomic"
	"time"

	"headstart/engine/block"
	"headstart/engine/profile"
	"headstart/engine/race"
)

// counters is written by whoever does what is counted and read by Metrics.
type counters struct {
	// local counts what the own cache gave, and the reads that began with a look
	// into it; reads the others.
	local                                       profile.Tally
	reads, readErrors                           atomic.Int64
	peerBlocks, storeBlocks                     atomic.Int64
	joinedBlocks                                atomic.Int64
	peerBytes, storeBytes, farBytes             atomic.Int64
	peerReads, storeReads                       atomic.Int64
	sameGroupReads, crossGroupReads             atomic.Int64
	racePeerWin, raceStoreWin, raceBothFail     atomic.Int64
	raceAbandoned, hedges                       atomic.Int64
	hedgeNoSlot, hedgeNoBudget                  atomic.Int64
	raceSequential, wastedBytes, carriedBytes   atomic.Int64
	lazyFetch, lookups, lookupFailures          atomic.Int64
	peerCorrupt, panics, changed, staleMetaUsed atomic.Int64
	fillGroupUnmatched, lateGets                atomic.Int64
	// peerLatency is of calls that were answered, storeLatency the time to the
	// first block of a GET.
	peerLatency, storeLatency profile.Recorder
}

// Metrics is the engine's books at one moment. All but gauges only grow.
type Metrics struct {
	// Reads counts calls of Read and Open, ReadErrors those that failed.
	Reads, ReadErrors int64
	// LocalBlocks, PeerBlocks and StoreBlocks count blocks handed to readers by
	// source; JoinedBlocks those of them that shared another reader's fetch.
	LocalBlocks, PeerBlocks, StoreBlocks, JoinedBlocks int64
	// LocalBytes were handed out; PeerBytes and StoreBytes came from the wire, FarBytes
	// among the peers' from another location.
	LocalBytes, PeerBytes, StoreBytes, FarBytes int64
	// PeerReads and StoreReads count calls to peers and GETs issued.
	PeerReads, StoreReads int64
	// SameGroupReads and CrossGroupReads count peer calls that brought data.
	SameGroupReads, CrossGroupReads int64
	// Each finished race is in exactly one of the first three.
	RacePeerWin, RaceStoreWin, RaceBothFail, RaceAbandoned int64
	// Hedges counts store legs beside a running peer leg, HedgeNoSlot those that
	// found the pool full, HedgeNoBudget those that the budget did not allow,
	// RaceSequential the fetches that did not race.
	Hedges, HedgeNoSlot, HedgeNoBudget, RaceSequential, WastedBytes int64
	// LateGETs counts those that have asked peers whether one has the block by now.
	LateGETs int64
	// CarriedBytes came along with GETs for nobody yet, and went into the cache.
	CarriedBytes int64
	// LazyFetches counts reads that found no candidates, Lookups what was asked of
	// the FE.
	LazyFetches, Lookups, LookupFailures int64
	PeerCorrupt, Panics                  int64
	// Changed counts reads that met a new version, StaleMetaUsed those that went
	// on with an old one because the store did not answer.
	Changed, StaleMetaUsed int64
	// FillGroupUnmatched counts peer reads with a fill group set that no candidate
	// belongs to.
	FillGroupUnmatched int64
	// Gauges.
	ObjectsKnown, FlightsRacing, FlightsGetting int64
	// PeerLatency is of calls to peers that were answered, StoreLatency the time
	// to the first block of a GET.
	PeerLatency, StoreLatency profile.Latencies
}

// Metrics returns a snapshot; its values are read one after another.
func (e *Engine) Metrics() Metrics {
	c, now := &e.count, time.Now()
	local := c.local.Sums()
	return Metrics{
		Reads: c.reads.Load() + local.Reads, ReadErrors: c.readErrors.Load(),
		LocalBlocks: local.Blocks, PeerBlocks: c.peerBlocks.Load(),
		StoreBlocks: c.storeBlocks.Load(), JoinedBlocks: c.joinedBlocks.Load(),
		LocalBytes: local.Bytes, PeerBytes: c.peerBytes.Load(), StoreBytes: c.storeBytes.Load(), FarBytes: c.farBytes.Load(),
		PeerReads: c.peerReads.Load(), StoreReads: c.storeReads.Load(),
		SameGroupReads: c.sameGroupReads.Load(), CrossGroupReads: c.crossGroupReads.Load(),
		RacePeerWin: c.racePeerWin.Load(), RaceStoreWin: c.raceStoreWin.Load(),
		RaceBothFail: c.raceBothFail.Load(), RaceAbandoned: c.raceAbandoned.Load(),
		Hedges: c.hedges.Load(), HedgeNoSlot: c.hedgeNoSlot.Load(), HedgeNoBudget: c.hedgeNoBudget.Load(),
		RaceSequential: c.raceSequential.Load(), WastedBytes: c.wastedBytes.Load(),
		CarriedBytes: c.carriedBytes.Load(),
		LazyFetches:  c.lazyFetch.Load(), Lookups: c.lookups.Load(), LookupFailures: c.lookupFailures.Load(),
		PeerCorrupt: c.peerCorrupt.Load(), Panics: c.panics.Load(),
		Changed: c.changed.Load(), StaleMetaUsed: c.staleMetaUsed.Load(),
		LateGETs: c.lateGets.Load(), FillGroupUnmatched: c.fillGroupUnmatched.Load(),
		ObjectsKnown:  int64(e.objects.Len()),
		FlightsRacing: int64(e.races.Len()), FlightsGetting: int64(e.gets.Len()),
		PeerLatency: c.peerLatency.Latencies(now), StoreLatency: c.storeLatency.Latencies(now),
	}
}

// addBlock counts one block that a reader gets.
func (c *counters) addBlock(src block.Source, n int, joined bool) {
	switch src {
	case block.SourceLocal:
		c.local.Add(0, 1, int64(n))
	case block.SourcePeer:
		c.peerBlocks.Add(1)
	case block.SourceStore:
		c.storeBlocks.Add(1)
	}
	if joined {
		c.joinedBlocks.Add(1)
	}
}

// addAside books that a late GET has asked peers: a hedge that costs no GET.
func (c *counters) addAside(s *race.Stats) {
	if s.Hedged {
		s.Hedged = false
		c.lateGets.Add(1)
	}
}

// addRace books the end of one fetch; raced tells whether it was a race at all.
func (c *counters) addRace(s race.Stats, raced bool) {
	c.wastedBytes.Add(s.WastedBytes)
	if s.Hedged {
		c.hedges.Add(1)
	}
	if s.NoSlot {
		c.hedgeNoSlot.Add(1)
	}
	if s.NoBudget {
		c.hedgeNoBudget.Add(1)
	}
	if !raced {
		return
	}
	switch s.Winner {
	case race.PeerWon:
		c.racePeerWin.Add(1)
	case race.StoreWon:
		c.raceStoreWin.Add(1)
	case race.BothFailed:
		c.raceBothFail.Add(1)
	case race.NoWinner:
		c.raceAbandoned.Add(1)
	}
}
