package blockcache

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// smallDisk has room for so many bytes of each file.
type smallDisk struct {
	file
	room *atomic.Int64
}

func (f smallDisk) Reserve(off, n int64) error {
	if off+n > f.room.Load() {
		return syscall.ENOSPC
	}
	return f.file.Reserve(off, n)
}

// A full disk costs growth, not the cache: what is reserved is used on, and
// when there is room again the cache grows into it by itself.
func TestLC09_LC19_FullDiskIsLivedWithAndLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var room atomic.Int64
		o := options(t.TempDir(), 8<<20, 64*kib)
		o.open = func(dir *os.Root, name string) (file, error) {
			f, err := openDiskFile(dir, name)
			return smallDisk{f, &room}, err
		}
		c := open(t, o)
		put := func(from, to int) (there int) {
			for i := from; i < to; i++ {
				offer(c, i, 0, 64*kib, block.QueueNormal)
				flush(t, c)
				if l, ok := c.Get(id(i, 0)); ok {
					there++
					if !bytes.Equal(bytesOf(t, &l), content(id(i, 0), 64*kib)) {
						t.Fatalf("block %d is wrong", i)
					}
				}
			}
			invariants(t, c)
			return there
		}
		if n := put(0, 10); n != 0 {
			t.Errorf("%d blocks on a disk without room", n)
		}
		if m := c.Metrics(); m.DiskFull != 1 || m.Blocks != 0 {
			t.Errorf("a disk without room: %+v", m)
		}
		room.Store(1 << 20)
		time.Sleep(2 * fullRetry)
		if n := put(10, 60); n < 48 {
			t.Errorf("%d of 50 new blocks on a disk with room for 16", n)
		}
		if m := c.Metrics(); m.Blocks < 15 || m.Blocks > 16 {
			t.Errorf("a disk with room for 16: %+v", m)
		}
		room.Store(1 << 30)
		time.Sleep(2 * fullRetry)
		if n := put(60, 160); n != 100 {
			t.Errorf("%d of 100 new blocks on a disk with room", n)
		}
		if m := c.Metrics(); m.Blocks < 100 {
			t.Errorf("a disk with room: %+v", m)
		}
		_ = c.Close()
	})
}

// failing fails writes or reads on demand.
type failing struct {
	file
	reads, writes *atomic.Pointer[error]
}

func (f failing) WriteAt(p []byte, off int64) (int, error) {
	if err := f.writes.Load(); err != nil {
		return 0, *err
	}
	return f.file.WriteAt(p, off)
}

// Resident sends readers to the disk.
func (f failing) Resident([]byte, uint64, uint64) pageSet { return pageSet{} }

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if err := f.reads.Load(); err != nil {
		return 0, *err
	}
	return f.file.ReadAt(p, off)
}

func TestLC16_DiskErrorsAreMissesAndPass(t *testing.T) {
	var reads, writes atomic.Pointer[error]
	o := options(t.TempDir(), 8<<20, 64*kib)
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return failing{f, &reads, &writes}, err
	}
	c := open(t, o)
	offer(c, 0, 0, 64*kib, block.QueueNormal)
	flush(t, c)
	for i, errno := range []error{syscall.EIO, syscall.EROFS, syscall.EDQUOT} {
		writes.Store(&errno)
		offer(c, 1, 0, 64*kib, block.QueueNormal)
		flush(t, c)
		lacks(t, c, 1, 0)
		has(t, c, 0, 0, 64*kib)
		if m := c.Metrics(); m.WriteErrors != uint64(i+1) || m.PendingBytes != 0 {
			t.Errorf("%v: %+v", errno, m)
		}
	}
	writes.Store(nil)
	offer(c, 2, 0, 64*kib, block.QueueNormal)
	flush(t, c)
	has(t, c, 2, 0, 64*kib)

	var eio error = syscall.EIO
	reads.Store(&eio)
	l, ok := c.Get(id(2, 0))
	if _, err := l.CopyAt(make([]byte, 100), 0); !ok || err == nil {
		t.Errorf("CopyAt on a disk that can't read: %v", err)
	}
	l.Release()
	reads.Store(nil)
	lacks(t, c, 2, 0)
	has(t, c, 0, 0, 64*kib)
	invariants(t, c)
}

// The file is cut short under the running cache: no fault, no wrong byte.
func TestLC10_TruncatedUnderReaders(t *testing.T) {
	for _, size := range []int64{0, 1, 10 * 64 * kib, 10*64*kib + 100} {
		dir := t.TempDir()
		c := open(t, options(dir, 8<<20, 64*kib))
		for i := range 20 {
			offer(c, i, 0, 64*kib, block.QueueNormal)
		}
		flush(t, c)
		if err := os.Truncate(filepath.Join(dir, "headstart.data"), size); err != nil {
			t.Fatal(err)
		}
		left := 0
		for i := range 20 {
			l, ok := c.Get(id(i, 0))
			if !ok {
				t.Fatalf("block %d is not there", i)
			}
			got := make([]byte, l.Len())
			if n, err := l.CopyAt(got, 0); err == nil {
				left++
				if n != len(got) || !bytes.Equal(got, content(id(i, 0), 64*kib)) {
					t.Errorf("cut to %d: block %d is wrong", size, i)
				}
			}
			l.Release()
		}
		if int64(left) != size/(64*kib) {
			t.Errorf("cut to %d bytes: %d blocks left", size, left)
		}
		if m := c.Metrics(); m.ReadErrors != uint64(20-left) || m.Blocks != left {
			t.Errorf("cut to %d bytes: %+v", size, m)
		}
		invariants(t, c)
	}
}

// Who clears a cache that is still being read in gets an empty one, not an error.
func TestS55_ClearDuringAStart(t *testing.T) {
	o := options(t.TempDir(), 8<<20, 64*kib)
	c := open(t, o)
	fillTen(c)
	flush(t, c)
	_ = c.Close()
	ready, opening := make(chan struct{}), make(chan struct{})
	var once sync.Once
	o.open = func(dir *os.Root, name string) (file, error) {
		once.Do(func() { close(opening) })
		<-ready
		return openDiskFile(dir, name)
	}
	o.OpenWait = time.Nanosecond
	c = open(t, o)
	<-opening
	cleared := make(chan error)
	go func() { cleared <- c.Clear(t.Context()) }() // ends when the start is over
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Clear(over); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that does not wait is told %v", err)
	}
	close(ready)
	if err := <-cleared; err != nil {
		t.Error(err)
	}
	for n := range 10 {
		lacks(t, c, n, 0)
	}
}

// A directory that fails when its blocks are already lent out is left, and the
// leases stay good.
func TestS54_LeasesOutliveAnOpenThatFails(t *testing.T) {
	o := options(t.TempDir(), 8<<20, 64*kib)
	c := open(t, o)
	fillTen(c)
	flush(t, c)
	_ = c.Close()
	var lease block.Lease
	var c2 *Cache
	ready := make(chan struct{})
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		if name != objectsName {
			return f, err
		}
		return cellHook{f, func() error {
			<-ready
			l, ok := c2.Get(id(3, 0))
			if ok {
				lease = l
			}
			return syscall.EIO
		}}, err
	}
	o.OpenWait = time.Nanosecond
	c2 = open(t, o)
	close(ready)
	if err := c2.AwaitLoaded(t.Context()); err != nil {
		t.Fatal(err)
	}
	lacks(t, c2, 3, 0)
	if m := c2.Metrics(); !lease.Valid() || m.Down != 1 {
		t.Fatalf("lease %v; %+v", lease.Valid(), m)
	}
	if !bytes.Equal(lease.Raw(), content(id(3, 0), 64*kib)) {
		t.Error("the lease has lost its bytes")
	}
	lease.Release()
	_ = c2.Close()
	has(t, open(t, options(o.Paths[0].Dir, 8<<20, 64*kib)), 3, 0, 64*kib)
}

// The blocks of a directory are served before its disk has seen to it that all
// of the data file has room.
func TestRR02_StartDoesNotWaitForDiskBlocks(t *testing.T) {
	o := options(t.TempDir(), 8<<20, 64*kib)
	c := open(t, o)
	fillTen(c)
	flush(t, c)
	_ = c.Close()
	served := make(chan struct{})
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return slowReserve{f, served}, err
	}
	c = open(t, o)
	has(t, c, 3, 0, 64*kib)
	close(served)
	flush(t, c)
	invariants(t, c)
}

// slowReserve lets disk blocks wait.
type slowReserve struct {
	file
	until chan struct{}
}

func (f slowReserve) Reserve(off, n int64) error {
	<-f.until
	return f.file.Reserve(off, n)
}

// cellHook asks somebody what becomes of reading cells: they come last.
type cellHook struct {
	file
	read func() error
}

func (f cellHook) ReadAt(p []byte, off int64) (int, error) {
	if off >= headerSize {
		return 0, f.read()
	}
	return f.file.ReadAt(p, off)
}

// The file is cut inside a block: what is copied is right or an error, whatever
// the block ends with. Behind the cut the rest of a page reads as zeros, without
// a fault.
func TestLC10_CutInsideABlockWhateverItEndsWith(t *testing.T) {
	const size = 16 * kib
	for _, cut := range []int64{1, 4095, 4097, size - 4096, size - 100, size - 1} {
		for _, zeros := range []int{0, 1, 100, 5000, size} {
			cutInside(t, size, cut, zeros, false)
			cutInside(t, size, cut, zeros, true)
		}
	}
}

// cutInside cuts the data file inside a block that ends with so many zeros, and
// that somebody has seen as a whole before, or not.
func cutInside(t *testing.T, size int, cut int64, zeros int, seen bool) {
	dir := t.TempDir()
	c := open(t, options(dir, 4<<20, int64(size)))
	want := content(id(1, 0), size)
	for i := range want {
		want[i] |= 1
	}
	clear(want[size-zeros:])
	b := block.NewBuf(want, nil)
	b.Seal()
	c.Offer(&Entry{Object: object(1), Meta: meta(1), ID: id(1, 0)}, b)
	flush(t, c)
	b.Release()
	before := [][2]int{{0, 10}, {4096, 10}, {8192, 10}, {12288, 10}} // the pages of the block are in memory
	if seen {
		before = append(before, [2]int{0, size}, [2]int{0, size})
	}
	for _, part := range before {
		l, ok := c.Get(id(1, 0))
		if !ok {
			t.Fatal("not there")
		}
		got := make([]byte, part[1])
		if _, err := l.CopyAt(got, part[0]); err != nil || !bytes.Equal(got, want[part[0]:][:part[1]]) {
			t.Fatalf("%d bytes from %d on: %v", part[1], part[0], err)
		}
		l.Release()
	}
	if err := os.Truncate(filepath.Join(dir, dataName), cut); err != nil {
		t.Fatal(err)
	}
	l, _ := c.Get(id(1, 0))
	for _, part := range [][2]int{{0, size}, {0, int(cut)}, {size - 4096, 4096}, {size - 2, 2}} {
		got := make([]byte, part[1])
		if n, err := l.CopyAt(got, part[0]); err == nil && !bytes.Equal(got[:n], want[part[0]:][:n]) {
			t.Errorf("cut to %d, %d zeros at the end, seen %v: wrong bytes from %d on", cut, zeros, seen, part[0])
		}
	}
	l.Release()
	_ = c.Close()
}
