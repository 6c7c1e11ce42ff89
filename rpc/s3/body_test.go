package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"headstart/pools"
)

// TestRPC05_MappedBytesAreSentAsTheyWere: large answers go to the socket out of the
// cache's own memory. Readers are slow, and everything they wait for is evicted and
// overwritten meanwhile.
func TestRPC05_MappedBytesAreSentAsTheyWere(t *testing.T) {
	const mb = 1 << 20
	w := newWorld(t, options{blockSize: mb, cacheBytes: 12 * mb})
	data := content("k", 1, 4*mb)
	w.put("k", data)
	w.get("k", "", data)
	w.flush()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() { // ends with the answer
			resp, err := http.Get("http://" + w.addr + "/data/k")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got := make([]byte, 0, len(data))
			pace := time.NewTicker(time.Millisecond) // a slow client's
			defer pace.Stop()
			for len(got) < len(data) {
				<-pace.C
				n, err := io.ReadFull(resp.Body, got[len(got):min(len(got)+64<<10, len(data))])
				got = got[:len(got)+n]
				if err != nil {
					t.Errorf("after %d bytes: %v", len(got), err)
					return
				}
			}
			if !bytes.Equal(got, data) {
				t.Error("wrong bytes")
			}
		})
	}
	for i := range 6 {
		key := fmt.Sprintf("other-%d", i)
		w.put(key, content(key, 1, 4*mb))
		w.get(key, "", content(key, 1, 4*mb))
	}
	readers.Wait()
	w.drained()
}

// TestLC10_CutFileIsReadAnew: blocks whose file was cut short come from object
// storage, for answers that are copied and those that are sent as they lie.
func TestLC10_CutFileIsReadAnew(t *testing.T) {
	const mb = 1 << 20
	for _, part := range []int64{0, 2, 3} { // of four: where the file ends
		w := newWorld(t, options{blockSize: mb, cacheBytes: 32 * mb})
		data := content("k", 1, 4*mb)
		w.put("k", data)
		w.get("k", "", data)
		w.flush()
		w.get("k", "", data)
		if err := filepath.Walk(w.dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && info.Size() >= 4*mb {
				return os.Truncate(path, info.Size()*part/4+100)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		w.get("k", "bytes=100-199", data[100:200])
		w.get("k", "", data)
		w.get("k", "bytes=1000000-3500000", data[1000000:3500001])
		w.get("k", "bytes=-10", data[len(data)-10:])
	}
}

// TestVanishedClientsAreNoticed: a client that leaves while object storage is slow
// ends the work behind it.
func TestVanishedClientsAreNoticed(t *testing.T) {
	w := newWorld(t, options{})
	w.put("k", content("k", 1, 10*testBlock))
	began, ended := make(chan struct{}, 8), make(chan struct{}, 8)
	fault := func(_ http.ResponseWriter, r *http.Request) bool {
		began <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
		return true
	}
	w.store.fault.Store(&fault)
	for _, request := range []string{
		"GET /data/k HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD /data/k HTTP/1.1\r\nHost: a\r\n\r\n", "GET /data?list-type=2 HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		c, err := net.Dial("tcp", w.addr)
		must(t, err)
		_, err = io.WriteString(c, request)
		must(t, err)
		await(t, "object storage is asked", began)
		must(t, c.Close())
		await(t, "object storage is told of the end", ended)
	}
	w.store.fault.Store(nil)
	w.get("k", "", content("k", 1, 10*testBlock))
	w.drained()
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not so: %s", what)
	}
}

// TestPipelinedRequests: what comes behind a request that waits is its own.
func TestPipelinedRequests(t *testing.T) {
	w := newWorld(t, options{})
	data := content("k", 1, 3*testBlock)
	w.put("k", data)
	c, err := net.Dial("tcp", w.addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(patience)))
	one := "GET /data/k HTTP/1.1\r\nHost: a\r\n\r\n"
	_, err = io.WriteString(c, strings.Repeat(one, 5)+strings.Replace(one, "Host: a", "Host: a\r\nConnection: close", 1))
	must(t, err)
	all, err := io.ReadAll(c)
	must(t, err)
	if n := bytes.Count(all, []byte("HTTP/1.1 200 OK")); n != 6 {
		t.Errorf("%d answers", n)
	}
	if n := bytes.Count(all, data); n != 6 {
		t.Errorf("%d whole bodies", n)
	}
}

// TestBP_SlowClientsCostABoundedAmount: 200 clients read one large object slowly;
// what the process holds for all of them is bounded.
func TestBP_SlowClientsCostABoundedAmount(t *testing.T) {
	const mb, clients = 1 << 20, 200
	size := int64(256 * mb)
	if testing.Short() {
		size = 64 * mb
	}
	buffers, err := pools.NewBuffers(pools.BuffersOptions{Name: t.Name(), BudgetBytes: 48 * mb, BlockSize: mb})
	must(t, err)
	w := newWorld(t, options{blockSize: mb, cacheBytes: 32 * mb, buffers: buffers, front: func(o *Options) { o.MaxStreamBlocks = 24 }})
	w.store.s3 = sparse(size)
	before := alive()
	ctx, cancel := context.WithCancel(t.Context())
	reading := make(chan struct{}, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { // ends with ctx; the front may have no memory for it now
			for again := time.NewTicker(time.Second); ctx.Err() == nil; <-again.C {
				slowly(ctx, "http://"+w.addr+"/data/big", int64(i)*size/clients/mb*mb, reading)
			}
		})
	}
	// Two fill the budget when each reads far ahead.
	await(t, "one client reads", reading)
	await(t, "another reads", reading)
	more := alive() - before
	if m := w.Metrics(); m.Cut != 0 {
		t.Errorf("%d answers were cut for a lack of memory", m.Cut)
	}
	if held := buffers.Metrics().LentBytes; held > 48*mb {
		t.Errorf("%d MiB of blocks are held", held/mb)
	}
	t.Logf("%d streams: they keep %d MiB of the heap alive, blocks lent %d MiB", w.Metrics().Streams, more/mb, buffers.Metrics().LentBytes/mb)
	if more > 256*mb && !testing.Short() { // so the race detector runs it, whose pools forget and whose cache is on the heap
		t.Errorf("%d MiB of the heap are kept alive", more/mb)
	}
	cancel()
	all.Wait()
	w.drained()
}

// slowly reads an object from an offset on, a little every 5 ms, and says when it
// has read a while. It returns when the answer or ctx ends.
func slowly(ctx context.Context, url string, from int64, reading chan<- struct{}) {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	buf := make([]byte, 16<<10)
	for n := 0; ; n++ {
		if _, err := resp.Body.Read(buf); err != nil {
			return
		}
		if n == 20 {
			select {
			case reading <- struct{}{}:
			default: // enough do
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// alive is how much of the heap is in use, garbage left out.
func alive() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// sparse serves one object of any size whose bytes are computed.
func sparse(size int64) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("ETag", `"sparse"`)
		http.ServeContent(rw, r, "", time.Unix(1700000000, 0), io.NewSectionReader(computed{}, 0, size))
	})
}

// computed is an endless object: each 16 bytes tell their offset.
type computed struct{}

// ReadAt implements io.ReaderAt.
func (computed) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		at := off + int64(i)
		p[i] = byte(at >> 4 >> (at & 7 * 8))
	}
	return len(p), nil
}

// TestOS04_FiveGiBAndOne: ranges of an object whose size and offsets need more than
// 32 bits.
func TestOS04_FiveGiBAndOne(t *testing.T) {
	const size = 5<<30 + 1
	w := newWorld(t, options{blockSize: 1 << 20})
	w.store.s3 = sparse(size)
	resp, _ := w.do("HEAD", "/data/big")
	if resp.ContentLength != size {
		t.Errorf("HEAD: length %d", resp.ContentLength)
	}
	for _, c := range []struct{ from, to int64 }{
		{0, 1}, {size - 1, size}, {1<<32 - 5, 1<<32 + 5}, {1<<31 - 100, 1<<31 + 100}, {size - 3<<20, size}, {5 << 30, size}, {1<<32 - 1<<20, 1<<32 + 2<<20},
	} {
		want := make([]byte, c.to-c.from)
		_, _ = computed{}.ReadAt(want, c.from)
		resp := w.get("big", rangeOf(c.from, c.to), want)
		if got := resp.Header.Get("Content-Range"); got != fmt.Sprintf("bytes %d-%d/%d", c.from, c.to-1, int64(size)) {
			t.Errorf("Content-Range %q", got)
		}
	}
	w.whole(size)
}

// whole begins to read all of a large object, and leaves.
func (w *world) whole(size int64) {
	w.t.Helper()
	resp, err := http.Get("http://" + w.addr + "/data/big")
	must(w.t, err)
	first := make([]byte, 3<<20)
	_, err = io.ReadFull(resp.Body, first)
	must(w.t, err)
	must(w.t, resp.Body.Close())
	if resp.ContentLength != size {
		w.t.Errorf("GET: length %d", resp.ContentLength)
	}
	w.drained()
}
