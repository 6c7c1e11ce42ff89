package blockcache

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// hooked is a data file that asks before it does something.
type hooked struct {
	file
	read, punch func(off, n int64) error
}

func (f hooked) Resident([]byte, uint64, uint64) pageSet { return pageSet{} }

func (f hooked) ReadAt(p []byte, off int64) (int, error) {
	if f.read != nil {
		if err := f.read(off, int64(len(p))); err != nil {
			return 0, err
		}
	}
	return f.file.ReadAt(p, off)
}

func (f hooked) Punch(off, n int64) error {
	if f.punch != nil {
		if err := f.punch(off, n); err != nil {
			return err
		}
	}
	return f.file.Punch(off, n)
}

// hook makes the data files of o ask h.
func hook(o Options, h hooked) Options {
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		if name == dataName && err == nil {
			return hooked{f, h.read, h.punch}, nil
		}
		return f, err
	}
	return o
}

// A disk that opens well and then does not answer, again and again, is left alone
// for longer each time, whoever has found out: a reader as well as the keeper.
func TestLC15_WhoHangsAgainIsLeftAloneForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		o := options(t.TempDir(), 8<<20, 64*kib)
		o.IOTimeout = 0
		c := open(t, hook(o, hooked{read: func(int64, int64) error {
			if slow.Load() {
				time.Sleep(2 * time.Second)
			}
			return nil
		}}))
		fillTen(c)
		flush(t, c)
		slow.Store(true)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if l, ok := c.Get(id(3, 0)); ok {
				_, _ = l.CopyAt(make([]byte, 64*kib), 0)
				l.Release()
			}
		}
		// Out after 1 s, and after 1, 2, 4, 8 and 16 s and a read each.
		if m := c.Metrics(); m.Outs > 7 {
			t.Errorf("taken out %d times in a minute", m.Outs)
		}
		slow.Store(false)
		time.Sleep(lastWait + time.Second)
		has(t, c, 4, 0, 64*kib)
		_ = c.Close()
	})
}

// What the disk has not given back counts: a start whose data file is larger on
// disk than its blocks keeps to the capacity, though the disk fails to punch.
func TestS52_WhatCannotBePunchedCounts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { // no time passes in which the errors could take it out
		const capacity = 8 << 20
		o := options(dir, capacity, 64*kib)
		c := open(t, o)
		for i := range 200 {
			offer(c, i, 0, 64*kib, block.QueueNormal)
		}
		flush(t, c)
		_ = c.Close()
		if err := os.Remove(filepath.Join(dir, blocksName)); err != nil { // its blocks are lost
			t.Fatal(err)
		}
		var failing atomic.Bool
		failing.Store(true)
		c = open(t, hook(o, hooked{punch: func(int64, int64) error {
			if failing.Load() {
				return syscall.EIO
			}
			return nil
		}}))
		for i := range 3000 {
			offer(c, i, 1, 1*kib, block.QueueNormal)
			if i%100 == 0 {
				flush(t, c)
			}
		}
		flush(t, c)
		if got := allocated(t, dir); got > capacity {
			t.Errorf("%d bytes on disk, the capacity is %d", got, capacity)
		}
		failing.Store(false)
		if err := c.Clear(context.Background()); err != nil {
			t.Error(err)
		}
		flush(t, c)
		if got := allocated(t, dir); got > capacity/2 {
			t.Errorf("%d bytes on disk when the disk works again, the capacity is %d", got, capacity)
		}
		invariants(t, c)
		_ = c.Close()
	})
}

// A start after which there is much to erase is work and no sign of a disk that
// hangs: it gets on with it.
func TestLC15_MuchToEraseIsNoHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t.TempDir(), 8<<20, 4*kib)
		c := open(t, o)
		for i := range 1700 {
			offer(c, i, 0, 4*kib, block.QueueNormal)
		}
		flush(t, c)
		_ = c.Close()
		o.Paths[0].TotalBytes, o.IOTimeout = 4<<20, 0
		c = open(t, SlowWrites(o, 20*time.Millisecond))
		time.Sleep(time.Minute)
		if m := c.Metrics(); m.Outs != 0 || m.Blocks < 500 {
			t.Errorf("taken out %d times, %d blocks", m.Outs, m.Blocks)
		}
		_ = c.Close()
	})
}

// A start with less capacity forgets what lay behind it, in however many slots,
// and keeps to the new one on every path.
func TestS52_CapacityMayBecomeMuchSmaller(t *testing.T) {
	for _, part := range []int64{2, 8} {
		dir := t.TempDir()
		o := options(dir, 16<<20, 4*kib)
		c := open(t, o)
		for i := range 6000 { // most have less than a block, so that there are many slots
			offer(c, i, 0, 4*kib>>(i%4), block.QueueNormal)
		}
		flush(t, c)
		_ = c.Close()
		capacity := o.Paths[0].TotalBytes / part
		o.Paths[0].TotalBytes = capacity
		for range 2 {
			c = open(t, o)
			flush(t, c)
			if got := allocated(t, dir); got > capacity {
				t.Errorf("1/%d: %d bytes on disk after the start, the capacity is %d", part, got, capacity)
			}
			for i := range 3000 {
				offer(c, i, 1, 4*kib>>(i%4), block.QueueNormal)
			}
			flush(t, c)
			if got := allocated(t, dir); got > capacity {
				t.Errorf("1/%d: %d bytes on disk, the capacity is %d", part, got, capacity)
			}
			invariants(t, c)
			_ = c.Close()
		}
	}
}
