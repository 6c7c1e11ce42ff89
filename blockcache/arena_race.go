//go:build race

package blockcache

import (
	"bytes"
	"sync"
)

// arena is the bytes that leases lend. The race detector is blind to mapped
// memory, so its builds keep them on the heap.
type arena struct {
	heap []byte
	mu   *sync.Mutex
}

func newArena(_ file, size int64) (arena, error) {
	return arena{make([]byte, size), new(sync.Mutex)}, nil
}

func (a *arena) bytes(off int64, n int) []byte { return a.heap[off : off+int64(n) : off+int64(n)] }

// wrote tells of bytes that were written to the file, or read and found right.
// Of many readers that find the same bytes only the first one writes them.
func (a *arena) wrote(off int64, p []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := a.heap[off:][:len(p)]; !bytes.Equal(at, p) {
		copy(at, p)
	}
}

// resident leaves all to the file: the heap can't tell what a disk holds.
func (a *arena) resident(int64, int, uint32) bool { return false }

func (a *arena) copy(dst []byte, off, _ int64, _ uint32) (n int, whole bool, err error) {
	return copy(dst, a.heap[off:]), false, nil
}

// tailOf never knows: the heap can't tell what was cut off.
func (a *arena) tailOf([]byte) uint32 { return 0 }

func (a *arena) close() error { return nil }
