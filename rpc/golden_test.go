package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/gopkg/protocol/thrift"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/shards/placement"
)

// tap hands bytes on between a client and a server and takes their messages
// down.
type tap struct {
	mu   sync.Mutex
	text strings.Builder
}

func startTap(t *testing.T, to block.Addr) (*tap, block.Addr) {
	p := &tap{}
	addr := startRawPeer(t, func(c net.Conn, m received) {
		p.note("call", m)
		up, err := net.Dial("tcp", to.String())
		if err != nil {
			t.Error(err)
			return
		}
		defer up.Close()
		up.Write(message(thriftCall, m.method, m.seq, m.body))
		m, err = readMessage(up)
		if err != nil {
			t.Error(err)
			return
		}
		p.note("reply", m)
		c.Write(message(thriftReply, m.method, m.seq, m.body))
	})
	return p, addr
}

// note takes a message down, without its number, which Kitex counts for the
// whole process.
func (p *tap) note(kind string, m received) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := thriftCall
	if kind == "reply" {
		k = thriftReply
	}
	fmt.Fprintf(&p.text, "%s of %s\n%s\n", kind, m.method, hex.Dump(message(k, m.method, 0, m.body)))
}

// said returns all that was taken down.
func (p *tap) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *tap) section(title string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(&p.text, "== %s ==\n", title)
}

// The messages of all methods, byte for byte: a change of them is a change of
// the protocol, and nodes of the last version must be able to live with it.
func TestS89_FramesAreThoseOfTheGoldenFile(t *testing.T) {
	const file = "testdata/frames.txt"
	got := speak(t)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	dir := t.ArtifactDir() // go test -artifacts keeps it
	if err := os.WriteFile(dir+"/frames.txt", []byte(got), 0o644); err != nil {
		t.Error(err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i, line := range gotLines {
		if i >= len(wantLines) || line != wantLines[i] {
			t.Fatalf("%s:%d differs from what is spoken (in %s):\n%s", file, i+1, dir, line)
		}
	}
	t.Fatalf("%s has more than is spoken", file)
}

// speak makes one call of each method and returns what was said.
func speak(t *testing.T) string {
	const size = 2*4096 + 5
	reader := &fakeReader{
		stat: func(block.Object) (block.Meta, error) { return block.Meta{}, block.ErrNotFound },
		read: func(*block.Read, int64) ([]block.View, block.Meta, error) {
			return nil, block.Meta{Size: 9, Version: "v1"}, nil
		},
	}
	reader.serve = func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		reader.give(f, size, reply)
		reply.Answers[0].Lease.Release()
		reply.Answers[0].Status = block.StatusFilling
	}
	_, addr := startServer(t, ServerOptions{}, reader)
	p, addr := startTap(t, addr)
	client := startClient(t, ClientOptions{ReadToken: "token"}, &memory{})
	client.callIDs.Store(0x0102030405060707)

	p.section("a fetch of blocks 1 and 2, of which one is being filled")
	f := fetchOf("dir/file", size, block.NewRun(1, 2))
	f.BlockSize, f.Kind, f.Queue, f.Fill, f.Wait = 4096, block.KindSegmentFooter, block.QueueIndex, true, true
	s, err := client.FetchFrom(context.Background(), addr, f)
	if err == nil {
		err = drain(s, nil)
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	p.section("a cancel of a call that is over")
	var args headstart.PeerCancelArgs
	var result headstart.PeerCancelResult
	args.Req = &headstart.CancelRequest{Base: client.caller.id.now.Load().base(request), CallId: 0x0102030405060708}
	conn, err := client.caller.call(inTime(t), addr, methodCancel, maxHead, &args, &result)
	if err != nil {
		t.Fatal(err)
	}
	client.caller.release(conn)
	p.section("a stat of nothing")
	client.Stat(context.Background(), addr, f.Object, block.Immutable)
	p.section("a read of an empty range")
	_, err = client.Read(context.Background(), addr, &block.Read{Object: f.Object, Route: block.TabletRoute(1), Offset: 9}, nil)
	if err != nil {
		t.Fatal(err)
	}
	speakOfPlaces(t, p)
	return p.said()
}

func speakOfPlaces(t *testing.T, p *tap) {
	d := newFakeDirectory("c1")
	up := startDirectory(t, identity("fe", "c1", "secret"), d)
	places, addr := startTap(t, up)
	client := startDirectoryClient(t, DirectoryClientOptions{Identity: identity("be", "c1", "secret"), Endpoints: []block.Addr{addr}})
	places.section("a heartbeat")
	if _, err := client.Heartbeat(inTime(t), placement.Heartbeat{Host: "10.0.0.1", BrpcPort: 8060, Started: time.Unix(5, 6)}); err != nil {
		t.Fatal(err)
	}
	places.section("a lookup of two routes")
	if _, err := client.Lookup(inTime(t), []block.Route{block.TabletRoute(1), {Kind: block.RouteExternal, ID: 1 << 63}}); err != nil {
		t.Fatal(err)
	}
	said := places.said()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.WriteString(said)
}

// What was written down is also what a node reads: the calls of the golden file
// get its replies.
func TestS89_GoldenCallsGetGoldenReplies(t *testing.T) {
	text, err := os.ReadFile("testdata/frames.txt")
	if err != nil {
		t.Fatal(err)
	}
	reader := &fakeReader{}
	reader.serve = func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		reader.give(f, 2*4096+5, reply)
		reply.Answers[0].Lease.Release()
		reply.Answers[0].Status = block.StatusFilling
	}
	_, addr := startServer(t, ServerOptions{}, reader)
	call := goldenFrame(t, string(text), "call of FetchBlocks")
	want := goldenFrame(t, string(text), "reply of FetchBlocks")
	c := dialRaw(t, addr)
	c.Write(call)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != string(want) {
		t.Errorf("got (%v)\n%swant\n%s", err, hex.Dump(got), hex.Dump(want))
	}
}

// The calls of the golden file as a node one version older or newer would send
// them, which knows fields of its own: the answer is the one in the file. Two
// versions away nobody is understood.
func TestS89_GoldenCallsOfTheNeighbouringVersionsAreAnswered(t *testing.T) {
	text, err := os.ReadFile("testdata/frames.txt")
	if err != nil {
		t.Fatal(err)
	}
	reader := &fakeReader{}
	reader.serve = func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		reader.give(f, 2*4096+5, reply)
		reply.Answers[0].Lease.Release()
		reply.Answers[0].Status = block.StatusFilling
	}
	_, peers := startServer(t, ServerOptions{}, reader)
	fes := startDirectory(t, identity("fe", "c1", "secret"), newFakeDirectory("c1"))
	for _, told := range []struct {
		method string
		to     block.Addr
	}{ // the Cancel is about the fetch, so it comes behind it
		{methodFetch, peers}, {methodCancel, peers}, {methodHeartbeat, fes}, {methodLookup, fes},
	} {
		method, to := told.method, told.to
		call := goldenFrame(t, string(text), "call of "+method)
		want := goldenFrame(t, string(text), "reply of "+method)
		for version := int32(Version - 2); version <= Version+2; version++ {
			c := dialRaw(t, to)
			c.Write(spokenBy(t, call, version))
			c.SetReadDeadline(time.Now().Add(patience))
			m, err := readMessage(c)
			if err != nil {
				t.Fatalf("%s of version %d: %v", method, version, err)
			}
			got := message(thriftReply, m.method, 0, m.body)
			near := version >= Version-1 && version <= Version+1
			if same := bytes.Equal(got, want); same != near {
				t.Errorf("%s of version %d: the golden reply %v, want %v:\n%s", method, version, same, near, hex.Dump(got))
			}
		}
	}
	eventually(t, "all leases are back", reader.balanced)
}

// spokenBy returns a golden call as a node of another version would send it.
func spokenBy(t *testing.T, call []byte, version int32) []byte {
	head := 4 + 8 + int(binary.BigEndian.Uint32(call[8:])) + 4
	body := bytes.Clone(call[head:])
	ours := appendI32(nil, 1, Version)
	base := bytes.Index(body, append(appendField(nil, thrift.STRUCT, 1), ours...)) + 3
	if base < 3 {
		t.Fatalf("a call without a version:\n%s", hex.Dump(call))
	}
	copy(body[base:], appendI32(nil, 1, version))
	if version > Version { // it has learned something, in its Base and elsewhere
		body = slices.Insert(body, base, unknown(nil, 200)...)
		body = appendStop(appendStop(unknown(body[:len(body)-2], 200)))
	}
	return message(thriftCall, string(call[12:head-4]), 0, body)
}

// goldenFrame returns the frame below a title.
func goldenFrame(t *testing.T, text, title string) (frame []byte) {
	_, text, _ = strings.Cut(text, title+"\n")
	dump, _, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(dump) {
		digits, _, _ := strings.Cut(line[8:], "|")
		b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		frame = append(frame, b...)
	}
	if n := binary.BigEndian.Uint32(frame); int(n) != len(frame)-4 {
		t.Fatalf("a frame of %d bytes says %d", len(frame), n)
	}
	return frame
}
