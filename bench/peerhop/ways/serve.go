// Package ways fetches blocks from another process: by the peer hop as nodes use
// it, by stock Kitex over the same IDL and by plain TCP, all out of the same mapped
// File Cache, all verified by who receives them. bench/peerhop compares these with
// one another, bench/rivals/peers with other programs.
//
// Blocks are leased for as long as the process lives, since a handler of Kitex is
// not told when its reply is out: it is for processes that end.
package ways

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"time"

	"github.com/cloudwego/kitex/pkg/remote/trans/gonet"
	"github.com/cloudwego/kitex/server"

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

// headBytes is what plain TCP sends before a block. The checksum takes four of
// them, but the kernel copies bytes that do not begin at a multiple of a cache line
// at half the speed: with four bytes this was no floor.
const headBytes = 64

// Object holds all blocks of a run.
func Object() block.Object { return block.Object{Store: "s3", Bucket: "bench", Key: "one/object"} }

// Identity is that of a node of the run.
func Identity(name string) *rpc.Identity {
	return rpc.NewIdentity(block.Node{ID: name, GroupID: "bench", Location: "here"}, cluster, token)
}

// Listen listens on a free port of loopback.
func Listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// Blocks are what is served.
type Blocks struct {
	cache  *blockcache.Cache
	size   int
	leases []block.Lease
}

// Open fills a cache in dir with random blocks.
func Open(dir string, size, count int) (*Blocks, error) {
	total := int64(size) * int64(count)
	cache, err := blockcache.Open(blockcache.Options{
		BlockSize: int64(size), WriteQueueBytes: 2 * total, Logger: slog.New(slog.DiscardHandler),
		Paths: []blockcache.Path{{Dir: dir, TotalBytes: 4 * total, NormalPercent: 97, TTLPercent: 1, IndexPercent: 1, DisposablePercent: 1}},
	})
	if err != nil {
		return nil, err
	}
	b := &Blocks{cache: cache, size: size}
	meta := block.Meta{Size: total, Version: block.Immutable, ETag: "etag"}
	base := block.BaseID(Object(), meta.Version)
	random := rand.NewChaCha8([32]byte{1})
	for i := range uint64(count) {
		buf := block.NewBuf(make([]byte, size), nil)
		_, _ = random.Read(buf.Bytes()) // never fails
		buf.Seal()
		if !cache.Offer(&blockcache.Entry{Object: Object(), Meta: meta, ID: base.At(i)}, buf) {
			return nil, fmt.Errorf("the cache refuses block %d of %d", i, count)
		}
		buf.Release()
		if i%64 == 63 || i == uint64(count)-1 {
			if err := cache.Flush(context.Background()); err != nil {
				return nil, err
			}
		}
	}
	for i := range uint64(count) {
		l, ok := cache.Peek(base.At(i))
		if !ok {
			return nil, fmt.Errorf("block %d is not in the cache", i)
		}
		b.leases = append(b.leases, l)
	}
	return b, nil
}

// Count is how many blocks there are.
func (b *Blocks) Count() uint64 { return uint64(len(b.leases)) }

// At returns a block that a caller asks for.
func (b *Blocks) At(index uint64) (*block.Lease, error) {
	if index >= uint64(len(b.leases)) {
		return nil, fmt.Errorf("there is no block %d, only %d", index, len(b.leases))
	}
	return &b.leases[index], nil
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

// ServeHop serves what a BE serves: admission, cache, leases, all of it; secure is
// nil without TLS.
func (b *Blocks) ServeHop(ln net.Listener, secure *rpc.TLS) error {
	queue, err := pools.NewQueue(pools.QueueOptions{
		Name: "peer fetch", Workers: pools.PeerFetchThreads(-1, runtime.NumCPU()),
		MaxQueue: pools.PeerFetchQueueSize(-1, runtime.NumCPU()), Timeout: time.Second,
	})
	if err != nil {
		return err
	}
	e, err := engine.New(engine.Options{
		Cache: b.cache, Origin: nowhere{}, Settings: engine.NewSettings(), Profiles: profile.New(1), BlockSize: int64(b.size),
	})
	if err != nil {
		return err
	}
	serving := fill.NewServer(fill.Options{
		Engine: e, Cache: b.cache, Settings: &fill.Settings{}, Queue: queue, Fills: pools.NewShares(32),
	})
	s, err := rpc.NewServer(rpc.ServerOptions{Listener: ln, Identity: Identity("server"), TLS: secure}, serving)
	if err != nil {
		return err
	}
	go s.Serve() // ends with the process
	return nil
}

// ServeTCP answers each 8 byte block number with the block's CRC32C and its bytes,
// in one writev from the mapping unless ln is one of TLS.
func (b *Blocks) ServeTCP(ln net.Listener) error {
	go func() { // ends with the process
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go b.answerTCP(c) // ends with its connection
		}
	}()
	return nil
}

func (b *Blocks) answerTCP(c net.Conn) {
	defer c.Close()
	var ask [8]byte
	var head [headBytes]byte
	for {
		if _, err := io.ReadFull(c, ask[:]); err != nil {
			return
		}
		l, err := b.At(binary.BigEndian.Uint64(ask[:]))
		if err != nil {
			return
		}
		binary.BigEndian.PutUint32(head[:], l.CRC())
		parts := net.Buffers{head[:], l.Raw()}
		if _, err := parts.WriteTo(c); err != nil {
			return
		}
	}
}

// stock is the service of the IDL with nothing but generated code.
type stock struct {
	*Blocks
	base *headstart.Base
}

// FetchBlocks implements the service.
func (s *stock) FetchBlocks(_ context.Context, r *headstart.FetchRequest) (*headstart.FetchReply, error) {
	index := r.Ranges[0].First
	l, err := s.At(uint64(index))
	if err != nil {
		return nil, err
	}
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

// ServeKitex serves by stock Kitex on netpoll, which wants a listener of its own
// making: it takes the address over.
func (b *Blocks) ServeKitex(ln net.Listener) error {
	ln.Close()
	return b.serveStock(server.WithServiceAddr(ln.Addr()))
}

// ServeKitexGonet does so on Go's own network.
func (b *Blocks) ServeKitexGonet(ln net.Listener) error {
	return b.serveStock(server.WithListener(ln),
		server.WithTransServerFactory(gonet.NewTransServerFactory()),
		server.WithTransHandlerFactory(gonet.NewSvrTransHandlerFactory()))
}

func (b *Blocks) serveStock(options ...server.Option) error {
	handler := &stock{b, &headstart.Base{Version: rpc.Version, ClusterId: cluster, NodeId: "server"}}
	options = append(options, server.WithExitSignal(func() <-chan error { return nil }))
	go peer.NewServer(handler, options...).Run() // ends with the process
	return nil
}
