package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
)

// loan lends the same bytes to everybody and counts nothing.
type loan struct{}

func (loan) CopyLease(_ uint64, lent []byte, off int, dst []byte) (int, error) {
	return copy(dst, lent[off:]), nil
}

func (loan) ReleaseLease(uint64) {}

// stack keeps buffers of one size for their next holders.
type stack struct {
	mu   sync.Mutex
	free []*block.Buf
}

func (s *stack) get(n int) (*block.Buf, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.free) - 1
	if last < 0 {
		return block.NewBuf(make([]byte, n), s.put), nil
	}
	b := s.free[last]
	s.free = s.free[:last]
	b.Reset(n)
	return b, nil
}

func (s *stack) put(b *block.Buf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, b)
}

// BenchmarkPeerHop fetches one block a call, 4 calls in flight, client and
// server in one process: for allocations, and for a first look. What counts is
// bench/peerhop, with two processes.
func BenchmarkPeerHop(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		data := content("a", 0, size)
		crc := block.Checksum(data)
		b.Run(fmt.Sprintf("hop/%dK", size>>10), func(b *testing.B) {
			benchmarkHop(b, data, crc)
		})
		b.Run(fmt.Sprintf("tcp/%dK", size>>10), func(b *testing.B) {
			benchmarkTCP(b, data, crc)
		})
	}
}

func benchmarkHop(b *testing.B, data []byte, crc uint32) {
	reader := &fakeReader{serve: func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		reply.Meta = block.Meta{Size: int64(len(data)), Version: "v1", ETag: "v1"}
		reply.Answers = append(reply.Answers, block.Answer{
			Status: block.StatusData, Lease: block.NewLease(loan{}, 0, data, crc),
		})
	}}
	_, addr := startServer(b, ServerOptions{}, reader)
	var buffers stack
	client := startClient(b, ClientOptions{Alloc: buffers.get}, nil)
	f := fetchOf("a", int64(len(data)), block.NewRun(0, 1))
	f.BlockSize = int64(len(data))
	benchmark(b, len(data), func() func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			s, err := client.FetchFrom(ctx, addr, f)
			if err != nil {
				return err
			}
			if err := drain(s, nil); err != io.EOF {
				return err
			}
			return nil
		}
	})
}

// benchmarkTCP is the least that can be done: a byte to ask, one writev to
// answer.
func benchmarkTCP(b *testing.B, data []byte, crc uint32) {
	ln := listen(b)
	defer ln.Close()
	head := binary.BigEndian.AppendUint32(nil, crc)
	go func() { // ends with the listener
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // ends with its connection
				defer c.Close()
				var ask [1]byte
				for {
					if _, err := c.Read(ask[:]); err != nil {
						return
					}
					parts := net.Buffers{head, data}
					if _, err := parts.WriteTo(c); err != nil {
						return
					}
				}
			}()
		}
	}()
	benchmark(b, len(data), func() func() error {
		c := dialRaw(b, addrOf(ln))
		got := make([]byte, 4+len(data))
		return func() error {
			if _, err := c.Write([]byte{1}); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, got); err != nil {
				return err
			}
			if block.Checksum(got[4:]) != binary.BigEndian.Uint32(got) {
				return block.ErrCorrupt
			}
			return nil
		}
	})
}

func benchmark(b *testing.B, size int, worker func() func() error) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.SetParallelism(2) // 4 workers on 2 processors
	b.RunParallel(func(pb *testing.PB) {
		call := worker()
		for pb.Next() {
			if err := call(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
