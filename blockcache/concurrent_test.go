package blockcache

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
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
