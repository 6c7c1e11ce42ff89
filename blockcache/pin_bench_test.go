package blockcache

import (
	"testing"

	"headstart/engine/block"
)

// BenchmarkPin lends one hot block and takes it back: from one goroutine, and
// from all processors at once, which is the worst that can be done to its pins.
func BenchmarkPin(b *testing.B) {
	c := open(b, options(b.TempDir(), 8<<20, kib))
	offer(c, 1, 0, kib, block.QueueNormal)
	flush(b, c)
	hot := id(1, 0)
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l, ok := c.Get(hot)
			if !ok {
				b.Fatal("a miss")
			}
			l.Release()
		}
	})
	b.Run("contended", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				l, _ := c.Get(hot)
				l.Release()
			}
		})
	})
}
