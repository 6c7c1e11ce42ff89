package blockcache

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"headstart/engine/block"
)

// manyBlocks lays out a cache that holds so many blocks of 1 KiB, 64 an object;
// the bytes of the first one alone are there.
func manyBlocks(t testing.TB, blocks int) Options {
	t.Helper()
	dir := t.TempDir()
	o := options(dir, int64(blocks)*1200+8<<20, kib)
	c := open(t, o)
	offer(c, 0, 0, kib, block.QueueNormal)
	flush(t, c)
	_ = c.Close()
	f, err := os.OpenFile(filepath.Join(dir, blocksName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	_, err = f.Seek(recordOffset(2), 0)
	base := id(0, 0)
	for i := 1; i < blocks; i++ {
		if i%64 == 0 {
			base = id(i/64, 0)
		}
		r := record{seq: uint64(i) + 10, id: base.At(uint64(i % 64)), start: uint32(i), size: kib}
		var b [recordSize]byte
		r.encode(&b)
		_, werr := w.Write(b[:])
		err = errors.Join(err, werr)
	}
	if err := errors.Join(err, w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return o
}

// processorTime is what this process has used so far: other programs on the
// machine don't count.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Four times the blocks take about four times the time, by far not sixteen times,
// and nobody waits for it: what is asked for before it is found is a miss.
func TestRR02_StartIsLinearAndKeepsNobodyWaiting(t *testing.T) {
	const few, many = 30_000, 120_000
	var took [2][]time.Duration
	all := [2]Options{manyBlocks(t, few), manyBlocks(t, many)}
	for range 5 {
		for i, o := range all {
			begin := processorTime(t)
			c := open(t, o)
			if err := c.AwaitLoaded(t.Context()); err != nil { // a busy machine may take longer than Open waits
				t.Fatal(err)
			}
			took[i] = append(took[i], processorTime(t)-begin)
			if n := c.Metrics().Blocks; n != [2]int{few, many}[i] {
				t.Fatalf("%d blocks found", n)
			}
			_ = c.Close()
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	t.Logf("%d blocks: %v, %d blocks: %v", few, took[0][2], many, took[1][2])
	if took[1][0] > took[0][0]*9 && took[1][2] > took[0][2]*9 {
		t.Errorf("%v for %d blocks, %v for four times as many", took[0], few, took[1])
	}

	o := all[1]
	o.OpenWait = time.Nanosecond
	c := open(t, o)
	if l, ok := c.Get(id(0, 0)); ok { // too soon, mostly
		l.Release()
	}
	if err := c.AwaitLoaded(t.Context()); err != nil || c.Metrics().Blocks != many {
		t.Errorf("%v: %+v", err, c.Metrics())
	}
	has(t, c, 0, 0, kib)
	invariants(t, c)
}

// Blocks are looked for where they were put: the directories that a restart
// finds again, in the order of before, get the same keys.
func TestRR02_S50_KeysKeepTheirDirectory(t *testing.T) {
	o := options(t.TempDir(), 8<<20, 64*kib)
	o.Paths = append(o.Paths, Path{Dir: t.TempDir(), TotalBytes: 24 << 20})
	var was [200]*volume
	c := open(t, o)
	for i := range was {
		was[i] = c.volumeOf(hashID(id(i, 0)))
		offer(c, i, 0, kib, block.QueueNormal)
	}
	flush(t, c)
	_ = c.Close()
	c = open(t, o)
	for i, v := range was {
		if now := c.volumeOf(hashID(id(i, 0))); now.dir != v.dir {
			t.Errorf("block %d goes to %s, before to %s", i, now.dir, v.dir)
		}
		has(t, c, i, 0, kib)
	}
}

// RR-07: a graceful stop loses nothing.
func TestRR07_CleanStopKeepsAll(t *testing.T) {
	o := options(t.TempDir(), 8<<20, 64*kib)
	c := open(t, o)
	for i := range 300 {
		offer(c, i, 0, 1+i*97%(64*kib), block.Queue(i%queueCount))
	}
	held := []int{}
	for i := range 300 {
		if l, ok := c.Peek(id(i, 0)); ok {
			l.Release()
			held = append(held, i)
		}
	}
	_ = c.Close() // what waits to be written is written
	c = open(t, o)
	for _, i := range held {
		has(t, c, i, 0, 1+i*97%(64*kib))
	}
	if len(held) < 200 {
		t.Errorf("the test holds %d blocks only", len(held))
	}
}

// readHook is a file that asks somebody before it is scanned.
type readHook struct {
	file
	before func()
}

func (f readHook) ReadAt(p []byte, off int64) (int, error) {
	if off > 0 {
		f.before()
	}
	return f.file.ReadAt(p, off)
}

// Two records speak of the same bytes, as a power cut may leave them. The younger
// one holds, unless a reader has found the older one right before it was looked at:
// what is lent out stays.
func TestS53_RecordsThatContradictEachOther(t *testing.T) {
	for _, read := range []bool{false, true} {
		o := options(t.TempDir(), 4<<20, 64*kib)
		c := open(t, o)
		offer(c, 1, 0, 64*kib, block.QueueNormal)
		flush(t, c)
		_ = c.Close()
		f, err := os.OpenFile(filepath.Join(o.Paths[0].Dir, blocksName), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		var b [recordSize]byte
		(&record{seq: 1000, id: id(2, 0), start: 63, size: 64 * kib}).encode(&b)
		_, err = f.WriteAt(b[:], recordOffset(2))
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		var c2 *Cache
		var lease block.Lease
		ready := make(chan struct{})
		o.OpenWait = time.Nanosecond
		o.open = func(dir *os.Root, name string) (file, error) {
			f, err := openDiskFile(dir, name)
			if name != objectsName || !read {
				return f, err
			}
			return readHook{f, func() {
				<-ready
				if !lease.Valid() {
					lease, _ = c2.Get(id(1, 0))
				}
			}}, err
		}
		c2 = open(t, o)
		close(ready)
		if err := c2.AwaitLoaded(t.Context()); err != nil {
			t.Fatal(err)
		}
		invariants(t, c2)
		if lease.Valid() != read {
			t.Fatal("the block was not found while the directory was read")
		}
		lacks(t, c2, 2, 0) // its bytes never were there
		if read {
			if !bytes.Equal(bytesOf(t, &lease), content(id(1, 0), 64*kib)) {
				t.Error("the lease has wrong bytes")
			}
			has(t, c2, 1, 0, 64*kib)
		} else {
			lacks(t, c2, 1, 0)
		}
		for i := range 40 {
			offer(c2, 10+i, 0, 64*kib, block.QueueNormal)
		}
		flush(t, c2)
		invariants(t, c2)
	}
}
