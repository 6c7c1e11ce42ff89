package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/connpool"
	"github.com/cloudwego/kitex/pkg/remote/trans/gonet"
	"github.com/cloudwego/kitex/transport"

	"headstart/engine/block"
	"headstart/pools"
	"headstart/rpc"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/rpc/kitex_gen/headstart/peer"
)

// callTimeout is the deadline of every call, as nodes have one.
const callTimeout = time.Second

// way is one way to fetch blocks from a serving process.
type way struct {
	// worker returns what one worker of a run fetches a block by; the block's
	// bytes have been checked when it returns.
	worker func() (fetch func(index uint64) error, err error)
	close  func()
}

// dial returns the way of that name to where h says that blocks of the given
// size are served.
func dial(name string, h hello, size int) (*way, error) {
	addr := h.Addrs[name]
	switch name {
	case "hop":
		return dialHop(addr, size, h.Blocks, nil)
	case "hop-tls":
		return dialHop(addr, size, h.Blocks, hopTLS(h.Dir))
	case "tcp":
		return dialTCP(size, func() (net.Conn, error) { return net.Dial("tcp", addr) }), nil
	case "tls":
		secure, err := bareTLS(h.Dir)
		return dialTCP(size, func() (net.Conn, error) { return tls.Dial("tcp", addr, secure) }), err
	case "kitex-netpoll":
		return dialStock(addr, size)
	case "kitex-gonet":
		return dialStock(addr, size,
			client.WithTransHandlerFactory(gonet.NewCliTransHandlerFactory()), client.WithDialer(gonet.NewDialer()))
	}
	return nil, fmt.Errorf("there is no way %q", name)
}

func dialHop(addr string, size int, blocks uint64, secure *rpc.TLS) (*way, error) {
	to, err := parse(addr)
	if err != nil {
		return nil, err
	}
	buffers, err := pools.NewBuffers(pools.BuffersOptions{Name: "blocks", BlockSize: size})
	if err != nil {
		return nil, err
	}
	c, err := rpc.NewClient(rpc.ClientOptions{Identity: identity("client"), Alloc: buffers.Get, TLS: secure})
	if err != nil {
		return nil, err
	}
	fetch := block.Fetch{
		Object: theObject(), Meta: block.Meta{Size: int64(blocks) * int64(size), Version: block.Immutable, ETag: "etag"},
		BlockSize: int64(size), Route: block.TabletRoute(1), QueryID: "q",
	}
	worker := func() (func(uint64) error, error) {
		return func(index uint64) error {
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			f := fetch
			f.Run = block.NewRun(index, 1)
			return drain(c.FetchFrom(ctx, to, &f))
		}, nil
	}
	return &way{worker, func() { c.Close() }}, nil
}

// drain reads a stream of one block to its end.
func drain(s block.Stream, err error) error {
	if err != nil {
		return err
	}
	p, err := s.Next()
	if err != nil {
		return err
	}
	if p.Status != block.StatusData {
		return fmt.Errorf("block %d: status %d", p.Index, p.Status)
	}
	p.Buf.Release()
	if _, err := s.Next(); err != io.EOF {
		return fmt.Errorf("behind the block: %w", err)
	}
	return nil
}

func parse(addr string) (block.Addr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return block.Addr{}, err
	}
	n, err := strconv.Atoi(port)
	return block.Addr{Host: host, Port: n}, err
}

func dialTCP(size int, connect func() (net.Conn, error)) *way {
	var conns []net.Conn
	worker := func() (func(uint64) error, error) {
		c, err := connect()
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
		var ask, head [8]byte
		data := make([]byte, size)
		return func(index uint64) error {
			binary.BigEndian.PutUint64(ask[:], index)
			if _, err := c.Write(ask[:]); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return err
			}
			n := int(binary.BigEndian.Uint32(head[:]))
			if n > size {
				return fmt.Errorf("a block of %d bytes", n)
			}
			if _, err := io.ReadFull(c, data[:n]); err != nil {
				return err
			}
			if block.Checksum(data[:n]) != binary.BigEndian.Uint32(head[4:]) {
				return block.ErrCorrupt
			}
			return nil
		}, nil
	}
	return &way{worker, func() {
		for _, c := range conns {
			c.Close()
		}
	}}
}

// dialStock is Kitex as it comes: TTHeader, a pool of long connections, a
// time-out.
func dialStock(addr string, size int, options ...client.Option) (*way, error) {
	c, err := peer.NewClient("Peer", append(options,
		client.WithHostPorts(addr),
		client.WithTransportProtocol(transport.TTHeader),
		client.WithLongConnection(connpool.IdleConfig{MaxIdlePerAddress: 64, MaxIdleGlobal: 64, MaxIdleTimeout: time.Minute}),
		client.WithRPCTimeout(callTimeout))...)
	if err != nil {
		return nil, err
	}
	base := &headstart.Base{Version: rpc.Version, ClusterId: cluster, NodeId: "client"}
	o := theObject()
	worker := func() (func(uint64) error, error) {
		return func(index uint64) error {
			r, err := c.FetchBlocks(context.Background(), &headstart.FetchRequest{
				Base:    base,
				Object:  &headstart.Object{Store: o.Store, Bucket: o.Bucket, Key: o.Key},
				Version: string(block.Immutable), BlockSize: int64(size),
				Ranges: []*headstart.Range{{First: int64(index), Count: 1}},
				Route:  &headstart.Route{Kind: 1, Id: 1},
			})
			if err != nil {
				return err
			}
			if len(r.Blocks) != 1 || block.Checksum(r.Payload) != uint32(r.Blocks[0].Crc32c) {
				return block.ErrCorrupt
			}
			return nil
		}, nil
	}
	return &way{worker, func() {}}, nil
}
