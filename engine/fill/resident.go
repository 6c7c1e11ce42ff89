package fill

import (
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"headstart/engine/block"
)

// madvPopulateRead makes the kernel read pages now, and say so if it can't;
// errHardwarePoison is what it says of memory that is broken.
const (
	madvPopulateRead  = 22
	errHardwarePoison = syscall.Errno(133)
)

// resident brings the bytes of a lease into memory, as far as they are not
// there. What a disk takes is so taken here, within the pool of peer reads, and
// not later under the system call that sends them, of which any number may be
// under way. It fails when the bytes are gone, and does nothing on kernels
// older than 5.14.
func resident(l *block.Lease) error {
	b := l.Raw()
	if len(b) == 0 {
		return nil
	}
	page := uintptr(os.Getpagesize())
	first := uintptr(unsafe.Pointer(&b[0]))
	start := first &^ (page - 1)
	_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, start, first-start+uintptr(len(b)), madvPopulateRead)
	runtime.KeepAlive(b)
	switch errno {
	case syscall.EFAULT, syscall.EIO, errHardwarePoison:
		return errno
	}
	return nil
}

// warm remembers which blocks were made resident a moment ago: most are asked
// for again and again, and to look at each of their pages costs as much as to
// find the block. What it says may be wrong; then a page is read where it is
// sent, or is found to be gone there.
type warm struct {
	// slots have 32 bits of a block's id above the moment in which it was
	// resident. Anyone writes; a reader takes it or leaves it.
	slots [1 << warmBits]atomic.Uint64
}

// warmBits makes room, a quarter of a MiB, for more blocks than are sent in a
// moment: two that share a slot are looked at each time.
const warmBits = 15

// moment is how long a look at a block's pages is good for, in seconds.
const moment = 4

// resident is resident, unless it has just been that.
func (w *warm) resident(id block.ID, l *block.Lease) error {
	h := (id.Lo ^ id.Index) * 0x9E3779B97F4A7C15
	mark := h&^(1<<32-1) | uint64(uint32(time.Now().Unix()/moment))
	slot := &w.slots[h>>(32-warmBits)&(1<<warmBits-1)]
	if slot.Load() == mark {
		return nil
	}
	err := resident(l)
	if err == nil {
		slot.Store(mark)
	}
	return err
}

// lost tells the owner of a lease whose bytes are gone, who can't know: a copy
// meets what the kernel has met.
func lost(l *block.Lease) {
	_, _ = l.CopyAt(make([]byte, l.Len()), 0) // that it fails is the point
	l.Release()
}
