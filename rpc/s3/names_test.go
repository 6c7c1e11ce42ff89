package s3

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// escaped is a path as clients send it that escape as little as they may.
func escaped(key string) string {
	return strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23", " ", "%20", "ü", "%C3%BC", "日", "%E6%97%A5", "+", "%2B").Replace(key)
}

// signedAs makes a request that is signed as S3 signs a key, and spells it in
// another way.
func (w *world) signedAs(method, key, path string) *http.Request {
	req := w.signed(method, "/data/"+string(appendEscaped(nil, key, true)), adminID, adminKey, unsigned, time.Now(), nil)
	req.URL = mustURL(w.t, "http://"+w.addr+"/data/"+path)
	return req
}

// TestKeysOfAllKinds: a key is the bytes that the client means, in every spelling:
// it is written, listed, read, signed and forgotten under the same name, and is not
// tidied up.
func TestKeysOfAllKinds(t *testing.T) {
	for _, key := range []string{
		"a//b", "//a", "/a", "a b", "a+b", "a%2Fb", "a%b", "ü/日", "a/../b", "./a", "..", "../..", "a/.", "slash/", "slashes//", "q?x=1#y", "semi;colon,comma",
		"a&b=c", "~!*'()@$", `back\slash`, "a:b", "%2e%2e/a",
	} {
		w := newWorld(t, options{})
		w.settings.RevalidateMS.Store(-1)
		data := content(key, 1, 300)
		put := func(data []byte) {
			t.Helper()
			req := w.signedAs("PUT", key, escaped(key))
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(string(data))), int64(len(data))
			if resp, body := w.send(req); resp.StatusCode != 200 {
				t.Errorf("%q: PUT: status %d, %s", key, resp.StatusCode, body)
			}
		}
		put(data)
		list, err := w.direct.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(testBucket)})
		must(t, err)
		if len(list.Contents) != 1 || *list.Contents[0].Key != key {
			t.Errorf("%q is stored as %+v", key, list.Contents)
		}
		for _, path := range []string{escaped(key), string(appendEscaped(nil, key, true)), string(appendEscaped(nil, key, false))} {
			for range 2 { // of the store, of the cache
				if resp, body := w.do("GET", "/data/"+path); resp.StatusCode != 200 || string(body) != string(data) {
					t.Errorf("%q as %s: status %d, %d bytes", key, path, resp.StatusCode, len(body))
				}
			}
			w.settings.Anonymous.Store(uint32(AccessNone))
			if resp, _ := w.send(w.signedAs("HEAD", key, path)); resp.StatusCode != 200 || resp.ContentLength != 300 {
				t.Errorf("%q as %s, signed: status %d", key, path, resp.StatusCode)
			}
			w.settings.Anonymous.Store(uint32(AccessRead))
		}
		if n := w.store.gets.Load(); n != 2 { // one of them is the list
			t.Errorf("%q: %d GETs: spellings are objects of their own", key, n)
		}
		put(data[:10])
		if resp, body := w.do("GET", "/data/"+escaped(key)); string(body) != string(data[:10]) {
			t.Errorf("%q: status %d, what was written over is still read", key, resp.StatusCode)
		}
	}
}

// TestListsAreTheStores: whatever a list asks for, its answer is what object storage
// gives, page by page.
func TestListsAreTheStores(t *testing.T) {
	w := newWorld(t, options{})
	for _, key := range []string{"a b/1", "a b/2", "a+b/3", "ü/4", "c&d/5", "plain", "plain2", "z/6/7"} {
		w.put(key, []byte("x"))
	}
	id := regexp.MustCompile(`<(RequestId|HostId)>[^<]*</`)
	both := func(query string) string {
		t.Helper()
		resp, body := w.do("GET", "/data?"+query)
		direct, err := http.Get(w.storeURL + "/data?" + query)
		must(t, err)
		defer direct.Body.Close()
		want, err := io.ReadAll(direct.Body)
		must(t, err)
		got := id.ReplaceAllString(string(body), "")
		if resp.StatusCode != direct.StatusCode || got != id.ReplaceAllString(string(want), "") || resp.Header.Get("Content-Type") != direct.Header.Get("Content-Type") {
			t.Errorf("%s: status %d, %s; object storage says %d, %s", query, resp.StatusCode, body, direct.StatusCode, want)
		}
		return got
	}
	for _, query := range []string{
		"", "list-type=2", "list-type=2&encoding-type=url", "list-type=2&encoding-type=url&delimiter=%2F", "list-type=2&delimiter=/&prefix=a%20b/", "list-type=2&prefix=a+b/",
		"list-type=2&prefix=a%2Bb/", "prefix=%C3%BC&delimiter=/", "list-type=2&start-after=plain", "marker=plain&max-keys=1", "list-type=2&max-keys=0", "versions", "location", "uploads",
		"list-type=2&max-keys=x", "list-type=2&continuation-token=nonsense",
	} {
		both(query)
	}
	next := regexp.MustCompile(`<NextContinuationToken>([^<]*)</`)
	pages, query := 0, "list-type=2&max-keys=3"
	for q := query; q != ""; pages++ {
		token := next.FindStringSubmatch(both(q))
		if q = ""; token != nil {
			q = query + "&continuation-token=" + url.QueryEscape(token[1])
		}
	}
	if pages != 3 {
		t.Errorf("%d pages of 3 keys for 8", pages)
	}
}

// TestAnonymousCallers see what they may and nothing else.
func TestAnonymousCallers(t *testing.T) {
	w := newWorld(t, options{})
	w.put("k", []byte("x"))
	for access, want := range map[Access]map[string]int{
		AccessNone:  {"GET /": 403, "GET /data": 403, "HEAD /data": 403, "GET /data/k": 403, "PUT /data/new": 403, "DELETE /data/new": 403},
		AccessRead:  {"GET /": 200, "GET /data": 200, "HEAD /data": 200, "HEAD /none": 404, "GET /data/k": 200, "PUT /data/new": 403, "DELETE /data/new": 403},
		AccessWrite: {"GET /": 200, "PUT /data/new": 200, "DELETE /data/new": 204, "POST /": 405, "PATCH /data/k": 405, "HEAD /": 405},
	} {
		w.settings.Anonymous.Store(uint32(access))
		for _, line := range []string{"GET /", "GET /data", "HEAD /data", "HEAD /none", "GET /data/k", "PUT /data/new", "DELETE /data/new", "POST /", "PATCH /data/k", "HEAD /"} {
			status, ok := want[line]
			if !ok {
				continue
			}
			method, path, _ := strings.Cut(line, " ")
			resp, body := w.do(method, path)
			if resp.StatusCode != status || method != "HEAD" && status >= 400 && code(body) == "" || method == "HEAD" && len(body) > 0 {
				t.Errorf("access %d: %s: status %d, want %d, %s", access, line, resp.StatusCode, status, body)
			}
		}
	}
}

// TestHeadBeforeGet: many engines ask for the size before they read. Cold that costs
// object storage two requests, and none while what is known is fresh.
func TestHeadBeforeGet(t *testing.T) {
	w := newWorld(t, options{})
	data := content("k", 1, 2*testBlock)
	for i, c := range []struct {
		ms          int64
		first       string
		heads, gets int64 // of the second round
	}{{60_000, "HEAD", 0, 0}, {-1, "HEAD", 0, 0}, {60_000, "GET", 0, 0}, {0, "HEAD", 2, 0}} {
		w.settings.RevalidateMS.Store(c.ms)
		key := fmt.Sprint("k", i)
		w.put(key, data)
		round := func() (heads, gets int64) {
			heads, gets = w.store.heads.Load(), w.store.gets.Load()
			for _, method := range []string{c.first, "GET", "HEAD", "GET"}[:2] {
				if resp, _ := w.do(method, "/data/"+key); resp.StatusCode != 200 || resp.ContentLength != int64(len(data)) {
					t.Errorf("%s: status %d, length %d", method, resp.StatusCode, resp.ContentLength)
				}
			}
			return w.store.heads.Load() - heads, w.store.gets.Load() - gets
		}
		if heads, gets := round(); heads > 1+c.heads/2 || gets != 1 {
			t.Errorf("%+v, cold: %d HEADs, %d GETs", c, heads, gets)
		}
		w.flush()
		if heads, gets := round(); heads != c.heads || gets != c.gets {
			t.Errorf("%+v, warm: %d HEADs, %d GETs", c, heads, gets)
		}
	}
}
