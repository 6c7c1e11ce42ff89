package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/golang/groupcache"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"headstart/bench/peerhop/ways"
	"headstart/engine/block"
)

// allWays returns all ways to where h says, ours first.
func allWays(h ways.Hello, size int) (list []way, err error) {
	for _, dial := range []func(ways.Hello, int) (way, error){overHop, overKitex, overGRPC, overHTTP, overGroup, overTCP} {
		w, err := dial(h, size)
		if err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}

func overHop(h ways.Hello, size int) (way, error) {
	open, err := ways.Hop(h.Addrs["hop"], size, h.Blocks, nil)
	return way{
		name: "headstart's hop", config: "as nodes use it: admission, deadline, cancel, proof of the token; writev from the mapping",
		open: open,
	}, err
}

func overKitex(h ways.Hello, size int) (way, error) {
	open, err := ways.Kitex(h.Addrs["kitex"], size)
	return way{
		name: "stock Kitex", config: "netpoll, TTHeader, long connections, a time-out; generated code of the same IDL",
		why:  "it proves no token, admits everybody and cannot be cancelled on the wire",
		open: open,
	}, err
}

func overTCP(h ways.Hello, size int) (way, error) {
	return way{
		name: "plain TCP", config: "8 bytes to ask, one writev of 64 bytes and the block from the mapping to answer; a connection for each worker",
		why:  "it is the floor: no protocol, deadline, cancel or identity, one goroutine a connection on each side, blocks aligned in the stream",
		open: ways.TCP(size, func() (net.Conn, error) { return net.Dial("tcp", h.Addrs["tcp"]) }),
	}, nil
}

// overGRPC sends no checksum along: the receiver computes one all the same.
func overGRPC(h ways.Hello, size int) (way, error) {
	c, err := grpc.NewClient(h.Addrs["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)),
		grpc.WithInitialWindowSize(16<<20), grpc.WithInitialConnWindowSize(64<<20))
	if err != nil {
		return way{}, err
	}
	one := func(index uint64, _ []byte) error {
		ctx, cancel := context.WithTimeout(context.Background(), ways.CallTimeout)
		defer cancel()
		var out wrapperspb.BytesValue
		if err := c.Invoke(ctx, "/bench.Blocks/Fetch", wrapperspb.UInt64(index), &out); err != nil {
			return err
		}
		return ways.Verify(out.Value, size, block.Checksum(out.Value))
	}
	return way{
		name: "gRPC-go 1.83", config: "protobuf BytesValue, one connection, windows of 16 and 64 MiB, a deadline",
		why:  "it proves no token and admits everybody",
		open: func() (ways.Fetch, error) { return one, nil },
	}, nil
}

func overHTTP(h ways.Hello, size int) (way, error) {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}, Timeout: ways.CallTimeout}
	url := "http://" + h.Addrs["http"] + "/"
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
		return errors.Join(err, ways.Verify(dst, size, uint32(crc)))
	}
	return way{
		name: "net/http", config: "HTTP/1.1, kept connections, Content-Length, read into the caller's buffer",
		why: "it proves no token and admits everybody; of a large block nearly all is the kernel's copies, and its client takes 3 reads for 1 MiB, " +
			"ours 6 (/proc/PID/io)",
		open: func() (ways.Fetch, error) { return one, nil },
	}, nil
}

// overGroup is a groupcache process that keeps nothing, so that each Get is a fetch
// from the peer.
func overGroup(h ways.Hello, size int) (way, error) {
	pool := groupcache.NewHTTPPoolOpts("http://client", nil)
	pool.Set("http://" + h.Addrs["groupcache"])
	g := groupcache.NewGroup(groupName, 0, groupcache.GetterFunc(func(context.Context, string, groupcache.Sink) error {
		return errors.New("the peer did not answer")
	}))
	one := func(index uint64, dst []byte) error {
		var v groupcache.ByteView
		if err := g.Get(context.Background(), strconv.FormatUint(index, 10), groupcache.ByteViewSink(&v)); err != nil {
			return err
		}
		n := v.Copy(dst)
		return ways.Verify(dst[:n], size, block.Checksum(dst[:n]))
	}
	return way{
		name: "groupcache", config: "HTTPPool, the peer owns all keys, no cache on either side; calls for one key at once are one",
		why:  "it proves no token, admits everybody and has no deadline",
		open: func() (ways.Fetch, error) { return one, nil },
	}, nil
}
