package blockcache

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"headstart/engine/block"
)

// Many goroutines do everything at once on few blocks and little room; after
// each batch everything agrees, and no lease has ever had a wrong byte.
func TestLC04_LC26_IndexQueuesTilesAndGaugesAgree(t *testing.T) {
	o := options(t.TempDir(), 1<<20, 16*kib)
	o.WriteQueueBytes = 512 * kib
	c := open(t, o)
	sizes := []int{1, 16*kib - 1, 16 * kib, 5000}
	const keys = 400
	for round := range 5 {
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(g)))
				for range 500 {
					churn(t, c, rng, rng.IntN(keys), sizes)
				}
			})
		}
		wg.Wait()
		flush(t, c)
		invariants(t, c)
		if v := c.volumes[0]; v.mu.dying != 0 {
			t.Fatalf("%d dying slots, nothing is held", v.mu.dying)
		}
	}
	if m := c.Metrics(); m.Corrupt != 0 || m.ReadErrors != 0 || m.Evicted == 0 || m.Hits == 0 {
		t.Errorf("%+v", m)
	}
}

// churn is one random step with block n.
func churn(t *testing.T, c *Cache, rng *rand.Rand, n int, sizes []int) {
	size := sizes[n%len(sizes)]
	switch k := rng.IntN(1000); {
	case k < 600:
		l, ok := c.Get(id(n, 0))
		if !ok {
			offer(c, n, 0, size, block.Queue(n%queueCount))
			return
		}
		if !bytes.Equal(l.Raw(), content(id(n, 0), size)) {
			t.Errorf("block %d is wrong", n)
		}
		l.Release()
	case k < 700:
		if l, ok := c.Peek(id(n, 0)); ok {
			if !bytes.Equal(bytesOf(t, &l), content(id(n, 0), size)) {
				t.Errorf("block %d is wrong", n)
			}
		}
	case k < 940:
		offer(c, n, 0, size, block.Queue(n%queueCount))
	case k < 998:
		c.Drop(id(n, 0))
	default:
		if err := c.Clear(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// Readers keep on reading while the cache is closed under them.
func TestCloseUnderReaders(t *testing.T) {
	c := open(t, options(t.TempDir(), 1<<20, 16*kib))
	for n := range 30 {
		offer(c, n, 0, 16*kib, block.QueueNormal)
	}
	flush(t, c)
	var wg sync.WaitGroup
	started := make(chan struct{}, 4)
	for range 4 {
		wg.Go(func() {
			for i, seen := 0, true; seen || i < 30; i++ {
				l, ok := c.Get(id(i%30, 0))
				if ok && !bytes.Equal(l.Raw(), content(id(i%30, 0), 16*kib)) {
					t.Errorf("block %d is wrong", i%30)
				}
				l.Release()
				if i == 0 {
					started <- struct{}{}
				}
				seen = ok
			}
		})
	}
	for range 4 {
		<-started
	}
	_ = c.Close()
	wg.Wait()
	for n := range 30 {
		lacks(t, c, n, 0)
	}
	if v := c.volumes[0]; v.mu.dying != 0 {
		t.Errorf("%d dying slots after the last release", v.mu.dying)
	}
}

// The cache against a plain map: whatever is done in whatever order, and
// whichever write fails, a block that is there has the bytes that were offered.
func TestS13_LC04_RandomOperationsAgainstAMap(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 99))
		dir := t.TempDir()
		var fail atomic.Int64
		o := options(dir, 2<<20, 64*kib)
		o.open = func(d *os.Root, name string) (file, error) {
			f, err := openDiskFile(d, name)
			return sometimes{f, &fail}, err
		}
		c := open(t, o)
		size := func(n int) int { return 1 + (n*7919)%(64*kib) }
		offered := map[int]bool{}
		for step := range 1500 {
			n := rng.IntN(150)
			switch k := rng.IntN(100); {
			case k < 45:
				offered[n] = offer(c, n, 0, size(n), block.Queue(n%queueCount)) || offered[n]
			case k < 80:
				if l, ok := c.Get(id(n, 0)); ok {
					if !bytes.Equal(bytesOf(t, &l), content(id(n, 0), size(n))) || !offered[n] {
						t.Fatalf("seed %d step %d: block %d is wrong", seed, step, n)
					}
				}
			case k < 86:
				c.Drop(id(n, 0))
				lacks(t, c, n, 0)
			case k < 95:
				flush(t, c)
			case k < 97:
				fail.Store(int64(rng.IntN(4)))
			case k == 97 && step%5 == 0:
				flush(t, c)
				_ = c.Close()
				fail.Store(0)
				c = open(t, o)
			}
		}
		flush(t, c)
		invariants(t, c)
		_ = c.Close()
	}
}

// sometimes fails as many writes as it is told.
type sometimes struct {
	file
	left *atomic.Int64
}

func (f sometimes) WriteAt(p []byte, off int64) (int, error) {
	if f.left.Add(-1) >= 0 {
		return 0, syscall.EIO
	}
	return f.file.WriteAt(p, off)
}

// Identifiers that are alike in their low or high bits are different blocks.
func TestLC29_IdentifiersAreNotCut(t *testing.T) {
	c := open(t, options(t.TempDir(), 4<<20, 4*kib))
	var indexes []uint64
	for _, at := range []uint64{0, 1 << 24, 1 << 31, 1 << 32, 1 << 40, 1 << 63} {
		indexes = append(indexes, at, at+1, at+255)
	}
	for _, i := range indexes {
		offer(c, 1, i, 4*kib, block.QueueNormal)
	}
	flush(t, c)
	for _, i := range indexes {
		has(t, c, 1, i, 4*kib)
	}
	if n := c.Metrics().Blocks; n != len(indexes) {
		t.Errorf("%d blocks of %d", n, len(indexes))
	}
}

// One block needs the room of many small ones: hits go on meanwhile.
func TestLC23_ManyVictimsForOneBlock(t *testing.T) {
	c := open(t, options(t.TempDir(), 16<<20, 8<<20))
	for i := range 14_000 {
		offer(c, i/64, uint64(i%64), kib, block.QueueNormal)
	}
	flush(t, c)
	before := c.Metrics().Evicted
	if !offer(c, 1000, 0, 8<<20, block.QueueNormal) {
		t.Fatal("no room for a large block")
	}
	flush(t, c)
	has(t, c, 1000, 0, 8<<20)
	if n := c.Metrics().Evicted - before; n < 4000 || n > 9000 {
		t.Errorf("%d blocks evicted for one of 8 MiB", n)
	}
	invariants(t, c)
}
