// Command traces replays access traces through the block cache and through
// rivals, in one run, and prints hit ratios and the optimum.
package main

import (
	"flag"
	"fmt"
	"os"

	"headstart/bench/cachehit"
)

// policy is a cache of keys: access tells whether it was a hit, and keeps the
// key if the policy wants to.
type policy interface {
	access(key uint32) bool
	close()
}

func main() {
	dir := flag.String("traces", "../../../shared/data/traces", "directory of *.trace.gz")
	tmp := flag.String("tmp", "", "directory for cache files")
	flag.Parse()
	if err := run(*dir, *tmp); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir, tmp string) error {
	rows, err := cachehit.Rows(dir)
	if err != nil {
		return err
	}
	makers := []struct {
		name string
		make func(size int, t *cachehit.Trace) policy
	}{
		{"LRU", newLRU}, {"SIEVE", newSieve}, {"S3-FIFO", newS3FIFO},
		{"otter", newOtter}, {"theine", newTheine}, {"ristretto", newRistretto}, {"OPT", newOPT},
	}
	fmt.Printf("%-20s%10s", "", "headstart")
	for _, m := range makers {
		fmt.Printf("%10s", m.name)
	}
	fmt.Printf("%14s\n", "less the best")
	means := make([]float64, len(makers)+1)
	for _, row := range rows {
		hits, err := cachehit.Replay(row, tmp)
		if err != nil {
			return err
		}
		ours, best := ratio(hits, row), 0.0
		means[0] += ours / float64(len(rows))
		fmt.Printf("%-20s%10.2f", row, ours)
		for i, m := range makers {
			p := m.make(row.Size, row.Trace)
			hits := 0
			for _, key := range row.Trace.Access {
				if p.access(key) {
					hits++
				}
			}
			p.close()
			r := ratio(hits, row)
			means[i+1] += r / float64(len(rows))
			if m.name != "OPT" {
				best = max(best, r)
			}
			fmt.Printf("%10.2f", r)
		}
		fmt.Printf("%14.2f\n", ours-best)
	}
	fmt.Printf("%-20s", "mean")
	for _, m := range means {
		fmt.Printf("%10.2f", m)
	}
	fmt.Println()
	return nil
}

func ratio(hits int, row cachehit.Row) float64 {
	return 100 * float64(hits) / float64(len(row.Trace.Access))
}
