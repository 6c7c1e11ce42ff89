package s3

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestPipelinedRequestsOfAllKinds: small and large hits, misses, answers without a
// body and errors come in their order and whole, whatever is ahead of them on the
// connection: headers are held back for some of them, and buffers used again.
func TestPipelinedRequestsOfAllKinds(t *testing.T) {
	w := newWorld(t, options{})
	data := content("k", 1, 3*testBlock+5)
	w.put("k", data)
	w.get("k", "", data)
	w.flush()
	etag := w.get("k", "", data).Header.Get("ETag")
	type one struct {
		text, method string
		status       int
		body         []byte // nil for any
	}
	r := rand.New(rand.NewPCG(1, 2))
	var list []one
	add := func(method, key, header string, status int, body []byte) {
		list = append(list, one{method + " /data/" + key + " HTTP/1.1\r\nHost: a\r\n" + header + "\r\n", method, status, body})
	}
	for i := range 300 {
		n := int64([]int{1, 100, 3 << 10, 3<<10 + 1, 40 << 10, 60 << 10, 2 * testBlock}[r.IntN(7)])
		from := r.Int64N(int64(len(data)) - n)
		part := "Range: " + rangeOf(from, from+n) + "\r\n"
		switch r.IntN(8) {
		case 0:
			add("HEAD", "k", part, 206, []byte{})
		case 1:
			add("GET", "k", "If-None-Match: "+etag+"\r\n", 304, []byte{})
		case 2:
			add("GET", "k", "Range: bytes=9999999-\r\n", 416, nil)
		case 3:
			add("GET", fmt.Sprint("none-", i), "", 404, nil)
		case 4:
			add("GET", "k", part+"If-Range: \"other\"\r\n", 200, data)
		default:
			add("GET", "k", part, 206, data[from:from+n])
		}
	}
	c, err := net.Dial("tcp", w.addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(patience)))
	go func() { // ends with its requests, or the connection
		var all strings.Builder
		for _, q := range list {
			all.WriteString(q.text)
		}
		_, _ = io.WriteString(c, all.String()) // the answers tell
	}()
	from := bufio.NewReader(c)
	for i, q := range list {
		resp, err := http.ReadResponse(from, &http.Request{Method: q.method})
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != q.status || q.body != nil && !bytes.Equal(body, q.body) {
			t.Fatalf("%d: %q: status %d, want %d; %d bytes, want %d, %v", i, q.text, resp.StatusCode, q.status, len(body), len(q.body), err)
		}
		if q.status < 400 && resp.Header.Get("ETag") != etag || q.status >= 400 && resp.Header.Get("ETag") != "" {
			t.Errorf("%d: %q: ETag %q", i, q.text, resp.Header.Get("ETag"))
		}
	}
}
