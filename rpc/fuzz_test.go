package rpc

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/gopkg/bufiox"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
)

// goldenFrames are the seeds of all targets.
func goldenFrames(f *testing.F) (frames [][]byte) {
	text, err := os.ReadFile("testdata/frames.txt")
	if err != nil {
		f.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "\n\n") {
		var frame []byte
		for line := range strings.Lines(part) {
			if digits, _, ok := strings.Cut(line, "|"); ok {
				b, err := hex.DecodeString(strings.ReplaceAll(digits[8:], " ", ""))
				if err != nil {
					f.Fatal(err)
				}
				frame = append(frame, b...)
			}
		}
		if frame != nil {
			frames = append(frames, frame)
		}
	}
	return frames
}

// script is a connection on which the other side says one thing and is gone.
type script struct {
	io.Reader
	wrote bytes.Buffer
}

func (s *script) Write(b []byte) (int, error)      { return s.wrote.Write(b) }
func (s *script) Close() error                     { return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// says connects to a script.
func says(b []byte) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		return &script{Reader: bytes.NewReader(b)}, nil
	}
}

// What the codec of ours takes for a request, generated code takes for the
// same, and it is written as it was read.
func FuzzFetchRequest(f *testing.F) {
	for _, frame := range goldenFrames(f) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufiox.NewDefaultReader(bytes.NewReader(b))
		frame, err := peekFrame(r, maxRequest)
		if err != nil || frame.peekWhole(r) != nil {
			return
		}
		body := b[frame.head : frame.head+frame.body]
		var got fetchRequest
		walk := over(body)
		if got.read(&walk) != nil {
			return
		}
		var same headstart.PeerFetchBlocksArgs
		if n, err := same.FastRead(body); err != nil || n != len(body) {
			t.Fatalf("generated code reads %d of %d bytes: %v", n, len(body), err)
		}
		if q := same.Req; q.GetCallId() != int64(got.callID) || q.Version != string(got.fetch.Meta.Version) ||
			q.BlockSize != got.fetch.BlockSize || q.Fill != got.fetch.Fill || q.Wait != got.fetch.Wait || objectOf(orEmpty(q.Object)) != got.fetch.Object {
			t.Fatalf("generated code reads %+v, ours %+v", q, got)
		}
		if checkFetch(&got.fetch) != nil || got.base == nil {
			return
		}
		again := over(appendFetch(nil, got.base, &got.fetch, got.callID, got.wait))
		var twice fetchRequest
		if err := twice.read(&again); err != nil || twice.fetch != got.fetch || twice.callID != got.callID || twice.wait != got.wait {
			t.Fatalf("written and read again: %+v, want %+v (%v)", twice, got, err)
		}
	})
}

// Whatever a peer answers, a stream ends, hands out what was asked for and
// nothing else, and gives all memory back.
func FuzzFetchReply(f *testing.F) {
	for _, frame := range goldenFrames(f) {
		f.Add(frame, false)
		f.Add(frame, true)
	}
	var m memory
	client := startClient(f, ClientOptions{}, &m)
	f.Fuzz(func(t *testing.T, b []byte, sizeKnown bool) {
		defer client.pool.expire(time.Now().Add(time.Hour))
		fetch := fetchOf("dir/file", 2*4096+5, block.NewRun(1, 2))
		fetch.BlockSize = 4096
		if !sizeKnown {
			fetch.Meta = block.UnknownMeta("")
		}
		client.pool.connect = says(b)
		s, err := client.FetchFrom(context.Background(), block.Addr{}, fetch)
		if err != nil {
			t.Fatal(err)
		}
		seen := fetch.Run
		drain(s, func(p block.Piece) {
			if !seen.Has(p.Index) {
				t.Errorf("block %d was not asked for, or came twice", p.Index)
			}
			seen = seen.Without(p.Index)
			if (p.Buf != nil) != (p.Status == block.StatusData) || p.Buf != nil && len(p.Buf.Bytes()) > 4096 {
				t.Errorf("block %d: status %d, %v", p.Index, p.Status, p.Buf)
			}
		})
		if !m.balanced() {
			t.Error("memory is lost")
		}
	})
}

// The same for Read: what comes stays within the caller's memory.
func FuzzReadReply(f *testing.F) {
	for _, frame := range goldenFrames(f) {
		f.Add(frame)
	}
	client := startClient(f, ClientOptions{}, &memory{})
	f.Fuzz(func(t *testing.T, b []byte) {
		defer client.pool.expire(time.Now().Add(time.Hour))
		room := make([]byte, 64)
		client.pool.connect = says(b)
		got, err := client.Read(context.Background(), block.Addr{}, &block.Read{Size: -1}, room[:16])
		if got.N < 0 || got.N > 16 || len(bytes.Trim(room[16:], "\x00")) > 0 {
			t.Errorf("%d bytes for 16, %v (%v)", got.N, room, err)
		}
	})
}

// Whatever comes to the port of a server, it answers or closes, panics at
// nothing, and gives all leases back.
func FuzzServer(f *testing.F) {
	for _, frame := range goldenFrames(f) {
		f.Add(frame)
		f.Add(append(frame, frame...))
	}
	reader := serving(testBlock)
	reader.serve = func(_ context.Context, _ block.Node, fetch *block.Fetch, reply *block.Reply) {
		reader.give(fetch, testBlock, reply)
	}
	reader.stat = func(block.Object) (block.Meta, error) { return block.Meta{}, nil }
	var panics bytes.Buffer
	o := ServerOptions{Logger: slog.New(slog.NewTextHandler(&panics, nil))}
	server, addr := startServer(f, o, reader)
	LogKitex(o.Logger)
	fetchOne(f, startClient(f, ClientOptions{}, &memory{}), addr) // it runs
	eventually(f, "all leases are back", reader.balanced)
	f.Fuzz(func(t *testing.T, b []byte) {
		conn := &script{Reader: bytes.NewReader(b)}
		if c := server.admit(conn); c != nil {
			server.serve(c)
		}
		if !reader.balanced() {
			t.Error("leases are lost")
		}
		if strings.Contains(panics.String(), "panic") {
			t.Error(panics.String())
		}
	})
}
