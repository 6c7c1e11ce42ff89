package rpc

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"headstart/engine/block"
	"headstart/pools"
	"headstart/rpc/kitex_gen/headstart"
)

// serving is a reader of one object that is cut as geometry says; its small
// last block takes the path of small parts.
func serving(size int64) *fakeReader {
	r := &fakeReader{}
	g := block.Geometry(testBlock)
	r.read = func(rd *block.Read, limit int64) ([]block.View, block.Meta, error) {
		meta := block.Meta{Size: size, Version: "v1", ETag: "v1"}
		if rd.Offset > size {
			return nil, meta, block.ErrRange
		}
		end := min(size, rd.Offset+limit)
		if rd.Size >= 0 {
			end = min(end, rd.Offset+rd.Size)
		}
		var views []block.View
		for at := rd.Offset; at < end; {
			i := g.Index(at)
			b := content(rd.Object.Key, i, g.Len(i, size))
			v := block.View{Lease: r.lend(b, block.Checksum(b)), From: int(at - g.Offset(i)), Source: block.SourcePeer}
			v.To = int(min(int64(len(b)), end-g.Offset(i)))
			at = g.Offset(i) + int64(v.To)
			views = append(views, v)
		}
		return views, meta, nil
	}
	return r
}

func wholeObject(key string, size int64) []byte {
	var b []byte
	g := block.Geometry(testBlock)
	for i := range g.Blocks(size) {
		b = append(b, content(key, i, g.Len(i, size))...)
	}
	return b
}

// guestOf is a client that is not a node of the cluster.
func guestOf(t *testing.T, token string) *Client {
	return startClient(t, ClientOptions{Identity: NewIdentity(block.Node{}, "", ""), ReadToken: token}, &memory{})
}

func TestReadBringsTheBytesAskedFor(t *testing.T) {
	const size = 3*testBlock + 100
	object := wholeObject("a", size)
	reader := serving(size)
	_, addr := startServer(t, ServerOptions{}, reader)
	client := guestOf(t, "")
	for _, tt := range []struct{ offset, size, room, want int64 }{
		{0, -1, size, size},
		{0, size, size, size},
		{0, -1, size + 1000, size},
		{testBlock - 1, 2, 1000, 2},
		{10, 1000, 100, 100},
		{2*testBlock + 5, -1, size, testBlock + 95},
		{size - 1, -1, 10, 1},
		{size, -1, 10, 0},
		{5, 0, 10, 0},
		{5, 10, 0, 0},
	} {
		dst := bytes.Repeat([]byte{0xEE}, int(tt.room))
		r := &block.Read{Object: block.Object{Store: "s3", Bucket: "b", Key: "a"}, Offset: tt.offset, Size: tt.size}
		got, err := client.Read(inTime(t), addr, r, dst)
		if err != nil || int64(got.N) != tt.want || got.Meta.Size != size || got.Meta.ETag != "v1" {
			t.Errorf("%+v: %+v, %v", tt, got, err)
			continue
		}
		if got.N > 0 && got.Source != block.SourcePeer {
			t.Errorf("%+v: from %v", tt, got.Source)
		}
		if !bytes.Equal(dst[:got.N], object[tt.offset:tt.offset+tt.want]) {
			t.Errorf("%+v: wrong bytes", tt)
		}
		if len(bytes.Trim(dst[got.N:], "\xEE")) > 0 {
			t.Errorf("%+v: bytes behind the %d that were read", tt, got.N)
		}
	}
	eventually(t, "all leases are back", reader.balanced)
}

func TestReadTellsTheServerWhatIsRead(t *testing.T) {
	sent := block.Read{
		Object: block.Object{Store: "s4", Bucket: "b", Key: "k"}, Version: "v", Route: block.TabletRoute(1<<63 - 1),
		Packed: &block.Slice{Offset: 1 << 40, Size: 100}, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Offset: 7, Size: 9, Kind: block.KindInternalIndex, Queue: block.QueueDisposable, QueryID: "q",
	}
	calls := make(chan block.Read, 1)
	reader := &fakeReader{read: func(r *block.Read, limit int64) ([]block.View, block.Meta, error) {
		if calls <- *r; limit != MaxRead {
			t.Errorf("limit %d", limit)
		}
		return nil, block.UnknownMeta(""), nil
	}}
	_, addr := startServer(t, ServerOptions{}, reader)
	if _, err := guestOf(t, "").Read(inTime(t), addr, &sent, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if got := <-calls; !reflect.DeepEqual(got, sent) {
		t.Errorf("server saw %+v, sent %+v", got, sent)
	}
}

// A node one protocol version older does not know that a file is packed: what it
// is asked for are the object's bytes that the file consists of.
func TestS17_AnOlderNodeReadsTheRightBytesOfAPackedFile(t *testing.T) {
	asked := make(chan *headstart.ReadRequest, 1)
	addr := startRawPeer(t, func(c net.Conn, m received) {
		var args headstart.PeerReadArgs
		if _, err := args.FastRead(m.body); err != nil {
			t.Error(err)
		}
		asked <- args.Req
		c.Close()
	})
	file := &block.Slice{Offset: 1000, Size: 100}
	for _, c := range []struct{ offset, size, from, n int64 }{{0, -1, 1000, 100}, {90, 500, 1090, 10}, {100, -1, 1100, 0}, {5, 7, 1005, 7}} {
		r := &block.Read{Object: block.Object{Bucket: "b", Key: "a"}, Packed: file, Offset: c.offset, Size: c.size}
		guestOf(t, "").Read(inTime(t), addr, r, make([]byte, 4096)) // its peer hangs up
		if got := <-asked; got.Offset != c.from || got.Size != c.n || got.Packed.Offset != 1000 || got.Packed.Size != 100 {
			t.Errorf("%+v asks for %d bytes at %d (%v)", c, got.Size, got.Offset, got.Packed)
		}
	}
	for _, wrong := range []block.Slice{{Offset: -1, Size: 5}, {Offset: 5, Size: 2}, {Offset: math.MaxInt64, Size: 9}, {Size: -1}} {
		r := &block.Read{Object: block.Object{Bucket: "b", Key: "a"}, Packed: &wrong, Offset: 3, Size: 1}
		if _, err := guestOf(t, "").Read(inTime(t), addr, r, make([]byte, 9)); !errors.Is(err, block.ErrRange) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// Callers of Read share one bound on what is on its way, whoever they say they
// are; nodes don't feel it.
func TestSE05_WhatIsOnItsWayToCallersOfReadIsBounded(t *testing.T) {
	reader := serving(4 * testBlock)
	entered, release := make(chan struct{}), make(chan struct{})
	read := reader.read
	reader.read = func(r *block.Read, most int64) ([]block.View, block.Meta, error) {
		if r.QueryID == "slow" {
			entered <- struct{}{}
			<-release
		}
		return read(r, most)
	}
	limit := pools.NewShares(math.MaxInt)
	limit.SetLimitEach(5 * testBlock)
	server, addr := startServer(t, ServerOptions{GroupBytes: limit}, reader)
	call := func(group, query string) error {
		c := startClient(t, ClientOptions{Identity: NewIdentity(block.Node{GroupID: group}, "", "")}, &memory{})
		r := &block.Read{Object: block.Object{Bucket: "b", Key: "a"}, Size: 4 * testBlock, QueryID: query}
		_, err := c.Read(inTime(t), addr, r, make([]byte, 4*testBlock))
		return err
	}
	first := make(chan error, 1)
	go func() { first <- call("one", "slow") }()
	<-entered
	if err := call("another", ""); !errors.Is(err, block.ErrBusy) {
		t.Errorf("beside a read of four blocks, another one gets %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	eventually(t, "all bytes are out", func() bool { return limit.InUse() == 0 && reader.balanced() })
	if err := call("another", ""); err != nil || server.Metrics().OverLimit != 1 {
		t.Errorf("afterwards: %v; %d calls over the limit", err, server.Metrics().OverLimit)
	}
	eventually(t, "these are out too", func() bool { return limit.InUse() == 0 })
}

// TestSE05_AReadReservesNoMoreThanThereIs: callers that ask for as much as they may
// are served at once as long as what comes fits.
func TestSE05_AReadReservesNoMoreThanThereIs(t *testing.T) {
	const size = 100
	for name, c := range map[string]struct {
		known  int64 // of the object, -1 for nothing
		packed *block.Slice
		busy   bool
	}{
		"unknown": {-1, nil, true}, "known": {size, nil, false}, "known, empty": {0, nil, false},
		"too large": {MaxRead, nil, true}, "packed": {-1, &block.Slice{Size: size}, false},
	} {
		reader := serving(size)
		if c.known >= 0 {
			reader.stat = func(block.Object) (block.Meta, error) { return block.Meta{Size: c.known}, nil }
		}
		entered, release := make(chan struct{}, 1), make(chan struct{})
		read := reader.read
		reader.read = func(r *block.Read, most int64) ([]block.View, block.Meta, error) {
			if r.QueryID == "slow" {
				entered <- struct{}{}
				<-release
			}
			return read(r, most)
		}
		limit := pools.NewShares(math.MaxInt)
		limit.SetLimitEach(MaxRead + 2*size)
		_, addr := startServer(t, ServerOptions{GroupBytes: limit}, reader)
		call := func(query string) error {
			r := &block.Read{Object: block.Object{Bucket: "b", Key: "a"}, Packed: c.packed, Size: -1, QueryID: query}
			_, err := guestOf(t, "").Read(inTime(t), addr, r, make([]byte, MaxRead))
			return err
		}
		first := make(chan error, 1)
		go func() { first <- call("slow") }()
		<-entered
		if err := call(""); errors.Is(err, block.ErrBusy) != c.busy || !c.busy && err != nil {
			t.Errorf("%s: the second of two reads of 16 MiB gets %v", name, err)
		}
		close(release)
		if err := <-first; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, "all bytes are out", func() bool { return limit.InUse() == 0 && reader.balanced() })
	}
}

func TestS65_ReadIsGuardedByItsOwnToken(t *testing.T) {
	reader := serving(100)
	var token atomic.Pointer[string]
	set := func(s string) { token.Store(&s) }
	set("open sesame")
	server, addr := startServer(t, ServerOptions{ReadToken: func() string { return *token.Load() }}, reader)
	try := func(presented string) error {
		r := &block.Read{Object: block.Object{Bucket: "b", Key: "a"}, Size: -1}
		_, err := guestOf(t, presented).Read(inTime(t), addr, r, make([]byte, 100))
		return err
	}
	for _, wrong := range []string{"", "open sesam", "open sesame!", "Open sesame", "secret"} {
		if err := try(wrong); !errors.Is(err, block.ErrRefused) || !strings.Contains(err.Error(), "read_token") {
			t.Errorf("token %q: %v", wrong, err)
		}
	}
	if server.Metrics().Refused != 5 || reader.loans() != 0 {
		t.Errorf("refused %d, lent %d", server.Metrics().Refused, reader.loans())
	}
	if err := try("open sesame"); err != nil {
		t.Error(err)
	}
	set("changed") // at run time
	if err := try("open sesame"); !errors.Is(err, block.ErrRefused) {
		t.Errorf("the token of yesterday: %v", err)
	}
	if err := try("changed"); err != nil {
		t.Error(err)
	}
	set("")
	if err := try("anything"); err != nil {
		t.Errorf("an open node: %v", err)
	}
}

func TestS65_AGuestIsNoNode(t *testing.T) {
	reader := serving(100)
	_, addr := startServer(t, ServerOptions{}, reader)
	guest := guestOf(t, "")
	r := &block.Read{Object: block.Object{Bucket: "b", Key: "a"}, Size: -1}
	if _, err := guest.Read(inTime(t), addr, r, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	// The same connection, on which the guest has been welcome.
	s, err := guest.FetchFrom(inTime(t), addr, fetchOf("a", 100, block.NewRun(0, 1)))
	if err == nil {
		err = drain(s, nil)
	}
	if !errors.Is(err, block.ErrRefused) {
		t.Errorf("FetchBlocks of a guest: %v", err)
	}
	if m := guest.Metrics(); m.Dials != 1 {
		t.Errorf("%d connections", m.Dials)
	}
}

func TestReadFailsAsTheReaderDoes(t *testing.T) {
	for _, want := range []error{
		block.ErrNotFound, block.ErrRange, block.ErrChanged, block.ErrBusy, block.ErrThrottled, block.ErrDenied, block.ErrCorrupt,
	} {
		reader := &fakeReader{}
		reader.read = func(*block.Read, int64) ([]block.View, block.Meta, error) {
			return []block.View{{Lease: reader.lend(make([]byte, 9), 0), To: 9}}, block.Meta{Size: 5}, want
		}
		_, addr := startServer(t, ServerOptions{}, reader)
		_, err := guestOf(t, "").Read(inTime(t), addr, &block.Read{Object: block.Object{Bucket: "b", Key: "a"}}, make([]byte, 9))
		failed := new(block.Error)
		if !errors.Is(err, want) || !errors.As(err, &failed) || failed.Addr != addr.String() {
			t.Errorf("%v arrives as %v", want, err)
		}
		eventually(t, "all leases are back", reader.balanced)
	}
}

func TestReadRefusesWhatMakesNoSense(t *testing.T) {
	reader := serving(100)
	server, addr := startServer(t, ServerOptions{}, reader)
	client := guestOf(t, "")
	for name, r := range map[string]*block.Read{
		"offset":    {Object: block.Object{Bucket: "b", Key: "a"}, Offset: -1},
		"no bucket": {Object: block.Object{Key: "a"}},
		"no key":    {Object: block.Object{Bucket: "b"}},
		"long key":  {Object: block.Object{Bucket: "b", Key: strings.Repeat("k", maxKey+1)}},
		"version":   {Object: block.Object{Bucket: "b", Key: "k"}, Version: block.Version(strings.Repeat("v", maxName+1))},
		"query id":  {Object: block.Object{Bucket: "b", Key: "k"}, QueryID: strings.Repeat("q", maxName+1)},
	} {
		if _, err := client.Read(inTime(t), addr, r, make([]byte, 9)); !errors.Is(err, block.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if reader.loans() != 0 || server.Metrics().Refused != 0 {
		t.Error("the reader was asked, or a guest was taken for a stranger")
	}
}

func TestReadEndsWithItsContextAndLeavesItsMemoryAlone(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	addr := startRawPeer(t, func(c net.Conn, m received) {
		close(entered)
		<-ended
		body := fetchReply(identity("server", "", ""), block.UnknownMeta("v1"), nil, 9)
		c.Write(message(thriftReply, m.method, m.seq, ended9(body)))
	})
	client := guestOf(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the call
		<-entered
		cancel()
	}()
	dst := make([]byte, 9)
	_, err := client.Read(ctx, addr, &block.Read{Object: block.Object{Bucket: "b", Key: "a"}, Size: -1}, dst)
	if block.OutcomeOf(err, false) != block.OutcomeCancelled {
		t.Errorf("%v", err)
	}
	close(ended)
	eventually(t, "the connection is gone", func() bool { return client.Metrics().Conns == 0 })
	if !bytes.Equal(dst, make([]byte, 9)) {
		t.Error("bytes came after the call")
	}
}

func ended9(body []byte) []byte { return ended(body, []byte("unwanted!")) }

func TestS44_TheServerSeesAReadersDeadlineAndDeath(t *testing.T) {
	for _, how := range []string{"deadline", "death"} {
		reader := &deafReader{left: make(chan error, 16), entered: make(chan struct{}, 16)}
		_, addr := startServer(t, ServerOptions{}, reader)
		client := guestOf(t, "")
		call := func(ctx context.Context) {
			if _, err := client.Read(ctx, addr, &block.Read{Object: block.Object{Bucket: "b", Key: "a"}}, make([]byte, 9)); err == nil {
				t.Errorf("%s: the call ends well", how)
			}
		}
		if how == "death" {
			go func() { // ends with the call
				<-reader.entered
				client.Close()
			}()
			call(context.Background())
		} else {
			untilItArrives(t, reader.entered, call)
		}
		if err := <-reader.left; err == nil {
			t.Errorf("%s: the server's context has not ended", how)
		}
	}
}

// deafReader answers when its context has ended.
type deafReader struct {
	fakeReader
	entered chan struct{}
	left    chan error
}

func (r *deafReader) Read(ctx context.Context, _ *block.Read, _ int64) ([]block.View, block.Meta, error) {
	r.entered <- struct{}{}
	<-ctx.Done()
	r.left <- ctx.Err()
	return nil, block.UnknownMeta(""), ctx.Err()
}
