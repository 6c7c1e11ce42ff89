package block

import (
	"fmt"
	"testing"

	"headstart/bench/latency"
)

func BenchmarkChecksum(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dK", size>>10), func(b *testing.B) {
			data, sum := make([]byte, size), uint32(0)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				sum += Checksum(data)
			}
			latency.ReportEach(b, func() { sum += Checksum(data) })
			if sum == 0 {
				b.Error("a checksum of zeros is not zero")
			}
		})
	}
}

// BenchmarkBaseID is the identity of a version of an object, which a node
// computes when it learns of it and not again.
func BenchmarkBaseID(b *testing.B) {
	o := Object{Store: "s3", Bucket: "warehouse", Key: "db/table/part-00017-4f3c.parquet"}
	b.ReportAllocs()
	for b.Loop() {
		BaseID(o, Immutable)
	}
	latency.ReportEach(b, func() { BaseID(o, Immutable) })
}

func TestChecksumAllocatesNothing(t *testing.T) {
	data, sum := make([]byte, 64<<10), uint32(0)
	if n := testing.AllocsPerRun(100, func() { sum = ExtendChecksum(Checksum(data), data) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if want := Checksum(append(data, data...)); sum != want {
		t.Errorf("%08x in two parts, %08x in one", sum, want)
	}
}
