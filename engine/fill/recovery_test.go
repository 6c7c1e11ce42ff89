package fill_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

// outcomes are the reads of one phase.
type outcomes struct {
	mu     sync.Mutex
	failed int
	took   []time.Duration
}

func (o *outcomes) success() float64 {
	return float64(len(o.took)) / float64(max(len(o.took)+o.failed, 1))
}

func (o *outcomes) at(percent int) time.Duration {
	slices.Sort(o.took)
	return o.took[len(o.took)*percent/100]
}

// offer reads random blocks on random nodes at a steady rate, whatever becomes
// of the reads, and returns when all have ended.
func (c *cluster) offer(blocks, rate int, lasts time.Duration) *outcomes {
	var o outcomes
	ctx, stop := context.WithTimeout(context.Background(), lasts)
	defer stop()
	var reads sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for ctx.Err() == nil {
		<-tick.C
		n, index := c.nodes[rand.IntN(len(c.nodes))], rand.IntN(blocks)
		reads.Go(func() {
			patience, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			begin := time.Now()
			_, _, err := n.engine.Read(patience, &block.Read{
				Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: int64(index) * testBlock,
			}, make([]byte, 10))
			o.mu.Lock()
			defer o.mu.Unlock()
			if err != nil {
				o.failed++
				return
			}
			o.took = append(o.took, time.Since(begin))
		})
	}
	reads.Wait()
	return &o
}

// knowEachOther makes all nodes candidates of the tablet for each other, the
// last one the fill group.
func (c *cluster) knowEachOther() {
	for i, n := range c.nodes {
		group := "filler"
		n.engine.Settings.PeerCacheFillComputeGroupID.Store(&group)
		var list []shards.Candidate
		for k := 1; k < len(c.nodes); k++ {
			other := (i + k) % len(c.nodes)
			candidate := shards.Candidate{Addr: c.nodes[other].addr, GroupID: "cg"}
			if other == len(c.nodes)-1 {
				candidate.GroupID = group
			}
			list = append(list, candidate)
		}
		if !n.engine.Table.BeginLookup(tablet()) {
			c.t.Fatal("a look-up is under way")
		}
		n.engine.Table.EndLookup(tablet(), list, nil)
	}
}

// slowDown lets object storage do one GET each pause until lift is called.
func (s *store) slowDown(pause time.Duration) (lift func()) {
	s.turns = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with lift
		defer close(s.turns)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case <-ctx.Done():
			case s.turns <- struct{}{}:
			}
		}
	}()
	return cancel
}

// All caches are emptied at once while object storage does a fifth of what is
// asked for. The nodes are well again as soon as it is, by themselves; meanwhile
// the cluster GETs a block once, whichever node asks for it and however often, and
// GETs nothing that nobody waits for any more.
func TestBP09_AClusterRecoversFromAStormByItself(t *testing.T) {
	const limit = 200 // GETs a second
	blocks, storm := 3000, 60*time.Second
	if testing.Short() {
		blocks, storm = 500, 5*time.Second
	}
	inCluster(t, 3, func(c *cluster) {
		c.store.set(func(s *store) { s.mu.blocks = int64(blocks) })
		for _, n := range c.nodes {
			n.engine.Settings.ObjectStorageGetMaxBlocks.Store(1) // GETs can be counted
		}
		c.knowEachOther()
		normal := c.offer(blocks, 500, storm/6)
		for _, n := range c.nodes {
			if err := n.cache.Clear(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		lift := c.store.slowDown(time.Second / limit)
		before := len(c.store.gets())
		during := c.offer(blocks, 1000, storm)
		gets, distinct := c.store.gets()[before:], map[uint64]bool{}
		for _, run := range gets {
			distinct[run.First] = true
		}
		lift()
		after := c.offer(blocks, 500, storm/6)
		t.Logf("normal: %.1f %%, p99 %v; storm: %.1f %%, p99 %v, %d GETs of %d blocks on %d nodes; after: %.1f %%, p99 %v",
			100*normal.success(), normal.at(99), 100*during.success(), during.at(99), len(gets), len(distinct), len(c.nodes),
			100*after.success(), after.at(99))
		// 1.2 is the aim, and what it mostly is: 1.13 to 1.21, for the reads are drawn.
		// Without the question of late GETs it is over 2.
		if most := 1.4 * float64(len(distinct)); float64(len(gets)) > most {
			t.Errorf("%d GETs of %d blocks in the storm, want %.0f at most", len(gets), len(distinct), most)
		}
		if n := during.took; len(n) < limit*int(storm/time.Second) {
			t.Errorf("%d reads were served in the storm, object storage did %d GETs", len(n), limit*int(storm/time.Second))
		}
		if after.success() < 0.95 || after.at(99) > 2*normal.at(99) {
			t.Errorf("after the storm %.1f %% succeed, p99 %v; before it %.1f %%, p99 %v",
				100*after.success(), after.at(99), 100*normal.success(), normal.at(99))
		}
	}, func(c *cluster) { c.cacheBytes = 64 << 20 })
}
