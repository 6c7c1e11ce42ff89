//go:build race

package blockcache

// arena is the bytes that leases lend. The race detector is blind to mapped
// memory, so its builds keep them on the heap.
type arena struct{ heap []byte }

func newArena(_ file, size int64) (arena, error) { return arena{make([]byte, size)}, nil }

func (a *arena) bytes(off int64, n int) []byte { return a.heap[off : off+int64(n) : off+int64(n)] }

// wrote tells of bytes that were written to the file, or read and found right.
func (a *arena) wrote(off int64, p []byte) { copy(a.heap[off:], p) }

// resident leaves all to the file: the heap can't tell what a disk holds.
func (a *arena) resident([]byte) bool { return false }

func (a *arena) copy(dst, lent []byte) (n int, whole bool, err error) {
	return copy(dst, lent), false, nil
}

func (a *arena) close() error { return nil }
