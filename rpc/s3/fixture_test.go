package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/objstore"
	"headstart/engine/profile"
	"headstart/pools"
)

const (
	testBlock  = 64 << 10
	testBucket = "data"
	adminID    = "ADMIN"
	adminKey   = "admin/secret"
	// patience is how long a test waits for what ought to come at once: so long
	// that only what never comes is late, on any machine.
	patience = time.Minute
)

// content is bytes of one version of an object: each 16 of them tell key, version
// and offset, so that no mix-up goes unseen.
func content(key string, version int, size int64) []byte {
	h := fnv.New32a()
	h.Write([]byte(key))
	b := make([]byte, 0, size+16)
	for off := int64(0); off < size; off += 16 {
		b = binary.BigEndian.AppendUint32(b, h.Sum32())
		b = binary.BigEndian.AppendUint32(b, uint32(version))
		b = binary.BigEndian.AppendUint64(b, uint64(off))
	}
	return b[:size]
}

// bucketServer is object storage: gofakes3 in memory, made whole where it falls
// short: If-Match of a GET holds, and nothing changes in the middle of a request.
type bucketServer struct {
	s3     http.Handler
	whole  sync.RWMutex
	gets   atomic.Int64
	heads  atomic.Int64
	writes atomic.Int64
	// bytes counts those of the answers' bodies.
	bytes atomic.Int64
	// conns counts connections.
	conns atomic.Int64
	// fault answers in place of the server when it returns true.
	fault atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
	// old: it does not know of chunks with a trailer, and takes them for bytes.
	old atomic.Bool
	// seen is the last request that was no GET or HEAD of an object.
	seen atomic.Pointer[http.Request]
}

func (b *bucketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := b.fault.Load(); fault != nil && (*fault)(w, r) {
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		b.whole.RLock()
		defer b.whole.RUnlock()
		if r.Method == http.MethodHead {
			b.heads.Add(1)
		} else {
			b.gets.Add(1)
		}
		if match := r.Header.Get("If-Match"); match != "" && match != b.etag(r) {
			http.Error(w, "<Error><Code>PreconditionFailed</Code></Error>", http.StatusPreconditionFailed)
			return
		}
		if strings.Count(r.URL.Path, "/") > 1 {
			w.Header().Set("Cache-Control", "max-age=7") // gofakes3 does not keep it
		}
	default:
		b.writes.Add(1)
		b.seen.Store(r.Clone(context.Background()))
		body, err := io.ReadAll(r.Body) // a client that gives up has changed nothing
		if err != nil || r.ContentLength >= 0 && int64(len(body)) != r.ContentLength {
			return
		}
		if r.Header.Get("X-Amz-Content-Sha256") == streamingUnsigned && !b.old.Load() {
			if body, err = unchunked(r, body); err != nil {
				http.Error(w, "<Error><Code>BadDigest</Code></Error>", http.StatusBadRequest)
				return
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		b.whole.Lock()
		defer b.whole.Unlock()
	}
	b.s3.ServeHTTP(counted{w, &b.bytes}, r)
}

// counted counts the bytes of an answer's body.
type counted struct {
	http.ResponseWriter
	bytes *atomic.Int64
}

// Write implements http.ResponseWriter.
func (c counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}

// unchunked reads a body in chunks with checksums behind it, as object storage does.
func unchunked(r *http.Request, body []byte) ([]byte, error) {
	size := r.Header.Get("X-Amz-Decoded-Content-Length")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return nil, err
	}
	d, bad := newChunked(bytes.NewReader(body), n, &caller{payload: streamingUnsigned}, r.Header.Get("X-Amz-Trailer"))
	if bad != nil {
		return nil, bad
	}
	r.ContentLength = n
	r.Header.Set("Content-Length", size)
	r.Header.Set("Content-Encoding", strings.TrimPrefix(strings.TrimPrefix(r.Header.Get("Content-Encoding"), "aws-chunked"), ","))
	return io.ReadAll(d)
}

func (b *bucketServer) etag(r *http.Request) string {
	head := httptest.NewRequest(http.MethodHead, r.URL.EscapedPath(), nil)
	rec := httptest.NewRecorder()
	b.s3.ServeHTTP(rec, head)
	return rec.Header().Get("ETag")
}

// world is a front of real parts on a real socket, before object storage in
// memory.
type world struct {
	*Front
	t        testing.TB
	store    *bucketServer
	storeURL string
	settings *Settings
	engine   *engine.Settings
	cache    *blockcache.Cache
	dir      string
	addr     string
	direct   *s3.Client
}

// options change a world before it is built.
type options struct {
	cacheBytes int64
	buffers    *pools.Buffers
	front      func(*Options)
	blockSize  int64
}

func newWorld(t testing.TB, o options) *world {
	t.Helper()
	if o.cacheBytes == 0 {
		o.cacheBytes = 64 << 20
	}
	if o.blockSize == 0 {
		o.blockSize = testBlock
	}
	w := &world{t: t, store: &bucketServer{}, settings: NewSettings(), dir: filepath.Join(t.TempDir(), "cache")}
	w.store.s3 = gofakes3.New(s3mem.New(), gofakes3.WithTimeSkewLimit(0)).Server()
	server := httptest.NewUnstartedServer(w.store)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of the faults that it plays
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			w.store.conns.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	w.storeURL = server.URL
	w.direct = sdk(server.URL, "any", "any")
	_, err := w.direct.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(testBucket)})
	must(t, err)

	if o.buffers == nil {
		o.buffers, err = pools.NewBuffers(pools.BuffersOptions{Name: t.Name(), BlockSize: int(o.blockSize)})
		must(t, err)
	}
	origin, err := objstore.New(t.Context(), objstore.Options{
		Endpoint: server.URL, AccessKey: "node", SecretKey: "node's own", PathStyle: true, Buffers: o.buffers,
	})
	must(t, err)
	w.cache, err = blockcache.Open(blockcache.Options{
		BlockSize: o.blockSize, Logger: slog.New(slog.DiscardHandler), IOTimeout: time.Minute, Paths: []blockcache.Path{{Dir: w.dir, TotalBytes: o.cacheBytes}},
	})
	must(t, err)
	w.engine = engine.NewSettings()
	e, err := engine.New(engine.Options{
		Cache: w.cache, Origin: origin, Settings: w.engine, Profiles: profile.New(10), BlockSize: o.blockSize,
	})
	must(t, err)
	w.settings.Keys.Store(NewKeys([]Key{{ID: adminID, Secret: adminKey, Access: AccessWrite}}))
	w.settings.Anonymous.Store(uint32(AccessRead))
	w.settings.Domains.Store(&[]string{"s3.test"})
	opts := Options{Engine: e, Upstream: origin, Settings: w.settings}
	if o.front != nil {
		o.front(&opts)
	}
	w.Front, err = New(opts)
	must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- w.Serve(ln) }() // ends with Shutdown
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		must(t, w.Shutdown(ctx))
		must(t, <-served)
		e.Close()
		must(t, w.cache.Close())
		must(t, origin.Close())
	})
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sdk(url, id, secret string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(url), Region: "eu-test-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, ""), Retryer: aws.NopRetryer{},
	})
}

// sdk returns the Go SDK's client of the front.
func (w *world) sdk(id, secret string) *s3.Client { return sdk("http://"+w.addr, id, secret) }

// put writes an object past the front.
func (w *world) put(key string, data []byte) {
	w.t.Helper()
	_, err := w.direct.PutObject(context.Background(), &s3.PutObjectInput{
		Bucket: aws.String(testBucket), Key: aws.String(key), Body: bytes.NewReader(data),
		ContentType: aws.String("application/x-test"),
		Metadata:    map[string]string{"color": "blue"},
	})
	must(w.t, err)
}

// do sends a request without a signature; header is name, value, name, value….
func (w *world) do(method, path string, header ...string) (*http.Response, []byte) {
	w.t.Helper()
	req, err := http.NewRequest(method, "http://"+w.addr+path, nil)
	must(w.t, err)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	return w.send(req)
}

func (w *world) send(req *http.Request) (*http.Response, []byte) {
	w.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	must(w.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(w.t, err)
	return resp, body
}

// get reads an object or a range of it, "" for all, and fails unless it is want.
func (w *world) get(key, rng string, want []byte) *http.Response {
	w.t.Helper()
	var header []string
	if rng != "" {
		header = []string{"Range", rng}
	}
	resp, body := w.do("GET", "/"+testBucket+"/"+key, header...)
	if !bytes.Equal(body, want) || resp.StatusCode/100 != 2 {
		w.t.Errorf("%s %q: status %d, %d bytes, want %d: %.200q", key, rng, resp.StatusCode, len(body), len(want), head(body))
	}
	return resp
}

func head(b []byte) []byte { return b[:min(len(b), 200)] }

// code returns the code of an error's body.
func code(body []byte) string {
	_, rest, _ := strings.Cut(string(body), "<Code>")
	c, _, _ := strings.Cut(rest, "</Code>")
	return c
}

// drained waits until nothing is under way.
func (w *world) drained() {
	w.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for w.Metrics().Streams != 0 {
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("%d answers are still under way", w.Metrics().Streams)
		}
	}
}

// flush waits until the cache has all blocks in its files.
func (w *world) flush() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(w.t, w.cache.Flush(ctx))
}

// rangeOf is the header of a range.
func rangeOf(from, to int64) string { return fmt.Sprintf("bytes=%d-%d", from, to-1) }

func mustURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	must(t, err)
	return u
}

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func deletesOf(keys ...string) *s3.DeleteObjectsInput {
	in := &s3.DeleteObjectsInput{Bucket: aws.String(testBucket), Delete: &types.Delete{}}
	for _, key := range keys {
		in.Delete.Objects = append(in.Delete.Objects, types.ObjectIdentifier{Key: aws.String(key)})
	}
	return in
}

func sha256Of(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func storeOf(t testing.TB, url, id, secret string) *objstore.Store {
	t.Helper()
	s, err := objstore.New(t.Context(), objstore.Options{Endpoint: url, AccessKey: id, SecretKey: secret, PathStyle: true})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}
