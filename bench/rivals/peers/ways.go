package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/connpool"
	"github.com/cloudwego/kitex/transport"
	"github.com/golang/groupcache"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"headstart/engine/block"
	"headstart/pools"
	"headstart/rpc"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/rpc/kitex_gen/headstart/peer"
)

// callTimeout is the deadline of every call that has one, as nodes' calls do.
const callTimeout = 10 * time.Second

// ways returns all ways to s, ours first.
func (s *serving) ways(size int) ([]way, error) {
	var list []way
	for _, dial := range []func(size int) (way, error){s.hop, s.kitex, s.grpc, s.http, s.group, s.tcp} {
		w, err := dial(size)
		if err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}

// verify compares a block with its checksum.
func verify(data []byte, size int, crc uint32) error {
	if len(data) != size || block.Checksum(data) != crc {
		return block.ErrCorrupt
	}
	return nil
}

func (s *serving) hop(size int) (way, error) {
	to, err := block.ParseAddr(s.hello.Addrs["hop"])
	if err != nil {
		return way{}, err
	}
	buffers, err := pools.NewBuffers(pools.BuffersOptions{Name: "blocks", BlockSize: size})
	if err != nil {
		return way{}, err
	}
	c, err := rpc.NewClient(rpc.ClientOptions{Identity: identity("client"), Alloc: buffers.Get})
	if err != nil {
		return way{}, err
	}
	request := block.Fetch{
		Object: theObject(), Meta: block.Meta{Size: int64(s.hello.Blocks) * int64(size), Version: block.Immutable, ETag: "etag"},
		BlockSize: int64(size), Route: block.TabletRoute(1), QueryID: "q",
	}
	one := func(index uint64, _ []byte) error {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		f := request
		f.Run = block.NewRun(index, 1)
		stream, err := c.FetchFrom(ctx, to, &f)
		if err != nil {
			return err
		}
		p, err := stream.Next() // verified; in a pooled buffer
		if err != nil {
			return err
		}
		if p.Status != block.StatusData {
			return fmt.Errorf("block %d: status %d", index, p.Status)
		}
		p.Buf.Release()
		if _, err := stream.Next(); err != io.EOF {
			return fmt.Errorf("behind block %d: %w", index, err)
		}
		return nil
	}
	return way{
		name: "headstart's hop", config: "as nodes use it: admission, deadline, cancel, proof of the token; writev from the mapping",
		open: func() (fetch, error) { return one, nil },
	}, nil
}

func (s *serving) kitex(size int) (way, error) {
	c, err := peer.NewClient("Peer", client.WithHostPorts(s.hello.Addrs["kitex"]),
		client.WithTransportProtocol(transport.TTHeader),
		client.WithLongConnection(connpool.IdleConfig{MaxIdlePerAddress: 64, MaxIdleGlobal: 64, MaxIdleTimeout: time.Minute}),
		client.WithRPCTimeout(callTimeout))
	if err != nil {
		return way{}, err
	}
	base, o := &headstart.Base{Version: rpc.Version, ClusterId: cluster, NodeId: "client"}, theObject()
	one := func(index uint64, _ []byte) error {
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
		return verify(r.Payload, size, uint32(r.Blocks[0].Crc32c))
	}
	return way{
		name: "stock Kitex", config: "netpoll, TTHeader, long connections, a time-out; generated code of the same IDL",
		why:  "it proves no token, admits everybody and cannot be cancelled on the wire",
		open: func() (fetch, error) { return one, nil },
	}, nil
}

// grpc sends no checksum along: the receiver computes one all the same.
func (s *serving) grpc(size int) (way, error) {
	c, err := grpc.NewClient(s.hello.Addrs["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)),
		grpc.WithInitialWindowSize(16<<20), grpc.WithInitialConnWindowSize(64<<20))
	if err != nil {
		return way{}, err
	}
	one := func(index uint64, _ []byte) error {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		var out wrapperspb.BytesValue
		if err := c.Invoke(ctx, "/bench.Blocks/Fetch", wrapperspb.UInt64(index), &out); err != nil {
			return err
		}
		return verify(out.Value, size, block.Checksum(out.Value))
	}
	return way{
		name: "gRPC-go 1.85", config: "protobuf BytesValue, one connection, windows of 16 and 64 MiB, a deadline",
		why:  "it proves no token and admits everybody",
		open: func() (fetch, error) { return one, nil },
	}, nil
}

func (s *serving) http(size int) (way, error) {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}, Timeout: callTimeout}
	url := "http://" + s.hello.Addrs["http"] + "/"
	one := func(index uint64, dst []byte) error {
		resp, err := c.Get(url + strconv.FormatUint(index, 10))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.ContentLength != int64(size) {
			return errors.New(resp.Status)
		}
		if _, err := io.ReadFull(resp.Body, dst); err != nil {
			return err
		}
		crc, err := strconv.ParseUint(resp.Header.Get(header), 16, 32)
		return errors.Join(err, verify(dst, size, uint32(crc)))
	}
	return way{
		name: "net/http", config: "HTTP/1.1, kept connections, Content-Length, read into the caller's buffer",
		why: "it proves no token and admits everybody; of a large block nearly all is the kernel's copies, and its client takes 3 reads for 1 MiB, " +
			"ours 6 (/proc/PID/io)",
		open: func() (fetch, error) { return one, nil },
	}, nil
}

// group is a groupcache process that keeps nothing, so that each Get is a fetch
// from the peer.
func (s *serving) group(size int) (way, error) {
	pool := groupcache.NewHTTPPoolOpts("http://client", nil)
	pool.Set("http://" + s.hello.Addrs["groupcache"])
	g := groupcache.NewGroup(groupName, 0, groupcache.GetterFunc(func(context.Context, string, groupcache.Sink) error {
		return errors.New("the peer did not answer")
	}))
	one := func(index uint64, dst []byte) error {
		var v groupcache.ByteView
		if err := g.Get(context.Background(), strconv.FormatUint(index, 10), groupcache.ByteViewSink(&v)); err != nil {
			return err
		}
		n := v.Copy(dst)
		return verify(dst[:n], size, block.Checksum(dst[:n]))
	}
	return way{
		name: "groupcache", config: "HTTPPool, the peer owns all keys, no cache on either side; calls for one key at once are one",
		why:  "it proves no token, admits everybody and has no deadline",
		open: func() (fetch, error) { return one, nil },
	}, nil
}

func (s *serving) tcp(size int) (way, error) {
	open := func() (fetch, error) {
		c, err := net.Dial("tcp", s.hello.Addrs["tcp"]) // ends with the process
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
			return verify(dst, size, binary.BigEndian.Uint32(head[:]))
		}, nil
	}
	return way{
		name: "plain TCP", config: "8 bytes to ask, one writev of 64 bytes and the block from the mapping to answer; a connection for each worker",
		why:  "it is the floor: no protocol, deadline, cancel or identity, one goroutine a connection on each side, blocks aligned in the stream",
		open: open,
	}, nil
}
