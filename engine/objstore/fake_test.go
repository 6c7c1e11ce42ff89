package objstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/pools"
)

// blockSize of the tests is small and no power of two: it divides nothing by
// accident.
const blockSize = 4000

// content is the bytes from..to of one version of an object: each 16 bytes tell
// object, version and offset, so that no mix-up goes unseen.
func content(key string, version int, from, to int64) []byte {
	h := fnv.New32a()
	h.Write([]byte(key))
	b := make([]byte, 0, to-from+32)
	start := from &^ 15
	for off := start; off < to; off += 16 {
		b = binary.BigEndian.AppendUint32(b, h.Sum32())
		b = binary.BigEndian.AppendUint32(b, uint32(version))
		b = binary.BigEndian.AppendUint64(b, uint64(off))
	}
	return b[from-start : to-start]
}

type fakeObject struct {
	size    int64
	version int
	noETag  bool
}

func (o fakeObject) etag() string { return fmt.Sprintf("v%d", o.version) }

func (o fakeObject) modified() time.Time { return time.Unix(1700000000+int64(o.version), 0).UTC() }

// fakeS3 is an S3 server of one bucket that counts what reaches it and plays
// the faults that a test writes down.
type fakeS3 struct {
	t        *testing.T
	endpoint string
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)

	handlers sync.WaitGroup

	accepts, gets, heads, inFlight, maxInFlight, aborted, sent atomic.Int64

	mu struct {
		sync.Mutex
		objects map[string]fakeObject
		// fault answers the n-th GET (from 1 on) in place of the server; false means
		// that the server shall do it.
		fault  func(n int64, w http.ResponseWriter, r *http.Request) bool
		ranges []string
	}
}

// newFake serves in memory, in the bubble of the test.
func newFake(t *testing.T) *fakeS3 {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	f := newFakeOn(t, l)
	f.endpoint = "http://s3.test"
	f.dial = l.dial
	return f
}

// newFakeTCP serves on a real socket.
func newFakeTCP(t *testing.T) *fakeS3 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := newFakeOn(t, l)
	f.endpoint = "http://" + l.Addr().String()
	return f
}

func newFakeOn(t *testing.T, l net.Listener) *fakeS3 {
	f := &fakeS3{t: t}
	f.mu.objects = map[string]fakeObject{}
	server := &http.Server{Handler: f, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			f.accepts.Add(1)
		}
	}}
	served := make(chan struct{})
	go func() { // ends with the server
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
		f.handlers.Wait()
	})
	return f
}

func (f *fakeS3) put(key string, o fakeObject) block.Object {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.objects[key] = o
	return block.Object{Store: block.DefaultStore, Bucket: "bucket", Key: key}
}

func (f *fakeS3) onGet(fault func(n int64, w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.fault = fault
}

// ranges returns the ranges that were asked for.
func (f *fakeS3) ranges() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.mu.ranges, " ")
}

// store returns a Store that talks to f.
func (f *fakeS3) store(opts Options) *Store {
	f.t.Helper()
	opts.Endpoint, opts.PathStyle = f.endpoint, true
	opts.AccessKey, opts.SecretKey = "access", "secret"
	if opts.Buffers == nil {
		opts.Buffers = newBuffers(f.t, pools.BuffersOptions{BlockSize: blockSize})
	}
	s, err := New(f.t.Context(), opts)
	if err != nil {
		f.t.Fatal(err)
	}
	if f.dial != nil {
		s.transport.DialContext = f.dial
	}
	f.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.t.Error(err)
		}
	})
	return s
}

// newBuffers returns buffers all of which must be back when the test is over.
func newBuffers(t *testing.T, opts pools.BuffersOptions) *pools.Buffers {
	t.Helper()
	opts.Name = t.Name()
	buffers, err := pools.NewBuffers(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if m := buffers.Metrics(); m.LentBytes != 0 {
			t.Errorf("%d bytes of buffers are lost", m.LentBytes)
		}
	})
	return buffers
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.handlers.Add(1)
	defer f.handlers.Done()
	now := f.inFlight.Add(1)
	defer f.inFlight.Add(-1)
	for most := f.maxInFlight.Load(); now > most && !f.maxInFlight.CompareAndSwap(most, now); {
		most = f.maxInFlight.Load()
	}
	f.mu.Lock()
	o, found := f.mu.objects[strings.TrimPrefix(r.URL.Path, "/bucket/")]
	fault := f.mu.fault
	var n int64
	if r.Method == http.MethodGet {
		n = f.gets.Add(1)
		f.mu.ranges = append(f.mu.ranges, r.Header.Get("Range"))
	} else {
		f.heads.Add(1)
	}
	f.mu.Unlock()
	if n > 0 && fault != nil && fault(n, w, r) {
		return
	}
	if !found {
		replyError(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	f.serve(w, r, o)
}

// serve is what an S3 server does.
func (f *fakeS3) serve(w http.ResponseWriter, r *http.Request, o fakeObject) {
	h := w.Header()
	h.Set("Last-Modified", o.modified().Format(http.TimeFormat))
	h.Set("Content-Type", "application/x-test")
	if !o.noETag {
		h.Set("ETag", `"`+o.etag()+`"`)
	}
	if match := r.Header.Get("If-Match"); match != "" && match != `"`+o.etag()+`"` {
		replyError(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	if r.Method == http.MethodHead {
		h.Set("Content-Length", fmt.Sprint(o.size))
		return
	}
	from, to := askedRange(f.t, r)
	if from >= o.size {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", o.size))
		replyError(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
		return
	}
	to = min(to, o.size)
	partial(w, from, to, o.size)
	f.send(w, r, content(strings.TrimPrefix(r.URL.Path, "/bucket/"), o.version, from, to))
}

// send writes the body and counts what the other side takes.
func (f *fakeS3) send(w http.ResponseWriter, r *http.Request, body []byte) {
	n, err := io.Copy(w, bytes.NewReader(body))
	f.sent.Add(n)
	if err != nil || r.Context().Err() != nil {
		f.aborted.Add(1)
	}
}

// partial writes the header of a range.
func partial(w http.ResponseWriter, from, to, size int64) {
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
	w.Header().Set("Content-Length", fmt.Sprint(to-from))
	w.WriteHeader(http.StatusPartialContent)
}

func askedRange(t *testing.T, r *http.Request) (from, to int64) {
	if n, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n != 2 || err != nil || to < from {
		t.Errorf("bad range %q", r.Header.Get("Range"))
	}
	return from, to + 1
}

func replyError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>told so by the test</Message></Error>", code)
}

// refuse is a fault: the status, for every GET.
func refuse(status int, code string) func(int64, http.ResponseWriter, *http.Request) bool {
	return func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
		replyError(w, status, code)
		return true
	}
}

// flush sends what has been written so far.
func flush(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush() // fails when the other side has gone
}

// hang waits until the other side has gone.
func hang(r *http.Request) { <-r.Context().Done() }

// fetch asks for count blocks from first on, of an object that nothing is known
// of.
func fetch(o block.Object, first uint64, count int) *block.Fetch {
	return &block.Fetch{Object: o, Meta: block.UnknownMeta(""), BlockSize: blockSize, Run: block.NewRun(first, count)}
}

// readAll reads a stream to its end and returns the numbers of its blocks and
// their bytes, one after another.
func readAll(t *testing.T, st block.Stream) (indexes []uint64, data []byte, err error) {
	t.Helper()
	defer st.Close()
	for {
		p, err := st.Next()
		if err == io.EOF {
			return indexes, data, nil
		}
		if err != nil {
			return indexes, data, err
		}
		if p.Status != block.StatusData || p.Buf.CRC() != block.Checksum(p.Buf.Bytes()) {
			t.Errorf("block %d: status %d, not sealed", p.Index, p.Status)
		}
		indexes = append(indexes, p.Index)
		data = append(data, p.Buf.Bytes()...)
		p.Buf.Release()
	}
}

// get is Fetch and readAll.
func get(ctx context.Context, t *testing.T, s *Store, f *block.Fetch) (data []byte, meta block.Meta, err error) {
	t.Helper()
	st, err := s.Fetch(ctx, f)
	if err == nil {
		_, data, err = readAll(t, st)
		meta = st.Meta()
	}
	var typed *block.Error
	if err != nil && (!errors.As(err, &typed) || typed.Source != block.SourceStore || typed.Object != f.Object) {
		t.Errorf("untyped error %v", err)
	}
	return data, meta, err
}

// pipeListener makes connections in memory: they block in a way that a bubble
// understands.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
