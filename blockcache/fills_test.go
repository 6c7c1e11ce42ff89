package blockcache

import (
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// offerFill offers a block as a fill for another node does.
func offerFill(c *Cache, n int, size int) bool {
	e := &Entry{Object: object(n), Meta: meta(n), ID: id(n, 0), Fill: true}
	b := newBuf(e.ID, size)
	defer b.Release()
	return c.Offer(e, b)
}

// there counts which of the blocks from to to are in the cache, without using
// them.
func there(c *Cache, from, to int) (n int) {
	for i := from; i < to; i++ {
		if l, ok := c.Peek(id(i, 0)); ok {
			l.Release()
			n++
		}
	}
	return n
}

// What other nodes have this one bring takes the room that is free, and beyond
// that its quota: its own data stays.
func TestS35_FillsStayWithinTheirQuota(t *testing.T) {
	o := options(t.TempDir(), 4<<20, 4*kib)
	c := open(t, o)
	put := func(fill bool, from, to int) {
		for i := from; i < to; i++ {
			if fill {
				offerFill(c, i, 4*kib)
			} else {
				offer(c, i, 0, 4*kib, block.QueueNormal)
			}
			if i%16 == 0 {
				flush(t, c)
			}
		}
		invariants(t, c)
	}
	put(true, 0, 2000)
	all := c.Metrics().Blocks
	if m := c.Metrics(); m.FillBlocks != m.Blocks || m.Blocks < 900 || m.FillBytes < 3<<20 {
		t.Fatalf("alone, fills have %d of %d blocks", m.FillBlocks, m.Blocks)
	}
	put(false, 10_000, 10_000+all*3/4)
	if n := there(c, 10_000, 20_000); n != all*3/4 {
		t.Errorf("%d of %d own blocks are there: fills above their quota did not give", n, all*3/4)
	}
	put(false, 20_000, 20_000+all*3)
	own := c.Metrics().Blocks - c.Metrics().FillBlocks
	put(true, 40_000, 40_000+5*all)
	m := c.Metrics()
	if m.FillBytes > m.CapacityBytes/5 || m.FillBytes < m.CapacityBytes*18/100 {
		t.Errorf("%d bytes of fills of %d, the quota is 20 %%", m.FillBytes, m.CapacityBytes)
	}
	if n := m.Blocks - m.FillBlocks; n < all*77/100 {
		t.Errorf("%d own blocks left of %d after many fills", n, own)
	}

	flush(t, c)
	_ = c.Close()
	c = open(t, o)
	if again := c.Metrics(); again.FillBlocks != m.FillBlocks {
		t.Errorf("%d fills before the restart, %d after it", m.FillBlocks, again.FillBlocks)
	}
	// The cache turns over, and nobody asks for fills any more.
	put(false, 60_000, 60_000+5*all/2)
	if m := c.Metrics(); m.FillBlocks != 0 {
		t.Errorf("%d fills that nobody wants any more are left", m.FillBlocks)
	}
}

// A fill that the node's own readers use is one of its own blocks when its turn
// to go comes; one that only peers look at is not.
func TestS35_UsedFillsBecomeOwnBlocks(t *testing.T) {
	c := open(t, options(t.TempDir(), 4<<20, 4*kib))
	for i := range 100 {
		offerFill(c, i, 4*kib)
	}
	for i := range 50 {
		has(t, c, i, 0, 4*kib)
	}
	there(c, 50, 100)
	for i := range 3000 {
		offerFill(c, 1000+i, 4*kib)
		if i%16 == 0 {
			flush(t, c)
		}
	}
	if used, seen := there(c, 0, 50), there(c, 50, 100); used != 50 || seen != 0 {
		t.Errorf("%d of 50 used fills are left, %d of 50 that peers looked at", used, seen)
	}
	if m := c.Metrics(); m.QueueBlocks[block.QueueNormal] != 50 {
		t.Errorf("%+v", m)
	}
	invariants(t, c)
}

// A block that nobody may evict is no reason to take the node's own.
func TestS35_FillIsRefusedRatherThanOwnDataEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t.TempDir(), 1<<20, 4*kib)
		o.Settings.FillPercent.Store(0)
		c := open(t, o)
		for i := range 1000 {
			offer(c, i, 0, 4*kib, block.QueueNormal)
			flush(t, c)
		}
		if offerFill(c, 5000, 4*kib) {
			t.Error("a fill was taken without a quota and without room")
		}
		o.Settings.FillPercent.Store(50)
		time.Sleep(2 * keepEvery)
		for i := range 1000 {
			offerFill(c, 6000+i, 4*kib)
			flush(t, c)
		}
		if m := c.Metrics(); m.FillBytes < m.CapacityBytes*45/100 || m.FillBytes > m.CapacityBytes/2 {
			t.Errorf("%d bytes of fills of %d with a quota of 50 %%", m.FillBytes, m.CapacityBytes)
		}
		_ = c.Close()
	})
}
