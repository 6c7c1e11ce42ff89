package blockcache

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// fickle is a disk that is right only once about each byte.
type fickle struct {
	file
	seen []bool
}

func (f fickle) Resident([]byte, uint64, uint64) pageSet { return pageSet{} }

func (f fickle) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.file.ReadAt(p, off)
	for i := range p[:n] {
		if f.seen[off+int64(i)] {
			p[i] ^= 4
		}
		f.seen[off+int64(i)] = true
	}
	return n, err
}

// The bytes of a part of a cold block are those that were verified.
func TestLC13_PartOfColdBlockIsReadOnce(t *testing.T) {
	const size = 256 * kib // more than one piece
	for _, part := range [][2]int{{0, 1}, {0, size}, {5, scratchSize}, {scratchSize - 1, 2}, {scratchSize, 7}, {size - 3, 3}, {size - 1, 9}} {
		o := options(t.TempDir(), 4<<20, size)
		o.open = func(dir *os.Root, name string) (file, error) {
			f, err := openDiskFile(dir, name)
			if err != nil || name != dataName {
				return f, err
			}
			return fickle{f, make([]bool, 4<<20)}, nil
		}
		c := open(t, o)
		offer(c, 1, 0, size, block.QueueNormal)
		flush(t, c)
		l, ok := c.Get(id(1, 0))
		if !ok {
			t.Fatal("not there")
		}
		dst := make([]byte, part[1])
		want := content(id(1, 0), size)[part[0]:min(part[0]+part[1], size)]
		if n, err := l.CopyAt(dst, part[0]); err != nil || !bytes.Equal(dst[:n], want) {
			t.Errorf("%d bytes at %d: %d bytes, %v, or wrong ones", part[1], part[0], n, err)
		}
		l.Release()
		_ = c.Close()
	}
}

// late is a disk that answers reads only when hang is closed.
type late struct {
	file
	hang *atomic.Pointer[chan struct{}]
}

func (f late) Resident([]byte, uint64, uint64) pageSet { return pageSet{} }

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
