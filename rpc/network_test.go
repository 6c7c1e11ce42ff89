package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"headstart/engine/block"
)

// fullReply is the answer to a fetch of one block.
func fullReply(seq uint32) []byte {
	data := content("a", 0, testBlock)
	body := fetchReply(identity("server", "c1", "secret"), block.Meta{Size: testBlock, Version: "v1"},
		[]said{{0, 1, testBlock, block.Checksum(data)}}, testBlock)
	return message(thriftReply, methodFetch, seq, ended(body, data))
}

// A peer that goes away in the middle of a call, in whatever way, costs the call
// and its connection, within the call's deadline, and nothing else.
func TestPR18_APeerMayVanishInAnyWay(t *testing.T) {
	for name, tt := range map[string]struct {
		peer func(c net.Conn, reply []byte)
		want block.Outcome
	}{
		"black hole":                   {func(net.Conn, []byte) {}, block.OutcomeTimeout},
		"half a reply":                 {func(c net.Conn, reply []byte) { c.Write(reply[:len(reply)/2]) }, block.OutcomeTimeout},
		"half a head":                  {func(c net.Conn, reply []byte) { c.Write(reply[:7]) }, block.OutcomeTimeout},
		"trickles":                     {trickle, block.OutcomeTimeout},
		"half a reply and half closed": {halfClose, block.OutcomeError},
		"half closed at once":          {func(c net.Conn, _ []byte) { c.(*net.TCPConn).CloseWrite() }, block.OutcomeError},
		"half a reply and reset":       {reset, block.OutcomeError},
	} {
		t.Run(name, func(t *testing.T) {
			addr := startRawPeer(t, func(c net.Conn, m received) {
				if m.method == methodFetch {
					tt.peer(c, fullReply(m.seq))
				}
			})
			var m memory
			client := startClient(t, ClientOptions{}, &m)
			deadline := patience
			if tt.want == block.OutcomeTimeout {
				deadline = 150 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			defer cancel()
			begin := time.Now()
			s, err := client.FetchFrom(ctx, addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
			if err == nil {
				err = drain(s, func(block.Piece) { t.Error("a piece") })
			}
			if got := block.OutcomeOf(err, false); got != tt.want {
				t.Errorf("outcome %d, want %d: %v", got, tt.want, err)
			}
			if took := time.Since(begin); took > deadline+patience {
				t.Errorf("it took %v", took)
			}
			eventually(t, "memory and connections are back", func() bool { return m.balanced() && client.Metrics().Conns == 0 })
		})
	}
}

// trickle sends a byte each millisecond: a block takes a minute, for which nobody
// waits.
func trickle(c net.Conn, message []byte) { trickled(c, message) }

// trickled trickles, and reports whether all was taken.
func trickled(c net.Conn, message []byte) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range message {
		<-tick.C
		if _, err := c.Write(message[i : i+1]); err != nil {
			return false
		}
	}
	return true
}

func halfClose(c net.Conn, reply []byte) {
	c.Write(reply[:len(reply)/2])
	c.(*net.TCPConn).CloseWrite()
}

func reset(c net.Conn, reply []byte) {
	c.Write(reply[:len(reply)/2])
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// A caller that trickles its request is cut off; one that has nothing more to
// say after it, and closes its side, has its answer.
func TestRPC04_ACallerMayTrickleOrHalfClose(t *testing.T) {
	reader := whole(testBlock)
	server, addr := startServer(t, ServerOptions{ReceiveTimeout: 100 * time.Millisecond}, reader)
	call := message(thriftCall, methodFetch, 1, appendFetch(nil,
		identity("client", "c1", "secret").now.Load().request, fetchOf("a", testBlock, block.NewRun(0, 1)), 1, 0))
	if trickled(dialRaw(t, addr), message(thriftCall, methodFetch, 1, make([]byte, testBlock-100))) {
		t.Error("a call that never ends was not cut off")
	}
	eventually(t, "the slow one is cut off", func() bool { return server.Metrics().Conns == 0 })
	if reader.loans() != 0 {
		t.Error("it was served")
	}
	done := dialRaw(t, addr)
	done.Write(call)
	done.(*net.TCPConn).CloseWrite()
	done.SetReadDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(done); err != nil || len(got) < testBlock {
		t.Errorf("half closed: %d bytes, %v", len(got), err)
	}
	eventually(t, "all is back", func() bool { return reader.balanced() && server.Metrics().Conns == 0 })
}

// deaf returns an address at which nobody answers: its queue is full, and the
// kernel drops who comes.
func deaf(t *testing.T) block.Addr {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	err = errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0))
	if err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := block.Addr{Host: "127.0.0.1", Port: at.(*syscall.SockaddrInet4).Port}
	for range 10 {
		c, err := net.DialTimeout("tcp", addr.String(), time.Second)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return addr
		}
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
	}
	t.Skip("this kernel takes connections that nobody accepts")
	return addr
}

// A connection that does not come about is given up after 200 ms, and tried
// once.
func TestPR18_AConnectionIsTriedOnceAndNotForLong(t *testing.T) {
	addr := deaf(t)
	client, err := NewClient(ClientOptions{Identity: identity("client", "c1", "secret"), Alloc: new(memory).alloc})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	begin := time.Now()
	_, err = client.FetchFrom(inTime(t), addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
	if took := time.Since(begin); took < connectTimeout || took > patience-connectTimeout {
		t.Errorf("given up after %v: %v", took, err)
	}
	if m := client.Metrics(); m.Dials != 1 || m.DialErrors != 1 || !block.OutcomeOf(err, false).Failed() {
		t.Errorf("%d connections were tried: %v", m.Dials, err)
	}
}
