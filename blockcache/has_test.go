package blockcache

import (
	"testing"

	"headstart/engine/block"
)

func TestHasPinsNothing(t *testing.T) {
	c := open(t, options(t.TempDir(), 1<<20, 4096))
	if c.Has(id(1, 0)) {
		t.Error("an empty cache has a block")
	}
	offer(c, 1, 0, 4096, block.QueueNormal)
	for range 2 { // waiting for the disk, and on it
		if !c.Has(id(1, 0)) || c.Has(id(1, 1)) {
			t.Error("not the block that was offered")
		}
		flush(t, c)
	}
	if m := c.Metrics(); m.Hits != 0 || m.Misses != 0 {
		t.Errorf("a look counts as a use: %+v", m)
	}
	if n := testing.AllocsPerRun(100, func() { c.Has(id(1, 0)) }); n > 1 { // one is id's
		t.Errorf("%v allocations", n)
	}
	if !c.Drop(id(1, 0)) || c.Has(id(1, 0)) {
		t.Error("a block that was dropped is there")
	}
	invariants(t, c)
}
