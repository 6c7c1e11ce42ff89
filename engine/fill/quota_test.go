package fill_test

import (
	"context"
	"testing"
	"time"

	"headstart/engine/block"
)

// Fills for peers have a quota of their own in the cache: many of them do not
// push out what the node's own readers use, and waiting for them is no use.
func TestS35_S43_FillsLeaveTheOwnDataAlone(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		c.store.set(func(s *store) { s.mu.blocks = 6000 })
		const own = 600 // of about 1,000 that fit
		for i := range own {
			if _, err := n.read(c, i); err != nil {
				t.Fatal(err)
			}
		}
		for first := own; first < 6000; first += 16 {
			if got, _ := c.ask(n, time.Minute, request(block.NewRun(uint64(first), 16), true)); len(got) != 16 && first+16 <= 6000 {
				t.Fatalf("fill of %d: %s", first, got)
			}
			if err := n.cache.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		m := n.cache.Metrics()
		if m.FillBlocks == 0 || m.FillBlocks > m.Blocks/2 {
			t.Errorf("%d fills of %d blocks", m.FillBlocks, m.Blocks)
		}
		for i := range own {
			if src, err := n.read(c, i); err != nil || src != block.SourceLocal {
				t.Fatalf("own block %d comes from %s after the fills (%v)", i, src, err)
			}
		}
	})
}
