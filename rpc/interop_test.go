package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/gopkg/protocol/thrift"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/remote/trans/gonet"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/rpc/kitex_gen/headstart/peer"
)

// securely dials for generated code, which knows nothing of TLS.
type securely struct{ config *tls.Config }

// DialTimeout implements remote.Dialer.
func (s securely) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, s.config)
	if err != nil {
		return nil, err
	}
	return buffered{c, bufiox.NewDefaultReader(c), bufiox.NewDefaultWriter(c)}, nil
}

// buffered is what Kitex's gonet transport works with.
type buffered struct {
	net.Conn
	r *bufiox.DefaultReader
	w *bufiox.DefaultWriter
}

func (b buffered) Reader() *bufiox.DefaultReader { return b.r }
func (b buffered) Writer() *bufiox.DefaultWriter { return b.w }

// clientOptions are those of clients that generated code makes: plain and secure
// say where they find their server.
func clientOptions(plain, secure block.Addr, config *tls.Config) map[string][]client.Option {
	return map[string][]client.Option{
		"netpoll": {client.WithHostPorts(plain.String())},
		"gonet": {
			client.WithHostPorts(plain.String()),
			client.WithTransHandlerFactory(gonet.NewCliTransHandlerFactory()),
			client.WithDialer(gonet.NewDialer()),
		},
		"gonet within TLS": {
			client.WithHostPorts(secure.String()),
			client.WithTransHandlerFactory(gonet.NewCliTransHandlerFactory()),
			client.WithDialer(securely{config}),
		},
	}
}

// A client that knows nothing but the IDL: generated code, Kitex's own codec,
// both of its transports, plain and within TLS.
func TestAGeneratedClientIsServed(t *testing.T) {
	const size = 5*testBlock + 100
	reader := serving(size)
	reader.serve = func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		reader.give(f, size, reply)
		reply.Answers[0].Lease.Release()
		reply.Answers[0].Status = block.StatusFilling
	}
	reader.stat = func(block.Object) (block.Meta, error) { return block.Meta{Size: size, Version: "v1"}, nil }
	ca := newAuthority(t, "ca")
	_, addr := startServer(t, ServerOptions{ReadToken: func() string { return "token" }}, reader)
	_, secure := startServer(t, ServerOptions{
		ReadToken: func() string { return "token" }, TLS: startTLS(t, ca.sign(t, t.TempDir(), nil)),
	}, reader)
	config, err := startTLS(t, ca.sign(t, t.TempDir(), nil)).config()
	if err != nil {
		t.Fatal(err)
	}
	base := identity("client", "c1", "secret").now.Load().base(request)
	object := &headstart.Object{Store: "s3", Bucket: "b", Key: "a"}
	for name, options := range clientOptions(addr, secure, config) {
		options = append(options, client.WithTransportProtocol(transport.Framed))
		c, err := peer.NewClient("Peer", options...)
		if err != nil {
			t.Fatal(err)
		}
		fetched, err := c.FetchBlocks(inTime(t), &headstart.FetchRequest{
			Base: base, Object: object, Version: "v1", Size: size, BlockSize: testBlock,
			Ranges: []*headstart.Range{{First: 2, Count: 2}, {First: 5, Count: 1}},
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := append(content("a", 3, testBlock), content("a", 5, 100)...)
		if !bytes.Equal(fetched.Payload, want) || len(fetched.Blocks) != 3 || fetched.Failure != nil {
			t.Errorf("%s: %d bytes, blocks %v, %v", name, len(fetched.Payload), fetched.Blocks, fetched.Failure)
		}
		for i, b := range fetched.Blocks {
			want := []headstart.Block{
				{Index: 2, Status: 3},
				{Index: 3, Status: 1, Length: testBlock, Crc32c: int32(block.Checksum(content("a", 3, testBlock)))},
				{Index: 5, Status: 1, Length: 100, Crc32c: int32(block.Checksum(content("a", 5, 100)))},
			}[i]
			if *b != want {
				t.Errorf("%s: %v, want %v", name, *b, want)
			}
		}
		read, err := c.Read(inTime(t), &headstart.ReadRequest{ReadToken: "token", Object: object, Offset: 10, Size: -1})
		if err != nil || !bytes.Equal(read.Payload, wholeObject("a", size)[10:]) || read.Failure != nil {
			t.Errorf("%s: Read: %d bytes, %v", name, len(read.GetPayload()), err)
		}
		stat, err := c.Stat(inTime(t), &headstart.StatRequest{Base: base, Object: object})
		if err != nil || stat.Meta.GetSize() != size {
			t.Errorf("%s: Stat: %v, %v", name, stat, err)
		}
		cancel, err := c.Cancel(inTime(t), &headstart.CancelRequest{Base: base, CallId: 5})
		if err != nil || cancel.Found || cancel.Failure != nil {
			t.Errorf("%s: Cancel: %v, %v", name, cancel, err)
		}
		refused, err := c.FetchBlocks(inTime(t), &headstart.FetchRequest{Object: object})
		if err != nil || refused.Failure.GetCode() != failRefused {
			t.Errorf("%s: a stranger gets %v, %v", name, refused, err)
		}
	}
	eventually(t, "all leases are back", reader.balanced)
}

// generated serves what a server of generated code would: it knows the IDL.
type generated struct {
	id   *Identity
	size int64
}

func (g *generated) FetchBlocks(_ context.Context, r *headstart.FetchRequest) (*headstart.FetchReply, error) {
	rep := &headstart.FetchReply{
		Base: g.id.now.Load().base(reply),
		Meta: &headstart.Meta{Size: g.size, Version: r.Version, ContentType: r.Object.Key},
	}
	for _, span := range r.Ranges {
		for i := span.First; i < span.First+int64(span.Count); i++ {
			b := content(r.Object.Key, uint64(i), block.Geometry(r.BlockSize).Len(uint64(i), g.size))
			rep.Blocks = append(rep.Blocks, &headstart.Block{Index: i, Status: 1, Length: int32(len(b)), Crc32c: int32(block.Checksum(b))})
			rep.Payload = append(rep.Payload, b...)
		}
	}
	return rep, nil
}

func (g *generated) Cancel(context.Context, *headstart.CancelRequest) (*headstart.CancelReply, error) {
	return &headstart.CancelReply{Base: g.id.now.Load().base(reply)}, nil
}

func (g *generated) Stat(context.Context, *headstart.StatRequest) (*headstart.StatReply, error) {
	return &headstart.StatReply{Base: g.id.now.Load().base(reply), Meta: &headstart.Meta{Size: g.size}}, nil
}

func (g *generated) Read(_ context.Context, r *headstart.ReadRequest) (*headstart.ReadReply, error) {
	return &headstart.ReadReply{
		Base: g.id.now.Load().base(reply), Meta: &headstart.Meta{Size: g.size}, Source: 3,
		Payload: wholeObject(r.Object.Key, g.size)[r.Offset : r.Offset+r.Size],
	}, nil
}

func TestAGeneratedServerIsUnderstood(t *testing.T) {
	t.Run("netpoll", func(t *testing.T) { understand(t, listen(t), nil) })
	t.Run("gonet within TLS", func(t *testing.T) {
		ca := newAuthority(t, "ca")
		config, err := startTLS(t, ca.sign(t, t.TempDir(), nil)).config()
		if err != nil {
			t.Fatal(err)
		}
		understand(t, tls.NewListener(listen(t), config), startTLS(t, ca.sign(t, t.TempDir(), nil)),
			server.WithTransServerFactory(gonet.NewTransServerFactory()),
			server.WithTransHandlerFactory(gonet.NewSvrTransHandlerFactory()))
	})
}

// understand serves with generated code at ln and lets our client ask.
func understand(t *testing.T, ln net.Listener, secure *TLS, options ...server.Option) {
	const size = 5*testBlock + 100
	g := &generated{identity("server", "c1", "secret"), size}
	s := peer.NewServer(g, append(options, server.WithListener(ln), server.WithExitSignal(func() <-chan error { return nil }))...)
	served := make(chan error, 1)
	go func() { served <- s.Run() }() // ends with Stop
	addr := addrOf(ln)
	var m memory
	c := startClient(t, ClientOptions{TLS: secure}, &m)
	defer func() {
		c.Close() // Kitex waits for its connections
		s.Stop()
		<-served
	}()
	st, err := c.FetchFrom(inTime(t), addr, fetchOf("a", size, block.Run{First: 2, Want: 0b1011}))
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	err = drain(st, func(p block.Piece) {
		got = append(got, p.Index)
		if !bytes.Equal(p.Buf.Bytes(), content("a", p.Index, block.Geometry(testBlock).Len(p.Index, size))) {
			t.Errorf("block %d: wrong bytes", p.Index)
		}
	})
	if err != io.EOF || !equal(got, []uint64{2, 3, 5}) || st.Meta().ContentType != "a" {
		t.Errorf("blocks %v, %+v, %v", got, st.Meta(), err)
	}
	if meta, err := c.Stat(inTime(t), addr, block.Object{Bucket: "b", Key: "a"}, ""); err != nil || meta.Size != size {
		t.Errorf("Stat: %+v, %v", meta, err)
	}
	dst := make([]byte, testBlock)
	read, err := c.Read(inTime(t), addr, &block.Read{Object: block.Object{Bucket: "b", Key: "a"}, Offset: 9, Size: -1}, dst)
	if err != nil || read.N != len(dst) || read.Source != block.SourceStore || !bytes.Equal(dst, wholeObject("a", size)[9:9+testBlock]) {
		t.Errorf("Read: %+v, %v", read, err)
	}
	eventually(t, "all memory is back", m.balanced)
}

// unknown returns fields that no IDL of ours has, of every type.
func unknown(b []byte, from uint16) []byte {
	b = appendBool(b, from, true)
	b = append(appendField(b, thrift.BYTE, from+1), 7)
	b = append(appendField(b, thrift.I16, from+2), 0, 7)
	b = append(appendField(b, thrift.DOUBLE, from+3), make([]byte, 8)...)
	b = appendString(b, from+4, "text")
	b = appendStop(appendI64(appendField(b, thrift.STRUCT, from+5), 1, 9))
	b = append(appendList(b, from+6, thrift.BYTE, 3), 1, 2, 3)
	b = append(appendField(b, thrift.SET, from+7), byte(thrift.I32), 0, 0, 0, 1, 0, 0, 0, 9)
	b = append(appendField(b, thrift.MAP, from+8), byte(thrift.BYTE), byte(thrift.BOOL), 0, 0, 0, 2, 1, 1, 2, 0)
	return b
}

// later is the Base of a node of the next version.
func later(id *Identity, d direction) []byte {
	b := id.now.Load().base(d)
	b.Version = Version + 1
	raw := make([]byte, b.BLength())
	b.FastWrite(raw)
	return appendStop(unknown(raw[:len(raw)-1], 200))
}

func TestS89_FieldsOfTheNextVersionAreSkipped(t *testing.T) {
	reader := whole(testBlock)
	calls := make(chan block.Fetch, 1)
	give := reader.serve
	reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
		calls <- *f
		give(ctx, n, f, reply)
	}
	_, addr := startServer(t, ServerOptions{}, reader)
	f := fetchOf("a", testBlock, block.NewRun(0, 1))
	request := appendFetch(nil, later(identity("client", "c1", "secret"), request), f, 1, time.Second)
	request = appendStop(appendStop(unknown(request[:len(request)-2], 200))) // within the request
	c := dialRaw(t, addr)
	c.Write(message(thriftCall, methodFetch, 5, request))
	m, err := readMessage(c)
	if err != nil || m.seq != 5 {
		t.Fatal(m, err)
	}
	if got := <-calls; got != *f {
		t.Errorf("server saw %+v, sent %+v", got, f)
	}

	id := identity("server", "c1", "secret")
	peer := startRawPeer(t, func(c net.Conn, m received) {
		data := content("a", 0, testBlock)
		body := appendField(nil, thrift.STRUCT, 0)
		body = append(appendField(body, thrift.STRUCT, repBase), later(id, reply)...)
		body = appendMeta(unknown(body, 200), repMeta, &block.Meta{Size: testBlock, Version: "v1"})
		body = appendList(appendStop(unknown(body[:len(body)-1], 200)), repBlocks, thrift.STRUCT, 1)
		body = appendI32(appendI32(body, 2, 1), 3, testBlock)
		body = appendStop(unknown(appendI32(body, 4, int32(block.Checksum(data))), 200))
		body = append(appendField(body, thrift.STRING, repPayload), u32(testBlock)...)
		c.Write(message(thriftReply, m.method, m.seq, appendStop(appendStop(unknown(append(body, data...), 200)))))
	})
	client := startClient(t, ClientOptions{}, &memory{})
	fetchOne(t, client, peer)
	fetchOne(t, client, peer)
	if m := client.Metrics(); m.Dials != 1 || m.Bytes != 2*testBlock {
		t.Errorf("%+v", m)
	}
}
