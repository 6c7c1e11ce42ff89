package block

import (
	"sync/atomic"
)

// Memory lends bytes out. A token names one loan of one Memory.
type Memory interface {
	// CopyLease copies from the lent bytes, from off on, into dst and returns
	// how many it copied. Memory that may fault (a mapped file) turns the fault
	// into an error.
	CopyLease(token uint64, lent []byte, off int, dst []byte) (int, error)
	// ReleaseLease ends the loan.
	ReleaseLease(token uint64)
}

// Lease is borrowed bytes of one block. It has one holder at a time; passing
// it on passes the duty to call Release, once. The bytes don't change and
// stay mapped until then.
type Lease struct {
	lent  []byte
	mem   Memory
	token uint64
	crc   uint32
}

// NewLease is for the owners of memory: the cache and Buf.
func NewLease(mem Memory, token uint64, lent []byte, crc uint32) Lease {
	return Lease{lent: lent, mem: mem, token: token, crc: crc}
}

// Lend is NewLease into an empty lease that is there already. A lease is too
// large for registers, and a copy of one just made waits for its parts.
func (l *Lease) Lend(mem Memory, token uint64, lent []byte, crc uint32) {
	l.lent, l.mem, l.token, l.crc = lent, mem, token, crc
}

// Len returns the length of the block in bytes.
func (l *Lease) Len() int { return len(l.lent) }

// CRC returns the CRC32C of the block, made where the store was read.
func (l *Lease) CRC() uint32 { return l.crc }

// Valid reports whether the lease holds a loan.
func (l *Lease) Valid() bool { return l.mem != nil }

// Raw returns the lent bytes themselves, for system calls only: they may be
// pages of a file that are not in memory, or no longer in the file. A fault
// is an error (EFAULT) to the kernel but may be death to Go code, which uses
// CopyAt.
func (l *Lease) Raw() []byte { return l.lent }

// Resident reports whether the lent bytes are in memory: a system call that
// takes Raw does not wait for a disk. It asks memory that can tell.
func (l *Lease) Resident() bool {
	m, ok := l.mem.(interface {
		LeaseResident(token uint64, lent []byte) bool
	})
	return ok && m.LeaseResident(l.token, l.lent)
}

// CopyAt copies bytes of the block from off on into dst. It returns how many
// it copied: less than len(dst) only at the end of the block or with an error.
func (l *Lease) CopyAt(dst []byte, off int) (int, error) {
	if off >= len(l.lent) {
		return 0, nil
	}
	return l.mem.CopyLease(l.token, l.lent, off, dst)
}

// Release gives the bytes back. The lease is empty afterwards; releasing an
// empty lease does nothing.
func (l *Lease) Release() {
	if mem := l.mem; mem != nil {
		l.lent, l.mem = nil, nil
		mem.ReleaseLease(l.token)
	}
}

// Buf is one block in memory of its own, counted by reference: what a fetch
// delivers before, or instead of, the cache. It is written by its first
// holder alone and never changes once it has been passed on.
type Buf struct {
	data []byte
	crc  uint32
	// refs counts holders. It starts at 1; the holder who brings it to 0 gives
	// the memory back, so nobody may Retain without holding a reference.
	refs atomic.Int32
	free func(*Buf)
}

// NewBuf wraps data, whose memory goes to free (which may be nil) when the
// last holder lets go. The caller holds the one reference.
func NewBuf(data []byte, free func(*Buf)) *Buf {
	b := &Buf{data: data, free: free}
	b.refs.Store(1)
	return b
}

// Reset makes a buffer that came back to its pool ready for its next first
// holder, with n bytes of its capacity.
func (b *Buf) Reset(n int) {
	b.data, b.crc = b.data[:n], 0
	b.refs.Store(1)
}

// Bytes returns the block. Only the first holder may write to it, before it
// passes the buffer on.
func (b *Buf) Bytes() []byte { return b.data }

// Cap returns how many bytes Reset can give the buffer.
func (b *Buf) Cap() int { return cap(b.data) }

// Truncate shortens the block to its first n bytes; for the first holder.
func (b *Buf) Truncate(n int) { b.data = b.data[:n] }

// Seal computes and sets the checksum: where the store is read, nowhere else.
func (b *Buf) Seal() { b.crc = Checksum(b.data) }

// Verify takes over the checksum that came with the bytes and reports whether
// the bytes are those it was made of.
func (b *Buf) Verify(crc uint32) bool {
	b.crc = crc
	return Checksum(b.data) == crc
}

// SetCRC takes over the checksum of bytes that the first holder has verified as
// they came.
func (b *Buf) SetCRC(crc uint32) { b.crc = crc }

// CRC returns the checksum that Seal, Verify or SetCRC has set.
func (b *Buf) CRC() uint32 { return b.crc }

// Retain adds a holder and returns b.
func (b *Buf) Retain() *Buf {
	if b.refs.Add(1) < 2 {
		panic("block: Retain of a buffer that nobody holds")
	}
	return b
}

// Release drops the caller's reference.
func (b *Buf) Release() {
	switch n := b.refs.Add(-1); {
	case n < 0:
		panic("block: Release of a buffer that nobody holds")
	case n == 0 && b.free != nil:
		b.free(b)
	}
}

// Lease turns the caller's reference into a lease.
func (b *Buf) Lease() Lease { return NewLease(b, 0, b.data, b.crc) }

// CopyLease implements Memory.
func (b *Buf) CopyLease(_ uint64, lent []byte, off int, dst []byte) (int, error) {
	return copy(dst, lent[off:]), nil
}

// ReleaseLease implements Memory.
func (b *Buf) ReleaseLease(uint64) { b.Release() }

// LeaseResident says that the bytes are in memory, for Lease.Resident.
func (b *Buf) LeaseResident(uint64, []byte) bool { return true }
