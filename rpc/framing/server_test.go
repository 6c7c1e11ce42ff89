package framing

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"
)

// patience is how long a test waits for what ought to come at once.
const patience = time.Minute

// stopped is a server without any time-out, which so waits for ever for what it
// takes for a request under way.
type stopped struct {
	t       *testing.T
	addr    string
	server  *Server
	served  chan error
	began   chan struct{}
	release chan struct{}
}

func newStopped(t *testing.T) *stopped {
	s := &stopped{t: t, served: make(chan error, 1), began: make(chan struct{}, 8), release: make(chan struct{})}
	s.server = &Server{Limits: scanner().Limits, HTTP: &fasthttp.Server{Logger: mute{}, CloseOnShutdown: true, Handler: func(ctx *fasthttp.RequestCtx) {
		if string(ctx.Path()) == "/slow" {
			select {
			case s.began <- struct{}{}:
			case <-s.release:
			}
			<-s.release
		}
		ctx.SetBodyString("whole")
	}}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	go func() { s.served <- s.server.Serve(ln) }() // ended by Shutdown
	return s
}

// open sends text on a new connection.
func (s *stopped) open(text string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := c.Write(wire(text)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// TestHT01_ShutdownWaitsForRequestsUnderWayOnly: those who have sent nothing, or a
// part of a header, or whose answer is out, keep nobody waiting; whose request runs
// gets its answer.
func TestHT01_ShutdownWaitsForRequestsUnderWayOnly(t *testing.T) {
	s := newStopped(t)
	var idle []net.Conn
	for i := range 20 {
		idle = append(idle, s.open(""), s.open("GET / HTTP/1.1\nHost: a\n"), s.open("G"))
		kept := s.open("GET /quick HTTP/1.1\nHost: a\n\n" + []string{"", "GET /slow HTTP/1.1\nHo"}[i%2])
		if resp, err := http.ReadResponse(bufio.NewReader(kept), nil); err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		idle = append(idle, kept)
	}
	busy := s.open("GET /slow HTTP/1.1\nHost: a\n\n")
	<-s.began
	ended := make(chan error, 1)
	go func() { ended <- s.server.Shutdown(context.Background()) }() // ends with the last connection
	for i, c := range idle {
		if _, err := io.Copy(io.Discard, c); isTimeout(err) { // a reset is an end as well
			t.Errorf("connection %d is open, %v after Shutdown", i, patience)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("Shutdown has not waited for the request under way: %v", err)
	default:
	}
	close(s.release)
	resp, err := http.ReadResponse(bufio.NewReader(busy), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "whole" {
		t.Errorf("the request under way: %q, %v", body, err)
	}
	if n, err := busy.Read(make([]byte, 1)); n != 0 || isTimeout(err) {
		t.Error("the connection goes on behind the request under way")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-s.served; err != nil {
		t.Error(err)
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if n := len(s.server.mu.conns); n != 0 {
		t.Errorf("%d connections are remembered", n)
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// TestShutdownMeetsConnectionsThatComeAndGo: wherever Shutdown finds a connection,
// its server ends, and an answer is whole or has not begun.
func TestShutdownMeetsConnectionsThatComeAndGo(t *testing.T) {
	for range 50 {
		s := newStopped(t)
		const clients = 4
		left := make(chan error, clients)
		for range clients {
			go func() { left <- s.ask() }() // ends when the server does
		}
		for range 3 {
			<-s.began // some have had answers
			s.release <- struct{}{}
		}
		close(s.release)
		if err := s.server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		for range clients {
			if err := <-left; err != nil {
				t.Error(err)
			}
		}
		if err := <-s.served; err != nil {
			t.Error(err)
		}
	}
}

// ask asks on, over new connections as well, until nobody is there to answer.
func (s *stopped) ask() error {
	for {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			return nil
		}
		in := bufio.NewReader(c)
		for range 5 {
			if _, err := c.Write(wire("GET /slow HTTP/1.1\nHost: a\n\n")); err != nil {
				break
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				break // none has begun
			}
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "whole" {
				c.Close()
				return fmt.Errorf("%q, %v", body, err)
			}
		}
		c.Close()
	}
}

// scarce is a listener of one connection, which fails before.
type scarce struct {
	net.Listener
	fails []error
	conn  net.Conn
}

func (l *scarce) Accept() (net.Conn, error) {
	if len(l.fails) == 0 {
		return l.conn, nil
	}
	err := l.fails[0]
	l.fails = l.fails[1:]
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
}

// TestServerOutlivesAShortage: while there are too many open files, or too little
// memory, nobody new is served, and then everybody is again. What does not pass ends
// the server, and so does the end of its listener.
func TestServerOutlivesAShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		l := &listener{server: &Server{}, Listener: &scarce{conn: there, fails: []error{
			syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EMFILE,
		}}}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		for _, want := range []error{syscall.EINVAL, syscall.EBADF, net.ErrClosed} {
			l := &listener{server: &Server{}, Listener: &scarce{conn: there, fails: []error{want}}}
			if _, err := l.Accept(); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
	})
}

// garbled is a connection on which something wrong comes at once.
type garbled struct{ net.Conn }

func (garbled) Read(p []byte) (int, error) { return copy(p, "no request\r\n"), nil }
func (garbled) Close() error               { return nil }

// TestCloseFromElsewhere: a shutdown may close a connection while its reader finds out
// that it is to be refused (for the race detector).
func TestCloseFromElsewhere(t *testing.T) {
	for range 100 {
		c := NewConn(garbled{}, Limits{})
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		var buf [64]byte
		for range 2 {
			_, _ = c.Read(buf[:]) // its error is told below
		}
		if err := <-closed; err != nil || Refused(c) == nil {
			t.Fatal(err, Refused(c))
		}
	}
}

// closable is a connection that notes that it is closed.
type closable struct {
	net.Conn
	times int
}

func (c *closable) Close() error { c.times++; return nil }

// TestCloseWaitsForWhoHolds: who closes a connection from outside, as a shutdown
// does, never cuts what its reader holds it for, and nothing is held behind it.
func TestCloseWaitsForWhoHolds(t *testing.T) {
	for _, closes := range []int{0, 1, 2} {
		s := &closable{}
		c := NewConn(s, Limits{})
		if !c.Hold() {
			t.Fatal("it can't be held")
		}
		for range closes {
			if err := c.Close(); err != nil || s.times > 0 {
				t.Errorf("closed under who holds it (%v)", err)
			}
		}
		if open := c.Let(); open != (closes == 0) || s.times != min(closes, 1) {
			t.Errorf("%d times to be closed: open %v, closed %d times", closes, open, s.times)
		}
		if err := c.Close(); err != nil || s.times == 0 || c.Hold() {
			t.Errorf("closed %d times behind its end (%v)", s.times, err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read of a closed connection: %v", err)
		}
	}
}
