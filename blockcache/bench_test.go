package blockcache

import (
	"context"
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
