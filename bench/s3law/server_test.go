package s3law

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"
)

func startTest(t *testing.T) *Server {
	t.Helper()
	s, err := Start(Options{Bucket: "b", Objects: []Object{
		{Key: "dir/one", Data: []byte("0123456789")},
		{Key: "dir/two", Data: bytes.Repeat([]byte("abc"), 1<<20)},
		{Key: "top", Data: nil},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.Enable(false)
	return s
}

func do(t *testing.T, method, url string, header ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

func TestServerObjects(t *testing.T) {
	s := startTest(t)
	one := s.URL() + "/b/dir/one"
	sum := md5.Sum([]byte("0123456789"))
	etag := `"` + hex.EncodeToString(sum[:]) + `"`
	for _, c := range []struct {
		name, method, url string
		header            []string
		code              int
		body, contentRng  string
	}{
		{"whole", "GET", one, nil, 200, "0123456789", ""},
		{"range", "GET", one, []string{"Range", "bytes=2-5"}, 206, "2345", "bytes 2-5/10"},
		{"past the end is cut", "GET", one, []string{"Range", "bytes=8-99"}, 206, "89", "bytes 8-9/10"},
		{"suffix", "GET", one, []string{"Range", "bytes=-3"}, 206, "789", "bytes 7-9/10"},
		{"behind the end", "GET", one, []string{"Range", "bytes=10-12"}, 416, "InvalidRange", ""},
		{"if-match", "GET", one, []string{"If-Match", etag}, 200, "0123456789", ""},
		{"if-match any", "GET", one, []string{"If-Match", "*"}, 200, "0123456789", ""},
		{"if-match list", "GET", one, []string{"If-Match", `"x", ` + etag}, 200, "0123456789", ""},
		{"if-match other", "GET", one, []string{"If-Match", `"x"`}, 412, "PreconditionFailed", ""},
		{"no key", "GET", s.URL() + "/b/none", nil, 404, "NoSuchKey", ""},
		{"no bucket", "GET", s.URL() + "/c/dir/one", nil, 404, "NoSuchBucket", ""},
		{"empty", "GET", s.URL() + "/b/top", nil, 200, "", ""},
		{"head", "HEAD", one, nil, 200, "", ""},
		{"put", "PUT", s.URL() + "/b/new", nil, 400, "MethodNotAllowed", ""},
		{"delete", "DELETE", one, nil, 400, "MethodNotAllowed", ""},
		{"list", "GET", s.URL() + "/b?list-type=2", nil, 200, "<Key>dir/two</Key>", ""},
		{"list of a folder", "GET", s.URL() + "/b?list-type=2&delimiter=/", nil, 200, "<Prefix>dir/</Prefix>", ""},
		{"buckets", "GET", s.URL() + "/", nil, 200, "<Name>b</Name>", ""},
	} {
		code, header, body := do(t, c.method, c.url, c.header...)
		if code != c.code || !strings.Contains(body, c.body) || (code < 300 && len(c.body) > 0 && c.body[0] != '<' && body != c.body) {
			t.Errorf("%s: %d %q, want %d %q", c.name, code, body, c.code, c.body)
		}
		if got := header.Get("Content-Range"); got != c.contentRng {
			t.Errorf("%s: Content-Range %q, want %q", c.name, got, c.contentRng)
		}
		if c.url == one && code < 300 && header.Get("ETag") != etag {
			t.Errorf("%s: ETag %q", c.name, header.Get("ETag"))
		}
	}
}

func TestServerCountsAndDelays(t *testing.T) {
	s := startTest(t)
	before := s.Metrics()
	s.Enable(true)
	if _, _, body := do(t, "GET", s.URL()+"/b/dir/two", "Range", "bytes=0-1048575"); len(body) != 1<<20 {
		t.Fatalf("%d bytes", len(body))
	}
	after := s.Metrics()
	if after.GETs-before.GETs != 1 || after.Bytes-before.Bytes != 1<<20 {
		t.Errorf("metrics went from %+v to %+v", before, after)
	}
}

func TestServerCloseFreesThePort(t *testing.T) {
	s := startTest(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.Get(s.URL()); err == nil {
		resp.Body.Close()
		t.Error("still answers")
	}
}

func TestOptionsValidate(t *testing.T) {
	for _, o := range []Options{
		{},
		{Bucket: "b", Objects: []Object{{Key: ""}}},
		{Bucket: "b", Objects: []Object{{Key: "k"}, {Key: "k"}}},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
