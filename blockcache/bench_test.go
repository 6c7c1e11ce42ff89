package blockcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"headstart/bench/latency"
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
	i := 0
	latency.ReportEach(b, func() {
		i++
		if l, ok := c.Get(order[i%len(order)]); ok {
			l.Release()
		}
	})
}

// BenchmarkCopy is a whole resident block through a lease, and the same bytes
// copied out of the mapping with nothing around it, in turns. The medians are of
// single copies, so that what other programs take of the machine falls out.
func BenchmarkCopy(b *testing.B) {
	source := rand.NewChaCha8([32]byte{1})
	for _, how := range []struct {
		size int
		end  byte // what a block ends with: a zero may come of a file that was cut
	}{{64 * kib, 1}, {64 * kib, 0}, {1 << 20, 1}, {1 << 20, 0}} {
		size := how.size
		b.Run(fmt.Sprintf("%dKiB ending in %d", size/kib, how.end), func(b *testing.B) {
			c := open(b, options(b.TempDir(), 64<<20, 1<<20))
			var ids [16]block.ID
			for i := range ids {
				ids[i] = id(i, 0)
				data := make([]byte, size)
				_, _ = source.Read(data)
				data[size-1] = how.end
				buf := block.NewBuf(data, nil)
				buf.Seal()
				c.Offer(&Entry{Object: object(i), Meta: meta(i), ID: ids[i]}, buf)
				buf.Release()
			}
			flush(b, c)
			dst, took := make([]byte, size), [2][]time.Duration{}
			for i := 0; b.Loop(); i++ {
				for _, how := range [...]int{i % 2, 1 - i%2} {
					begin := time.Now()
					l, ok := c.Get(ids[i%len(ids)])
					if !ok {
						b.Fatal("a miss")
					}
					if how == 0 {
						copy(dst, l.Raw())
					} else if _, err := l.CopyAt(dst, 0); err != nil {
						b.Fatal(err)
					}
					l.Release()
					took[how] = append(took[how], time.Since(begin))
				}
			}
			for how := range took {
				slices.Sort(took[how])
			}
			plain, lease := took[0][len(took[0])/2], took[1][len(took[1])/2]
			b.ReportMetric(float64(plain), "plain-ns")
			b.ReportMetric(float64(lease), "lease-ns")
			b.ReportMetric(float64(plain)/float64(lease), "of-plain-speed")
		})
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
