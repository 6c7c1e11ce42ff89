package blockcache

import (
	"testing"
	"unsafe"

	"headstart/engine/block"
)

// A scan of three times the capacity goes by; the hot half of the cache stays.
func TestLC31_ScanLeavesTheHotSet(t *testing.T) {
	c := open(t, options(t.TempDir(), 4<<20, 4*kib))
	const hot = 400
	for range 2 {
		for i := range hot {
			offer(c, i, 0, 4*kib, block.QueueNormal)
		}
		flush(t, c)
	}
	hits := 0
	for i := range 3000 {
		if l, ok := c.Get(id(i%hot, 0)); ok {
			hits++
			l.Release()
		} else {
			offer(c, i%hot, 0, 4*kib, block.QueueNormal)
		}
		offer(c, 1_000_000+i, 0, 4*kib, block.QueueNormal)
		flush(t, c)
	}
	if hits < 2900 {
		t.Errorf("%d of 3000 reads of the hot set were hits during the scan", hits)
	}
	invariants(t, c)
}

// A loop that is larger than the cache keeps the part that fits.
func TestLoopKeepsThePartThatFits(t *testing.T) {
	c := open(t, options(t.TempDir(), 2<<20, 4*kib))
	const loop = 800
	hits, fits := 0, 0
	for range 20 {
		for i := range loop {
			if l, ok := c.Get(id(i, 0)); ok {
				hits++
				l.Release()
				continue
			}
			offer(c, i, 0, 4*kib, block.QueueNormal)
			flush(t, c)
		}
		fits = c.Metrics().Blocks
	}
	if best := 19 * fits; hits < best*90/100 {
		t.Errorf("%d hits; a cache of %d blocks could have had %d", hits, fits, best)
	}
}

// A cache whose readers have moved on to other blocks follows them.
func TestNewHotSetReplacesTheOld(t *testing.T) {
	c := open(t, options(t.TempDir(), 2<<20, 4*kib))
	for set := range 3 {
		hits := 0
		for round := range 12 {
			for i := range 300 {
				n := set*1000 + i
				if l, ok := c.Get(id(n, 0)); ok {
					l.Release()
					if round == 11 {
						hits++
					}
					continue
				}
				offer(c, n, 0, 4*kib, block.QueueNormal)
				flush(t, c)
			}
		}
		if hits < 290 {
			t.Errorf("set %d: %d of 300 blocks there in its last round", set, hits)
		}
	}
}

// The policy has two links, two bytes and its ghosts for each block.
func TestPolicyTakesAtMost16BytesABlock(t *testing.T) {
	var s slot
	perSlot := unsafe.Sizeof(s.next) + unsafe.Sizeof(s.prev) + unsafe.Sizeof(s.seen) + unsafe.Sizeof(s.where)
	for _, blocks := range []int{1000, 262_144, 3_000_000} {
		var g ghosts
		g.fit(blocks)
		if sum := float64(perSlot) + float64(len(g.buckets))*float64(unsafe.Sizeof(ghostBucket{}))/float64(blocks); sum > 16 {
			t.Errorf("%d blocks: %.2f bytes each", blocks, sum)
		}
	}
}

func TestGhostsAgeAndForget(t *testing.T) {
	slots := slotTable{}
	p := policy{slots: &slots}
	p.setShares(1280, [queueCount]int{100, 0, 0, 0})
	p.queues[0].probation.units = 1280
	p.ghosts.fit(100)
	left := &p.queues[0].left
	put := func(h uint64, kind int) { p.ghosts.put(&p, h, ghostOf(0, kind, p.ghosts.stamp(left[kind]))) }
	put(1<<40|5, 0)
	put(2<<40|6, 1)
	if _, ok := p.ghosts.take(&p, 1<<40|4); ok {
		t.Error("another block's ghost was taken")
	}
	left[0], left[1] = 1280*3/2-10, 1280/4+20
	if g, ok := p.ghosts.take(&p, 1<<40|5); !ok || g.kind() != 0 || g.queue() != 0 {
		t.Errorf("ghost %x, %v", g, ok)
	}
	if _, ok := p.ghosts.take(&p, 1<<40|5); ok {
		t.Error("a ghost was taken twice")
	}
	if _, ok := p.ghosts.take(&p, 2<<40|6); ok {
		t.Error("a ghost that is too old was taken")
	}
}
