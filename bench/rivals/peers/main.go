// Command peers measures fetching a block from another process beside rivals: the
// peer hop as nodes use it, stock Kitex, gRPC-go, net/http, groupcache and plain
// TCP. All serve the same blocks, which lie in the File Cache of a second process;
// each receiver has a buffer of its own and verifies the block's CRC32C.
// bench/peerhop looks closer at the first two and TCP.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"headstart/bench/peerhop/ways"
	"headstart/bench/turns"
	"headstart/rpc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	rpc.LogKitex(slog.New(slog.DiscardHandler))
	if len(args) == 2 && args[0] == "serve" {
		size, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return serve(size)
	}
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	sizes := f.String("sizes", "4096,65536,1048576", "block sizes in bytes")
	rounds := f.Int("rounds", 20, "rounds of each of the two runs")
	slice := f.Duration("slice", 60*time.Millisecond, "how long each way runs in a round")
	inFlight := f.Int("inflight", 4, "calls in flight")
	only := f.String("only", "", "the hop and the rivals whose `name` has this in it")
	if err := f.Parse(args); err != nil {
		return err
	}
	var list []int
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 || size > 16<<20 {
			return fmt.Errorf("-sizes %s: %q: want numbers of bytes from 1 to %d and commas", *sizes, text, 16<<20)
		}
		list = append(list, size)
	}
	if len(list) == 1 {
		return compare(list[0], *rounds, *inFlight, *slice, *only)
	}
	for _, size := range list {
		if err := again(append(args, "-sizes", strconv.Itoa(size))); err != nil {
			return fmt.Errorf("blocks of %d bytes: %w", size, err)
		}
	}
	return nil
}

// again runs this program for one size: a process can have one pool of groupcache.
func again(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// way is one way to fetch blocks; open is called once for each worker.
type way struct {
	name, config, why string
	open              ways.Way
}

// compare measures all ways with blocks of one size.
func compare(size, rounds, inFlight int, slice time.Duration, only string) error {
	s, err := ways.Start("serve", strconv.Itoa(size))
	if err != nil {
		return err
	}
	defer s.Stop()
	list, err := allWays(s.Hello, size)
	if err != nil {
		return err
	}
	p := turns.Plan{
		Title: fmt.Sprintf("A block of %d bytes from another process, %d calls in flight", size, inFlight),
		// Processor time first: on a machine with few cores it bounds the calls, and
		// what other programs take of it does not count.
		Units:  []string{"CPU-µs/call, both sides", "µs/call"},
		Rounds: rounds,
	}
	for i, w := range list {
		if i > 0 && !strings.Contains(w.name, only) {
			continue
		}
		workers := make([]ways.Fetch, inFlight)
		for i := range workers {
			if workers[i], err = w.open(); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
		if _, err := measure(s, workers, size, slice); err != nil { // warms up
			return fmt.Errorf("%s: %w", w.name, err)
		}
		p.Subjects = append(p.Subjects, turns.Subject{
			Name: w.name, Config: w.config, Why: w.why,
			Measure: func() ([]float64, error) { return measure(s, workers, size, slice) },
		})
	}
	return turns.Compare(os.Stdout, p)
}

// measure lets the workers of one way fetch random blocks for a while.
func measure(s *ways.Process, workers []ways.Fetch, size int, slice time.Duration) ([]float64, error) {
	before, err := s.Usage()
	if err != nil {
		return nil, err
	}
	began, calls := time.Now(), atomic.Int64{}
	errs := make([]error, len(workers))
	var all sync.WaitGroup
	for i, fetch := range workers {
		all.Go(func() { // ends with the slice
			dst, random := make([]byte, size), rand.New(rand.NewPCG(uint64(i), 1))
			for again := true; again; again = time.Since(began) < slice && errs[i] == nil { // one call at least
				errs[i] = fetch(random.Uint64N(s.Hello.Blocks), dst)
				calls.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	after, err := s.Usage()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(calls.Load()) }
	return []float64{per(after.CPU - before.CPU), per(took)}, nil
}
