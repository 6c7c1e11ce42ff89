package s3

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// wire sends text on a connection of its own and returns all that comes back until
// its end.
func (w *world) wire(text string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	must(w.t, err)
	defer c.Close()
	must(w.t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, text)
	must(w.t, err)
	all, err := io.ReadAll(c)
	if err != nil {
		w.t.Errorf("%.200q: the connection goes on: %v after %.300q", text, err, all)
	}
	return string(all)
}

// TestAnswersWithoutABody: an error or a 304 has none where none is allowed, and the
// next answer on the connection is read as what it is.
func TestAnswersWithoutABody(t *testing.T) {
	w := newWorld(t, options{})
	data := content("k", 1, 100)
	w.put("k", data)
	etag := w.get("k", "", data).Header.Get("ETag")
	next := "GET /data/k HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	for name, c := range map[string]struct {
		first, status string
		header        []string
	}{
		"HEAD of nothing":    {"HEAD /data/none HTTP/1.1\r\nHost: a\r\n\r\n", "404 Not Found", []string{"x-amz-request-id"}},
		"HEAD of no bucket":  {"HEAD /none HTTP/1.1\r\nHost: a\r\n\r\n", "404 Not Found", []string{"x-amz-request-id"}},
		"HEAD of a bucket":   {"HEAD /data HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK", []string{"x-amz-request-id"}},
		"HEAD, refused":      {"HEAD /data/k HTTP/1.1\r\nHost: a\r\nAuthorization: AWS4-HMAC-SHA256 x\r\n\r\n", "400 Bad Request", nil},
		"HEAD of no path":    {"HEAD /data/%zz HTTP/1.1\r\nHost: a\r\n\r\n", "400 Bad Request", nil},
		"HEAD beyond":        {"HEAD /data/k HTTP/1.1\r\nHost: a\r\nRange: bytes=100-\r\n\r\n", "416 Requested Range Not Satisfiable", []string{"Content-Range: bytes */100"}},
		"HEAD that is unmet": {"HEAD /data/k HTTP/1.1\r\nHost: a\r\nIf-Match: \"x\"\r\n\r\n", "412 Precondition Failed", nil},
		"HEAD, not modified": {"HEAD /data/k HTTP/1.1\r\nHost: a\r\nIf-None-Match: " + etag + "\r\n\r\n", "304 Not Modified", []string{"ETag: " + etag}},
		"GET, not modified":  {"GET /data/k HTTP/1.1\r\nHost: a\r\nIf-None-Match: " + etag + "\r\n\r\n", "304 Not Modified", []string{"ETag: " + etag, "Last-Modified: ", "Cache-Control: max-age=7"}},
		"HEAD of a range":    {"HEAD /data/k HTTP/1.1\r\nHost: a\r\nRange: bytes=5-9\r\n\r\n", "206 Partial Content", []string{"Content-Length: 5", "Content-Range: bytes 5-9/100"}},
	} {
		first, rest, _ := strings.Cut(w.wire(c.first+next), "\r\n\r\n")
		if !strings.HasPrefix(first, "HTTP/1.1 "+c.status+"\r\n") {
			t.Errorf("%s: %q", name, first)
		}
		for _, h := range c.header {
			if !strings.Contains(first, "\r\n"+h) {
				t.Errorf("%s: no %q in %q", name, h, first)
			}
		}
		second, body, _ := strings.Cut(rest, "\r\n\r\n")
		if !strings.HasPrefix(second, "HTTP/1.1 200 OK\r\n") || body != string(data) {
			t.Errorf("%s: what comes behind is %.100q, %d bytes", name, second, len(body))
		}
	}
}

// TestConnectionsAreKeptAsAsked by the protocol's version and the client.
func TestConnectionsAreKeptAsAsked(t *testing.T) {
	w := newWorld(t, options{})
	data := content("k", 1, 3*testBlock)
	w.put("k", data)
	for _, key := range []string{"k", "none", "k?versionId=null"} {
		get := "GET /data/" + key + " HTTP/1."
		for text, answers := range map[string]int{
			get + "0\r\n\r\n": 1,
			get + "0\r\nConnection: keep-alive\r\n\r\n" + get + "0\r\n\r\n":                  2,
			get + "1\r\nHost: a\r\nConnection: close\r\n\r\n":                                1,
			get + "1\r\nHost: a\r\n\r\n" + get + "1\r\nHost: a\r\nConnection: close\r\n\r\n": 2,
		} {
			all := w.wire(text)
			if n := strings.Count(all, "HTTP/1.1 "); n != answers || strings.Contains(all, "Transfer-Encoding") {
				t.Errorf("%q: %d answers: %.300q", text, n, all)
			}
			if n := strings.Count(all, string(data)); n != answers && key != "none" {
				t.Errorf("%q: %d whole bodies", text, n)
			}
		}
	}
}

// TestBodiesThatAreAskedFor: a client that waits for 100 before it sends its body
// gets that, or hears at once why it is refused, though it has sent none.
func TestBodiesThatAreAskedFor(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Anonymous.Store(uint32(AccessWrite))
	data := content("k", 1, 3*testBlock)
	put := func(key, header string) (*bufio.Reader, net.Conn) {
		c, err := net.Dial("tcp", w.addr)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		must(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprintf(c, "PUT /data/%s HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n%s\r\n", key, header)
		must(t, err)
		return bufio.NewReader(c), c
	}
	in, c := put("k", fmt.Sprintf("Content-Length: %d\r\n", len(data)))
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 100 {
		t.Fatalf("%+v, %v", resp, err)
	}
	_, err = c.Write(data)
	must(t, err)
	resp, err = http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
	w.get("k", "", data)
	denied := w.Metrics().Denied
	for name, header := range map[string]string{
		"a key that nobody has": "Content-Length: 6000000000\r\nAuthorization: AWS4-HMAC-SHA256 Credential=a/20260101/r/s3/aws4_request,SignedHeaders=host,Signature=b\r\nX-Amz-Date: 20260101T000000Z\r\n",
		"nonsense":              "Content-Length: 6000000000\r\nAuthorization: x\r\n",
	} {
		in, _ := put("refused", header)
		resp, err := http.ReadResponse(in, nil)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode/100 != 4 || code(body) == "" || !resp.Close {
			t.Errorf("%s: status %d, %q, %v", name, resp.StatusCode, body, err)
		}
	}
	if n := w.Metrics().Denied - denied; n != 2 {
		t.Errorf("%d requests were denied", n)
	}
}

// TestEmptyAndWrongUploads: no byte is an object as well; a body that is not what
// Content-MD5 says is none.
func TestEmptyAndWrongUploads(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Anonymous.Store(uint32(AccessWrite))
	for _, header := range []string{"Content-Length: 0\r\n", "", "Content-Length: 0\r\nExpect: 100-continue\r\n", "X-Amz-Content-Sha256: " + emptyHash + "\r\n"} {
		w.put("empty", []byte("not yet"))
		if all := w.wire("PUT /data/empty HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + header + "\r\n"); !strings.Contains(all, "HTTP/1.1 200 OK\r\n") {
			t.Errorf("%q: %q", header, all)
		}
		w.get("empty", "", nil)
	}
	for body, status := range map[string]string{"hello": "200 OK", "hallo": "400 Bad Request"} {
		all := w.wire("PUT /data/" + body + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\nContent-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n\r\n" + body)
		if !strings.HasPrefix(all, "HTTP/1.1 "+status) {
			t.Errorf("%s: %q", body, all)
		}
		if resp, _ := w.do("GET", "/data/"+body); (resp.StatusCode == 200) != (status == "200 OK") {
			t.Errorf("%s: status %d of what was stored", body, resp.StatusCode)
		}
	}
	// Signed without a hash of the body: it is taken for empty, so it must be.
	for body, status := range map[string]int{"": 200, "x": 400} {
		req := w.signed("PUT", "/data/unhashed", adminID, adminKey, emptyHash, time.Now(), func(r *http.Request) { r.Header.Del("X-Amz-Content-Sha256") })
		if body != "" {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
		if resp, answer := w.send(req); resp.StatusCode != status {
			t.Errorf("unhashed %q: status %d, %s", body, resp.StatusCode, answer)
		}
	}
}

// TestUnitsOfRanges: they are written in any letters.
func TestUnitsOfRanges(t *testing.T) {
	for text, want := range map[string]span{
		"bytes=0-0": {given: true, to: 1}, "BYTES=1-2": {given: true, from: 1, to: 3}, "Bytes=-5": {given: true, suffix: 5, to: -1},
		"bytes= 3-4 ": {given: true, from: 3, to: 5}, "bytes =3-4": {to: -1}, "bytes=3 - 4": {to: -1}, "bytes=5-2": {to: -1}, "bytes=0-1,4-5": {to: -1},
		"bytes": {to: -1}, "=0-1": {to: -1}, "": {to: -1}, "bytes=-": {to: -1}, "bytes=-0": {given: true, from: -1, to: -1},
	} {
		if got := parseRange(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// TestHT01_ShutdownEndsHalfRequests: who has sent a part of a header is not waited
// for until it is told that it was too slow.
func TestHT01_ShutdownEndsHalfRequests(t *testing.T) {
	w := newWorld(t, options{})
	var half []net.Conn
	for _, text := range []string{"", "G", "GET /data/k HTTP/1.1\r\nHost: a\r\n", "PUT /data/k HTTP/1.1\r\nContent-Length: 5\r\n"} {
		c, err := net.Dial("tcp", w.addr)
		must(t, err)
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(c, text)
		must(t, err)
		half = append(half, c)
	}
	must(t, w.Shutdown(t.Context()))
	for i, c := range half {
		if n, err := c.Read(make([]byte, 100)); n > 0 || err == nil {
			t.Errorf("connection %d has got an answer, %d bytes", i, n)
		}
	}
}
