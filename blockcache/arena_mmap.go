//go:build !race

package blockcache

import "syscall"

// arena is the bytes that leases lend: a read-only mapping of the data file.
// Go code doesn't touch it; system calls do.
type arena struct{ mapped []byte }

func newArena(f file, size int64) (arena, error) {
	b, err := f.Map(size)
	return arena{b}, err
}

func (a *arena) bytes(off int64, n int) []byte { return a.mapped[off : off+int64(n) : off+int64(n)] }

// wrote tells of bytes that were written to the file, or read and found right:
// a mapping sees them by itself.
func (a *arena) wrote(int64, []byte) {}

func (a *arena) close() error { return syscall.Munmap(a.mapped) }
