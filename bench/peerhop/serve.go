package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/cloudwego/kitex/pkg/remote/trans/gonet"
	"github.com/cloudwego/kitex/server"

	"headstart/bench/turns"
	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/fill"
	"headstart/engine/profile"
	"headstart/pools"
	"headstart/rpc"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/rpc/kitex_gen/headstart/peer"
)

// cluster and token are what both processes know.
const (
	cluster = "bench"
	token   = "a token of the usual length, more or less"
)

// theObject holds all blocks of a run.
func theObject() block.Object { return block.Object{Store: "s3", Bucket: "bench", Key: "one/object"} }

func identity(name string) *rpc.Identity {
	return rpc.NewIdentity(block.Node{ID: name, GroupID: "bench", Location: "here"}, cluster, token)
}

// hello is what a serving process says when it is ready: where each way is
// served. usage is its answer to each line that it reads afterwards.
type hello struct {
	Addrs  map[string]string
	Blocks uint64
	// Dir has the certificate of both sides.
	Dir string
}

type usage struct {
	// CPU is the processor time of the process so far, Allocated the bytes that
	// its heap has handed out so far.
	CPU       time.Duration
	Allocated uint64
	// Longest is the longest wait of a call that was served since the last answer
	// in an overload, Late how long the queue kept one at most that it should have
	// rejected, Timers how late the process's timers were, but for one in a hundred.
	Longest, Late, Timers time.Duration
}

func usageOfSelf() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{CPU: turns.ProcessorTime(), Allocated: m.TotalAlloc}
}

// serve is the serving process. It ends with its standard input.
func serve(args []string) error {
	flags := flag.NewFlagSet("peerhop serve", flag.ContinueOnError)
	size := flags.Int("block", 1<<20, "block size in bytes")
	total := flags.Int64("bytes", 256<<20, "bytes of all blocks together")
	profile := flags.String("profile", "", "file for a CPU profile")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rpc.LogKitex(slog.New(slog.DiscardHandler))
	dir, err := os.MkdirTemp("", "peerhop")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	blocks := uint64(*total / int64(*size))
	cache, err := blockcache.Open(blockcache.Options{
		BlockSize: int64(*size), WriteQueueBytes: *total, Logger: slog.New(slog.DiscardHandler),
		Paths: []blockcache.Path{{Dir: dir, TotalBytes: 4 * *total, NormalPercent: 97, TTLPercent: 1, IndexPercent: 1, DisposablePercent: 1}},
	})
	if err != nil {
		return err
	}
	defer cache.Close()
	if err := fillCache(cache, *size, blocks); err != nil {
		return err
	}
	h := hello{Addrs: map[string]string{}, Blocks: blocks, Dir: dir}
	if err := serveAll(h, cache, *size); err != nil {
		return err
	}
	if *profile != "" {
		stop, err := startProfile(*profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	return answer(h, usageOfSelf)
}

// answer says hello and then what has been used, until nobody asks any more.
func answer(h hello, used func() usage) error {
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(h); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := out.Encode(used()); err != nil {
			return err
		}
	}
	return nil
}

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// serveAll serves the blocks in all ways, and notes where.
func serveAll(h hello, cache *blockcache.Cache, size int) error {
	if err := writeCerts(h.Dir); err != nil {
		return err
	}
	secure, err := bareTLS(h.Dir)
	if err != nil {
		return err
	}
	for way, start := range map[string]func(net.Listener) error{
		"hop":           func(ln net.Listener) error { return serveHop(cache, size, ln, nil) },
		"hop-tls":       func(ln net.Listener) error { return serveHop(cache, size, ln, hopTLS(h.Dir)) },
		"tcp":           func(ln net.Listener) error { return serveTCP(cache, ln) },
		"tls":           func(ln net.Listener) error { return serveTCP(cache, tls.NewListener(ln, secure)) },
		"kitex-netpoll": func(ln net.Listener) error { return serveNetpoll(cache, ln) },
		"kitex-gonet":   func(ln net.Listener) error { return serveGonet(cache, ln) },
	} {
		ln, err := listen()
		if err != nil {
			return err
		}
		h.Addrs[way] = ln.Addr().String()
		if err := start(ln); err != nil {
			return err
		}
	}
	return nil
}

// fillCache puts random blocks into the cache and waits until they are in its
// file.
func fillCache(cache *blockcache.Cache, size int, blocks uint64) error {
	meta := block.Meta{Size: int64(blocks) * int64(size), Version: block.Immutable, ETag: "etag"}
	base := block.BaseID(theObject(), meta.Version)
	random := rand.NewChaCha8([32]byte{1})
	for i := range blocks {
		buf := block.NewBuf(make([]byte, size), nil)
		random.Read(buf.Bytes())
		buf.Seal()
		if !cache.Offer(&blockcache.Entry{Object: theObject(), Meta: meta, ID: base.At(i)}, buf) {
			return fmt.Errorf("the cache refuses block %d of %d", i, blocks)
		}
		buf.Release()
		if i%64 == 63 {
			if err := cache.Flush(context.Background()); err != nil {
				return err
			}
		}
	}
	return cache.Flush(context.Background())
}

func lease(cache *blockcache.Cache, index uint64) (block.Lease, error) {
	l, ok := cache.Peek(block.BaseID(theObject(), block.Immutable).At(index))
	if !ok {
		return l, fmt.Errorf("block %d is not in the cache", index)
	}
	return l, nil
}

// nowhere is the object storage of a node that has all it is asked for.
type nowhere struct{}

var errNowhere = errors.New("there is no object storage here")

// Fetch implements block.Store.
func (nowhere) Fetch(context.Context, *block.Fetch) (block.Stream, error) { return nil, errNowhere }

// Head implements engine.Origin.
func (nowhere) Head(context.Context, block.Object) (block.Meta, error) {
	return block.Meta{}, errNowhere
}

// serveHop serves what a BE serves: admission, cache, leases, all of it.
func serveHop(cache *blockcache.Cache, size int, ln net.Listener, secure *rpc.TLS) error {
	queue, err := pools.NewQueue(pools.QueueOptions{
		Name: "peer fetch", Workers: pools.PeerFetchThreads(-1, runtime.NumCPU()),
		MaxQueue: pools.PeerFetchQueueSize(-1, runtime.NumCPU()), Timeout: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	e, err := engine.New(engine.Options{
		Cache: cache, Origin: nowhere{}, Settings: engine.NewSettings(), Profiles: profile.New(1), BlockSize: int64(size),
	})
	if err != nil {
		return err
	}
	serving := fill.NewServer(fill.Options{
		Engine: e, Cache: cache, Settings: &fill.Settings{}, Queue: queue, Fills: pools.NewShares(32),
	})
	s, err := rpc.NewServer(rpc.ServerOptions{Listener: ln, Identity: identity("server"), TLS: secure}, serving)
	if err != nil {
		return err
	}
	go s.Serve() // ends with the process
	return nil
}

// serveTCP answers each 8 byte block number with the block's length, its
// CRC32C and its bytes, in one writev from the mapping unless ln is one of TLS.
func serveTCP(cache *blockcache.Cache, ln net.Listener) error {
	go func() { // ends with the process
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go answerTCP(cache, c) // ends with its connection
		}
	}()
	return nil
}

func answerTCP(cache *blockcache.Cache, c net.Conn) {
	defer c.Close()
	var ask, head [8]byte
	for {
		if _, err := io.ReadFull(c, ask[:]); err != nil {
			return
		}
		l, err := lease(cache, binary.BigEndian.Uint64(ask[:]))
		if err != nil {
			return
		}
		binary.BigEndian.PutUint32(head[:], uint32(l.Len()))
		binary.BigEndian.PutUint32(head[4:], l.CRC())
		parts := net.Buffers{head[:], l.Raw()}
		_, err = parts.WriteTo(c)
		l.Release()
		if err != nil {
			return
		}
	}
}

// stock serves the same blocks with nothing but generated code. Its leases are
// kept: a handler is not told when its reply is out.
type stock struct {
	base   *headstart.Base
	leases []block.Lease
}

// FetchBlocks implements the service.
func (s *stock) FetchBlocks(_ context.Context, r *headstart.FetchRequest) (*headstart.FetchReply, error) {
	index := r.Ranges[0].First
	l := &s.leases[index]
	return &headstart.FetchReply{
		Base: s.base, Blocks: []*headstart.Block{{Index: index, Status: 1, Length: int32(l.Len()), Crc32c: int32(l.CRC())}},
		Payload: l.Raw(),
	}, nil
}

// Cancel implements the service.
func (*stock) Cancel(context.Context, *headstart.CancelRequest) (*headstart.CancelReply, error) {
	return headstart.NewCancelReply(), nil
}

// Stat implements the service.
func (*stock) Stat(context.Context, *headstart.StatRequest) (*headstart.StatReply, error) {
	return headstart.NewStatReply(), nil
}

// Read implements the service.
func (*stock) Read(context.Context, *headstart.ReadRequest) (*headstart.ReadReply, error) {
	return headstart.NewReadReply(), nil
}

func serveNetpoll(cache *blockcache.Cache, ln net.Listener) error {
	// netpoll wants a listener of its own making: it takes the address over.
	ln.Close()
	return serveStock(cache, server.WithServiceAddr(ln.Addr()))
}

func serveGonet(cache *blockcache.Cache, ln net.Listener) error {
	return serveStock(cache, server.WithListener(ln),
		server.WithTransServerFactory(gonet.NewTransServerFactory()),
		server.WithTransHandlerFactory(gonet.NewSvrTransHandlerFactory()))
}

func serveStock(cache *blockcache.Cache, options ...server.Option) error {
	handler := &stock{base: &headstart.Base{Version: rpc.Version, ClusterId: cluster, NodeId: "server"}}
	for l, err := lease(cache, 0); err == nil; l, err = lease(cache, uint64(len(handler.leases))) {
		handler.leases = append(handler.leases, l)
	}
	options = append(options, server.WithExitSignal(func() <-chan error { return nil }))
	go peer.NewServer(handler, options...).Run() // ends with the process
	return nil
}
