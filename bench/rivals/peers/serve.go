package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/cloudwego/kitex/server"
	"github.com/golang/groupcache"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

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

const (
	cluster = "bench"
	token   = "a token of the usual length, more or less"
	// totalBytes are all blocks together, mostBlocks how many there are at most.
	totalBytes = 64 << 20
	mostBlocks = 4096
	// groupName is the group of groupcache.
	groupName = "blocks"
	// header carries a block's CRC32C over HTTP.
	header = "X-Crc32c"
	// headBytes is what plain TCP sends before a block. The checksum takes four of
	// them, but the kernel copies bytes that do not begin at a multiple of a cache
	// line at half the speed: with four bytes this was no floor.
	headBytes = 64
)

func theObject() block.Object { return block.Object{Store: "s3", Bucket: "bench", Key: "one/object"} }

func identity(name string) *rpc.Identity {
	return rpc.NewIdentity(block.Node{ID: name, GroupID: "bench", Location: "here"}, cluster, token)
}

// blocks are what is served: leases of all blocks, kept for as long as the process
// lives, so that nobody has to know when a reply is out.
type blocks struct {
	cache  *blockcache.Cache
	size   int
	leases []block.Lease
}

// serve is the serving process.
func serve(size int) error {
	dir, err := os.MkdirTemp("", "headstart-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &blocks{size: size}
	b.cache, err = blockcache.Open(blockcache.Options{
		BlockSize: int64(size), WriteQueueBytes: 2 * totalBytes, Logger: slog.New(slog.DiscardHandler),
		Paths: []blockcache.Path{{Dir: dir, TotalBytes: 4 * totalBytes, NormalPercent: 97, TTLPercent: 1, IndexPercent: 1, DisposablePercent: 1}},
	})
	if err != nil {
		return err
	}
	if err := b.fill(min(mostBlocks, max(4, totalBytes/size))); err != nil {
		return err
	}
	h := hello{Addrs: map[string]string{}, Blocks: uint64(len(b.leases))}
	for name, start := range map[string]func(net.Listener) error{
		"hop": b.serveHop, "tcp": b.serveTCP, "kitex": b.serveKitex, "grpc": b.serveGRPC, "http": b.serveHTTP, "groupcache": b.serveGroup,
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		h.Addrs[name] = ln.Addr().String()
		if err := start(ln); err != nil {
			return err
		}
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(h); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := out.Encode(turns.ProcessorTime()); err != nil {
			return err
		}
	}
	return nil
}

func (b *blocks) fill(count int) error {
	meta := block.Meta{Size: int64(count) * int64(b.size), Version: block.Immutable, ETag: "etag"}
	base := block.BaseID(theObject(), meta.Version)
	random := rand.NewChaCha8([32]byte{1})
	for i := range uint64(count) {
		buf := block.NewBuf(make([]byte, b.size), nil)
		_, _ = random.Read(buf.Bytes()) // never fails
		buf.Seal()
		if !b.cache.Offer(&blockcache.Entry{Object: theObject(), Meta: meta, ID: base.At(i)}, buf) {
			return fmt.Errorf("the cache refuses block %d", i)
		}
		buf.Release()
		if i%64 == 63 {
			_ = b.cache.Flush(context.Background())
		}
	}
	if err := b.cache.Flush(context.Background()); err != nil {
		return err
	}
	for i := range uint64(count) {
		l, ok := b.cache.Peek(base.At(i))
		if !ok {
			return fmt.Errorf("block %d is not in the cache", i)
		}
		b.leases = append(b.leases, l)
	}
	return nil
}

// at returns a block that a caller asks for.
func (b *blocks) at(index uint64) (*block.Lease, error) {
	if index >= uint64(len(b.leases)) {
		return nil, errors.New("there is no such block")
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

// serveHop serves what a BE serves: admission, cache, leases, all of it.
func (b *blocks) serveHop(ln net.Listener) error {
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
	s, err := rpc.NewServer(rpc.ServerOptions{Listener: ln, Identity: identity("server")}, serving)
	if err != nil {
		return err
	}
	go s.Serve() // ends with the process
	return nil
}

// serveTCP answers each 8 byte block number with the block's CRC32C and its bytes,
// in one writev from the mapping.
func (b *blocks) serveTCP(ln net.Listener) error {
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

func (b *blocks) answerTCP(c net.Conn) {
	defer c.Close()
	var ask [8]byte
	var head [headBytes]byte
	for {
		if _, err := io.ReadFull(c, ask[:]); err != nil {
			return
		}
		l, err := b.at(binary.BigEndian.Uint64(ask[:]))
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
	*blocks
	base *headstart.Base
}

// FetchBlocks implements the service.
func (s *stock) FetchBlocks(_ context.Context, r *headstart.FetchRequest) (*headstart.FetchReply, error) {
	index := r.Ranges[0].First
	l, err := s.at(uint64(index))
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

// serveKitex: netpoll wants a listener of its own making, so it takes the address
// over.
func (b *blocks) serveKitex(ln net.Listener) error {
	ln.Close()
	handler := &stock{b, &headstart.Base{Version: rpc.Version, ClusterId: cluster, NodeId: "server"}}
	s := peer.NewServer(handler, server.WithServiceAddr(ln.Addr()), server.WithExitSignal(func() <-chan error { return nil }))
	go s.Run() // ends with the process
	return nil
}

// serveGRPC serves a method that takes a number and returns bytes, both messages
// of protobuf's own.
func (b *blocks) serveGRPC(ln net.Listener) error {
	handler := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in wrapperspb.UInt64Value
		if err := decode(&in); err != nil {
			return nil, err
		}
		l, err := b.at(in.Value)
		if err != nil {
			return nil, err
		}
		return wrapperspb.Bytes(l.Raw()), nil
	}
	s := grpc.NewServer(grpc.MaxSendMsgSize(32 << 20))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "bench.Blocks", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Fetch", Handler: handler}},
	}, b)
	go s.Serve(ln) // ends with the process
	return nil
}

func (b *blocks) serveHTTP(ln net.Listener) error {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		index, err := strconv.ParseUint(r.URL.Path[1:], 10, 64)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		l, err := b.at(index)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(l.Len()))
		w.Header().Set(header, strconv.FormatUint(uint64(l.CRC()), 16))
		_, _ = w.Write(l.Raw()) // the caller is gone
	})
	go (&http.Server{Handler: handler}).Serve(ln) // ends with the process
	return nil
}

// serveGroup is a peer of groupcache that owns all keys. It keeps nothing itself:
// its getter has the blocks at hand.
func (b *blocks) serveGroup(ln net.Listener) error {
	pool := groupcache.NewHTTPPoolOpts("http://"+ln.Addr().String(), nil)
	groupcache.NewGroup(groupName, 0, groupcache.GetterFunc(func(_ context.Context, key string, dest groupcache.Sink) error {
		index, err := strconv.ParseUint(key, 10, 64)
		if err != nil {
			return err
		}
		l, err := b.at(index)
		if err != nil {
			return err
		}
		return dest.SetBytes(l.Raw())
	}))
	go (&http.Server{Handler: pool}).Serve(ln) // ends with the process
	return nil
}
