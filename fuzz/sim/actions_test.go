package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// action is one thing that happens to the world, at its time.
type action struct {
	at   time.Duration
	what string
	do   func()
}

// script is what happens to a world, in order.
type script []action

// String lists the actions.
func (s script) String() string {
	var text strings.Builder
	for _, a := range s {
		fmt.Fprintf(&text, "%v: %s\n", a.at, a.what)
	}
	return text.String()
}

// newScript draws what happens before span is over.
func newScript(w *world, rng *rand.Rand, span time.Duration) script {
	var s script
	for range []int{0, 20, 60, 300}[rng.IntN(4)] { // many mix versions up, few show what is too old
		at := time.Duration(rng.Int64N(int64(span))).Round(time.Millisecond)
		external := w.bucket.objects[tabletFiles+rng.IntN(len(w.bucket.objects)-tabletFiles)]
		own := rand.New(rand.NewPCG(w.seed, rng.Uint64()))
		s = append(s, action{at, external.Key + " changes", func() { w.bucket.put(external, own) }})
	}
	for range 5 + rng.IntN(20) {
		at := time.Duration(rng.Int64N(int64(span))).Round(time.Millisecond)
		n := w.nodes[rng.IntN(len(w.nodes))]
		switch rng.IntN(5) {
		case 0:
			s = append(s, action{at, "the cache of " + n.name + " is cleared", func() { n.clear() }})
		case 1:
			s = append(s, w.restart(at, n, rng)...)
		default:
			options := switches()
			sw := options[rng.IntN(len(options))]
			value := sw.values[rng.IntN(len(sw.values))]
			s = append(s, action{at, fmt.Sprintf("%s: %s = %d", n.name, sw.name, value), func() { n.flip(sw, value) }})
		}
	}
	slices.SortStableFunc(s, func(a, b action) int { return int(a.at - b.at) })
	return s
}

// restart kills a node and starts it again some time later.
func (w *world) restart(at time.Duration, n *node, rng *rand.Rand) script {
	kept := []string{"kept", "as the power failed", "lost"}[rng.IntN(3)]
	back := at + time.Duration(rng.Int64N(int64(4*time.Second))).Round(time.Millisecond)
	kill := func() {
		dir := n.dir
		switch kept {
		case "lost":
			dir = w.tempDir()
		case "as the power failed":
			dir = n.snapshot()
		}
		n.end()
		n.dir = dir
	}
	revive := func() {
		if !n.up() {
			n.start()
		}
	}
	return script{{at, n.name + " is killed, its cache " + kept, kill}, {back, n.name + " is started", revive}}
}

// up reports whether the node has a life.
func (n *node) up() bool {
	l := n.enter()
	if l != nil {
		l.leave()
	}
	return l != nil
}

func (n *node) clear() {
	if l := n.enter(); l != nil {
		defer l.leave()
		if err := l.cache.Clear(l.ctx); err != nil {
			n.w.fail("%s: clear: %v", l.id, err)
		}
	}
}

// flip sets a switch of a node that is up; its next life begins as all do.
func (n *node) flip(sw setting, value int64) {
	if l := n.enter(); l != nil {
		defer l.leave()
		sw.set(l, value)
	}
}

// setting is a key that may change at run time, with values worth a try. The
// first one is the usual one.
type setting struct {
	name   string
	values []int64
	set    func(l *life, v int64)
}

func switches() []setting {
	groups := []string{"", "g0", "g1", "g2"}
	onOff := []int64{1, 0}
	return []setting{
		{"enable_cache_read_from_peer", onOff, func(l *life, v int64) { l.settings.EnableCacheReadFromPeer.Store(v == 1) }},
		{"enable_peer_s3_race", onOff, func(l *life, v int64) { l.settings.EnablePeerS3Race.Store(v == 1) }},
		{"enable_same_compute_group_peer_read", onOff, func(l *life, v int64) { l.settings.EnableSameComputeGroupPeerRead.Store(v == 1) }},
		{"enable_cross_compute_group_peer_read", onOff, func(l *life, v int64) { l.settings.EnableCrossComputeGroupRead.Store(v == 1) }},
		{"enable_external_peer_read", onOff, func(l *life, v int64) { l.settings.EnableExternalPeerRead.Store(v == 1) }},
		{"enable_adaptive_peer_race_hedge", onOff, func(l *life, v int64) { l.settings.EnableAdaptivePeerRaceHedge.Store(v == 1) }},
		{"enable_peer_server_cache_fill", onOff, func(l *life, v int64) { l.serving.EnablePeerServerCacheFill.Store(v == 1) }},
		{"enable_peer_location_preference", onOff, func(l *life, v int64) { l.rules.LocationPreference.Store(v == 1) }},
		{"enable_slow_peer_ejection", onOff, func(l *life, v int64) { l.rules.SlowPeerEjection.Store(v == 1) }},
		{"peer_race_hedge_delay_ms", []int64{20, 0, 5, 100}, func(l *life, v int64) { l.settings.PeerRaceHedgeDelayMS.Store(v) }},
		{"peer_race_hedge_budget_percent", []int64{5, 0, 100}, func(l *life, v int64) { l.settings.PeerRaceHedgeBudgetPercent.Store(v) }},
		{"object_storage_get_max_blocks", []int64{16, 1, 4}, func(l *life, v int64) { l.settings.ObjectStorageGetMaxBlocks.Store(v) }},
		{"external_revalidate_ms", []int64{1000, 0, 300}, func(l *life, v int64) { l.settings.ExternalRevalidateMS.Store(v) }},
		{"peer_cache_fill_compute_group_id (of g0 to g2)", []int64{0, 1, 2, 3}, func(l *life, v int64) { l.settings.PeerCacheFillComputeGroupID.Store(&groups[v]) }},
		{"max_concurrent_peer_races", []int64{64, 0, 1}, func(l *life, v int64) { l.races.SetLimit(int(v)) }},
		{"max_peer_race_s3_thread_num", []int64{32, 0, 1}, func(l *life, v int64) { l.raceGets.SetLimit(int(v)) }},
		{"max_concurrent_peer_server_fills", []int64{32, 0, 1}, func(l *life, v int64) { l.fills.SetLimit(int(v)) }},
		{"cache_peer_read_failure_threshold", []int64{3, 1}, func(l *life, v int64) { l.rules.FailureThreshold.Store(v) }},
	}
}
