package blockcache

import (
	"math/rand/v2"
	"testing"

	"headstart/bench/latency"
	"headstart/engine/block"
)

// BenchmarkPin lends one hot block and takes it back: from one goroutine, and
// from all processors at once, which is the worst that can be done to its pins.
func BenchmarkPin(b *testing.B) {
	c := open(b, options(b.TempDir(), 8<<20, kib))
	offer(c, 1, 0, kib, block.QueueNormal)
	flush(b, c)
	hot := id(1, 0)
	pin := func() {
		if l, ok := c.Get(hot); ok {
			l.Release()
		} else {
			b.Error("a miss")
		}
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pin()
		}
		latency.ReportEach(b, pin)
	})
	b.Run("contended", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				pin()
			}
		})
	})
}

// BenchmarkSmall copies blocks of 1 KiB, of 32k by Zipf's law, so that most of them
// were last read longer ago than the kernel's word on their pages holds.
func BenchmarkSmall(b *testing.B) {
	const n = 32 << 10
	o := options(b.TempDir(), 64<<20, kib)
	o.WriteQueueBytes = 1 << 30
	c := open(b, o)
	for i := range n {
		offer(c, i/64, uint64(i%64), kib, block.QueueNormal)
	}
	flush(b, c)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.01, 1, n-1)
	order := make([]block.ID, 1<<17)
	for i := range order {
		k := int(zipf.Uint64())
		order[i] = id(k/64, uint64(k%64))
	}
	dst := make([]byte, kib)
	b.SetBytes(kib)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l, ok := c.Get(order[i%len(order)])
		if !ok {
			b.Fatal("a miss")
		}
		if _, err := l.CopyAt(dst, 0); err != nil {
			b.Fatal(err)
		}
		l.Release()
	}
}
