package rpc

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/gopkg/protocol/thrift"

	"headstart/engine/block"
)

// allocated runs f and returns how many bytes were allocated meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// lies are the lengths that nobody should believe.
func lies() []uint32 { return []uint32{1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 30, maxRequest + 1} }

func u32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// lyingRequests announce more than they bring; each is all that is sent.
func lyingRequests() map[string][]byte {
	base := identity("client", "c1", "secret").now.Load().request
	open := slices.Clip(append(appendField(appendField(nil, thrift.STRUCT, 1), thrift.STRUCT, reqBase), base...))
	all := map[string][]byte{
		"a frame that never ends": append(u32(maxRequest), message(thriftCall, methodFetch, 1, open)[4:]...),
		"half a frame length":     {0, 0},
		"an empty frame":          u32(0),
		"a reply":                 message(thriftReply, methodFetch, 1, ended(open, nil)),
		"a method without end":    append(append(u32(100), u32(thriftCall)...), u32(1<<31-1)...),
		"no such method":          message(thriftCall, "Nothing", 1, []byte{0}),
	}
	for _, n := range lies() {
		name := string(u32(n))
		all["frame "+name] = append(u32(n), message(thriftCall, methodFetch, 1, open)[4:]...)
		for _, method := range []string{methodFetch, methodCancel, methodStat, methodRead} {
			for _, field := range []uint16{reqVersion, reqETag, 3, 100} {
				all[fmt.Sprint(method, " string ", field, name)] = message(thriftCall, method, 1,
					ended(append(appendField(open, thrift.STRING, field), u32(n)...), nil))
			}
			for _, kind := range []thrift.TType{thrift.LIST, thrift.SET} {
				b := append(appendField(open, kind, reqRanges), byte(thrift.STRUCT))
				all[fmt.Sprint(method, " list ", kind, name)] = message(thriftCall, method, 1, ended(append(b, u32(n)...), nil))
			}
			b := append(appendField(open, thrift.MAP, 99), byte(thrift.BYTE), byte(thrift.BYTE))
			all[method+" map "+name] = message(thriftCall, method, 1, ended(append(b, u32(n)...), nil))
		}
	}
	for _, count := range []int32{0, -1, block.MaxRun + 1, 1<<31 - 1} {
		b := appendI64(open, reqBlockSize, testBlock)
		b = appendI64(appendList(b, reqRanges, thrift.STRUCT, 1), 1, 0)
		all[fmt.Sprint("a range of ", count)] = message(thriftCall, methodFetch, 1, ended(appendStop(appendI32(b, 2, count)), nil))
	}
	deep := appendField(nil, thrift.STRUCT, 1)
	for range 10000 {
		deep = appendField(deep, thrift.STRUCT, 1)
	}
	all["nested without end"] = message(thriftCall, methodStat, 1, deep)
	return all
}

func TestRPC04_SE03_AServerBelievesNoLength(t *testing.T) {
	reader := whole(testBlock)
	server, addr := startServer(t, ServerOptions{ReceiveTimeout: 100 * time.Millisecond}, reader)
	requests := lyingRequests()
	before := countCosts(t)
	used := allocated(func() {
		for name, sent := range requests {
			c := dialRaw(t, addr)
			c.Write(sent)
			c.SetReadDeadline(time.Now().Add(patience))
			// What comes back is nothing, or an exception; then the end.
			if got, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("%q: %d bytes, then %v", name, len(got), err)
			}
			c.Close()
		}
	})
	if used > 32<<20 {
		t.Errorf("%d lies cost %d bytes", len(requests), used)
	}
	if reader.loans() != 0 {
		t.Errorf("%d blocks were lent to liars", reader.loans())
	}
	eventually(t, "all connections are closed", func() bool { return server.Metrics().Conns == 0 })
	t.Logf("%d lies cost %.1f MiB while they were told", len(requests), mib(used))
	before.backTo(t)
	fetchOne(t, startClient(t, ClientOptions{}, &memory{}), addr)
}

func fetchOne(t testing.TB, client *Client, addr block.Addr) {
	t.Helper()
	if err := fetchAgain(t, client, addr); err != io.EOF {
		t.Errorf("a call afterwards: %v", err)
	}
}

// fetchAgain makes one call; a good one ends with io.EOF.
func fetchAgain(t testing.TB, client *Client, addr block.Addr) error {
	s, err := client.FetchFrom(inTime(t), addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
	if err == nil {
		err = drain(s, nil)
	}
	return err
}

func TestRPC04_WhatIsMissingIsNoPanic(t *testing.T) {
	reader := serving(testBlock)
	reader.stat = func(block.Object) (block.Meta, error) { return block.Meta{}, nil }
	_, addr := startServer(t, ServerOptions{}, reader)
	directory := startDirectory(t, identity("server", "c1", "secret"), newFakeDirectory("c1"))
	base := identity("client", "c1", "secret").now.Load().request
	for _, method := range []string{methodFetch, methodCancel, methodStat, methodRead, methodHeartbeat, methodLookup} {
		for name, body := range map[string][]byte{
			"no request":    {0},
			"empty request": append(appendField(nil, thrift.STRUCT, 1), 0, 0),
			"base only":     ended(append(appendField(appendField(nil, thrift.STRUCT, 1), thrift.STRUCT, reqBase), base...), nil),
		} {
			to := addr
			if method == methodHeartbeat || method == methodLookup {
				to = directory
			}
			c := dialRaw(t, to)
			c.Write(message(thriftCall, method, 1, body))
			c.SetReadDeadline(time.Now().Add(patience))
			m, err := readMessage(c)
			if bytes.Contains(m.body, []byte("panic")) {
				t.Errorf("%s with %s: %q, %v", method, name, m.body, err)
			}
		}
	}
}

func TestRPC04_AServerChecksWhatIsAskedFor(t *testing.T) {
	reader := whole(testBlock)
	_, addr := startServer(t, ServerOptions{}, reader)
	base := identity("client", "c1", "secret").now.Load().request
	good := fetchOf("a", testBlock, block.NewRun(0, 1))
	for name, change := range map[string]func(f *block.Fetch){
		"block size 0":      func(f *block.Fetch) { f.BlockSize = 0 },
		"block size -1":     func(f *block.Fetch) { f.BlockSize = -1 },
		"block size 16 GiB": func(f *block.Fetch) { f.BlockSize = 16 << 30 },
		"no blocks":         func(f *block.Fetch) { f.Run.Want = 0 },
		"past every object": func(f *block.Fetch) { f.Run.First = 1 << 62 },
		"negative block":    func(f *block.Fetch) { f.Run.First = 1 << 63 },
		"long key":          func(f *block.Fetch) { f.Object.Key = strings.Repeat("k", maxKey+1) },
		"long version":      func(f *block.Fetch) { f.Meta.Version = block.Version(strings.Repeat("v", maxName+1)) },
	} {
		f := *good
		change(&f)
		c := dialRaw(t, addr)
		c.Write(message(thriftCall, methodFetch, 1, appendFetch(nil, base, &f, 1, 0)))
		c.SetReadDeadline(time.Now().Add(patience))
		m, err := readMessage(c)
		if err == nil && len(m.body) > 1<<10 {
			t.Errorf("%s: a reply of %d bytes", name, len(m.body))
		}
	}
	if reader.loans() != 0 {
		t.Errorf("the reader was asked %d times", reader.loans())
	}
}

// lyingReplies bring something else than one block of testBlock bytes, or
// announce more than they bring.
func lyingReplies() map[string]func(seq uint32) []byte {
	id := identity("server", "c1", "secret")
	meta := block.Meta{Size: testBlock, Version: "v1"}
	data := content("a", 0, testBlock)
	crc := block.Checksum(data)
	one := []said{{0, 1, testBlock, crc}}
	replies := map[string]func(seq uint32) []byte{
		"more than asked for": func(seq uint32) []byte {
			two := append(one, said{1, 1, testBlock, crc})
			return message(thriftReply, methodFetch, seq, ended(fetchReply(id, meta, two, 2*testBlock), append(data, data...)))
		},
		"the same block twice": func(seq uint32) []byte {
			return message(thriftReply, methodFetch, seq, ended(fetchReply(id, meta, append(one, one...), 2*testBlock), append(data, data...)))
		},
		"no block at all": func(seq uint32) []byte {
			return message(thriftReply, methodFetch, seq, ended(fetchReply(id, meta, nil, 0), nil))
		},
		"a longer payload than its blocks": func(seq uint32) []byte {
			return message(thriftReply, methodFetch, seq, ended(fetchReply(id, meta, one, testBlock+1), append(data, 0)))
		},
		"a shorter payload than its blocks": func(seq uint32) []byte {
			return message(thriftReply, methodFetch, seq, ended(fetchReply(id, meta, one, testBlock-1), data[1:]))
		},
		"a payload of nobody": func(seq uint32) []byte {
			body := binary.BigEndian.AppendUint32(appendField(appendField(nil, thrift.STRUCT, 0), thrift.STRING, repPayload), testBlock)
			return message(thriftReply, methodFetch, seq, ended(body, data))
		},
		"a string for a reply": func(seq uint32) []byte {
			return message(thriftReply, methodFetch, seq, append(appendString(nil, 0, "x"), 0))
		},
		"a call": func(seq uint32) []byte { return message(thriftCall, methodFetch, seq, []byte{0}) },
		"an exception": func(seq uint32) []byte {
			return message(thriftError, methodFetch, seq, appendStop(appendString(nil, 1, "no")))
		},
		"an exception of nothing": func(seq uint32) []byte { return message(thriftError, methodFetch, seq, nil) },
		"another method":          func(seq uint32) []byte { return message(thriftReply, methodStat, seq, []byte{0}) },
	}
	return replies
}

// lyingLengths adds replies with each of the lies in each of their lengths.
func lyingLengths(replies map[string]func(seq uint32) []byte) {
	id := identity("server", "c1", "secret")
	meta := block.Meta{Size: testBlock, Version: "v1"}
	data := content("a", 0, testBlock)
	crc := block.Checksum(data)
	one := []said{{0, 1, testBlock, crc}}
	for _, n := range lies() {
		name := string(u32(n))
		replies["frame "+name] = func(seq uint32) []byte {
			return append(u32(n), message(thriftReply, methodFetch, seq, fetchReply(id, meta, one, testBlock))[4:]...)
		}
		replies["payload "+name] = func(seq uint32) []byte {
			return message(thriftReply, methodFetch, seq, ended(fetchReply(id, meta, one, int(n)), data))
		}
		replies["block "+name] = func(seq uint32) []byte {
			return message(thriftReply, methodFetch, seq, ended(fetchReply(id, block.UnknownMeta("v1"), []said{{0, 1, int(n), crc}}, testBlock), data))
		}
		replies["blocks "+name] = func(seq uint32) []byte {
			b := append(appendField(appendField(nil, thrift.STRUCT, 0), thrift.LIST, repBlocks), byte(thrift.STRUCT))
			return message(thriftReply, methodFetch, seq, ended(append(b, u32(n)...), nil))
		}
		replies["failure "+name] = func(seq uint32) []byte {
			b := appendField(appendField(nil, thrift.STRUCT, 0), thrift.STRUCT, repFailure)
			return message(thriftReply, methodFetch, seq, ended(append(appendField(b, thrift.STRING, 2), u32(n)...), nil))
		}
	}
}

func TestRPC04_AClientBelievesNoLength(t *testing.T) {
	replies := lyingReplies()
	lyingLengths(replies)
	used := allocated(func() {
		for name, answer := range replies {
			addr := startRawPeer(t, func(c net.Conn, m received) {
				if m.method == methodFetch {
					c.Write(answer(m.seq))
				}
			})
			var mem memory
			client := startClient(t, ClientOptions{}, &mem)
			f := fetchOf("a", testBlock, block.NewRun(0, 1))
			f.Meta = block.UnknownMeta("v1") // the peer has the first word on the size
			ctx := inTime(t)
			s, err := client.FetchFrom(ctx, addr, f)
			if err == nil {
				err = drain(s, func(p block.Piece) { t.Errorf("%q: a piece of block %d", name, p.Index) })
			}
			if err == nil || err == io.EOF || ctx.Err() != nil || !block.OutcomeOf(err, false).Failed() {
				t.Errorf("%q: %v", name, err)
			}
			eventually(t, "all memory is back", mem.balanced)
		}
	})
	t.Logf("%d lies cost %.1f MiB", len(replies), mib(used))
	if used > 32<<20 {
		t.Errorf("%d lies cost %d bytes", len(replies), used)
	}
}

func TestS70_OnePortSpeaksHTTPToo(t *testing.T) {
	serve := func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			return
		}
		resp := http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Close: true}
		resp.Body = io.NopCloser(strings.NewReader("vars of " + r.URL.Path))
		resp.Write(c)
	}
	reader := whole(testBlock)
	server, addr := startServer(t, ServerOptions{HTTP: serve}, reader)
	client := startClient(t, ClientOptions{}, &memory{})
	for range 3 {
		fetchOne(t, client, addr)
		resp, err := http.Get("http://" + addr.String() + "/vars/peer_*")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != "vars of /vars/peer_*" {
			t.Errorf("%q, %v", body, err)
		}
	}
	c := dialRaw(t, addr)
	io.WriteString(c, "G") // one byte is enough to tell
	io.WriteString(c, "ET /vars HTTP/1.1\r\nHost: x\r\n\r\n")
	if got, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(got), "vars of /vars") {
		t.Errorf("in two pieces: %q, %v", got, err)
	}
	if n := server.Metrics().BadFrames; n != 0 {
		t.Errorf("%d bad frames", n)
	}
}

func TestS70_WithoutHTTPSuchConnectionsAreClosed(t *testing.T) {
	_, addr := startServer(t, ServerOptions{}, whole(testBlock))
	c := dialRaw(t, addr)
	io.WriteString(c, "GET /vars HTTP/1.1\r\nHost: x\r\n\r\n")
	c.SetReadDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(c); len(got) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("%q, %v", got, err)
	}
	fetchOne(t, startClient(t, ClientOptions{}, &memory{}), addr)
}
