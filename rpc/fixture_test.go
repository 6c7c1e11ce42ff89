package rpc

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
)

const testBlock = 64 << 10

// content is what block index of an object holds: every 16 bytes say where
// they belong, so that any mix-up shows.
func content(key string, index uint64, n int) []byte {
	b := make([]byte, n)
	sum := block.Checksum([]byte(key))
	for off := 0; off < n; off += 16 {
		var word [16]byte
		binary.BigEndian.PutUint32(word[:], sum)
		binary.BigEndian.PutUint64(word[4:], index)
		binary.BigEndian.PutUint32(word[12:], uint32(off))
		copy(b[off:], word[:])
	}
	return b
}

// memory counts the bytes that it has lent and not got back.
type memory struct {
	mu  sync.Mutex
	out int
	// lent and released count loans.
	lent, released int
}

func (m *memory) lend(b []byte, crc uint32) block.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lent++
	return block.NewLease(m, uint64(m.lent), b, crc)
}

func (m *memory) CopyLease(_ uint64, lent []byte, off int, dst []byte) (int, error) {
	return copy(dst, lent[off:]), nil
}

func (m *memory) ReleaseLease(uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released++
}

func (m *memory) alloc(n int) (*block.Buf, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out += n
	return block.NewBuf(make([]byte, n), func(b *block.Buf) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.out -= b.Cap()
	}), nil
}

// loans returns how many leases were lent.
func (m *memory) loans() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lent
}

func (m *memory) balanced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lent == m.released && m.out == 0
}

// fakeReader serves what serve says.
type fakeReader struct {
	memory
	serve func(ctx context.Context, from block.Node, f *block.Fetch, reply *block.Reply)
	stat  func(o block.Object) (block.Meta, error)
	read  func(r *block.Read, limit int64) ([]block.View, block.Meta, error)
}

func (r *fakeReader) ServeBlocks(ctx context.Context, from block.Node, f *block.Fetch, reply *block.Reply) {
	r.serve(ctx, from, f, reply)
}

func (r *fakeReader) Stat(_ context.Context, o block.Object, _ block.Version) (block.Meta, error) {
	if r.stat == nil {
		return block.Meta{}, block.ErrNotFound
	}
	return r.stat(o)
}

func (r *fakeReader) Read(_ context.Context, rd *block.Read, limit int64) ([]block.View, block.Meta, error) {
	return r.read(rd, limit)
}

// give answers all wanted blocks of an object of the given size with data.
func (r *fakeReader) give(f *block.Fetch, size int64, reply *block.Reply) {
	reply.Meta = block.Meta{Size: size, Version: "v1", ETag: "v1", ContentType: "text/plain", Modified: time.Unix(1, 2)}
	g := block.Geometry(f.BlockSize)
	for i := f.Run.First; i < f.Run.First+block.MaxRun; i++ {
		if !f.Run.Has(i) {
			continue
		}
		b := content(f.Object.Key, i, g.Len(i, size))
		reply.Answers = append(reply.Answers, block.Answer{
			Index: i, Status: block.StatusData, Lease: r.lend(b, block.Checksum(b)),
		})
	}
}

// whole is a reader that has all blocks of objects of the given size.
func whole(size int64) *fakeReader {
	r := &fakeReader{}
	r.serve = func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) { r.give(f, size, reply) }
	return r
}

func identity(name, cluster, token string) *Identity {
	return NewIdentity(block.Node{ID: name, GroupID: "group of " + name, Location: "default"}, cluster, token)
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func addrOf(ln net.Listener) block.Addr {
	a := ln.Addr().(*net.TCPAddr)
	return block.Addr{Host: a.IP.String(), Port: a.Port}
}

// startServer serves r until the test ends.
func startServer(t testing.TB, o ServerOptions, r Reader) (*Server, block.Addr) {
	t.Helper()
	if o.Listener == nil {
		o.Listener = listen(t)
	}
	if o.Identity == nil {
		o.Identity = identity("server", "c1", "secret")
	}
	s, err := NewServer(o, r)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, addrOf(o.Listener)
}

func startClient(t testing.TB, o ClientOptions, m *memory) *Client {
	t.Helper()
	if o.Identity == nil {
		o.Identity = identity("client", "c1", "secret")
	}
	if o.ConnectTimeout == 0 { // a busy machine must not fail a test
		o.ConnectTimeout = patience
	}
	if o.Alloc == nil {
		o.Alloc = m.alloc
	}
	c, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func fetchOf(key string, size int64, run block.Run) *block.Fetch {
	return &block.Fetch{
		Object:    block.Object{Store: "s3", Bucket: "bucket", Key: key},
		Meta:      block.Meta{Size: size, Version: "v1", ETag: "v1"},
		BlockSize: testBlock,
		Run:       run,
		Route:     block.TabletRoute(42),
		QueryID:   "q1",
	}
}

// drain reads a stream to its end and releases what it brings.
func drain(s block.Stream, each func(block.Piece)) error {
	defer s.Close()
	for {
		p, err := s.Next()
		if err != nil {
			return err
		}
		if each != nil {
			each(p)
		}
		if p.Buf != nil {
			p.Buf.Release()
		}
	}
}

// patience is how long a test waits for what ought to come at once: so long that
// only what never comes is late, on any machine.
const patience = 30 * time.Second

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// inTime is the context of a call that ought to be answered at once.
func inTime(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
