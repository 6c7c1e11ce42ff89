// Command caches measures a hit in the block cache beside the caches that people
// use in Go: all hold the same blocks of 1 KiB under the same keys, draw them by
// Zipf's law on two goroutines, and copy the block into the caller's buffer, since
// some of them can do nothing else. A second table is of those that can lend what
// they hold. lookup, beside this one, looks closer at the fastest of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"headstart/bench/rivals/zipf"
	"headstart/bench/turns"
	"headstart/blockcache"
	"headstart/engine/block"
)

const (
	blockSize  = 1 << 10
	goroutines = 2
)

// cache is one that holds all keys. copy copies the i-th block into dst, lend
// only looks at it, and is nil where there is nothing between the two.
type cache struct {
	name, config string
	copy         func(i uint32, dst []byte) bool
	lend         func(i uint32) bool
	// lost says what a cache of whose misses there is more to say has lost, or nil.
	lost func() error
}

// Why ours may lose to a cache on the heap.
const (
	whyCopy = "it copies from its heap. Ours copies out of a mapped file, under a guard against faults and with a pin, and asks the kernel about each " +
		"region of 32 pages four times a second (mincore) whether they are in memory: one that is not would stop the scheduler"
	whyLend = "the collector keeps what it lends; ours counts who holds a block, because its place in the file is used again"
)

func main() {
	keys := flag.Int("keys", 32<<10, "how many blocks")
	rounds := flag.Int("rounds", 20, "rounds of each of the two runs")
	slice := flag.Duration("slice", 50*time.Millisecond, "how long each cache runs in a round")
	tmp := flag.String("tmp", "", "directory for the block cache's files")
	flag.Parse()
	if err := run(*keys, *rounds, *slice, *tmp); err != nil {
		fmt.Fprintln(os.Stderr, "caches:", err)
		os.Exit(1)
	}
}

func run(keys, rounds int, slice time.Duration, tmp string) error {
	ids := make([]block.ID, keys)
	for i := range ids {
		ids[i] = block.BaseID(block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprint(i / 64)}, "v").At(uint64(i % 64))
	}
	ours, stop, err := headstart(ids, tmp)
	if err != nil {
		return err
	}
	defer stop()
	all := []cache{ours}
	for _, open := range []func([]block.ID) (cache, error){otterCache, ristrettoCache, theineCache, bigCache, fastCache, groupCache} {
		c, err := open(ids)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	order := zipf.Draws(keys)
	copying := turns.Plan{
		Title:  fmt.Sprintf("A hit, 1 KiB copied out: %d keys, %d goroutines", keys, goroutines),
		Units:  []string{"CPU-ns/op"},
		Rounds: rounds,
	}
	lending := copying
	lending.Title = fmt.Sprintf("A hit, the bytes lent: %d keys, %d goroutines", keys, goroutines)
	for _, c := range all {
		s := turns.Subject{Name: c.name, Config: c.config, Why: whyCopy}
		s.Measure = func() ([]float64, error) { return measure(&c, order, slice, c.copy) }
		copying.Subjects = append(copying.Subjects, s)
		if c.lend != nil {
			s.Config, s.Why = "", whyLend // how it is set up stands below the first table
			s.Measure = func() ([]float64, error) {
				return measure(&c, order, slice, func(i uint32, _ []byte) bool { return c.lend(i) })
			}
			lending.Subjects = append(lending.Subjects, s)
		}
	}
	if err := turns.Compare(os.Stdout, copying); err != nil {
		return err
	}
	return turns.Compare(os.Stdout, lending)
}

// measure returns nanoseconds of processor time for an operation: what other
// programs take of the machine does not count.
func measure(c *cache, order []uint32, slice time.Duration, get func(uint32, []byte) bool) ([]float64, error) {
	runtime.GC()
	var all sync.WaitGroup
	counts, missed := make([]int, goroutines*16), make([]bool, goroutines*16)
	start, until := turns.ProcessorTime(), time.Now().Add(slice)
	for g := range goroutines {
		all.Go(func() { // ends with the slice
			dst := make([]byte, blockSize)
			for at := rand.IntN(len(order)); time.Now().Before(until); {
				for range 4096 {
					if !get(order[at&(len(order)-1)], dst) {
						missed[g*16] = true
					}
					at++
				}
				counts[g*16] += 4096
			}
		})
	}
	all.Wait()
	took, n := turns.ProcessorTime()-start, 0
	for g := range counts {
		n += counts[g]
	}
	if slices.Contains(missed, true) {
		if c.lost != nil {
			return nil, c.lost()
		}
		return nil, fmt.Errorf("%s misses a key that it was given", c.name)
	}
	return []float64{float64(took.Nanoseconds()) / float64(n)}, nil
}

// headstart is our cache.
func headstart(ids []block.ID, tmp string) (cache, func(), error) {
	dir, err := os.MkdirTemp(tmp, "headstart-caches-")
	if err != nil {
		return cache{}, nil, err
	}
	stop := func() { _ = os.RemoveAll(dir) }
	c, err := blockcache.Open(blockcache.Options{
		Paths:     []blockcache.Path{{Dir: dir, TotalBytes: int64(len(ids))*1400 + 8<<20}},
		BlockSize: blockSize, WriteQueueBytes: 2 << 30,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return cache{}, stop, err
	}
	stop = func() { _ = c.Close(); _ = os.RemoveAll(dir) }
	data := make([]byte, blockSize)
	data[blockSize-1] = 1
	for i, id := range ids {
		b := block.NewBuf(data, nil)
		b.Seal()
		c.Offer(&blockcache.Entry{Object: block.Object{Store: "s3", Bucket: "b", Key: "k"}, Meta: block.Meta{Size: 1 << 30, Version: "v"}, ID: id}, b)
		b.Release()
		if i%4096 == 0 || i == len(ids)-1 {
			_ = c.Flush(context.Background())
		}
	}
	if n := c.Metrics().Blocks; n != len(ids) {
		stop()
		return cache{}, func() {}, fmt.Errorf("the cache holds %d of %d blocks", n, len(ids))
	}
	return cache{
		name: "headstart", config: "a file on disk, mapped; keys of 24 bytes; pins what it lends; survives a crash",
		copy: func(i uint32, dst []byte) bool {
			l, ok := c.Get(ids[i])
			if !ok {
				return false
			}
			n, err := l.CopyAt(dst, 0)
			l.Release()
			return n == blockSize && err == nil
		},
		lend: func(i uint32) bool {
			l, ok := c.Get(ids[i])
			l.Release()
			return ok
		},
		lost: func() error {
			m := c.Metrics()
			if m.Outs > 0 {
				return fmt.Errorf("headstart took %s out of use (the log has the reason): nothing is measured", dir)
			}
			return fmt.Errorf("headstart misses a key that it was given: it has %d of %d blocks, %d evicted, %d found wrong; %d reads of the disk failed",
				m.Blocks, len(ids), m.Evicted, m.Corrupt, m.ReadErrors)
		},
	}, stop, nil
}
