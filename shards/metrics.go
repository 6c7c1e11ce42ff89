package shards

import (
	"sync/atomic"

	"headstart/engine/block"
)

// counters are a Table's own, since its start.
type counters struct {
	lookups, lookupsFailed, lookupsEmpty atomic.Int64
	evicted, expired, cooldowns          atomic.Int64
	dropped, trimmed                     atomic.Int64
}

// Metrics is what a Table has to tell. All but Tablets only grow.
type Metrics struct {
	// Tablets is how many tablets are known.
	Tablets int64
	// Lookups is how many look-ups at the FE were begun; LookupsFailed had no
	// answer, LookupsEmpty one without a usable candidate.
	Lookups, LookupsFailed, LookupsEmpty int64
	// Evicted candidates failed too often, Expired ones were not used.
	Evicted, Expired int64
	// Cooldowns is how often a tablet entered its cooldown.
	Cooldowns int64
	// Dropped tablets found no room; Trimmed ones made it.
	Dropped, Trimmed int64
}

// Metrics returns the counters as they are now.
func (t *Table) Metrics() Metrics {
	c := &t.counters
	return Metrics{
		Tablets: t.size.Load(),
		Lookups: c.lookups.Load(), LookupsFailed: c.lookupsFailed.Load(), LookupsEmpty: c.lookupsEmpty.Load(),
		Evicted: c.evicted.Load(), Expired: c.expired.Load(), Cooldowns: c.cooldowns.Load(),
		Dropped: c.dropped.Load(), Trimmed: c.trimmed.Load(),
	}
}

// BreakerMetrics is what Breakers have to tell. All but Addresses,
// Open and HalfOpen only grow.
type BreakerMetrics struct {
	// Addresses is how many addresses are known; Untracked is how often one found
	// no room and was called without a breaker.
	Addresses, Untracked int64
	// Opened is how often a circuit opened, Probes how many probes were let
	// through.
	Opened, Probes int64
	// Open and HalfOpen are how many circuits are in that state now.
	Open, HalfOpen int64
	// LeftRunning is how many losing calls Silent has asked to let run.
	LeftRunning int64
	// Ejected is how often a slow peer was ejected.
	Ejected int64
}

// Metrics returns the counters as they are now.
func (b *Breakers) Metrics() BreakerMetrics {
	m := BreakerMetrics{
		Addresses: b.size.Load(), Untracked: b.untracked.Load(),
		Opened: b.opened.Load(), Probes: b.probes.Load(),
		LeftRunning: b.leftRunning.Load(), Ejected: b.ejected.Load(),
	}
	b.nodes.Range(func(_ block.Addr, n *node) bool {
		switch n.circuit.load().state() {
		case open:
			m.Open++
		case halfOpen, probing:
			m.HalfOpen++
		}
		return true
	})
	return m
}
