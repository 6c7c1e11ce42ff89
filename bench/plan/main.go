// Command plan measures what larger GETs are worth: it plays loads against
// object storage in virtual time, once with a GET for each block and once with
// GETs that grow as engine/plan says, each pair under the same seed.
//
//	go run ./bench/plan -seeds 20
//
// It knows no peers, no processor and no network but the latency of the store.
package main

import (
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"headstart/bench/tpch"
	"headstart/engine/plan"
)

func main() {
	seeds := flag.Int("seeds", 5, "how many runs of each load")
	flag.Parse()
	trace, err := tpch.Load()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "GETs\tgrown\tseconds\tgrown\tslower\tbytes\textra\tused\t load\n")
	for _, l := range loads(trace) {
		s := measure(l, *seeds)
		fmt.Fprintf(out, "%d\t%d\t%.3f\t%.3f\t%d of %d\t%.3fx\t%d\t%d\t %s\n", s.one.gets, s.grown.gets,
			s.one.took.Seconds(), s.grown.took.Seconds(), s.slower, *seeds, s.worstBytes,
			s.grown.growth.Extra, s.grown.growth.Used, l.name)
	}
	_ = out.Flush() // a closed standard output has no better place to be told of
}

// loads is what the rule was chosen with.
func loads(trace *tpch.Trace) []load {
	scanner := scans("one scanner", 1, 4)
	return []load{
		analytics(trace, false),
		analytics(trace, true),
		points("point reads, 100 GiB in objects of 256 MiB", 400, 256*mib, 60_000),
		points("point reads, 100 GiB in objects of 8 MiB", 12_800, 8*mib, 60_000),
		scanner,
		scans("32 scanners", 32, 2),
		together("TPC-H, point reads and a scanner at once", analytics(trace, true), points("", 400, 256*mib, 4000), scanner),
		together("small point reads and a scanner at once", points("", 12_800, 8*mib, 10_000), scanner),
	}
}

// summary is the means of some runs.
type summary struct {
	one, grown figures
	// slower is in how many runs grown GETs took longer, worstBytes the largest
	// ratio of the bytes.
	slower     int
	worstBytes float64
	mostGets   int64
}

func measure(l load, seeds int) summary {
	var s summary
	for seed := range uint64(seeds) {
		one, grown := l.run(seed, nil), l.run(seed, plan.NewGrowth())
		if grown.took > one.took {
			s.slower++
		}
		s.worstBytes = max(s.worstBytes, float64(grown.bytes)/float64(one.bytes))
		s.mostGets = max(s.mostGets, grown.gets)
		s.one.add(one)
		s.grown.add(grown)
	}
	s.one.divide(int64(seeds))
	s.grown.divide(int64(seeds))
	return s
}

func (f *figures) add(more figures) {
	f.gets += more.gets
	f.bytes += more.bytes
	f.took += more.took
	f.growth.Extra += more.growth.Extra
	f.growth.Used += more.growth.Used
}

func (f *figures) divide(n int64) {
	f.gets /= n
	f.bytes /= n
	f.took /= time.Duration(n)
	f.growth.Extra /= n
	f.growth.Used /= n
}
