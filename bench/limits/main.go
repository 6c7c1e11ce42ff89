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
	// floor, if there is one, does the least that move has to: it copies the same
	// mapped bytes, half a turn apart, to where move does. Bytes of the heap are no
	// floor: they lie in pages of 4 KiB, scattered, where huge pages are not given to
	// all (transparent_hugepage is not always), and a file's in larger pieces.
	floor func() (int, error)
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
	seen, parts := make([][]float64, len(ways)), make([][]float64, len(ways))
	for range rounds {
		for i, w := range ways {
			speed, part, err := w.speed(slice)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			seen[i], parts[i] = append(seen[i], speed), append(parts[i], part)
		}
	}
	fmt.Printf("GB/s (10^9 bytes) of one goroutine, %d rounds in turns, %d processors. On a busy machine the best is nearer to the limit.\n\n", rounds, runtime.NumCPU())
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tbest\tmedian\tleast\t\t")
	for i, w := range ways {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%s\t%s\n", w.name, slices.Max(seen[i]), turns.Median(seen[i]), slices.Min(seen[i]), w.part(parts[i]), w.note)
	}
	return t.Flush()
}

// part is how much of the speed of its floor a way has: the median of all rounds.
func (w *way) part(each []float64) string {
	if w.floor == nil {
		return ""
	}
	return fmt.Sprintf("%.2fx of memcpy of the same bytes", turns.Median(each))
}

// speed is in 10^9 bytes a second, and part is its share of the floor's: of medians
// of single moves, in turns with those of the floor.
func (w *way) speed(slice time.Duration) (speed, part float64, err error) {
	moves := []func() (int, error){w.move}
	if w.floor != nil {
		moves = append(moves, w.floor)
	}
	total, took := [2]int{}, [2][]float64{}
	for began, n := time.Now(), 0; time.Since(began) < slice; n++ {
		for k := range moves {
			k = (k + n) % len(moves) // who comes first changes
			start := time.Now()
			n, err := moves[k]()
			if err != nil {
				return 0, 0, err
			}
			if n == 0 {
				return 0, 0, errors.New("it has moved nothing")
			}
			total[k], took[k] = total[k]+n, append(took[k], time.Since(start).Seconds())
		}
	}
	for _, t := range took[0] {
		speed += t
	}
	speed = float64(total[0]) / 1e9 / speed
	if w.floor != nil {
		part = turns.Median(took[1]) / turns.Median(took[0])
	}
	return speed, part, nil
}
