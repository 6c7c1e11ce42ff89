package blockcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"headstart/engine/block"
)

// BenchmarkGet is a hit and its release among 32k blocks, drawn by Zipf's law.
func BenchmarkGet(b *testing.B) {
	const n = 32 << 10
	o := options(b.TempDir(), 64<<20, kib)
	o.WriteQueueBytes = 1 << 30
	c := open(b, o)
	ids := make([]block.ID, n)
	for i := range ids {
		offer(c, i/64, uint64(i%64), kib, block.QueueNormal)
		ids[i] = id(i/64, uint64(i%64))
	}
	if err := c.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.01, 1, n-1)
	order := make([]block.ID, 1<<17)
	for i := range order {
		order[i] = ids[zipf.Uint64()]
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(order)); pb.Next(); i++ {
			l, ok := c.Get(order[i%len(order)])
			if !ok {
				b.Error("a miss")
				return
			}
			l.Release()
		}
	})
}

// BenchmarkCopy is a whole resident block through a lease, and the same bytes
// copied out of the mapping with nothing around it.
func BenchmarkCopy(b *testing.B) {
	for _, size := range []int{64 * kib, 1 << 20} {
		c := open(b, options(b.TempDir(), 64<<20, 1<<20))
		for i := range 16 {
			offer(c, i, 0, size, block.QueueNormal)
		}
		if err := c.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		dst := make([]byte, size)
		for _, how := range []string{"lease", "plain"} {
			b.Run(fmt.Sprintf("%dKiB/%s", size/kib, how), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					l, ok := c.Get(id(i%16, 0))
					if !ok {
						b.Fatal("a miss")
					}
					if how == "plain" {
						copy(dst, l.Raw())
					} else if _, err := l.CopyAt(dst, 0); err != nil {
						b.Fatal(err)
					}
					l.Release()
				}
			})
		}
	}
}

// BenchmarkOpen finds the blocks of 4,096 objects and more again, and serves
// one.
func BenchmarkOpen(b *testing.B) {
	for _, blocks := range []int{262_144, 2_000_000} {
		b.Run(fmt.Sprint(blocks), func(b *testing.B) {
			o := manyBlocks(b, blocks)
			for b.Loop() {
				c, err := Open(o)
				if err != nil {
					b.Fatal(err)
				}
				if n := c.Metrics().Blocks; n != blocks {
					b.Fatalf("%d blocks", n)
				}
				has(b, c, 0, 0, kib)
				if err := c.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
