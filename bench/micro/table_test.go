package main

import (
	"strings"
	"testing"
	"time"
)

func TestReportHasAMedianForEachBenchmark(t *testing.T) {
	const out = `goos: linux
pkg: headstart/pools
BenchmarkQueue/one-2   	 100	 300 ns/op	 80.00 p50-ns	 1500 bare-ns	 1.25 x-bare	 0 B/op	 0 allocs/op
BenchmarkQueue/one-2   	 100	 100 ns/op	 90.00 p50-ns	 0 B/op	 0 allocs/op
BenchmarkQueue/one-2   	 100	 200.4 ns/op	 70.00 p50-ns	 16 B/op	 1 allocs/op
PASS
pkg: headstart/rpc
BenchmarkCodec-2   	 100	 12.34 ns/op	 2000 MB/s
`
	var b strings.Builder
	if err := report(&b, options{rounds: 3, each: time.Second}, []byte(out)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, want := range map[int]string{
		3: "pools Queue/one  200 ns    (100 ns to 300 ns)  80 ns  0 0 bare 1.50 µs, 1.25 x-bare",
		4: "rpc Codec  12.3 ns   (12.3 ns to 12.3 ns)  2000",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != strings.Join(strings.Fields(want), " ") {
			t.Errorf("line %d: %q, want %q\n%s", i, got, want, b.String())
		}
	}
	if err := report(&b, options{}, []byte("PASS\n")); err == nil {
		t.Error("nothing measured is no error")
	}
}
