package blockcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// liar is a disk that flips a byte of what it reads, or reads little at a time.
type liar struct {
	file
	flip  *atomic.Int64 // where in the file; -1 for nowhere
	short *atomic.Bool
}

func (f liar) Resident([]byte, uint64, uint64) pageSet { return pageSet{} }

func (f liar) ReadAt(p []byte, off int64) (int, error) {
	if f.short.Load() {
		p = p[:min(len(p), 1000)]
	}
	n, err := f.file.ReadAt(p, off)
	if at := f.flip.Load() - off; at >= 0 && at < int64(n) {
		p[at] ^= 4
	}
	return n, err
}

// A disk that lies is found out before anybody has the bytes: whatever part is
// read, on the flipped byte or off it, under the running cache or after a
// restart. The block is dropped and counted once.
func TestLC13_FlippedByteOfColdBlockIsNeverServed(t *testing.T) {
	const size = 64 * kib
	parts := map[string][2]int{"whole": {0, size}, "first page": {0, 4096}, "middle": {30_000, 4096}, "last page": {size - 4096, 4096}}
	for _, restart := range []bool{false, true} {
		for _, at := range []int64{0, 4095, size / 2, size - 1} {
			for name, part := range parts {
				var flip atomic.Int64
				var short atomic.Bool
				flip.Store(-1)
				o := options(t.TempDir(), 4<<20, size)
				o.open = func(dir *os.Root, name string) (file, error) {
					f, err := openDiskFile(dir, name)
					if name != dataName {
						return f, err
					}
					return liar{f, &flip, &short}, err
				}
				c := open(t, o)
				offer(c, 1, 0, size, block.QueueNormal)
				offer(c, 2, 0, size, block.QueueNormal)
				flush(t, c)
				if restart {
					_ = c.Close()
					c = open(t, o)
				}
				short.Store(true)
				has(t, c, 1, 0, size)
				short.Store(false)
				flip.Store(at)
				for range 3 {
					l, ok := c.Get(id(1, 0))
					if !ok {
						continue
					}
					dst := make([]byte, part[1])
					if n, err := l.CopyAt(dst, part[0]); err == nil && !bytes.Equal(dst[:n], content(id(1, 0), size)[part[0]:][:n]) {
						t.Errorf("%s, byte %d: wrong bytes", name, at)
					}
					l.Release()
				}
				lacks(t, c, 1, 0)
				has(t, c, 2, 0, size)
				if m := c.Metrics(); m.Corrupt != 1 {
					t.Errorf("%s, byte %d: %d corrupt blocks, want 1", name, at, m.Corrupt)
				}
				_ = c.Close()
			}
		}
	}
}

// untouchable is a file that is nowhere in memory: who touches its mapping dies
// of it, or has no bytes. It counts what is read by system calls.
type untouchable struct {
	file
	read *atomic.Int64
}

func (f untouchable) Map(n int64) ([]byte, error) {
	b, err := f.file.Map(n)
	if err == nil {
		err = syscall.Mprotect(b, syscall.PROT_NONE)
	}
	return b, err
}

func (f untouchable) Resident([]byte, uint64, uint64) pageSet { return pageSet{} }

func (f untouchable) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.file.ReadAt(p, off)
	f.read.Add(int64(n))
	return n, err
}

// Blocks that are not in memory are read by system calls, which let the
// processor go: no Go code touches the mapping, where a fault that waits for the
// disk would keep a processor, and the collector, waiting as well.
func TestLC11_ColdBlocksDoNotStopTheScheduler(t *testing.T) {
	const blocks, size = 64, 1 << 20
	var read atomic.Int64
	o := options(t.TempDir(), 80<<20, size)
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		if name != dataName {
			return f, err
		}
		return untouchable{f, &read}, err
	}
	c := open(t, o)
	for i := range blocks {
		offer(c, i, 0, size, block.QueueNormal)
		flush(t, c)
	}
	_ = c.Close()
	c = open(t, o)
	for i := range blocks { // verified now
		l, ok := c.Peek(id(i, 0))
		if !ok {
			t.Fatalf("block %d is gone", i)
		}
		l.Release()
	}
	before := read.Load()
	var wg sync.WaitGroup
	for i := range blocks {
		wg.Go(func() {
			l, ok := c.Get(id(i, 0))
			if !ok {
				t.Errorf("block %d is gone", i)
				return
			}
			defer l.Release()
			got := make([]byte, size)
			if _, err := l.CopyAt(got, 0); err != nil || !bytes.Equal(got, content(id(i, 0), size)) {
				t.Errorf("block %d is wrong (%v)", i, err)
			}
		})
	}
	wg.Wait()
	if n := read.Load() - before; n < blocks*size {
		t.Errorf("%d of %d bytes were read by system calls", n, blocks*size)
	}
}

// Many writers push many times what fits: the disk blocks in use stay below the
// capacity at every moment that somebody looks.
func TestLC18_ManyWritersStayBelowTheCapacity(t *testing.T) {
	const total, writers = 32 << 20, 32
	dir := t.TempDir()
	o := options(dir, total, 256*kib)
	o.WriteQueueBytes = 8 << 20
	c := open(t, o)
	stop, most := make(chan struct{}), make(chan int64)
	go func() { // until stop
		seen := int64(0)
		for {
			select {
			case <-stop:
				most <- seen
				return
			default:
				seen = max(seen, allocated(t, dir))
				runtime.Gosched()
			}
		}
	}()
	var wg sync.WaitGroup
	for g := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 7))
			for written := 0; written < 5*total/writers; {
				size := 1 + rng.IntN(256*kib)
				if offer(c, g<<16+written, 0, size, block.Queue(rng.IntN(queueCount))) {
					written += size
				} else {
					flush(t, c)
				}
			}
		})
	}
	wg.Wait()
	flush(t, c)
	close(stop)
	if n := <-most; n > total || n < total*8/10 {
		t.Errorf("up to %d bytes of disk in use, capacity %d", n, total)
	}
	invariants(t, c)
}

// fullDisk has no room for anything that is not there yet.
type fullDisk struct {
	file
	full *atomic.Bool
}

func (f fullDisk) grows(end int64) bool {
	size, err := f.Size()
	return f.full.Load() && (err != nil || end > size)
}

func (f fullDisk) WriteAt(p []byte, off int64) (int, error) {
	if f.grows(off + int64(len(p))) {
		return 0, syscall.ENOSPC
	}
	return f.file.WriteAt(p, off)
}

func (f fullDisk) Reserve(off, n int64) error {
	if f.full.Load() {
		return syscall.ENOSPC
	}
	return f.file.Reserve(off, n)
}

// A full disk neither keeps a node from starting nor what it has from being
// served and cleared; and caching goes on by itself when there is room. It is
// said once, and once again when it is over.
func TestLC19_StartsServesAndClearsOnAFullDisk(t *testing.T) {
	for _, warm := range []bool{true, false} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			var full atomic.Bool
			var log bytes.Buffer
			o := options(dir, 8<<20, 64*kib)
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			o.open = func(dir *os.Root, name string) (file, error) {
				f, err := openDiskFile(dir, name)
				return fullDisk{f, &full}, err
			}
			if warm {
				c := open(t, o)
				fillTen(c)
				flush(t, c)
				_ = c.Close()
			}
			full.Store(true)
			c := open(t, o)
			if warm {
				for i := range 10 {
					has(t, c, i, 0, 64*kib)
				}
			}
			for i := range 30 {
				offer(c, 100+i, 0, 64*kib, block.QueueNormal)
				flush(t, c)
				time.Sleep(100 * time.Millisecond)
			}
			m := c.Metrics()
			if m.DiskFull == 0 && m.Down == 0 {
				t.Errorf("warm %v: nothing tells that the disk is full: %+v", warm, m)
			}
			if err := c.Clear(context.Background()); warm && err != nil {
				t.Errorf("clear: %v", err)
			}
			full.Store(false)
			time.Sleep(time.Minute)
			fillTen(c)
			flush(t, c)
			for i := range 10 {
				has(t, c, i, 0, 64*kib)
			}
			invariants(t, c)
			if m := c.Metrics(); m.Down != 0 {
				t.Errorf("%+v", m)
			}
			_ = c.Close()
			for text, want := range map[string]int{"the disk is full": 1, "the disk has room again": 1} {
				if n := strings.Count(log.String(), text); warm && n != want {
					t.Errorf("%q is said %d times, want %d: %s", text, n, want, log.String())
				}
			}
		})
	}
}

// A million random steps with five keys, each goroutine letting the others in
// at every turn; then everything agrees.
func TestLC26_FiveKeysAMillionSteps(t *testing.T) {
	steps := 1_000_000
	if testing.Short() {
		steps /= 10
	}
	o := options(t.TempDir(), 512*kib, 16*kib)
	c := open(t, o)
	const batches, workers = 20, 4
	for batch := range batches {
		var wg sync.WaitGroup
		for g := range workers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(batch), uint64(g)))
				for range steps / batches / workers {
					n := rng.IntN(5)
					switch k := rng.IntN(20_000); {
					case k == 0:
						if err := c.Clear(context.Background()); err != nil {
							t.Error(err)
						}
					case k < 2_000:
						c.Drop(id(n, 0))
					case k < 6_000:
						offer(c, n, 0, 1+n*97, block.Queue(n%queueCount))
					default:
						if l, ok := c.Get(id(n, 0)); !ok {
							offer(c, n, 0, 1+n*97, block.Queue(n%queueCount))
						} else if !bytes.Equal(bytesOf(t, &l), content(id(n, 0), 1+n*97)) {
							t.Errorf("block %d is wrong", n)
						}
					}
					if rng.IntN(8) == 0 {
						runtime.Gosched()
					}
				}
			})
		}
		wg.Wait()
		invariants(t, c)
	}
	if m := c.Metrics(); m.Corrupt != 0 || m.Hits == 0 {
		t.Errorf("%+v", m)
	}
}

// Somebody removes some of the files, under the running cache or while it is
// down: it heals, without a loop and without a wrong byte.
func TestRR14_AnyFilesRemovedByHand(t *testing.T) {
	names := fileNames()
	for which := 1; which < 1<<len(names); which++ {
		for _, running := range []bool{true, false} {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				what := fmt.Sprintf("files %04b, running %v", which, running)
				c := open(t, options(dir, 4<<20, 64*kib))
				fillTen(c)
				flush(t, c)
				if !running {
					_ = c.Close()
				}
				var err error
				for i, name := range names {
					if which>>i&1 != 0 {
						err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				if !running {
					c, err = Open(options(dir, 4<<20, 64*kib))
					// Without mark and records nothing tells that the bytes are ours.
					if which&0b0111 == 0b0101 && errors.Is(err, ErrFormat) {
						return
					}
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
				}
				time.Sleep(2 * lastWait)
				for i := range 10 {
					if l, ok := c.Get(id(i, 0)); ok {
						if !bytes.Equal(bytesOf(t, &l), content(id(i, 0), 64*kib)) {
							t.Errorf("%s: block %d is wrong", what, i)
						}
					}
				}
				fillTen(c)
				flush(t, c)
				if n := there(c, 0, 10); n != 10 {
					t.Fatalf("%s: %d blocks of 10 are there: %+v", what, n, c.Metrics())
				}
				if m := c.Metrics(); m.Down != 0 || m.Outs > 1 || running && m.Outs != 1 {
					t.Errorf("%s: %+v", what, m)
				}
				invariants(t, c)
				_ = c.Close()
				c = open(t, options(dir, 4<<20, 64*kib))
				for i := range 10 {
					has(t, c, i, 0, 64*kib)
				}
				_ = c.Close()
			})
		}
	}
}

// Two hundred kills in the middle of writes leave nothing behind but what the
// next start goes on with.
func TestRR10_KillsLeaveNoFilesAndNoSpaceBehind(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 20
	}
	const total = 1 << 20
	dir := t.TempDir()
	for kill := range kills {
		c := open(t, options(dir, total, 64*kib))
		for i := range 12 {
			offer(c, kill*5+i, 0, 1+(kill*7919+i*977)%(64*kib), block.QueueNormal)
		}
		after := crashed(t, dir) // while the writer is at work
		_ = c.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		dir = after
	}
	c := open(t, options(dir, total, 64*kib))
	invariants(t, c)
	for n := range kills*5 + 12 {
		if l, ok := c.Get(id(n, 0)); ok {
			if got := bytesOf(t, &l); !bytes.Equal(got, content(id(n, 0), len(got))) {
				t.Errorf("block %d is wrong", n)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != fileCount {
		t.Errorf("%v, %v", entries, err)
	}
	if n := allocated(t, dir); n > total {
		t.Errorf("%d bytes of disk in use, capacity %d", n, total)
	}
}
