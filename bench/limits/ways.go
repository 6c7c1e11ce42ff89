package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"headstart/blockcache"
	"headstart/engine/block"
)

const (
	mib = 1 << 20
	// large is more than the processor's caches hold.
	large = 128 * mib
	// aligned is what O_DIRECT wants buffers and offsets to be multiples of.
	aligned = 4096
)

// memory: copies out of the processor's cache and past it, and checksums.
func memory(string) ([]way, func(), error) {
	src, dst, at := make([]byte, large), make([]byte, mib), 0
	next := func() int {
		at = (at + mib) % large
		return at
	}
	for i := range src {
		src[i] = byte(i)
	}
	return []way{
		{name: "memcpy, the same 64 KiB", note: "out of the processor's cache", move: func() (int, error) { return copy(dst[:64<<10], src), nil }},
		{name: "memcpy, 64 KiB of each MiB", note: "of 128 MiB on the heap", move: func() (int, error) { return copy(dst[:64<<10], src[next():]), nil }},
		{name: "memcpy, 1 MiB after the other", note: "of 128 MiB on the heap", move: func() (int, error) { return copy(dst, src[next():]), nil }},
		{name: "CRC32C, 1 MiB after the other", note: "what verifying costs at least", move: func() (int, error) {
			from := next()
			block.Checksum(src[from : from+mib])
			return mib, nil
		}},
	}, nil, nil
}

// cached: blocks of the block cache that are in memory.
func cached(dir string) ([]way, func(), error) {
	const blocks = large / mib
	path := filepath.Join(dir, "cache")
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, nil, err
	}
	c, err := blockcache.Open(blockcache.Options{
		BlockSize: mib, WriteQueueBytes: 2 * blocks * mib, Logger: slog.New(slog.DiscardHandler),
		Paths: []blockcache.Path{{Dir: path, TotalBytes: 4 * blocks * mib}},
	})
	if err != nil {
		return nil, nil, err
	}
	var held []block.Lease
	stop := func() {
		for i := range held {
			held[i].Release()
		}
		_ = c.Close() // its files go away anyway
	}
	o := block.Object{Store: "s3", Bucket: "b", Key: "k"}
	base, random := block.BaseID(o, block.Immutable), rand.NewChaCha8([32]byte{1})
	for i := range uint64(blocks) {
		buf := block.NewBuf(make([]byte, mib), nil)
		_, _ = random.Read(buf.Bytes()) // never fails
		buf.Seal()
		c.Offer(&blockcache.Entry{Object: o, Meta: block.Meta{Size: blocks * mib, Version: block.Immutable}, ID: base.At(i)}, buf)
		buf.Release()
	}
	if err := c.Flush(context.Background()); err != nil {
		return nil, stop, err
	}
	for i := range uint64(blocks) {
		l, ok := c.Get(base.At(i))
		if !ok {
			return nil, stop, fmt.Errorf("block %d is gone", i)
		}
		held = append(held, l)
	}
	dst, at, bareAt := make([]byte, mib), uint64(0), uint64(blocks/2)
	get := func(n int) func() (int, error) {
		return func() (int, error) {
			l, ok := c.Get(base.At(at % blocks))
			if !ok {
				return 0, fmt.Errorf("block %d is gone", at%blocks)
			}
			defer l.Release()
			at++
			return l.CopyAt(dst[:n], 0)
		}
	}
	bare := func(n int) func() (int, error) {
		return func() (int, error) {
			bareAt++
			return copy(dst[:n], held[bareAt%blocks].Raw()), nil
		}
	}
	return []way{
		{name: "block cache, 64 KiB of each block", note: "look-up, pin, guarded copy", move: get(64 << 10), floor: bare(64 << 10)},
		{name: "block cache, block after block", note: "of 1 MiB", move: get(mib), floor: bare(mib)},
	}, stop, nil
}

// network: one connection over loopback, asked for 1 MiB at a time.
func network(string) ([]way, func(), error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	stop := func() { _ = ln.Close() }
	go func() { // ends with the listener
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var ask [1]byte
		for data := make([]byte, mib); ; {
			if _, err := c.Read(ask[:]); err != nil {
				return
			}
			if _, err := c.Write(data); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, stop, err
	}
	dst := make([]byte, mib)
	move := func() (int, error) {
		if _, err := c.Write([]byte{1}); err != nil {
			return 0, err
		}
		return io.ReadFull(c, dst)
	}
	return []way{{name: "loopback TCP, 1 MiB a question", note: "one connection, both ends in this process", move: move}},
		func() { _ = c.Close(); stop() }, nil
}

// disk: the page cache, and what is below it where the file system can go past it.
func disk(dir string) ([]way, func(), error) {
	path := filepath.Join(dir, "file")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	stop := func() { _ = f.Close() }
	dst := alignedBuffer(mib)
	for off := int64(0); off < large; off += mib {
		if _, err := f.WriteAt(dst, off); err != nil {
			return nil, stop, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, stop, err
	}
	mapped, err := syscall.Mmap(int(f.Fd()), 0, large, syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err != nil {
		return nil, stop, err
	}
	stop = func() { _ = syscall.Munmap(mapped); _ = f.Close() }
	at, bareAt := int64(0), large/2
	next := func() int64 {
		at = (at + mib) % large
		return at
	}
	bare := func() (int, error) {
		bareAt = (bareAt + mib) % large
		return copy(dst, mapped[bareAt:]), nil
	}
	ways := []way{
		{name: "pread, 1 MiB after the other", note: "out of the page cache", move: func() (int, error) { return f.ReadAt(dst, next()) }, floor: bare},
		{name: "pwrite, fdatasync every 64 MiB", note: "to the disk", move: func() (int, error) {
			n, err := f.WriteAt(dst, next())
			if at%(64*mib) == 0 {
				err = errors.Join(err, syscall.Fdatasync(int(f.Fd())))
			}
			return n, err
		}},
	}
	direct, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) {
		return ways, stop, nil // a file system without O_DIRECT: its disk is not to be seen
	}
	if err != nil {
		return nil, stop, err
	}
	ways = append(ways, way{
		name: "pread past the page cache", note: "the disk, one request of 1 MiB at a time", move: func() (int, error) { return direct.ReadAt(dst, next()) },
	})
	return ways, func() { _ = direct.Close(); stop() }, nil
}

// alignedBuffer is as O_DIRECT wants it.
func alignedBuffer(n int) []byte {
	b := make([]byte, n+aligned)
	skip := aligned - int(uintptr(unsafe.Pointer(&b[0]))%aligned)
	return b[skip : skip+n]
}
