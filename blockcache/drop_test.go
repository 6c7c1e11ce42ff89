package blockcache

import (
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// What an object says of its size is no measure of the work: a reply may name any.
func TestDropObjectOfAnySize(t *testing.T) {
	dir := t.TempDir()
	c := open(t, options(dir, 4<<20, 64*kib))
	for i := range 20 {
		offer(c, i%2, uint64(i), 10*kib, block.QueueNormal)
	}
	flush(t, c)
	held, ok := c.Get(id(0, 4))
	if !ok {
		t.Fatal("not there")
	}
	c.DropObject(id(0, 0), 1<<50)
	if got := string(bytesOf(t, &held)); got != string(content(id(0, 4), 10*kib)) {
		t.Error("a lease has lost its bytes")
	}
	held.Release()
	flush(t, c)
	invariants(t, c)
	_ = c.Close()
	c = open(t, options(dir, 4<<20, 64*kib))
	for i := range 20 {
		if i%2 == 0 {
			lacks(t, c, 0, uint64(i))
		} else {
			has(t, c, 1, uint64(i), 10*kib)
		}
	}
}

// dropping drops a block while its record is written at another place.
type dropping struct {
	file
	drop func(id block.ID)
}

func (f dropping) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.file.WriteAt(p, off)
	var r record
	if r.decode(p) {
		f.drop(r.id)
	}
	return n, err
}

// A block that is dropped while it is moved does not come back with a restart.
func TestDroppedOnTheMoveStaysAway(t *testing.T) {
	dir := t.TempDir()
	o := options(dir, 2<<20, 64*kib)
	var c *Cache
	written, dropped := map[block.ID]bool{}, map[block.ID]bool{}
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return dropping{f, func(id block.ID) {
			if written[id] && c.Drop(id) {
				dropped[id] = true
			}
			written[id] = true
		}}, err
	}
	c = open(t, o)
	rng := rand.New(rand.NewPCG(5, 6))
	for i := 0; len(dropped) == 0; i++ {
		if i == 10_000 {
			t.Fatal("no block is moved")
		}
		offer(c, i, 0, 1+rng.IntN(1+i*32)%(64*kib), block.QueueNormal)
		flush(t, c)
	}
	flush(t, c)
	invariants(t, c)
	_ = c.Close()
	c = open(t, options(dir, 2<<20, 64*kib))
	for id := range dropped {
		if c.Has(id) {
			t.Errorf("%v is back", id)
		}
	}
}

// late is a disk that answers reads only when hang is closed.
type late struct {
	file
	hang *atomic.Pointer[chan struct{}]
}

func (f late) Resident([]byte) bool { return false }

func (f late) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.file.ReadAt(p, off)
	if h := f.hang.Load(); h != nil {
		<-*h
	}
	return n, err
}

// A disk that answers when its directory has been closed, and can't be opened
// again, is listened to no more.
func TestLC15_AnswerBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Pointer[chan struct{}]
		var broken atomic.Bool
		o := options(t.TempDir(), 8<<20, 256*kib)
		o.open = func(dir *os.Root, name string) (file, error) {
			if broken.Load() {
				return nil, syscall.EIO
			}
			f, err := openDiskFile(dir, name)
			return late{f, &hang}, err
		}
		c := open(t, o)
		const blocks = 20
		for i := range blocks {
			offer(c, i, 0, 256*kib, block.QueueNormal)
		}
		flush(t, c)
		answer := make(chan struct{})
		hang.Store(&answer)
		broken.Store(true)
		var readers sync.WaitGroup
		for i := range blocks {
			readers.Go(func() {
				if l, ok := c.Get(id(i, 0)); ok {
					if _, err := l.CopyAt(make([]byte, 256*kib), 0); err == nil {
						t.Error("a disk that hangs was read")
					}
					l.Release()
				}
			})
		}
		readers.Wait()
		time.Sleep(3 * time.Second) // closed, and not opened again
		close(answer)
		synctest.Wait()
		hang.Store(nil)
		broken.Store(false)
		time.Sleep(2 * lastWait)
		for i := range blocks {
			has(t, c, i, 0, 256*kib)
		}
		_ = c.Close()
	})
}
