// Command lookup measures a hit in the block cache beside rivals, interleaved
// in one process: all of them draw the same keys by Zipf's law, and each round
// runs every rival for a moment. What counts is the ratio.
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

	"github.com/maypok86/otter/v2"
	"github.com/puzpuzpuz/xsync/v3"

	"headstart/bench/rivals/zipf"
	"headstart/bench/turns"
	"headstart/blockcache"
	"headstart/engine/block"
)

// subject is one cache that holds all keys. get looks keys[i] up for each i
// of order; put stores a key.
type subject struct {
	name string
	get  func(i uint32) bool
	put  func(i uint32)
}

type workload struct {
	keys       int
	writes     int // of a hundred
	goroutines int
	rounds     int
	slice      time.Duration
}

func main() {
	w := workload{}
	flag.IntVar(&w.keys, "keys", 32<<10, "how many blocks")
	flag.IntVar(&w.writes, "writes", 0, "offers among a hundred calls")
	flag.IntVar(&w.goroutines, "goroutines", 2, "how many goroutines")
	flag.IntVar(&w.rounds, "rounds", 41, "rounds; the medians of them are printed, and the quartiles of the ratios")
	flag.DurationVar(&w.slice, "slice", 50*time.Millisecond, "how long each rival runs a round")
	tmp := flag.String("tmp", "", "directory for the cache's files")
	flag.Parse()
	if err := run(w, *tmp); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(w workload, tmp string) error {
	ids := make([]block.ID, w.keys)
	for i := range ids {
		ids[i] = block.BaseID(block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprint(i / 64)}, "v").At(uint64(i % 64))
	}
	ours, stop, err := headstart(ids, tmp)
	if err != nil {
		return err
	}
	defer stop()
	subjects := []subject{ours, otterOf("otter, block.ID", ids), otterOf("otter, uint64", numbers(w.keys)), bareMap(ids), bareMap64(w.keys)}
	order := zipf.Draws(w.keys)
	times := make([][]float64, len(subjects))
	var alone []float64
	one := w
	one.goroutines = 1
	for round := range w.rounds {
		runtime.GC()
		alone = append(alone, one.measure(ours, order))
		for k := range subjects { // each comes first, last and between as often
			i := (k + round) % len(subjects)
			times[i] = append(times[i], w.measure(subjects[i], order))
		}
	}
	fmt.Printf("%d keys, %d %% writes, %d goroutines, GOMAXPROCS %d, %d rounds; ratios are of one round, the median of all\n",
		w.keys, w.writes, w.goroutines, runtime.GOMAXPROCS(0), w.rounds)
	for i, s := range subjects {
		best, ns, _ := quartiles(times[i])
		fmt.Printf("%-22s median %7.1f CPU-ns/op, quartile %7.1f", s.name, ns, best)
		if i > 0 {
			low, mid, high := quartiles(ratios(times[0], times[i]))
			fmt.Printf("; headstart takes %.2fx of it (%.2f to %.2f)", mid, low, high)
		}
		fmt.Println()
	}
	low, mid, high := quartiles(ratios(alone, times[0]))
	best, ns, _ := quartiles(alone)
	n := float64(w.goroutines)
	fmt.Printf("%-22s median %7.1f CPU-ns/op, quartile %7.1f; from 1 to %d goroutines %.2fx (%.2f to %.2f)\n",
		"headstart, 1 goroutine", ns, best, w.goroutines, n*mid, n*low, n*high)
	return nil
}

// ratios divides what was measured in the same rounds.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

// quartiles returns the three of them.
func quartiles(v []float64) (low, mid, high float64) {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/4], v[len(v)/2], v[len(v)*3/4]
}

// measure returns nanoseconds of processor time for an operation: what other
// programs take of the machine does not count.
func (w workload) measure(s subject, order []uint32) float64 {
	var total sync.WaitGroup
	counts := make([]int, w.goroutines*16)
	start, until := turns.ProcessorTime(), time.Now().Add(w.slice)
	for g := range w.goroutines {
		total.Go(func() { // ends with the slice
			at := rand.IntN(len(order))
			for time.Now().Before(until) {
				for range 4096 {
					i := order[at&(len(order)-1)]
					if w.writes > 0 && at%100 < w.writes {
						s.put(i)
					} else if !s.get(i) && w.writes == 0 {
						panic(s.name + " misses a key")
					}
					at++
				}
				counts[g*16] += 4096
			}
		})
	}
	total.Wait()
	took, n := turns.ProcessorTime()-start, 0
	for _, c := range counts {
		n += c
	}
	return float64(took.Nanoseconds()) / float64(n)
}

func numbers(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(i) * 0x9E3779B97F4A7C15
	}
	return out
}

// headstart is our cache with blocks of 1 KiB. A write offers a block that is
// there, as a Set of the rivals stores a key that is there; ours need not write
// it again, because a block never changes.
func headstart(ids []block.ID, tmp string) (subject, func(), error) {
	dir, err := os.MkdirTemp(tmp, "lookup")
	if err != nil {
		return subject{}, nil, err
	}
	cache, err := blockcache.Open(blockcache.Options{
		Paths:     []blockcache.Path{{Dir: dir, TotalBytes: int64(len(ids))*1400 + 8<<20}},
		BlockSize: 1 << 10, WriteQueueBytes: 2 << 30, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return subject{}, nil, err
	}
	bytes := make([]byte, 1<<10)
	put := func(i uint32) {
		b := block.NewBuf(bytes, nil)
		b.Seal()
		cache.Offer(&blockcache.Entry{Object: block.Object{Store: "s3", Bucket: "b", Key: "k"}, Meta: block.Meta{Size: 1 << 30, Version: "v"}, ID: ids[i]}, b)
		b.Release()
	}
	for i := range ids {
		put(uint32(i))
		if i%4096 == 0 {
			_ = cache.Flush(context.Background())
		}
	}
	_ = cache.Flush(context.Background())
	if n := cache.Metrics().Blocks; n != len(ids) {
		return subject{}, nil, fmt.Errorf("the cache holds %d of %d blocks", n, len(ids))
	}
	get := func(i uint32) bool {
		l, ok := cache.Get(ids[i])
		l.Release()
		return ok
	}
	value := block.NewBuf(bytes, nil)
	over := func(i uint32) {
		cache.Offer(&blockcache.Entry{Object: block.Object{Store: "s3", Bucket: "b", Key: "k"}, Meta: block.Meta{Size: 1 << 30, Version: "v"}, ID: ids[i]}, value)
	}
	return subject{"headstart", get, over}, func() { _ = cache.Close(); _ = os.RemoveAll(dir) }, nil
}

func otterOf[K comparable](name string, keys []K) subject {
	cache := otter.Must(&otter.Options[K, *block.Buf]{MaximumSize: len(keys) + len(keys)/8})
	value := block.NewBuf(nil, nil)
	for _, k := range keys {
		cache.Set(k, value)
	}
	return subject{name,
		func(i uint32) bool { _, ok := cache.GetIfPresent(keys[i]); return ok },
		func(i uint32) { cache.Set(keys[i], value) }}
}

// bareMap is the concurrent map alone: no eviction, no pins, no bytes.
func bareMap(ids []block.ID) subject {
	m := xsync.NewMapOfWithHasher[block.ID, *block.Buf](func(id block.ID, seed uint64) uint64 {
		h := (id.Hi ^ seed) + id.Index*0x9E3779B97F4A7C15
		return h ^ h>>29
	})
	value := block.NewBuf(nil, nil)
	for _, id := range ids {
		m.Store(id, value)
	}
	return subject{"bare xsync, block.ID",
		func(i uint32) bool { _, ok := m.Load(ids[i]); return ok },
		func(i uint32) { m.Store(ids[i], value) }}
}

func bareMap64(keys int) subject {
	m, ids := xsync.NewMapOf[uint64, *block.Buf](), numbers(keys)
	value := block.NewBuf(nil, nil)
	for _, id := range ids {
		m.Store(id, value)
	}
	return subject{"bare xsync, uint64",
		func(i uint32) bool { _, ok := m.Load(ids[i]); return ok },
		func(i uint32) { m.Store(ids[i], value) }}
}
