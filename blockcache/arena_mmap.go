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
	known  residency
}

func newArena(f file, size int64) (arena, error) {
	b, err := f.Map(size)
	return arena{f, b, newResidency(size)}, err
}

func (a *arena) bytes(off int64, n int) []byte { return a.mapped[off : off+int64(n) : off+int64(n)] }

// wrote tells of bytes that were written to the file, or read and found right:
// a mapping sees them by itself.
func (a *arena) wrote(int64, []byte) {}

// resident reports whether n bytes from off on are in memory, one at least. It
// asks the kernel once an epoch: a page that leaves memory between costs a wait,
// not more.
func (a *arena) resident(off int64, n int, epoch uint32) bool {
	first, last := uint64(off)/pageSize, uint64(off+int64(n)-1)/pageSize
	return a.known.has(first, last, epoch) || a.ask(first, last, epoch)
}

func (a *arena) ask(first, last uint64, epoch uint32) bool {
	return a.known.ask(first, last, uint64(len(a.mapped)+pageSize-1)/pageSize, epoch, func(first, last uint64) pageSet {
		return a.file.Resident(a.mapped, first, last)
	})
}

// copy copies bytes from off on, one at least, that are in memory. A fault all the
// same, because the file was cut short, is an error and not the end of the process.
// whole tells that the file can't have been cut: behind a cut all is zero, so a byte
// that is not, looked at last, vouches for those before it. Where the last one copied
// is zero, the one at witness may, if it is known to be in memory.
func (a *arena) copy(dst []byte, off, witness int64, epoch uint32) (n int, whole bool, err error) {
	old, faultless := debug.SetPanicOnFault(true), false
	defer func() {
		debug.SetPanicOnFault(old)
		if faultless {
			return
		}
		r := recover()
		if _, ok := r.(interface{ Addr() uintptr }); !ok {
			panic(r)
		}
		err = fmt.Errorf("%w: %v", errCut, r)
	}()
	n = copy(dst, a.mapped[off:])
	whole = a.mapped[off+int64(n)-1] != 0 ||
		a.known.has(uint64(witness)/pageSize, uint64(witness)/pageSize, epoch) && a.mapped[witness] != 0
	faultless = true
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
