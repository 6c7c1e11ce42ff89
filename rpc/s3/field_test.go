package s3

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headstart/pools"
)

// The cases OS of public bug reports, through the front: object storage misbehaves,
// and the client gets right bytes, an error of S3's, or an answer that is cut.

// faulty makes object storage misbehave until the function that it returns is called.
func (w *world) faulty(fault func(rw http.ResponseWriter, r *http.Request) bool) (healed func()) {
	w.store.fault.Store(&fault)
	return func() { w.store.fault.Store(nil) }
}

// ask sends a GET and returns what came, whether or not that is whole.
func (w *world) ask(path string, header ...string) (status int, body []byte, err error) {
	req, err := http.NewRequest("GET", "http://"+w.addr+path, nil)
	must(w.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// short answers a GET with half of what it announces.
func (b *bucketServer) short(rw http.ResponseWriter, r *http.Request) {
	rec := &recorded{header: http.Header{}}
	b.s3.ServeHTTP(rec, r)
	maps.Copy(rw.Header(), rec.header)
	rw.WriteHeader(rec.status)
	_, _ = rw.Write(rec.body.Bytes()[:rec.body.Len()/2]) // the client may have gone
	panic(http.ErrAbortHandler)
}

// recorded is an answer that has not been sent.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorded) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorded) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *recorded) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.body.Write(p)
}

// TestOS01_BodyThatEndsEarly: once, it is read on; always, the client is not told
// that this is all.
func TestOS01_BodyThatEndsEarly(t *testing.T) {
	w := newWorld(t, options{})
	data := content("k", 1, 3*testBlock+100)
	w.put("k", data)
	var left atomic.Int64
	left.Store(1)
	healed := w.faulty(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || left.Add(-1) < 0 {
			return false
		}
		w.store.short(rw, r)
		return true
	})
	w.get("k", "", data)
	if left.Load() >= 0 {
		t.Fatal("no body has ended early")
	}
	w.put("always", data)
	left.Store(1 << 30)
	if status, body, err := w.ask("/data/always"); status == 200 && err == nil {
		t.Errorf("%d bytes were given for all %d", len(body), len(data))
	}
	healed()
	w.get("always", "", data)
}

// TestOS03_RepliesThatDontFit: object storage that ignores ranges, or answers
// another one, is not believed, and nothing of it is kept.
func TestOS03_RepliesThatDontFit(t *testing.T) {
	for name, fault := range map[string]func(rw http.ResponseWriter, all []byte){
		"all of the object": func(rw http.ResponseWriter, all []byte) {
			_, _ = rw.Write(all) // the client may have gone
		},
		"another range": func(rw http.ResponseWriter, all []byte) {
			rw.Header().Set("Content-Range", fmt.Sprintf("bytes 7-%d/%d", 6+testBlock, len(all)))
			rw.WriteHeader(http.StatusPartialContent)
			_, _ = rw.Write(all[7 : 7+testBlock])
		},
		"a part of nobody knows what": func(rw http.ResponseWriter, all []byte) {
			rw.WriteHeader(http.StatusPartialContent)
			_, _ = rw.Write(all[:testBlock])
		},
	} {
		w := newWorld(t, options{})
		w.engine.ObjectStorageGetMaxBlocks.Store(1)
		data := content("k", 1, 10*testBlock)
		w.put("k", data)
		w.do("HEAD", "/data/k") // its size is known
		healed := w.faulty(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				fault(rw, data)
			}
			return r.Method == http.MethodGet
		})
		from, to := int64(5*testBlock+3), int64(5*testBlock+90)
		if status, body, err := w.ask("/data/k", "Range", rangeOf(from, to)); status/100 == 2 && err == nil && !bytes.Equal(body, data[from:to]) {
			t.Errorf("%s: wrong bytes", name)
		}
		healed()
		w.get("k", rangeOf(from, to), data[from:to])
	}
}

// TestOS07_NothingIsLogged: reads through the front leave no line in any log.
func TestOS07_NothingIsLogged(t *testing.T) {
	var lines lockedBuffer
	old, out, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	log.SetOutput(&lines)
	t.Cleanup(func() {
		slog.SetDefault(old)
		log.SetOutput(out) // SetDefault has changed both
		log.SetFlags(flags)
	})
	w := newWorld(t, options{front: func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&lines, nil)) }})
	w.engine.ObjectStorageGetMaxBlocks.Store(1)
	data := content("k", 1, 300*testBlock)
	w.put("k", data)
	for i := range int64(300) {
		at := i * testBlock
		w.get("k", rangeOf(at, at+10), data[at:at+10])
	}
	if n := w.store.gets.Load(); n < 300 {
		t.Fatalf("%d GETs: the reads were to miss", n)
	}
	if text := lines.String(); text != "" {
		t.Errorf("logged: %.500s", text)
	}
}

// lockedBuffer is a log that several write to.
type lockedBuffer struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.Buffer.Write(p)
}

// String returns what has been written.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.Buffer.String()
}

// TestOS11_ThrottledStore: clients are told to slow down, in S3's words, object
// storage gets few requests for each of theirs, and all is well when it is.
func TestOS11_ThrottledStore(t *testing.T) {
	const clients = 64
	w := newWorld(t, options{})
	data := content("k", 1, 10)
	for i := range clients {
		w.put(fmt.Sprintf("k%d", i), data)
	}
	var asked atomic.Int64
	healed := w.faulty(func(rw http.ResponseWriter, _ *http.Request) bool {
		asked.Add(1)
		http.Error(rw, "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>", http.StatusServiceUnavailable)
		return true
	})
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { // ends with the answer
			status, body, err := w.ask(fmt.Sprintf("/data/k%d", i))
			if err != nil || status != 503 || code(body) != "SlowDown" {
				t.Errorf("status %d, %s, %v", status, body, err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n > 5*clients {
		t.Errorf("%d requests reached object storage for %d reads", n, clients)
	}
	healed()
	for i := range clients {
		w.get(fmt.Sprintf("k%d", i), "", data)
	}
}

// TestOS13_ConnectionsAreReused: reads that miss, and clients that leave in the
// middle of them, don't cost object storage a connection each.
func TestOS13_ConnectionsAreReused(t *testing.T) {
	const clients, each = 8, 25
	w := newWorld(t, options{})
	w.engine.ObjectStorageGetMaxBlocks.Store(1)
	data := content("k", 1, clients*each*testBlock)
	w.put("k", data)
	w.do("HEAD", "/data/k")
	before := w.store.conns.Load()
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() { // ends with its reads
			for i := range each {
				at := int64(c*each+i) * testBlock
				w.get("k", rangeOf(at, at+100), data[at:at+100])
			}
		})
	}
	all.Wait()
	if n := w.store.conns.Load() - before; n > 2*clients {
		t.Errorf("%d new connections for %d reads, %d at a time", n, clients*each, clients)
	}
}

// TestOS15_SilentStore: a store that says nothing more, before or behind its first
// byte, ends in an error within the time that a client may wait for a block.
func TestOS15_SilentStore(t *testing.T) {
	w := newWorld(t, options{front: func(o *Options) { o.BlockTimeout = 2 * time.Second }})
	data := content("k", 1, 5*testBlock)
	w.put("k", data)
	for _, begins := range []bool{false, true} {
		healed := w.faulty(func(rw http.ResponseWriter, r *http.Request) bool {
			if begins && r.Method == http.MethodGet {
				from, to, _ := parseRange(r.Header.Get("Range")).in(int64(len(data))) // it asks for its beginning
				rw.Header().Set("ETag", `"e"`)
				rw.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(data)))
				rw.Header().Set("Content-Length", fmt.Sprint(to-from))
				rw.WriteHeader(http.StatusPartialContent)
				_, _ = rw.Write(data[:1]) // the front sees it, or not
				_ = http.NewResponseController(rw).Flush()
			}
			<-r.Context().Done()
			return true
		})
		status, body, err := w.ask("/data/k", "Range", rangeOf(0, testBlock))
		if err != nil || status != 504 || code(body) != "GatewayTimeout" {
			t.Errorf("begins %v: status %d, %s, %v", begins, status, body, err)
		}
		healed()
	}
	w.get("k", "", data)
	w.drained()
}

// TestOS16_FaultsLeaveNothingBehind: after many reads, a tenth of them of a store
// that fails in one way or another, nothing is under way and no memory is lent.
func TestOS16_FaultsLeaveNothingBehind(t *testing.T) {
	buffers, err := pools.NewBuffers(pools.BuffersOptions{Name: t.Name(), BlockSize: testBlock})
	must(t, err)
	w := newWorld(t, options{buffers: buffers, cacheBytes: 2 << 20})
	w.engine.ObjectStorageGetMaxBlocks.Store(2)
	data := content("k", 1, 200*testBlock)
	w.put("k", data)
	var n atomic.Int64
	healed := w.faulty(func(rw http.ResponseWriter, r *http.Request) bool {
		switch n.Add(1) % 30 {
		case 10:
			w.store.short(rw, r)
		case 20:
			panic(http.ErrAbortHandler)
		case 29:
			http.Error(rw, "<Error><Code>InternalError</Code></Error>", http.StatusInternalServerError)
		default:
			return false
		}
		return true
	})
	var all sync.WaitGroup
	for c := range int64(8) {
		all.Go(func() { // ends with its reads
			for i := range int64(60) {
				from := (c*60 + i) * 7919 % 190 * testBlock
				to := from + 3*testBlock
				if status, body, err := w.ask("/data/k", "Range", rangeOf(from, to)); status == 206 && err == nil && !bytes.Equal(body, data[from:to]) {
					t.Errorf("bytes %d to %d: wrong", from, to)
				}
			}
		})
	}
	all.Wait()
	healed()
	w.drained()
	w.flush()
	deadline := time.Now().Add(10 * time.Second)
	for buffers.Metrics().LentBytes != 0 && time.Now().Before(deadline) {
		w.flush() // what is given up ends in its own time
	}
	if held := buffers.Metrics().LentBytes; held != 0 {
		t.Errorf("%d bytes are still lent", held)
	}
}

// TestOS17_OneGETForAllAndHitsNeedNone: readers of a cold block share one GET, and
// what is in the cache is answered while object storage answers nobody.
func TestOS17_OneGETForAllAndHitsNeedNone(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.RevalidateMS.Store(-1)
	data := content("k", 1, testBlock)
	w.put("cold", data)
	w.put("warm", data)
	w.get("warm", "", data)
	release, began := make(chan struct{}), make(chan struct{}, 100)
	healed := w.faulty(func(http.ResponseWriter, *http.Request) bool {
		began <- struct{}{}
		<-release
		return false
	})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { w.get("cold", "", data) }) // ends with the answer
	}
	await(t, "object storage is asked", began)
	for range 50 {
		w.get("warm", "", data)
	}
	before := w.store.gets.Load()
	close(release)
	all.Wait()
	if n := w.store.gets.Load() - before; n != 1 {
		t.Errorf("%d GETs for one block", n)
	}
	healed()
}

// TestOS19_DeniedIsSaid: the client hears that object storage refuses the node, once
// and without a storm of retries, and a copy in the cache is not a way round it
// when the object is to be asked for.
func TestOS19_DeniedIsSaid(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.RevalidateMS.Store(0)
	data := content("k", 1, 10)
	w.put("k", data)
	w.get("k", "", data)
	var asked atomic.Int64
	healed := w.faulty(func(rw http.ResponseWriter, r *http.Request) bool {
		asked.Add(1)
		rw.WriteHeader(http.StatusForbidden)
		if r.Method != http.MethodHead {
			_, _ = io.Copy(rw, strings.NewReader("<Error><Code>AccessDenied</Code></Error>")) // the front sees it, or not
		}
		return true
	})
	for _, key := range []string{"k", "other"} {
		asked.Store(0)
		status, body, err := w.ask("/data/" + key)
		if err != nil || status != 403 || code(body) != "AccessDenied" {
			t.Errorf("%s: status %d, %s, %v", key, status, body, err)
		}
		if n := asked.Load(); n > 2 {
			t.Errorf("%s: %d requests reached object storage", key, n)
		}
	}
	healed()
	w.get("k", "", data)
}
