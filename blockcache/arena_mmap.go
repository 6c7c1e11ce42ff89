//go:build !race

package blockcache

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"syscall"
)

// arena is the bytes that leases lend: a read-only mapping of the data file.
// Go code touches it only where the pages are in memory; system calls do.
type arena struct {
	file   file
	mapped []byte
}

func newArena(f file, size int64) (arena, error) {
	b, err := f.Map(size)
	return arena{f, b}, err
}

func (a *arena) bytes(off int64, n int) []byte { return a.mapped[off : off+int64(n) : off+int64(n)] }

// wrote tells of bytes that were written to the file, or read and found right:
// a mapping sees them by itself.
func (a *arena) wrote(int64, []byte) {}

// resident reports whether lent bytes are in memory.
func (a *arena) resident(lent []byte) bool {
	for len(lent) > 0 {
		n := min(len(lent), maxResident-pageSize)
		if !a.file.Resident(lent[:n]) {
			return false
		}
		lent = lent[n:]
	}
	return true
}

// copy copies lent bytes, from off on, that are in memory. A fault all the same,
// because the file was cut short, is an error and not the end of the process.
// whole tells that the file can't have been cut: behind a cut all is zero, so a
// byte that is not, looked at last, vouches for those before it. Where the last
// one copied is zero, the block's last one that is not does, if tail says where
// that is.
func (a *arena) copy(dst, lent []byte, off int, tail uint32) (n int, whole bool, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(interface{ Addr() uintptr }); !ok {
				panic(r)
			}
			err = fmt.Errorf("%w: %v", errCut, r)
		}
	}()
	n = copy(dst, lent[off:])
	switch {
	case n > 0 && lent[off+n-1] != 0, tail == 1:
		whole = true
	case tail > 1:
		whole = lent[tail-2] != 0
	}
	return n, whole, nil
}

// tailOf returns what a segment keeps of lent bytes that are in memory, as they
// are now; 0 when they are not there.
func (a *arena) tailOf(lent []byte) (tail uint32) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(interface{ Addr() uintptr }); !ok {
				panic(r)
			}
			tail = 0
		}
	}()
	var zeros [512]byte // as much at once, because a byte at a time takes longer than the copy
	n := len(lent)
	for n >= len(zeros) && bytes.Equal(lent[n-len(zeros):n], zeros[:]) {
		n -= len(zeros)
	}
	for n > 0 && lent[n-1] == 0 {
		n--
	}
	return uint32(n) + 1
}

func (a *arena) close() error { return syscall.Munmap(a.mapped) }
