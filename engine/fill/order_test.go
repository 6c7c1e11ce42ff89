package fill_test

import (
	"context"
	"testing"
	"time"

	"headstart/engine/block"
)

// A block that only peers ask for goes when others need its room, unless what
// peers read is to count as use.
func TestS43_ServingPeersKeepsNoBlockUnlessConfigured(t *testing.T) {
	for _, counts := range []bool{false, true} {
		inCluster(t, 1, func(c *cluster) {
			n := c.nodes[0]
			n.settings.PeerReadUpdatesEvictionOrder.Store(counts)
			n.engine.Settings.ObjectStorageGetMaxBlocks.Store(1) // nothing comes along
			c.store.set(func(s *store) { s.mu.blocks = 1 << 16 })
			next := 1
			for n.read(c, 0); next < 2000; {
				for range 50 {
					if _, err := n.read(c, next); err != nil {
						t.Fatal(err)
					}
					next++
				}
				if err := n.cache.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
				c.ask(n, time.Minute, request(block.NewRun(0, 1), false))
			}
			want := "-"
			if counts {
				want = "D"
			}
			if got, _ := c.ask(n, time.Minute, request(block.NewRun(0, 1), false)); got != want {
				t.Errorf("with peer_read_updates_eviction_order = %v: %s, want %s", counts, got, want)
			}
		}, func(c *cluster) { c.cacheBytes = 1 << 20 })
	}
}
