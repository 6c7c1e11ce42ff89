// Command cmd replays the traces of a directory through the block cache and
// prints the hit ratio of each row.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"headstart/bench/cachehit"
)

func main() {
	dir := flag.String("traces", "../shared/data/traces", "directory of *.trace.gz")
	tmp := flag.String("tmp", "", "directory for cache files")
	only := flag.String("only", "", "replay only the rows whose name begins with this")
	flag.Parse()
	if err := run(*dir, *tmp, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir, tmp, only string) error {
	rows, err := cachehit.Rows(dir)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r cachehit.Row) bool { return !strings.HasPrefix(r.String(), only) })
	sum := 0.0
	for _, row := range rows {
		hits, err := cachehit.Replay(row, tmp)
		if err != nil {
			return err
		}
		ratio := 100 * float64(hits) / float64(len(row.Trace.Access))
		sum += ratio
		fmt.Printf("%-20s %6.2f %%\n", row, ratio)
	}
	fmt.Printf("%-20s %6.2f %%\n", "mean", sum/float64(len(rows)))
	return nil
}
