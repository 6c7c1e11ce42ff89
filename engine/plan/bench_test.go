package plan

import (
	"testing"

	"headstart/bench/latency"
	"headstart/engine/block"
)

// BenchmarkRange is the arithmetic of a read: of a hit, which clamps, and of a
// miss of sixteen blocks, which is cut into runs and GETs as well.
func BenchmarkRange(b *testing.B) {
	const g = block.Geometry(1 << 20)
	b.Run("clamp", func(b *testing.B) {
		off := int64(0)
		clamp := func() {
			off = (off + 12345) & (1<<30 - 1)
			if r, ok := Clamp(g, off, 1<<20, 1<<31); !ok || r.Count == 0 {
				b.Fatal("nothing to read")
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			clamp()
		}
		latency.ReportEach(b, clamp)
	})
	b.Run("runs", func(b *testing.B) {
		blocks := []uint64{0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
		cut := func() {
			gets := 0
			for _, run := range Runs(blocks, block.MaxRun) {
				gets += len(Spans(run, block.MaxRun))
			}
			if gets != 3 {
				b.Fatalf("%d GETs", gets)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			cut()
		}
		latency.ReportEach(b, cut)
	})
}

func TestClampAllocatesNothing(t *testing.T) {
	const g = block.Geometry(1 << 20)
	off, blocks := int64(0), uint64(0)
	if n := testing.AllocsPerRun(100, func() {
		r, _ := Clamp(g, off, 1<<20, 1<<31)
		blocks, off = blocks+r.Count, off+1000
	}); n != 0 || blocks == 0 {
		t.Errorf("%v allocations, %d blocks", n, blocks)
	}
}
