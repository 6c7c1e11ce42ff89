package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
)

// costs is what a process holds; memory is what the kernel counts as resident.
type costs struct {
	goroutines, files int
	heap, memory      uint64
}

func countCosts(t *testing.T) (c costs) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc/self/fd: ", err)
	}
	var m runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&m)
	var pages, resident uint64
	statm, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(statm), &pages, &resident)
	}
	if err != nil {
		t.Skip("needs /proc/self/statm: ", err)
	}
	return costs{runtime.NumGoroutine(), len(files), m.HeapAlloc, resident * uint64(os.Getpagesize())}
}

// backTo waits until the process holds no more than it did before.
func (c costs) backTo(t *testing.T) {
	t.Helper()
	eventually(t, "goroutines and files are back", func() bool {
		now := countCosts(t)
		return now.goroutines <= c.goroutines && now.files <= c.files
	})
	now := countCosts(t)
	t.Logf("goroutines %d to %d, files %d to %d, heap %.1f to %.1f MiB, resident %.1f to %.1f MiB", c.goroutines, now.goroutines,
		c.files, now.files, mib(c.heap), mib(now.heap), mib(c.memory), mib(now.memory))
	// The race detector keeps books of its own on memory that was ever used.
	if now.heap > c.heap+32<<20 || !raceDetector && now.memory > c.memory+32<<20 {
		t.Errorf("memory has grown: heap from %.1f to %.1f MiB, resident from %.1f to %.1f MiB",
			mib(c.heap), mib(now.heap), mib(c.memory), mib(now.memory))
	}
}

func mib(n uint64) float64 { return float64(n) / (1 << 20) }

// large serves 4 MiB in 16 blocks out of the same memory again and again.
const largeBlock = 256 << 10

func large() *fakeReader {
	r := &fakeReader{}
	b := content("a", 0, largeBlock)
	crc := block.Checksum(b)
	r.serve = func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		reply.Meta = block.Meta{Size: 16 * largeBlock, Version: "v1"}
		for i := range uint64(16) {
			reply.Answers = append(reply.Answers, block.Answer{Index: i, Status: block.StatusData, Lease: r.lend(b, crc)})
		}
	}
	return r
}

func fetchLarge() *block.Fetch {
	f := fetchOf("a", 16*largeBlock, block.NewRun(0, 16))
	f.BlockSize = largeBlock
	return f
}

func TestRPC01_ClientsThatVanishLeaveNothingBehind(t *testing.T) {
	reader := large()
	server, addr := startServer(t, ServerOptions{}, reader)
	sent := message(thriftCall, methodFetch, 1,
		appendFetch(nil, identity("client", "c1", "secret").now.Load().request, fetchLarge(), 0, 0))
	fetchVanish(t, addr, sent, 10)
	before := countCosts(t)
	const workers, rounds = 8, 250
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range rounds {
				fetchVanish(t, addr, sent, i*100)
			}
		})
	}
	wg.Wait()
	eventually(t, "no connection is left", func() bool { return server.Metrics().Conns == 0 })
	eventually(t, "all leases are back", reader.balanced)
	before.backTo(t)
	if n := server.Metrics().Accepts; n != workers*rounds+1 {
		t.Errorf("%d connections", n)
	}
}

// fetchVanish sends a request, reads some of the reply and is gone.
func fetchVanish(t *testing.T, addr block.Addr, request []byte, read int) {
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Error(err)
		return
	}
	c.Write(request)
	io.ReadFull(c, make([]byte, read))
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

func TestRPC01_FailuresOfTheClientItselfLeaveNothingBehind(t *testing.T) {
	reader := whole(testBlock)
	server, addr := startServer(t, ServerOptions{}, reader)
	before := countCosts(t)
	client := startClient(t, ClientOptions{Alloc: func(int) (*block.Buf, error) { return nil, block.ErrBusy }}, nil)
	client.grace = patience
	invalid := fetchOf("a", testBlock, block.Run{})
	fail := func() {
		if _, err := client.FetchFrom(context.Background(), addr, invalid); !errors.Is(err, block.ErrInvalid) {
			t.Fatal(err)
		}
		s, err := client.FetchFrom(context.Background(), addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := drain(s, nil); block.OutcomeOf(err, false) != block.OutcomeBusy {
			t.Fatal(err)
		}
	}
	for range 2000 {
		fail()
		// The rest of the reply is read behind the caller's back.
		eventually(t, "the connection is back", func() bool { m := client.Metrics(); return m.Conns == m.Idle })
	}
	client.Close()
	before.backTo(t)
	// One for the calls and one for Cancels. On a busy machine the rest of a reply
	// may be late, and its connection is cut.
	if n, cuts := server.Metrics().Accepts, client.Metrics().Cuts; n > 2+cuts {
		t.Errorf("%d connections, %d were cut", n, cuts)
	}
}

func TestRPC03_AConnectionThatTheServerHasClosedFailsNoCall(t *testing.T) {
	if clientIdle >= serverIdle {
		t.Errorf("clients keep connections for %v, servers only for %v", clientIdle, serverIdle)
	}
	// A client that is stopped for longer than the server waits loses a call of a
	// new connection, too: that is no failure before the wait is long.
	idle := 20 * time.Millisecond
	err := closedByTheServer(t, idle)
	for err != nil && idle < 2*time.Second {
		idle *= 4
		err = closedByTheServer(t, idle)
	}
	if err != nil {
		t.Error(err)
	}
}

// closedByTheServer makes five calls, and after each the server closes its
// connection for a lack of calls.
func closedByTheServer(t *testing.T, idle time.Duration) error {
	server, addr := startServer(t, ServerOptions{IdleTimeout: idle}, whole(testBlock))
	client := startClient(t, ClientOptions{IdleTimeout: time.Minute}, &memory{})
	for range 5 {
		if err := fetchAgain(t, client, addr); err != io.EOF {
			return err
		}
		eventually(t, "the server has closed it", func() bool { return server.Metrics().Conns == 0 })
	}
	if n := server.Metrics().Accepts; n != 5 {
		return fmt.Errorf("%d connections", n)
	}
	eventually(t, "one is left", func() bool { return client.Metrics().Conns == 1 })
	return nil
}

func TestRPC03_TheClientClosesFirst(t *testing.T) {
	server, addr := startServer(t, ServerOptions{}, whole(testBlock))
	client := startClient(t, ClientOptions{IdleTimeout: 20 * time.Millisecond}, &memory{})
	fetchOne(t, client, addr)
	eventually(t, "the client has closed it", func() bool { return client.Metrics().Conns == 0 })
	eventually(t, "the server knows", func() bool { return server.Metrics().Conns == 0 })
	client.pool.mu.Lock()
	defer client.pool.mu.Unlock()
	if n := len(client.pool.mu.addrs); n != 0 {
		t.Errorf("%d addresses are kept", n)
	}
}

func TestRPC03_APeerThatRestartsFailsNoCall(t *testing.T) {
	first, err := NewServer(ServerOptions{Listener: listen(t), Identity: identity("server", "c1", "secret")}, whole(testBlock))
	if err != nil {
		t.Fatal(err)
	}
	addr := addrOf(first.opts.Listener)
	served := make(chan error, 1)
	go func() { served <- first.Serve() }() // ends with Shutdown
	client := startClient(t, ClientOptions{}, &memory{})
	fetchOne(t, client, addr)
	if err := errors.Join(first.Shutdown(inTime(t)), <-served); err != nil {
		t.Fatal(err)
	}
	if _, err := client.FetchFrom(inTime(t), addr, fetchOf("a", testBlock, block.NewRun(0, 1))); err == nil {
		t.Error("a call to nobody succeeds")
	}
	ln, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	startServer(t, ServerOptions{Listener: ln}, whole(testBlock))
	fetchOne(t, client, addr)
}

// slot is memory that is written over as soon as nobody holds it, as the slot
// of an evicted block is.
type slot struct {
	memory
	once sync.Once
	data []byte
	over chan struct{}
}

func (s *slot) ReleaseLease(token uint64) {
	s.once.Do(func() {
		for i := range s.data {
			s.data[i] = 0xDB
		}
		close(s.over)
	})
}

// narrow is a listener whose connections have small send buffers.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
	}
	return c, err
}

func TestRPC05_ABlockIsHeldUntilItsBytesAreOut(t *testing.T) {
	const size = 4 << 20
	want := content("a", 0, size)
	s := &slot{data: bytes.Clone(want), over: make(chan struct{})}
	reader := &fakeReader{serve: func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		reply.Meta = block.Meta{Size: size, Version: "v1"}
		reply.Answers = append(reply.Answers, block.Answer{
			Status: block.StatusData, Lease: block.NewLease(s, 0, s.data, block.Checksum(s.data)),
		})
	}}
	ln := narrow{listen(t)}
	_, addr := startServer(t, ServerOptions{Listener: ln}, reader)
	f := fetchOf("a", size, block.NewRun(0, 1))
	f.BlockSize = size
	c := dialRaw(t, addr)
	c.(*net.TCPConn).SetReadBuffer(64 << 10)
	c.Write(message(thriftCall, methodFetch, 1,
		appendFetch(nil, identity("client", "c1", "secret").now.Load().request, f, 0, 0)))
	var got bytes.Buffer
	for got.Len() < size {
		select {
		case <-s.over:
			// What is left lies in the socket's own buffers: a small part.
			if got.Len() < size/2 {
				t.Fatalf("given back when %d of %d bytes had come", got.Len(), size)
			}
		default:
		}
		if _, err := io.CopyN(&got, c, 16<<10); err != nil {
			t.Fatal(err)
		}
	}
	<-s.over
	all := got.Bytes()
	at := bytes.Index(all, want[:64])
	if rest := size - (len(all) - at); rest > 0 {
		more := make([]byte, rest)
		if _, err := io.ReadFull(c, more); err != nil {
			t.Fatal(err)
		}
		all = append(all, more...)
	}
	if !bytes.Equal(all[at:at+size], want) {
		t.Error("the receiver has got bytes of another block")
	}
}

func TestRPC08_SlowReceiversAreCutAndHurtNobody(t *testing.T) {
	reader := large()
	server, addr := startServer(t, ServerOptions{Listener: narrow{listen(t)}, SendTimeout: 2 * time.Second}, reader)
	sent := message(thriftCall, methodFetch, 1,
		appendFetch(nil, identity("client", "c1", "secret").now.Load().request, fetchLarge(), 0, 0))
	const slow = 200
	before := countCosts(t)
	for range slow {
		c := dialRaw(t, addr)
		c.(*net.TCPConn).SetReadBuffer(4 << 10)
		c.Write(sent) // and reads nothing
	}
	eventually(t, "all are served", func() bool { return server.Metrics().Calls == slow })
	if now := countCosts(t); now.heap > before.heap+64<<20 {
		t.Errorf("%d replies of 4 MiB take %d bytes of heap", slow, now.heap-before.heap)
	}
	// The fast one has all the time in the world, and gets all it wants meanwhile.
	client := startClient(t, ClientOptions{}, &memory{})
	s, err := client.FetchFrom(inTime(t), addr, fetchLarge())
	pieces := 0
	if err == nil {
		err = drain(s, func(p block.Piece) { pieces++ })
	}
	if err != io.EOF || pieces != 16 {
		t.Errorf("a fast receiver: %d pieces, %v", pieces, err)
	}
	eventually(t, "the slow ones are cut", func() bool { return server.Metrics().Conns == 1 })
	eventually(t, "all leases are back", reader.balanced)
}

func TestS44_ACallEndsWithItsCaller(t *testing.T) {
	reader := whole(testBlock)
	entered, left := make(chan struct{}), make(chan error, 1)
	reader.serve = func(ctx context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		close(entered)
		<-ctx.Done()
		left <- ctx.Err()
	}
	server, addr := startServer(t, ServerOptions{}, reader)
	c := dialRaw(t, addr)
	c.Write(message(thriftCall, methodFetch, 1,
		appendFetch(nil, identity("client", "c1", "secret").now.Load().request, fetchOf("a", testBlock, block.NewRun(0, 1)), 9, 0)))
	<-entered
	c.Close() // nobody sends a Cancel
	if err := <-left; err != context.Canceled {
		t.Errorf("the call's context ended with %v", err)
	}
	eventually(t, "the connection is gone", func() bool { return server.Metrics().Conns == 0 })
}
