package fill_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// One node asks for ten thousand fills of random blocks a second. What that costs
// object storage is bounded by the slots for fills, another node still gets the
// few that it wants, and the server's own readers find their blocks in the cache.
func TestSE05_AGreedyPeerCostsWhatTheLimitAllows(t *testing.T) {
	lasts := 20 * time.Second
	if testing.Short() {
		lasts = 5 * time.Second
	}
	const (
		slots  = 8
		takes  = 40 * time.Millisecond // a GET
		others = 1000                  // where blocks begin that nobody else reads
	)
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		n.fills.SetLimit(slots)
		n.engine.Settings.ObjectStorageGetMaxBlocks.Store(1) // nothing comes along
		c.store.set(func(s *store) { s.mu.blocks, s.mu.after = 1<<20, takes })
		const hot = 100
		for range 3 { // they are in use
			for i := range hot {
				if _, err := n.read(c, i); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		gets := len(c.store.gets())
		ctx, stop := context.WithCancel(context.Background())
		var greedy, served, refused, modest, given, reads, hits atomic.Int64
		every(ctx, time.Second/10_000, func(i int) {
			greedy.Add(1)
			switch told(n.serveFor(ctx, "greedy", request(block.NewRun(others+rand.Uint64N(1<<19), 1), true))) {
			case "D":
				served.Add(1)
			case "r", "Q":
				refused.Add(1)
			}
		})
		every(ctx, 100*time.Millisecond, func(i int) {
			modest.Add(1)
			if told(n.serveFor(ctx, "modest", request(block.NewRun(uint64(1<<20-1-i), 1), true))) == "D" {
				given.Add(1)
			}
		})
		every(ctx, 5*time.Millisecond, func(i int) {
			reads.Add(1)
			if src, err := n.read(c, i%hot); err == nil && src == block.SourceLocal {
				hits.Add(1)
			}
		})
		time.Sleep(lasts)
		stop()
		time.Sleep(time.Second)
		synctest.Wait()
		t.Logf("greedy: %d asked, %d served, %d refused; modest: %d of %d; the server's own hits: %d of %d; %d GETs",
			greedy.Load(), served.Load(), refused.Load(), given.Load(), modest.Load(), hits.Load(), reads.Load(), len(c.store.gets())-gets)
		most := slots*int(lasts/takes) + 2*slots + int(reads.Load()-hits.Load())
		if got := len(c.store.gets()) - gets; got > most {
			t.Errorf("%d GETs, the limit allows %d", got, most)
		}
		if refused.Load() < greedy.Load()/2 {
			t.Errorf("only %d of %d greedy requests were refused", refused.Load(), greedy.Load())
		}
		if given.Load() < modest.Load()*4/5 {
			t.Errorf("the modest node got %d of %d", given.Load(), modest.Load())
		}
		if hits.Load() < reads.Load()*95/100 {
			t.Errorf("the server's own readers hit %d times of %d", hits.Load(), reads.Load())
		}
	})
}

// every calls f again and again, whatever becomes of the calls before, until ctx
// ends.
func every(ctx context.Context, pause time.Duration, f func(i int)) {
	go func() { // ends with ctx
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				go f(i) // ends with its call
			}
		}
	}()
}

// serveFor is serve for a node of that name, and gives the leases back.
func (n *node) serveFor(ctx context.Context, name string, f *block.Fetch) *block.Reply {
	reply := &block.Reply{}
	n.server.ServeBlocks(ctx, block.Node{ID: name, GroupID: "group of " + name}, f, reply)
	defer func() {
		for i := range reply.Answers {
			reply.Answers[i].Lease.Release()
		}
	}()
	return reply
}
