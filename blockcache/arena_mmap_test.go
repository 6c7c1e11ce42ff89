//go:build !race

package blockcache

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"headstart/engine/block"
)

// curious counts how often the kernel is asked.
type curious struct {
	file
	asked *atomic.Int64
}

func (f curious) Resident(mapped []byte, first, last uint64) pageSet {
	f.asked.Add(1)
	return f.file.Resident(mapped, first, last)
}

// Neighbours share the kernel's word, which holds for an epoch: the first block of a
// region asks for itself, the second one for all of them.
func TestNeighboursShareTheKernelsWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const blocks, regionBytes = 512, regionPages * pageSize
		var asked atomic.Int64
		o := options(t.TempDir(), 8<<20, kib)
		o.open = func(dir *os.Root, name string) (file, error) {
			f, err := openDiskFile(dir, name)
			return curious{f, &asked}, err
		}
		c := open(t, o)
		for i := range blocks {
			offer(c, i, 0, kib, block.QueueNormal)
		}
		flush(t, c)
		for epoch := range 2 {
			asked.Store(0)
			for range 3 {
				for i := range blocks {
					has(t, c, i, 0, kib)
				}
			}
			if n := asked.Load(); n < blocks*kib/regionBytes || n > 2*(blocks*kib/regionBytes+1) {
				t.Errorf("epoch %d: asked %d times for %d regions", epoch, n, blocks*kib/regionBytes)
			}
			synctest.Wait()
			c.volumes[0].epoch.Add(1)
		}
		_ = c.Close()
	})
}

// A copy of what is in memory allocates nothing, whatever it ends with.
func TestCopyAllocatesNothing(t *testing.T) {
	c := open(t, options(t.TempDir(), 8<<20, 64*kib))
	for i, end := range []byte{0, 1} {
		data := bytes.Repeat([]byte{1}, 64*kib)
		data[len(data)-1], data[kib-1] = end, end
		b := block.NewBuf(data, nil)
		b.Seal()
		c.Offer(&Entry{Object: object(i), Meta: meta(i), ID: id(i, 0)}, b)
		b.Release()
	}
	flush(t, c)
	for i := range 2 {
		which := id(i, 0)
		for _, size := range []int{kib, 64 * kib} {
			dst := make([]byte, size)
			if n := testing.AllocsPerRun(100, func() {
				c.volumes[0].epoch.Add(1) // so that the kernel is asked
				l, ok := c.Get(which)
				if n, err := l.CopyAt(dst, 0); !ok || n != size || err != nil {
					t.Fatal(n, err)
				}
				l.Release()
			}); n != 0 {
				t.Errorf("%d bytes of block %d: %v allocations", size, i, n)
			}
		}
	}
}
