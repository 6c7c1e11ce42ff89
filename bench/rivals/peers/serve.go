package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/golang/groupcache"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"headstart/bench/peerhop/ways"
)

const (
	// totalBytes are all blocks together, mostBlocks how many there are at most.
	totalBytes = 64 << 20
	mostBlocks = 4096
	// groupName is the group of groupcache.
	groupName = "blocks"
	// header carries a block's CRC32C over HTTP.
	header = "X-Crc32c"
)

// blocks are served in more ways than those of bench/peerhop.
type blocks struct{ *ways.Blocks }

// serve is the serving process.
func serve(size int) error {
	dir, err := os.MkdirTemp("", "headstart-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := ways.Open(dir, size, min(mostBlocks, max(4, totalBytes/size)))
	if err != nil {
		return err
	}
	b, h := &blocks{all}, ways.Hello{Addrs: map[string]string{}, Blocks: all.Count()}
	for name, start := range map[string]func(net.Listener) error{
		"hop": func(ln net.Listener) error { return b.ServeHop(ln, nil) },
		"tcp": b.ServeTCP, "kitex": b.ServeKitex, "grpc": b.serveGRPC, "http": b.serveHTTP, "groupcache": b.serveGroup,
	} {
		ln, err := ways.Listen()
		if err != nil {
			return err
		}
		h.Addrs[name] = ln.Addr().String()
		if err := start(ln); err != nil {
			return err
		}
	}
	return ways.Answer(h, ways.UsageOfSelf)
}

// serveGRPC serves a method that takes a number and returns bytes, both messages
// of protobuf's own.
func (b *blocks) serveGRPC(ln net.Listener) error {
	handler := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in wrapperspb.UInt64Value
		if err := decode(&in); err != nil {
			return nil, err
		}
		l, err := b.At(in.Value)
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
		l, err := b.At(index)
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
		l, err := b.At(index)
		if err != nil {
			return err
		}
		return dest.SetBytes(l.Raw())
	}))
	go (&http.Server{Handler: pool}).Serve(ln) // ends with the process
	return nil
}
