// Command cachecold reads blocks that are on disk and not in memory: through
// leases of the block cache, and by plain pread of the same file, in turns. A
// ticker that has nothing to do with it tells how long others were held up, beside
// each of the two and beside nothing: what the machine itself does to a ticker.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"headstart/blockcache"
	"headstart/engine/block"
)

const blockSize = 1 << 20

func main() {
	blocks := flag.Int("blocks", 256, "how many blocks of 1 MiB")
	rounds := flag.Int("rounds", 5, "rounds; medians are printed")
	tmp := flag.String("tmp", "", "directory on the disk to measure")
	flag.Parse()
	if err := run(*blocks, *rounds, *tmp); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(blocks, rounds int, tmp string) (err error) {
	dir, err := os.MkdirTemp(tmp, "cachecold")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cache, base, err := fill(dir, blocks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cache.Close()) }()
	f, err := os.Open(filepath.Join(dir, "headstart.data"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lease := func(i int, dst []byte) error {
		l, ok := cache.Get(base.At(uint64(i)))
		if !ok {
			return fmt.Errorf("block %d is not there", i)
		}
		defer l.Release()
		_, err := l.CopyAt(dst, 0)
		return err
	}
	pread := func(i int, dst []byte) error { _, err := f.ReadAt(dst, int64(i)*blockSize); return err }
	for _, readers := range []int{1, 4, 64} {
		var rate, delay [2][]float64
		var idle []float64
		for range rounds {
			// Pages that were once copied out of a mapping stay in memory as long as
			// it does: so each round has a new one, and leases come last.
			if cache, err = reopen(cache, dir, base, blocks); err != nil {
				return err
			}
			idle = append(idle, alone())
			for k, read := range []func(int, []byte) error{pread, lease} {
				r, d, err := pass(f, blocks, readers, read)
				if err != nil {
					return err
				}
				rate[k], delay[k] = append(rate[k], r), append(delay[k], d)
			}
		}
		fmt.Printf("%2d readers: lease %6.0f MB/s, ticker p99 %5.2f ms late; pread %6.0f MB/s, %5.2f ms; ratio %.2f; beside nothing %5.2f ms\n", readers,
			median(rate[1]), median(delay[1]), median(rate[0]), median(delay[0]), medianRatio(rate[1], rate[0]), median(idle))
	}
	return nil
}

func open(dir string, blocks int) (*blockcache.Cache, error) {
	set := blockcache.NewSettings()
	set.ScrubBytesPerSecond.Store(0)
	return blockcache.Open(blockcache.Options{
		Paths:    []blockcache.Path{{Dir: dir, TotalBytes: int64(blocks)*blockSize*11/10 + 8<<20}},
		Settings: set, Logger: slog.New(slog.DiscardHandler),
		IOTimeout: 30 * time.Second, // a busy machine's disk is measured, not taken out
	})
}

func fill(dir string, blocks int) (*blockcache.Cache, block.ID, error) {
	o := block.Object{Store: "s3", Bucket: "b", Key: "k"}
	base := block.BaseID(o, "v")
	cache, err := open(dir, blocks)
	if err != nil {
		return nil, base, err
	}
	data := make([]byte, blockSize)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	b := block.NewBuf(data, nil)
	b.Seal()
	for i := range blocks {
		cache.Offer(&blockcache.Entry{Object: o, Meta: block.Meta{Version: "v"}, ID: base.At(uint64(i))}, b)
		if err := cache.Flush(context.Background()); err != nil {
			return nil, base, err
		}
	}
	return cache, base, nil
}

// reopen also has every block verified, as its first use after a restart does.
func reopen(cache *blockcache.Cache, dir string, base block.ID, blocks int) (*blockcache.Cache, error) {
	if err := cache.Close(); err != nil {
		return nil, err
	}
	cache, err := open(dir, blocks)
	if err != nil {
		return nil, err
	}
	for i := range blocks {
		l, ok := cache.Peek(base.At(uint64(i)))
		if !ok {
			return nil, fmt.Errorf("block %d is gone", i)
		}
		l.Release()
	}
	return cache, nil
}

func median(v []float64) float64 { v = slices.Sorted(slices.Values(v)); return v[len(v)/2] }

// medianRatio is of what was measured in the same round.
func medianRatio(a, b []float64) float64 {
	r := make([]float64, len(a))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	return median(r)
}

// alone is how late the ticker is while nobody reads, in milliseconds.
func alone() float64 {
	stop := make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() { close(stop) })
	return tick(stop)
}

// pass drops the file from memory and reads all its blocks once.
func pass(f *os.File, blocks, readers int, read func(int, []byte) error) (rate, delay float64, err error) {
	if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		return 0, 0, err
	}
	stop, late := make(chan struct{}), make(chan float64)
	go func() { late <- tick(stop) }() // until stop
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, readers)
	start := time.Now()
	for g := range readers {
		wg.Go(func() { // until all blocks are read
			dst := make([]byte, blockSize)
			for i := int(next.Add(1)) - 1; i < blocks && errs[g] == nil; i = int(next.Add(1)) - 1 {
				errs[g] = read(i, dst)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	close(stop)
	return float64(blocks) * blockSize / 1e6 / took.Seconds(), <-late, errors.Join(errs...)
}

// tick sleeps for a millisecond again and again, and returns the 99th
// percentile of how much longer it took, in milliseconds.
func tick(stop <-chan struct{}) float64 {
	var late []float64
	for {
		select {
		case <-stop:
			slices.Sort(late)
			if len(late) == 0 {
				return 0
			}
			return late[len(late)*99/100]
		default:
		}
		start := time.Now()
		time.Sleep(time.Millisecond)
		late = append(late, (time.Since(start)-time.Millisecond).Seconds()*1e3)
	}
}
