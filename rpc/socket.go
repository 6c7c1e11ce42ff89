package rpc

import (
	"io/fs"
	"syscall"
)

// socketState is what a look at a socket finds.
type socketState int

const (
	// socketQuiet: open, and nothing has come.
	socketQuiet socketState = iota
	// socketReadable: something has come.
	socketReadable
	// socketDead: the other side has closed it, or it has failed.
	socketDead
)

// peekSocket looks at a socket without taking anything from it or waiting.
func peekSocket(raw syscall.RawConn) socketState {
	state := socketDead
	err := raw.Read(func(fd uintptr) bool {
		state = peekFD(fd)
		return true
	})
	if err != nil {
		return socketDead
	}
	return state
}

// awaitSocket waits until something has come or the other side has gone. It
// returns socketQuiet when the read deadline has ended the wait.
func awaitSocket(raw syscall.RawConn) socketState {
	state := socketQuiet
	err := raw.Read(func(fd uintptr) bool {
		state = peekFD(fd)
		return state != socketQuiet
	})
	if err != nil {
		return socketQuiet
	}
	return state
}

func peekFD(fd uintptr) socketState {
	var b [1]byte
	for {
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return socketQuiet
		case err != nil || n == 0:
			return socketDead
		}
		return socketReadable
	}
}

// inode tells a file from another one at the same path.
func inode(info fs.FileInfo) any {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return nil
}
