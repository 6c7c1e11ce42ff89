package blockcache

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

func TestS51_TTLBlocksBecomeNormalOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t.TempDir(), 8<<20, 64*kib)
		o.Settings.TTLSeconds.Store(80)
		c := open(t, o)
		for i := range 10 {
			offer(c, i, 0, 4*kib, block.QueueTTL)
		}
		offer(c, 10, 0, 4*kib, block.QueueIndex)
		flush(t, c)
		time.Sleep(60 * time.Second)
		offer(c, 11, 0, 4*kib, block.QueueTTL)
		flush(t, c)
		time.Sleep(10 * time.Second)
		if m := c.Metrics(); m.QueueBlocks != [queueCount]int{0, 11, 1, 0} {
			t.Errorf("before the time: %v", m.QueueBlocks)
		}
		time.Sleep(31 * time.Second)
		if m := c.Metrics(); m.QueueBlocks != [queueCount]int{10, 1, 1, 0} || m.Expired != 10 {
			t.Errorf("after the time: %v, %d expired", m.QueueBlocks, m.Expired)
		}
		invariants(t, c)
		_ = c.Close()
	})
}

// A byte goes bad on disk under a block that nobody reads: the scrubber drops
// the block, and counts it once.
// aging lets all TTL blocks grow old in the middle of some writes.
type aging struct {
	file
	writes *int
	age    func()
}

func (f aging) WriteAt(p []byte, off int64) (int, error) {
	if *f.writes++; *f.writes%17 == 0 {
		f.age()
	}
	return f.file.WriteAt(p, off)
}

// TTL blocks grow old while they are moved to other places: what is on its way
// is in no queue, and must be left alone.
func TestS51_LC26_BlocksGrowOldWhileTheyMove(t *testing.T) {
	o, writes := options(t.TempDir(), 2<<20, 64*kib), 0
	var c *Cache
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return aging{f, &writes, func() {
			for range ages + 1 {
				c.volumes[0].expire()
			}
		}}, err
	}
	c = open(t, o)
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 4000 {
		offer(c, i, 0, 1+rng.IntN(1+i*16)%(64*kib), block.QueueTTL)
		flush(t, c)
	}
	invariants(t, c)
	if m := c.Metrics(); m.MovedBytes == 0 || m.Expired == 0 {
		t.Errorf("nothing moved or grew old: %+v", m)
	}
}

func TestS13_LC13_ScrubberFindsFlippedBytes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o := options(dir, 8<<20, 64*kib)
		o.Settings.ScrubBytesPerSecond.Store(1 << 20)
		c := open(t, o)
		fillTen(c)
		flush(t, c)
		for i, at := range []int64{0, 4095, 32 * kib, 64*kib - 1} {
			flip(dataName, int64(2*i)*64*kib+at)(t, dir)
		}
		time.Sleep(10 * time.Second)
		if m := c.Metrics(); m.Corrupt != 4 || m.Blocks != 6 || m.ScrubbedBytes < 6*64*kib || m.ScrubbedBytes > 11<<20 {
			t.Errorf("%+v", m)
		}
		for i := range 10 {
			if i%2 == 0 && i < 8 {
				lacks(t, c, i, 0)
			} else {
				has(t, c, i, 0, 64*kib)
			}
		}
		invariants(t, c)
		_ = c.Close()
	})
}

// disk is a file system of 64 MiB of which others use a part.
type disk struct {
	t      *testing.T
	others atomic.Int64
}

func (d *disk) use(dir string) diskUse {
	return diskUse{total: 64 << 20, left: max(0, 64<<20-d.others.Load()-allocated(d.t, dir)), inodes: 100, inodesLeft: 90}
}

// Others fill the disk: the cache takes nothing more at 90 %, gives disk back
// until it is below the lower mark, and grows again when there is room.
func TestS56_LC18_WatermarksOfTheDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := disk{t: t}
		o := options(dir, 16<<20, 64*kib)
		o.diskUse = d.use
		o.Settings.EvictInAdvance.Store(true)
		o.Settings.EnterEvictPercent.Store(88)
		c := open(t, o)
		put := func(from, to int) {
			for i := from; i < to; i++ {
				offer(c, i, 0, 64*kib, block.QueueNormal)
				flush(t, c)
			}
		}
		put(0, 250)
		full := allocated(t, dir)
		d.others.Store(50 << 20)
		time.Sleep(time.Second)
		if offer(c, 1000, 0, 64*kib, block.QueueNormal) || c.Metrics().Limited != 1 {
			t.Error("a disk that is full took a block")
		}
		time.Sleep(time.Minute)
		invariants(t, c)
		if use := d.use(dir).percent(); use >= 88 || allocated(t, dir) >= full {
			t.Errorf("disk use %d %% after a minute", use)
		}
		before := c.Metrics().Evicted
		time.Sleep(time.Minute)
		if n := c.Metrics().Evicted - before; n > 20 {
			t.Errorf("%d blocks more evicted in a minute of rest", n)
		}
		put(2000, 2010)
		has(t, c, 2009, 0, 64*kib)
		d.others.Store(0)
		time.Sleep(time.Minute)
		put(3000, 3250)
		if m := c.Metrics(); m.Blocks < 190 {
			t.Errorf("%d blocks when there is room again", m.Blocks)
		}
		_ = c.Close()
	})
}

func TestS56_EvictsInAdvanceOfTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t.TempDir(), 16<<20, 64*kib)
		o.Settings.EvictInAdvance.Store(true)
		c := open(t, o)
		for i := range 250 {
			offer(c, i, 0, 64*kib, block.QueueNormal)
			flush(t, c)
		}
		time.Sleep(time.Second)
		if m := c.Metrics(); m.Bytes > m.CapacityBytes*85/100 || m.Bytes < m.CapacityBytes*80/100 {
			t.Errorf("%d bytes in a cache of %d", m.Bytes, m.CapacityBytes)
		}
		invariants(t, c)
		_ = c.Close()
	})
}

func TestS55_ResizeGivesDiskBack(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, options(dir, 16<<20, 64*kib))
		for i := range 250 {
			offer(c, i, 0, 64*kib, block.QueueNormal)
			flush(t, c)
		}
		held, _ := c.Get(id(0, 0))
		if err := c.Resize(dir, 4<<20); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := c.Metrics(); got.CapacityBytes != 4<<20 || allocated(t, dir) > 4<<20 || got.Blocks < 50 {
			t.Errorf("%d bytes of disk, %+v", allocated(t, dir), got)
		}
		if !bytes.Equal(bytesOf(t, &held), content(id(0, 0), 64*kib)) {
			t.Error("a lease lost its bytes")
		}
		invariants(t, c)
		if err := c.Resize(dir, 17<<20); err == nil {
			t.Error("grew beyond what it was opened with")
		}
		if err := c.Resize(filepath.Join(dir, "x"), 4<<20); !errors.Is(err, ErrNoPath) {
			t.Errorf("unknown path: %v", err)
		}
		if err := c.Resize(dir, 16<<20); err != nil {
			t.Fatal(err)
		}
		for i := range 250 {
			offer(c, i, 1, 64*kib, block.QueueNormal)
			flush(t, c)
		}
		if m := c.Metrics(); m.Blocks < 230 {
			t.Errorf("%d blocks after growing again", m.Blocks)
		}
		_ = c.Close()
	})
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
