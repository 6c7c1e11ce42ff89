package s3

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// TestOS04_EverySizeAndRange reads each range twice: from object storage, and from
// the cache.
func TestOS04_EverySizeAndRange(t *testing.T) {
	w := newWorld(t, options{})
	const b = testBlock
	for _, size := range []int64{0, 1, 16, b - 1, b, b + 1, 3 * b, 20*b + 5} {
		key := fmt.Sprintf("dir/size %d+ü", size)
		path := fmt.Sprintf("dir/size%%20%d+%%C3%%BC", size)
		data := content(key, 1, size)
		w.put(key, data)
		for round, source := range []string{"s3", "local"} {
			resp := w.get(path, "", data)
			h := resp.Header
			if resp.StatusCode != 200 || h.Get("Content-Length") != strconv.FormatInt(size, 10) || h.Get("Accept-Ranges") != "bytes" ||
				h.Get("ETag") == "" || h.Get("Last-Modified") == "" || h.Get("Content-Type") != "application/x-test" ||
				h.Get("x-amz-meta-color") != "blue" || h.Get("Cache-Control") != "max-age=7" || h.Get("x-amz-request-id") == "" ||
				h.Get("Age") != "0" {
				t.Errorf("size %d round %d: status %d, header %v", size, round, resp.StatusCode, h)
			}
			if size > 0 && h.Get("X-Headstart-Source") != source {
				t.Errorf("size %d round %d: from %q, want %q", size, round, h.Get("X-Headstart-Source"), source)
			}
		}
		w.ranges(path, data)
	}
}

// ranges reads parts of an object in all ways of writing them.
func (w *world) ranges(path string, data []byte) {
	w.t.Helper()
	size := int64(len(data))
	part := func(rng string, from, to int64) {
		w.t.Helper()
		resp := w.get(path, rng, data[from:to])
		if want := fmt.Sprintf("bytes %d-%d/%d", from, to-1, size); resp.StatusCode != 206 || resp.Header.Get("Content-Range") != want {
			w.t.Errorf("%s of %d bytes: status %d, Content-Range %q, want %q", rng, size, resp.StatusCode, resp.Header.Get("Content-Range"), want)
		}
	}
	for _, from := range []int64{0, 1, testBlock - 1, testBlock, size / 2, size - 1} {
		if from < 0 || from >= size {
			continue
		}
		for _, n := range []int64{1, 2, testBlock, size} {
			to := min(from+n, size)
			part(rangeOf(from, to), from, to)
			part(rangeOf(from, from+n), from, to) // beyond the end as well
		}
		part(fmt.Sprintf("bytes=%d-", from), from, size)
		part(fmt.Sprintf("bytes=-%d", size-from), from, size)
	}
	if size > 0 {
		part("bytes=-99999999999999999999", 0, size)
		part("bytes=0-99999999999999999999", 0, size)
	}
	for _, rng := range []string{fmt.Sprintf("bytes=%d-", size), fmt.Sprintf("bytes=%d-%d", size+7, size+9), "bytes=-0", "bytes=99999999999999999999-"} {
		resp, body := w.do("GET", "/"+testBucket+"/"+path, "Range", rng)
		if resp.StatusCode != 416 || code(body) != "InvalidRange" || resp.Header.Get("Content-Range") != fmt.Sprintf("bytes */%d", size) {
			w.t.Errorf("%s of %d bytes: status %d, Content-Range %q, %s", rng, size, resp.StatusCode, resp.Header.Get("Content-Range"), body)
		}
	}
	for _, rng := range []string{"bytes=", "bytes=a-b", "bytes=5-3", "bytes=0-0,2-3", "lines=1-2", "bytes=--1", "bytes=+1-2", "bytes=1"} {
		if resp := w.get(path, rng, data); resp.StatusCode != 200 {
			w.t.Errorf("%s: status %d, want all of the object", rng, resp.StatusCode)
		}
	}
}

// TestUnknownRange asks for ranges of objects that nothing is known of: what they
// are comes with their bytes, and costs no HEAD.
func TestS14_RangeOfAnUnknownObject(t *testing.T) {
	w := newWorld(t, options{})
	data := content("k", 1, 3*testBlock)
	for i, c := range []struct {
		rng      string
		from, to int
		heads    int64
	}{
		{"bytes=0-9", 0, 10, 0}, {"bytes=70000-", 70000, len(data), 0}, {"bytes=-10", len(data) - 10, len(data), 1}, {"", 0, len(data), 0},
	} {
		key := fmt.Sprintf("k%d", i)
		w.put(key, data)
		before := w.store.heads.Load()
		w.get(key, c.rng, data[c.from:c.to])
		if n := w.store.heads.Load() - before; n != c.heads {
			t.Errorf("%q: %d HEADs, want %d", c.rng, n, c.heads)
		}
	}
	resp, body := w.do("GET", "/"+testBucket+"/k0", "Range", "bytes=196608-")
	if resp.StatusCode != 416 {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}

func TestHeadObject(t *testing.T) {
	w := newWorld(t, options{})
	w.put("k", content("k", 1, 1000))
	for range 3 {
		resp, _ := w.do("HEAD", "/data/k")
		h := resp.Header
		if resp.StatusCode != 200 || resp.ContentLength != 1000 || h.Get("ETag") == "" || h.Get("x-amz-meta-color") != "blue" {
			t.Errorf("status %d, length %d, header %v", resp.StatusCode, resp.ContentLength, h)
		}
	}
	if n := w.store.heads.Load(); n != 1 {
		t.Errorf("%d HEADs reached object storage", n)
	}
	resp, _ := w.do("HEAD", "/data/k", "Range", "bytes=10-19")
	if resp.StatusCode != 206 || resp.ContentLength != 10 || resp.Header.Get("Content-Range") != "bytes 10-19/1000" {
		t.Errorf("status %d, length %d, %q", resp.StatusCode, resp.ContentLength, resp.Header.Get("Content-Range"))
	}
	if resp, body := w.do("HEAD", "/data/none"); resp.StatusCode != 404 || len(body) != 0 {
		t.Errorf("status %d of what does not exist, body %q", resp.StatusCode, body)
	}
}

func TestErrorsAreThoseOfS3(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Anonymous.Store(uint32(AccessWrite))
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/data/none", 404, "NoSuchKey"},
		{"GET", "/nobucket/k", 404, "NoSuchBucket"},
		{"GET", "/nobucket", 404, "NoSuchBucket"},
		{"GET", "/data/%zz", 400, "InvalidURI"},
		{"GET", "//k", 400, "InvalidURI"},
		{"POST", "/", 405, "MethodNotAllowed"},
		{"PATCH", "/data/k", 405, "MethodNotAllowed"},
		{"TRACE", "/data/k", 405, "MethodNotAllowed"},
	} {
		req, err := http.NewRequest(c.method, "http://"+w.addr, nil)
		must(t, err)
		req.URL.Opaque = "//" + w.addr + c.path
		resp, body := w.send(req)
		if resp.StatusCode != c.status || code(body) != c.code {
			t.Errorf("%s %s: status %d, %s, want %d and %s", c.method, c.path, resp.StatusCode, body, c.status, c.code)
		}
	}
}

func TestConditions(t *testing.T) {
	w := newWorld(t, options{})
	data := content("k", 1, 1000)
	w.put("k", data)
	first, _ := w.do("HEAD", "/data/k")
	etag, modified := first.Header.Get("ETag"), first.Header.Get("Last-Modified")
	at, err := http.ParseTime(modified)
	must(t, err)
	before, after := at.Add(-time.Minute).Format(http.TimeFormat), at.Add(time.Minute).Format(http.TimeFormat)
	bare := etag[1 : len(etag)-1]
	for _, c := range []struct {
		header []string
		want   int
	}{
		{[]string{"If-Match", etag}, 200}, {[]string{"If-Match", bare}, 200}, {[]string{"If-Match", "*"}, 200},
		{[]string{"If-Match", `"x", ` + etag}, 200}, {[]string{"If-Match", `"x"`}, 412}, {[]string{"If-Match", "W/" + etag}, 412},
		{[]string{"If-None-Match", etag}, 304}, {[]string{"If-None-Match", "W/" + etag}, 304}, {[]string{"If-None-Match", "*"}, 304},
		{[]string{"If-None-Match", `"x"`}, 200},
		{[]string{"If-Modified-Since", modified}, 304}, {[]string{"If-Modified-Since", after}, 304}, {[]string{"If-Modified-Since", before}, 200},
		{[]string{"If-Modified-Since", "yesterday"}, 200},
		{[]string{"If-Unmodified-Since", modified}, 200}, {[]string{"If-Unmodified-Since", before}, 412},
		{[]string{"If-Match", etag, "If-Unmodified-Since", before}, 200},
		{[]string{"If-None-Match", `"x"`, "If-Modified-Since", after}, 200},
		{[]string{"If-Match", `"x"`, "If-None-Match", etag}, 412},
		{[]string{"If-Range", etag, "Range", "bytes=0-9"}, 206}, {[]string{"If-Range", `"x"`, "Range", "bytes=0-9"}, 200},
		{[]string{"If-Range", modified, "Range", "bytes=0-9"}, 206}, {[]string{"If-Range", before, "Range", "bytes=0-9"}, 200},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			resp, body := w.do(method, "/data/k", c.header...)
			if resp.StatusCode != c.want {
				t.Errorf("%s %q: status %d, want %d", method, c.header, resp.StatusCode, c.want)
			}
			if c.want == 304 && (len(body) != 0 || resp.Header.Get("ETag") != etag) {
				t.Errorf("%s %q: a 304 with %d bytes and ETag %q", method, c.header, len(body), resp.Header.Get("ETag"))
			}
			if c.want == 412 && method == "GET" && code(body) != "PreconditionFailed" {
				t.Errorf("%q: %s", c.header, body)
			}
		}
	}
	if n := w.store.heads.Load() + w.store.gets.Load(); n > 2 {
		t.Errorf("%d requests reached object storage: conditions are answered from what is known", n)
	}
}

func TestVirtualHosts(t *testing.T) {
	w := newWorld(t, options{})
	data := content("a/b", 1, 100)
	w.put("a/b", data)
	for _, c := range []struct {
		host, path string
		status     int
	}{
		{"data.s3.test", "/a/b", 200}, {"data.s3.test:8050", "/a/b", 200}, {"DATA.S3.TEST", "/a/b", 200},
		{"s3.test", "/data/a/b", 200}, {"other.test", "/data/a/b", 200}, {"127.0.0.1", "/data/a/b", 200},
		{"data.s3.test", "/data/a/b", 404}, {"nobucket.s3.test", "/a/b", 404},
	} {
		resp, body := w.do("GET", c.path, "Host", c.host)
		if resp.StatusCode != c.status || c.status == 200 && string(body) != string(data) {
			t.Errorf("%s%s: status %d, want %d: %s", c.host, c.path, resp.StatusCode, c.status, head(body))
		}
	}
	virtual := s3.New(s3.Options{
		BaseEndpoint: aws.String("http://s3.test"), Region: "r", Credentials: w.sdk(adminID, adminKey).Options().Credentials,
		HTTPClient: &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(mustURL(t, "http://"+w.addr))}},
	})
	out, err := virtual.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(testBucket), Key: aws.String("a/b")})
	must(t, err)
	out.Body.Close()
}

func TestOverridesAndProfile(t *testing.T) {
	w := newWorld(t, options{})
	w.put("k", content("k", 1, 100))
	resp, _ := w.do("GET", "/data/k?response-content-type=text%2Fplain&response-content-disposition=attachment%3B+filename%3Dx&x-id=GetObject",
		"X-Headstart-Query-Id", "q-1")
	if resp.Header.Get("Content-Type") != "text/plain" || resp.Header.Get("Content-Disposition") != "attachment; filename=x" {
		t.Errorf("header %v", resp.Header)
	}
	w.get("k", "", content("k", 1, 100))
	if q := w.Engine.Profiles.Find("q-1"); q == nil {
		t.Error("the query has no profile")
	}
}

func TestFooters(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		key            string
		from, to, size int64
		want           bool
	}{
		{"a.parquet", 10*mb - 8, 10 * mb, 10 * mb, true}, {"a.PARQUET", 10*mb - 64<<10, 10*mb - 8, 10 * mb, true},
		{"a.orc", 9 * mb, 10 * mb, 10 * mb, true}, {"a.orc", 8 * mb, 10 * mb, 10 * mb, false},
		{"a.parquet", 0, 8, 10 * mb, false}, {"a.parquet", 0, 100, 100, false}, {"a.parquet", 5 * mb, 6 * mb, 10 * mb, false},
		{"a.csv", 10*mb - 8, 10 * mb, 10 * mb, false}, {"parquet", 10*mb - 8, 10 * mb, 10 * mb, false},
	} {
		if got := footer(c.key, c.from, c.to, c.size); got != c.want {
			t.Errorf("footer(%s, %d, %d, %d) = %v", c.key, c.from, c.to, c.size, got)
		}
	}
}

// TestNamesOfHeaders are compared as bytes: some clients do, and SDKs hand names of
// metadata on as they come.
func TestNamesOfHeaders(t *testing.T) {
	w := newWorld(t, options{})
	w.put("k", []byte("x"))
	for _, target := range []string{"/data/k", "/data/k", "/data/k?versionId=null&x=1"} {
		c, err := net.Dial("tcp", w.addr)
		must(t, err)
		_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", target)
		must(t, err)
		answer, err := io.ReadAll(c)
		must(t, err)
		must(t, c.Close())
		for _, name := range []string{"\r\nETag: ", "\r\nx-amz-meta-color: blue\r\n", "\r\nLast-Modified: ", "\r\nx-amz-request-id: ", "\r\nDate: "} {
			if !strings.Contains(string(answer), name) {
				t.Errorf("%s: no %q in %s", target, name, head(answer))
			}
		}
	}
}
