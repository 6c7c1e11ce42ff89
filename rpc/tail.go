package rpc

import (
	"io"
	"syscall"
	"unsafe"
)

// tail is the few bytes that follow a payload. They come along with its last
// bytes, in one system call, into memory of their own.
type tail struct {
	memory   [64]byte
	from, to int
	// fill is readv for the runtime's poller: made once, so that no call makes it.
	// parts, got and err are what it works with.
	fill  func(fd uintptr) bool
	parts [2]syscall.Iovec
	got   int
	err   syscall.Errno
}

// bytes returns what has come and has not been read.
func (t *tail) bytes() []byte { return t.memory[t.from:t.to] }

// receive reads from the socket: into b, and what does not fit into the tail,
// which is empty.
func (c *clientConn) receive(b []byte) (int, error) {
	if c.raw == nil || c.secure != nil || len(b) < smallPart {
		return c.Conn.Read(b)
	}
	t := &c.tail
	t.parts[0].Base, t.parts[1].Base = &b[0], &t.memory[0]
	t.parts[0].SetLen(len(b))
	t.parts[1].SetLen(len(t.memory))
	err := c.raw.Read(t.fill)
	t.parts[0].Base = nil
	switch {
	case err != nil:
		return 0, err
	case t.err != 0:
		return 0, t.err
	case t.got == 0:
		return 0, io.EOF
	}
	n := min(t.got, len(b))
	t.from, t.to = 0, t.got-n
	return n, nil
}

// readv reports false when nothing has come yet.
func (t *tail) readv(fd uintptr) bool {
	for {
		n, _, err := syscall.Syscall(syscall.SYS_READV, fd, uintptr(unsafe.Pointer(&t.parts[0])), uintptr(len(t.parts)))
		switch t.got, t.err = int(n), err; err {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			return true
		}
	}
}
