package blockcache

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// sick is a disk whose reads and writes fail or hang on demand.
type sick struct {
	file
	s *sickness
}

type sickness struct {
	failing atomic.Bool
	// hang, when set, keeps reads and writes waiting until it is closed.
	hang atomic.Pointer[chan struct{}]
}

func (f sick) wait() error {
	if h := f.s.hang.Load(); h != nil {
		<-*h
	}
	if f.s.failing.Load() {
		return syscall.EIO
	}
	return nil
}

func (f sick) Resident([]byte, uint64, uint64) pageSet { return pageSet{} }

func (f sick) ReadAt(p []byte, off int64) (int, error) {
	if err := f.wait(); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, off)
}

func (f sick) WriteAt(p []byte, off int64) (int, error) {
	if err := f.wait(); err != nil {
		return 0, err
	}
	return f.file.WriteAt(p, off)
}

func sickOptions(t *testing.T, s *sickness) Options {
	o := options(t.TempDir(), 8<<20, 64*kib)
	o.IOTimeout, o.OpenWait = 0, 0
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return sick{f, s}, err
	}
	return o
}

func fillTen(c *Cache) {
	for i := range 10 {
		offer(c, i, 0, 64*kib, block.QueueNormal)
	}
}

// A disk that fails each call is taken out, costs misses, and comes back with
// what it held when it works again.
func TestLC15_SickDiskIsTakenOutAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sickness
		c := open(t, sickOptions(t, &s))
		fillTen(c)
		flush(t, c)
		s.failing.Store(true)
		for i := 100; c.Metrics().Down == 0; i++ {
			if i > 200 {
				t.Fatal("still in use after 100 errors")
			}
			offer(c, i, 0, 64*kib, block.QueueNormal)
			flush(t, c)
			time.Sleep(keepEvery / 10)
		}
		for i := range 10 {
			lacks(t, c, i, 0)
			if offer(c, i, 0, 64*kib, block.QueueNormal) {
				t.Fatal("a directory that is out took a block")
			}
		}
		time.Sleep(time.Minute)
		if m := c.Metrics(); m.Down != 1 || m.Outs != 1 || m.PendingBytes != 0 {
			t.Errorf("while it fails: %+v", m)
		}
		s.failing.Store(false)
		time.Sleep(lastWait + time.Second)
		for i := range 10 {
			has(t, c, i, 0, 64*kib)
		}
		invariants(t, c)
		_ = c.Close()
	})
}

// A disk that does not answer holds nobody longer than the time limit: not a
// reader, not Offer, not Close.
func TestLC15_HungDiskIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sickness
		c := open(t, sickOptions(t, &s))
		fillTen(c)
		flush(t, c)
		hang := make(chan struct{})
		s.hang.Store(&hang)
		start := time.Now()
		l, ok := c.Get(id(3, 0))
		if !ok {
			t.Fatal("not there")
		}
		if n, err := l.CopyAt(make([]byte, 64*kib), 0); n != 0 || !errors.Is(err, errSlow) {
			t.Errorf("read of a hung disk: %d bytes, %v", n, err)
		}
		l.Release()
		if took := time.Since(start); took != time.Second {
			t.Errorf("the reader was held for %v", took)
		}
		lacks(t, c, 4, 0)
		if m := c.Metrics(); m.Down != 1 {
			t.Errorf("%+v", m)
		}
		close(hang)
		s.hang.Store(nil)
		time.Sleep(2 * lastWait)
		has(t, c, 4, 0, 64*kib)

		hang = make(chan struct{})
		s.hang.Store(&hang)
		offer(c, 50, 0, 64*kib, block.QueueNormal) // the writer hangs
		time.Sleep(3 * time.Second)
		lacks(t, c, 4, 0)
		lacks(t, c, 50, 0)
		start = time.Now()
		_ = c.Close()
		if took := time.Since(start); took > time.Second {
			t.Errorf("Close was held for %v", took)
		}
		close(hang)
	})
}

// One bad directory of two: the cache opens without it.
func TestS54_OpensWithoutABadDirectory(t *testing.T) {
	good, parent := t.TempDir(), t.TempDir()
	bad := filepath.Join(parent, "bad")
	if err := os.MkdirAll(filepath.Join(bad, dataName), 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		o := options(good, 8<<20, 64*kib)
		o.Paths = append(o.Paths, Path{Dir: bad, TotalBytes: 8 << 20})
		c := open(t, o)
		if m := c.Metrics(); m.Down != 1 {
			t.Fatalf("%+v", m)
		}
		taken := 0
		for i := range 40 {
			if offer(c, i, 0, 4*kib, block.QueueNormal) {
				taken++
				has(t, c, i, 0, 4*kib)
			}
		}
		if taken < 10 || taken > 30 {
			t.Errorf("%d of 40 blocks taken by one directory of two", taken)
		}
		if err := os.Remove(filepath.Join(bad, dataName)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lastWait)
		for i := range 40 {
			if !offer(c, i, 0, 4*kib, block.QueueNormal) {
				t.Fatalf("block %d refused by a directory that is good again", i)
			}
		}
		flush(t, c)
		invariants(t, c)
		_ = c.Close()
	})
}

// The directory is removed under the running cache, which makes a new one.
func TestLC07_RR14_RemovedDirectoryIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	synctest.Test(t, func(t *testing.T) {
		c := open(t, options(dir, 8<<20, 64*kib))
		fillTen(c)
		flush(t, c)
		held, ok := c.Get(id(5, 0))
		if err := os.RemoveAll(dir); err != nil || !ok {
			t.Fatal(err, ok)
		}
		time.Sleep(5 * time.Second)
		lacks(t, c, 5, 0)
		if !bytes.Equal(bytesOf(t, &held), content(id(5, 0), 64*kib)) {
			t.Error("a lease lost its bytes")
		}
		time.Sleep(2 * lastWait)
		fillTen(c)
		flush(t, c)
		for i := range 10 {
			has(t, c, i, 0, 64*kib)
		}
		if m := c.Metrics(); m.Outs != 1 || m.Down != 0 {
			t.Errorf("%+v", m)
		}
		_ = c.Close()
		if _, err := os.Stat(filepath.Join(dir, blocksName)); err != nil {
			t.Error(err)
		}
	})
}

// A file that was cut short is made whole again by the next write; what was
// cut off must not come back as zeros.
func TestLC10_CutAndGrownAgainGivesNoZeros(t *testing.T) {
	dir := t.TempDir()
	c := open(t, options(dir, 8<<20, 64*kib))
	fillTen(c)
	flush(t, c)
	if err := os.Truncate(filepath.Join(dir, dataName), 3*64*kib); err != nil {
		t.Fatal(err)
	}
	offer(c, 20, 0, 64*kib, block.QueueNormal)
	flush(t, c)
	left := 0
	for i := range 10 {
		if l, ok := c.Get(id(i, 0)); ok {
			left++
			if !bytes.Equal(bytesOf(t, &l), content(id(i, 0), 64*kib)) {
				t.Errorf("block %d is wrong", i)
			}
		}
	}
	if left != 3 {
		t.Errorf("%d blocks left, want 3", left)
	}
	has(t, c, 20, 0, 64*kib)
	invariants(t, c)
	if err := c.Clear(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestRR01_DataOfSomebodyElseIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	diary := bytes.Repeat([]byte("somebody's diary "), 5000)
	path := filepath.Join(dir, dataName)
	if err := os.WriteFile(path, diary, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(options(dir, 4<<20, 64*kib)); !errors.Is(err, ErrFormat) {
		t.Errorf("Open: %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, diary) {
		t.Errorf("the file was changed (%v)", err)
	}
}

// A disk that hangs while a directory is read holds nobody: not Open beyond its
// wait, not a reader, not an offer, not Metrics, not Close.
func TestLC15_S53_HungDiskAtOpenIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sickness
		o := sickOptions(t, &s)
		c := open(t, o)
		fillTen(c)
		flush(t, c)
		_ = c.Close()
		for _, comesBack := range []bool{true, false} {
			hang := make(chan struct{})
			s.hang.Store(&hang)
			o.OpenWait = 100 * time.Millisecond
			start := time.Now()
			c = open(t, o)
			lacks(t, c, 3, 0)
			if offer(c, 3, 0, 64*kib, block.QueueNormal) || c.Metrics().Down != 1 {
				t.Errorf("a directory that is being read is in use: %+v", c.Metrics())
			}
			if took := time.Since(start); took != o.OpenWait {
				t.Errorf("held for %v", took)
			}
			if comesBack {
				s.hang.Store(nil)
				close(hang)
				time.Sleep(time.Second)
				has(t, c, 3, 0, 64*kib)
				invariants(t, c)
			}
			start = time.Now()
			_ = c.Close()
			if took := time.Since(start); took > time.Second {
				t.Errorf("Close was held for %v", took)
			}
			if !comesBack { // the files come up behind Close: they go again
				s.hang.Store(nil)
				close(hang)
				synctest.Wait()
				lacks(t, c, 3, 0)
			}
		}
	})
}

// What waits to be written when the cache is closed is written as long as the disk
// gets on with it, and no longer than closeLimit.
func TestLC15_CloseWritesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A block is three writes: bytes, object, record.
		each := 100 * time.Millisecond
		for _, blocks := range []int{20, 60} {
			o := options(t.TempDir(), 8<<20, 64*kib)
			c := open(t, SlowWrites(o, each))
			time.Sleep(time.Second)
			for i := range blocks {
				offer(c, i, 0, 64*kib, block.QueueNormal)
			}
			start := time.Now()
			_ = c.Close()
			if took := time.Since(start); took > closeLimit+5*each || took < time.Duration(min(blocks, 30))*3*each {
				t.Errorf("Close took %v for %d blocks", took, blocks)
			}
			c = open(t, o)
			if n := c.Metrics().Blocks; n < min(blocks, 30) {
				t.Errorf("%d of %d blocks were written", n, blocks)
			}
			_ = c.Close()
		}
	})
}

// A block that was dropped while the disk hung does not come back with it.
func TestLC15_DroppedBeforeAHungDiskComesBackStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sickness
		c := open(t, sickOptions(t, &s))
		fillTen(c)
		flush(t, c)
		hang := make(chan struct{})
		s.hang.Store(&hang)
		offer(c, 20, 0, 64*kib, block.QueueNormal) // the writer hangs with it
		synctest.Wait()
		if !c.Drop(id(3, 0)) {
			t.Fatal("not there")
		}
		time.Sleep(2 * time.Second)
		if m := c.Metrics(); m.Down != 1 {
			t.Fatalf("%+v", m)
		}
		s.hang.Store(nil)
		close(hang)
		time.Sleep(lastWait)
		for i := range 10 {
			if i == 3 {
				lacks(t, c, i, 0)
			} else {
				has(t, c, i, 0, 64*kib)
			}
		}
		invariants(t, c)
		_ = c.Close()
	})
}

// A directory that is read after a Resize is laid out by what it may have now.
func TestS52_LC20_ResizedBeforeItIsReadKeepsToIt(t *testing.T) {
	const small = 4 << 20
	o := options(t.TempDir(), 8<<20, 64*kib)
	c := open(t, o)
	for i := range 100 {
		offer(c, i, 0, 64*kib, block.QueueNormal)
	}
	flush(t, c)
	_ = c.Close()
	ready := make(chan struct{})
	o.open = func(dir *os.Root, name string) (file, error) {
		<-ready
		return openDiskFile(dir, name)
	}
	o.OpenWait = time.Nanosecond
	c = open(t, o)
	if err := c.Resize(o.Paths[0].Dir, small); err != nil {
		t.Fatal(err)
	}
	close(ready)
	if err := c.AwaitLoaded(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := c.Metrics(); m.AllocatedBytes > small || m.Blocks < 50 {
		t.Errorf("%+v", m)
	}
	invariants(t, c)
}
