// Command fescale measures an FE with many backends and tablets: what a
// heartbeat and a look-up take, what the tablets cost in memory, and how long a
// plan takes when a backend joins. There is no network in it, but with -headstart:
// then the FE is a process, which the backends report to over Kitex.
//
//	go run ./bench/fescale -backends 1000 -tablets 1000000
//	go run ./bench/fescale -headstart bin/headstart
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
	"headstart/shards/placement/store"
)

const groups = 4

func main() {
	backends := flag.Int("backends", 1000, "number of backends, in four groups")
	tablets := flag.Int("tablets", 1_000_000, "number of tablets")
	lookFor := flag.Duration("lookups", 2*time.Second, "how long look-ups are measured")
	program := flag.String("headstart", "", "the program to run an FE with; empty measures without a network")
	every := flag.Duration("every", time.Second, "how often each backend reports, with -headstart")
	flag.Parse()
	var err error
	if *program == "" {
		err = measure(context.Background(), *backends, *tablets, *lookFor)
	} else {
		err = network(context.Background(), *program, *backends, *tablets, *every, 5**lookFor)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fescale:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, backends, tablets int, lookFor time.Duration) error {
	dir, err := os.MkdirTemp("", "fescale")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bolt, err := store.Open(filepath.Join(dir, "fe.db"))
	if err != nil {
		return err
	}
	defer bolt.Close()
	settings := placement.NewSettings()
	settings.HeartbeatTimeoutMS.Store(time.Hour.Milliseconds()) // nobody falls silent meanwhile
	d, err := placement.NewDirectory(ctx, bolt, settings, placement.Options{})
	if err != nil {
		return err
	}
	took, err := timed(backends, func(i int) error { _, err := d.Heartbeat(ctx, heartbeat(i)); return err })
	if err != nil {
		return err
	}
	fmt.Printf("registration of %d backends (on disk)\t%v each\n", backends, took)
	if took, err = timed(20*backends, func(i int) error { _, err := d.Heartbeat(ctx, heartbeat(i%backends)); return err }); err != nil {
		return err
	}
	fmt.Printf("heartbeat\t%v: %.0f a second on one core\n", took, float64(time.Second)/float64(took))

	before := heap()
	const batch = 64 // what one call of a BE asks for
	took, err = timed(tablets/batch, func(i int) error {
		_, err := d.Lookup(ctx, routes(i*batch, batch))
		return err
	})
	if err != nil {
		return err
	}
	known, _ := d.Tablets()
	fmt.Printf("first look-up of %d tablets\t%v a call of %d\n", known, took, batch)
	fmt.Printf("memory of known tablets\t%.1f bytes each\n", float64(heap()-before)/float64(known))
	if err := lookups(ctx, d, tablets, lookFor); err != nil {
		return err
	}
	return plan(ctx, d, backends)
}

// lookups measures look-ups of one tablet from all cores.
func lookups(ctx context.Context, d *placement.Directory, tablets int, lookFor time.Duration) error {
	var done atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	began := time.Now()
	for core := range runtime.GOMAXPROCS(0) {
		all.Go(func() { // ends with lookFor
			for i := core * 7919; time.Since(began) < lookFor; i++ {
				if _, err := d.Lookup(ctx, routes(i%tablets, 1)); err != nil {
					failed.Store(&err)
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	fmt.Printf("look-up of one tablet in %d groups\t%.0f a second on %d cores\n", groups, float64(done.Load())/time.Since(began).Seconds(), runtime.GOMAXPROCS(0))
	return nil
}

// plan measures a round of balance: a backend joins a group.
func plan(ctx context.Context, d *placement.Directory, backends int) error {
	if _, err := d.Heartbeat(ctx, heartbeat(backends*groups)); err != nil {
		return err
	}
	due := d.DueGroups()
	if len(due) != 1 {
		return fmt.Errorf("%d groups are due for balance", len(due))
	}
	before, began := total(), time.Now()
	round, err := d.StartRound(ctx, due[0])
	if err != nil {
		return err
	}
	fmt.Printf("start of a round: all tablets compared, %d are to move\t%v, %.1f MB allocated\n", round.Moves, time.Since(began), float64(total()-before)/1e6)
	began = time.Now()
	moves, batches := 0, 0
	var taken placement.Buckets
	for next := 0; next < placement.BucketCount; batches++ {
		buckets, some, after := d.Moves(due[0], next, 64, &taken)
		if after == next {
			return fmt.Errorf("nobody to hand out")
		}
		taken.AddAll(&buckets)
		next, moves = after, moves+len(some)
	}
	fmt.Printf("the whole plan, %d moves in %d batches\t%v\n", moves, batches, time.Since(began))
	began = time.Now()
	n := len(d.Backends())
	fmt.Printf("SHOW BACKENDS of %d, tablets counted\t%v\n", n, time.Since(began))
	return nil
}

func timed(n int, do func(i int) error) (time.Duration, error) {
	began := time.Now()
	for i := range n {
		if err := do(i); err != nil {
			return 0, err
		}
	}
	return time.Since(began) / time.Duration(max(n, 1)), nil
}

func routes(from, n int) []block.Route {
	list := make([]block.Route, n)
	for i := range list {
		list[i] = block.TabletRoute(int64(from + i))
	}
	return list
}

func heartbeat(i int) placement.Heartbeat {
	return placement.Heartbeat{
		NodeID: fmt.Sprint("n", i), Host: fmt.Sprintf("10.%d.%d.%d", i/62500, i/250%250, 1+i%250), BrpcPort: 8060,
		GroupID: fmt.Sprint("cg", i%groups), Started: time.Unix(1000, 0),
	}
}

// heap returns the bytes in use, total those ever allocated.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func total() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
