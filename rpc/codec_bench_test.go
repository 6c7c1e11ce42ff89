package rpc

import (
	"fmt"
	"testing"
	"time"

	"headstart/bench/latency"
	"headstart/engine/block"
)

// codecRequest is a request as nodes send it, and the bytes of one.
func codecRequest(tb testing.TB, count int) (f *block.Fetch, wire []byte) {
	f = fetchOf("db/table/part-00017-4f3c.parquet", 1<<30, block.NewRun(7, count))
	f.QueryID = "a7f3c1d2e9b84f06-0123456789abcdef"
	base := appendStop(nil)
	wire = appendFetch(nil, base, f, 42, time.Second)
	var got fetchRequest
	c := over(wire)
	if err := got.read(&c); err != nil || got.fetch.Run != f.Run || got.callID != 42 {
		tb.Fatalf("read %+v, call %d (%v)", got.fetch, got.callID, err)
	}
	return f, wire
}

// BenchmarkCodec is a request of the peer hop into bytes and out of them,
// without the bytes of blocks.
func BenchmarkCodec(b *testing.B) {
	for _, count := range []int{1, block.MaxRun} {
		f, wire := codecRequest(b, count)
		b.Run(fmt.Sprintf("encode/%d", count), func(b *testing.B) {
			base, out := appendStop(nil), make([]byte, 0, 2*len(wire))
			b.SetBytes(int64(len(wire)))
			b.ReportAllocs()
			for b.Loop() {
				out = appendFetch(out[:0], base, f, 42, time.Second)
			}
			latency.ReportEach(b, func() { out = appendFetch(out[:0], base, f, 42, time.Second) })
		})
		b.Run(fmt.Sprintf("decode/%d", count), func(b *testing.B) {
			var r fetchRequest
			var c cursor // a connection has one
			decode := func() {
				c = over(wire)
				if err := r.read(&c); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(wire)))
			b.ReportAllocs()
			for b.Loop() {
				decode()
			}
			latency.ReportEach(b, decode)
		})
	}
}

// A connection that asks for the same object again pays for no string twice.
func TestCodecAllocatesNothing(t *testing.T) {
	f, wire := codecRequest(t, block.MaxRun)
	base, out := appendStop(nil), make([]byte, 0, 2*len(wire))
	var r fetchRequest
	c := over(wire)
	if err := r.read(&c); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		out = appendFetch(out[:0], base, f, 42, time.Second)
		c = over(wire)
		if err := r.read(&c); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
