package ways

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
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

// CallTimeout is the deadline of every call that has one, as nodes' calls do.
const CallTimeout = 10 * time.Second

// Fetch brings one block, verified: into dst, or into a buffer of its own. One
// goroutine uses it.
type Fetch func(index uint64, dst []byte) error

// Way is one way to fetch blocks from a serving process; what it opens ends with
// this process.
type Way func() (Fetch, error)

// always is a way whose workers have all in common.
func always(f Fetch) Way { return func() (Fetch, error) { return f, nil } }

// Verify compares a block with its checksum.
func Verify(data []byte, size int, crc uint32) error {
	if len(data) != size || block.Checksum(data) != crc {
		return block.ErrCorrupt
	}
	return nil
}

// Hop is the peer hop to where so many blocks of one size are served; secure is nil
// without TLS.
func Hop(addr string, size int, blocks uint64, secure *rpc.TLS) (Way, error) {
	to, err := block.ParseAddr(addr)
	if err != nil {
		return nil, err
	}
	buffers, err := pools.NewBuffers(pools.BuffersOptions{Name: "blocks", BlockSize: size})
	if err != nil {
		return nil, err
	}
	c, err := rpc.NewClient(rpc.ClientOptions{Identity: Identity("client"), Alloc: buffers.Get, TLS: secure})
	if err != nil {
		return nil, err
	}
	request := block.Fetch{
		Object: Object(), Meta: block.Meta{Size: int64(blocks) * int64(size), Version: block.Immutable, ETag: "etag"},
		BlockSize: int64(size), Route: block.TabletRoute(1), QueryID: "q",
	}
	return always(func(index uint64, _ []byte) error {
		ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
		defer cancel()
		f := request
		f.Run = block.NewRun(index, 1)
		return drain(c.FetchFrom(ctx, to, &f))
	}), nil
}

// drain reads a stream of one block to its end.
func drain(s block.Stream, err error) error {
	if err != nil {
		return err
	}
	p, err := s.Next() // verified; in a pooled buffer
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

// TCP asks over connections that connect makes, one for each worker.
func TCP(size int, connect func() (net.Conn, error)) Way {
	return func() (Fetch, error) {
		c, err := connect() // ends with the process
		if err != nil {
			return nil, err
		}
		var ask [8]byte
		var head [headBytes]byte
		return func(index uint64, dst []byte) error {
			binary.BigEndian.PutUint64(ask[:], index)
			if _, err := c.Write(ask[:]); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, dst); err != nil {
				return err
			}
			return Verify(dst, size, binary.BigEndian.Uint32(head[:]))
		}, nil
	}
}

// Kitex is Kitex as it comes: netpoll, TTHeader, a pool of long connections, a
// time-out.
func Kitex(addr string, size int) (Way, error) { return dialStock(addr, size) }

// KitexGonet is the same on Go's own network.
func KitexGonet(addr string, size int) (Way, error) {
	return dialStock(addr, size, client.WithTransHandlerFactory(gonet.NewCliTransHandlerFactory()), client.WithDialer(gonet.NewDialer()))
}

func dialStock(addr string, size int, options ...client.Option) (Way, error) {
	c, err := peer.NewClient("Peer", append(options,
		client.WithHostPorts(addr),
		client.WithTransportProtocol(transport.TTHeader),
		client.WithLongConnection(connpool.IdleConfig{MaxIdlePerAddress: 64, MaxIdleGlobal: 64, MaxIdleTimeout: time.Minute}),
		client.WithRPCTimeout(CallTimeout))...)
	if err != nil {
		return nil, err
	}
	base, o := &headstart.Base{Version: rpc.Version, ClusterId: cluster, NodeId: "client"}, Object()
	return always(func(index uint64, _ []byte) error {
		r, err := c.FetchBlocks(context.Background(), &headstart.FetchRequest{
			Base: base, Object: &headstart.Object{Store: o.Store, Bucket: o.Bucket, Key: o.Key},
			Version: string(block.Immutable), BlockSize: int64(size),
			Ranges: []*headstart.Range{{First: int64(index), Count: 1}}, Route: &headstart.Route{Kind: 1, Id: 1},
		})
		if err != nil {
			return err
		}
		if len(r.Blocks) != 1 {
			return block.ErrCorrupt
		}
		return Verify(r.Payload, size, uint32(r.Blocks[0].Crc32c))
	}), nil
}
