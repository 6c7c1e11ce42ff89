package s3

import (
	"net"
	"syscall"
	"unsafe"
)

// msgMore is MSG_MORE, which package syscall lacks.
const msgMore = 0x8000

// outgoing writes two pieces of memory to a socket in one system call. It is
// sendmsg(2) because writev has no flags, and neither has package net.
type outgoing struct {
	raw syscall.RawConn // nil where there is no socket
	// step is sendmsg for the runtime's poller: made once, so that no call makes it.
	// The rest is what it works with.
	step  func(fd uintptr) bool
	msg   syscall.Msghdr
	parts [2]syscall.Iovec
	flags int
	sent  int
	err   syscall.Errno
}

// send writes head and body. It returns how many bytes of both were written, all
// unless there is an error.
func (o *outgoing) send(c net.Conn, head, body []byte, more bool) (int, error) {
	if o.raw == nil {
		bufs := net.Buffers{head, body}
		n, err := bufs.WriteTo(c)
		return int(n), err
	}
	o.sent, o.err, o.flags = 0, 0, syscall.MSG_NOSIGNAL
	if more {
		o.flags |= msgMore
	}
	for i, p := range [...][]byte{head, body} {
		o.parts[i].Base = unsafe.SliceData(p)
		o.parts[i].SetLen(len(p))
	}
	err := o.raw.Write(o.step)
	o.parts[0].Base, o.parts[1].Base, o.msg.Iov = nil, nil, nil
	if err == nil && o.err != 0 {
		err = o.err
	}
	return o.sent, err
}

// sendmsg reports false when the socket has no room.
func (o *outgoing) sendmsg(fd uintptr) bool {
	for {
		first := 0
		for first < len(o.parts) && o.parts[first].Len == 0 {
			first++
		}
		if first == len(o.parts) {
			return true
		}
		o.msg.Iov, o.msg.Iovlen = &o.parts[first], uint64(len(o.parts)-first)
		n, _, err := syscall.Syscall(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&o.msg)), uintptr(o.flags))
		switch err {
		case 0:
			o.took(int(n))
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			o.err = err
			return true
		}
	}
}

// took moves on behind n bytes.
func (o *outgoing) took(n int) {
	o.sent += n
	for i := range o.parts {
		left := unsafe.Slice(o.parts[i].Base, o.parts[i].Len)
		k := min(n, len(left))
		o.parts[i].Base = unsafe.SliceData(left[k:])
		o.parts[i].SetLen(len(left) - k)
		n -= k
	}
}
