package s3

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// TestLargeHeaders: what object storage says of an object reaches the client, by
// GET, by ranges and by HEAD, cold and warm, and costs no HEAD beside the read. What
// is too large to be kept is read past the cache.
func TestLargeHeaders(t *testing.T) {
	for _, c := range []struct {
		bytes int
		kept  bool
	}{{100, true}, {4 << 10, true}, {15 << 10, true}, {17 << 10, false}, {60 << 10, false}} {
		w := newWorld(t, options{})
		data := content("k", 1, 3*testBlock)
		w.put("k", data)
		value := strings.Repeat("v", c.bytes)
		w.faulty(func(rw http.ResponseWriter, r *http.Request) bool {
			rw.Header().Set("X-Amz-Meta-Large", value)
			rw.Header().Set("Content-Encoding", "x-test")
			return false
		})
		ask := func(method, rng string, want []byte) {
			t.Helper()
			resp, body := w.do(method, "/data/k", "Range", rng)
			if method == "HEAD" {
				want = nil
			}
			if resp.StatusCode/100 != 2 || !bytes.Equal(body, want) {
				t.Errorf("%d bytes of header: %s %q: status %d, %d bytes", c.bytes, method, rng, resp.StatusCode, len(body))
			}
			if h := resp.Header; h.Get("x-amz-meta-large") != value || h.Get("Content-Encoding") != "x-test" {
				t.Errorf("%d bytes of header: %s %q: they are not in the answer", c.bytes, method, rng)
			}
		}
		ask("GET", rangeOf(10, 20), data[10:20])
		if n := w.store.heads.Load(); n != 0 {
			t.Errorf("%d bytes of header: %d HEADs for a cold read", c.bytes, n)
		}
		w.settings.RevalidateMS.Store(-1)
		gets := w.store.gets.Load()
		for range 5 {
			ask("GET", rangeOf(30, 60), data[30:60])
		}
		if n := w.store.gets.Load() - gets; n != map[bool]int64{true: 0, false: 5}[c.kept] || w.store.heads.Load() != 0 {
			t.Errorf("%d bytes of header: %d GETs and %d HEADs for 5 warm reads", c.bytes, n, w.store.heads.Load())
		}
		ask("GET", "", data)
		ask("HEAD", "", data)
		w.drained()
	}
}
