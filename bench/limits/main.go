// Command limits measures what this machine can do at most on the ways that bytes
// take: copying memory, checksums, a TCP connection over loopback, the page cache,
// the disk; and what the block cache makes of them, in turns with those.
//
//	go run ./bench/limits
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"headstart/bench/turns"
)

// way moves bytes; move is called again and again and returns how many it moved.
type way struct {
	name, note string
	move       func() (int, error)
	// of names the way that does the least that this one has to, "" for none.
	of string
}

func main() {
	rounds := flag.Int("rounds", 11, "rounds; the median of them is printed")
	slice := flag.Duration("slice", 150*time.Millisecond, "how long each way runs in a round")
	tmp := flag.String("tmp", "", "directory on the disk that is to be measured")
	flag.Parse()
	if err := run(*rounds, *slice, *tmp); err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

func run(rounds int, slice time.Duration, tmp string) error {
	dir, err := os.MkdirTemp(tmp, "headstart-limits-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var ways []way
	for _, open := range []func(dir string) ([]way, func(), error){memory, cached, network, disk} {
		list, stop, err := open(dir)
		if stop != nil {
			defer stop()
		}
		if err != nil {
			return err
		}
		ways = append(ways, list...)
	}
	seen := make([][]float64, len(ways))
	for range rounds {
		for i, w := range ways {
			speed, err := w.speed(slice)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			seen[i] = append(seen[i], speed)
		}
	}
	fmt.Printf("GB/s (10^9 bytes) of one goroutine, %d rounds in turns, %d processors. On a busy machine the best is nearer to the limit.\n\n", rounds, runtime.NumCPU())
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tbest\tmedian\tleast\t\t")
	for i, w := range ways {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%s\t%s\n", w.name, slices.Max(seen[i]), turns.Median(seen[i]), slices.Min(seen[i]), part(ways, seen, i), w.note)
	}
	return t.Flush()
}

// part is how much of the speed of another way this one has, round by round.
func part(ways []way, seen [][]float64, i int) string {
	for k := range ways {
		if ways[k].name != ways[i].of {
			continue
		}
		each := make([]float64, len(seen[i]))
		for round := range each {
			each[round] = seen[i][round] / seen[k][round]
		}
		return fmt.Sprintf("%.2fx of %s", turns.Median(each), ways[k].name)
	}
	return ""
}

// speed is in 10^9 bytes a second.
func (w *way) speed(slice time.Duration) (float64, error) {
	total, began := 0, time.Now()
	for time.Since(began) < slice {
		n, err := w.move()
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, errors.New("it has moved nothing")
		}
		total += n
	}
	return float64(total) / 1e9 / time.Since(began).Seconds(), nil
}
