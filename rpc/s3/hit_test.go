package s3

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"headstart/rpc/framing"
)

// reply is what came back on a connection: "" where it was closed instead.
type reply struct {
	status string
	header http.Header
	body   []byte
}

// exchange sends bytes on a connection of its own and reads replies to method.
func (w *world) exchange(method string, raw []byte) reply {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	must(w.t, err)
	defer c.Close()
	must(w.t, c.SetDeadline(time.Now().Add(patience)))
	_, err = c.Write(raw)
	must(w.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return reply{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(w.t, err)
	resp.Header.Del("X-Amz-Request-Id") // each has its own
	resp.Header.Del("Date")
	resp.Header.Del("Age")
	return reply{resp.Status, resp.Header, body}
}

// bothWays asks, and asks the same once more if that went the short way, as it
// reports. An empty line before a request, which the server takes as nothing, keeps
// it off that way.
func (w *world) bothWays(method, target, header string) (reply, bool) {
	w.t.Helper()
	raw := fmt.Appendf(nil, "%s %s HTTP/1.1\r\n%s\r\n", method, target, header)
	before := w.shortAnswers()
	short := w.exchange(method, raw)
	if w.shortAnswers() == before {
		return short, false
	}
	long := w.exchange(method, append([]byte("\r\n"), raw...))
	if short.status != long.status || !bytes.Equal(short.body, long.body) || !maps.EqualFunc(short.header, long.header, slices.Equal) {
		w.t.Errorf("%q\n is answered on the short way with\n%s %v %.100q\nand on the long one with\n%s %v %.100q",
			raw, short.status, short.header, short.body, long.status, long.header, long.body)
	}
	return short, true
}

// shortAnswers tells how many answers there were on the short way.
func (w *world) shortAnswers() int64 { return w.count.short.Load() }

// TestShortWayIsTheSame: what is answered where it is read is answered as in the
// server's own loop, header by header, and goes that way at all.
func TestShortWayIsTheSame(t *testing.T) {
	w := newWorld(t, options{blockSize: 1 << 20})
	w.settings.RevalidateMS.Store(-1)
	data := content("k", 1, 200<<10)
	w.put("k", data)
	w.put("empty", nil)
	w.put("a/b c.parquet", data)
	w.put("/x:y/z", data)
	w.get("k", "", data)
	w.get("empty", "", nil)
	w.get("a/b%20c.parquet", "", data)
	w.get("/x:y/z", "", data)
	w.flush()
	etag := w.get("k", "", data).Header.Get("ETag")
	const short, long = true, false
	for _, c := range []struct {
		method, target, header string
		short                  bool
		status                 int
	}{
		{"GET", "/data/k", "", short, 200},
		{"HEAD", "/data/k", "", short, 200},
		{"GET", "/data/k", "Range: bytes=5-9\r\n", short, 206},
		{"HEAD", "/data/k", "Range: bytes=5-9\r\n", short, 206},
		{"GET", "/data/k", "range:bytes=-7\r\n", short, 206},
		{"GET", "/data/k", "Range: bytes=100000-\r\n", short, 206},
		{"GET", "/data/k", "Range: bytes=9-5\r\n", short, 200},
		{"GET", "/data/k", "Range: lines=1-2\r\n", short, 200},
		{"GET", "/data/k", "Range: bytes=204800-\r\n", long, 416},
		{"GET", "/data/k", "Range: bytes=-0\r\n", long, 416},
		{"GET", "/data/k?x-id=GetObject", "", short, 200},
		{"GET", "/data/k?response-content-type=text/plain", "", long, 200},
		{"GET", "/data/k?versionId=null", "", long, 200},
		{"GET", "/data/a/b%20c.parquet", "Range: bytes=-8\r\n", short, 206},
		{"GET", "/data/a/b%20c.parquet", "X-Headstart-Query-Id: q1\r\n", short, 200},
		{"GET", "http://elsewhere/data/k", "", long, 200},
		{"GET", "/data/k", "Host: [::1]:80\r\n", long, 200},
		{"GET", "/data/k", "Host: a:80\r\n", short, 200},
		{"GET", "/data/k", "Host: :a\r\n", long, 400},
		{"GET", "/data/k", "Host: a:b\r\n", long, 400},
		{"GET", "/data/k", "Host: a:1:2\r\n", long, 400},
		{"GET", "//x:y/z", "Host: data.s3.test\r\n", long, 200},
		{"GET", "/k", "Host: data.s3.test\r\n", short, 200},
		{"GET", "/data/empty", "", long, 200},
		{"GET", "/data/nothing", "", long, 404},
		{"GET", "/data", "", long, 200},
		{"GET", "/", "", long, 200},
		{"GET", "/data/%zz", "", long, 400},
		{"GET", "/data/k", "If-Match: " + etag + "\r\n", short, 200},
		{"GET", "/data/k", "If-None-Match: " + etag + "\r\n", long, 304},
		{"GET", "/data/k", "If-Match: \"other\"\r\n", long, 412},
		{"GET", "/data/k", "If-Range: \"other\"\r\nRange: bytes=1-2\r\n", short, 200},
		{"GET", "/data/k", "Connection: close\r\n", long, 200},
		{"GET", "/data/k", "Connection: keep-alive\r\n", short, 200},
		{"GET", "/data/k", "Authorization: AWS4-HMAC-SHA256 nonsense\r\n", long, 400},
		{"GET", "/data/k", "Content-Length: 0\r\n", short, 200},
		{"GET", "/data/k", "X-Long: " + strings.Repeat("x", maxShort) + "\r\n", long, 200},
		{"DELETE", "/data/k", "", long, 403},
	} {
		header := c.header
		if !strings.HasPrefix(header, "Host:") {
			header = "Host: " + w.addr + "\r\n" + header
		}
		got, went := w.bothWays(c.method, c.target, header)
		if went != c.short || !strings.HasPrefix(got.status, fmt.Sprint(c.status)) {
			t.Errorf("%s %s %.60q: status %s, short way %v", c.method, c.target, c.header, got.status, went)
		}
	}
}

// TestShortWayAsksWhoItIs: signatures and rights count there as well.
func TestShortWayAsksWhoItIs(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.RevalidateMS.Store(-1)
	data := content("k", 1, 1000)
	w.put("k", data)
	w.get("k", "", data)
	w.flush()
	w.settings.Anonymous.Store(uint32(AccessNone))
	signed := w.signed("GET", "/data/k", adminID, adminKey, unsigned, time.Now(), nil)
	var header strings.Builder
	fmt.Fprintf(&header, "Host: %s\r\n", signed.Host)
	must(t, signed.Header.Write(&header))
	if got, went := w.bothWays("GET", "/data/k", header.String()); !went || got.status != "200 OK" {
		t.Errorf("signed: %v, short way %v", got.status, went)
	}
	denied := w.Metrics().Denied
	if got, went := w.bothWays("GET", "/data/k", "Host: a\r\n"); went || got.status != "403 Forbidden" || w.Metrics().Denied != denied+1 {
		t.Errorf("without a right: %v, short way %v, %d denied", got.status, went, w.Metrics().Denied-denied)
	}
}

// FuzzShortWay: no request is answered differently on its two ways, whoever has
// signed it.
func FuzzShortWay(f *testing.F) {
	w := newWorld(f, options{})
	w.settings.RevalidateMS.Store(-1)
	for key, size := range map[string]int64{"k": 5000, "large.orc": testBlock, "blocks": 2*testBlock + 7, "empty": 0, "a b//c": 1} {
		data := content(key, 1, size)
		w.put(key, data)
		w.get(escaped(key), "", data)
	}
	w.flush()
	f.Add("GET", "/data/k", "Host: a\r\n", false)
	f.Add("GET", "/data/k?x-id=GetObject#f", "Host: a\r\nRange: bytes=1-\r\n", false)
	f.Add("HEAD", "//data/k", "host: a b\r\nHost: c\r\n", false)
	f.Add("GET", "/data/k", "Host: a\r\nExpect: 100-continue\r\nConnection: upgrade\r\n", false)
	f.Add("GET", "*", "Host:\r\nTransfer-Encoding: chunked\r\n", false)
	f.Add("GET", "/data/../data/k", "Host: [::1]:80\r\nX-Amz-Content-Sha256: x\r\n", false)
	f.Add("GET", "/data/k?x-amz-checksum-mode=ENABLED&x-id=a%20b+c", "Range: bytes=-9\r\nX-Amz-Date: 1\r\n", true)
	f.Add("HEAD", "/data/large.orc", "Range: bytes=1-2\r\nrange: bytes=3-\r\nConnection: close, keep-alive\r\n", true)
	f.Add("GET", "/data/large.orc", "If-None-Match: \"x\"\r\nIf-Range: W/\"y\"\r\nContent-Length: 0\r\n", true)
	f.Add("GET", "/data/blocks", "Range: bytes=5-9\r\nX-Headstart-Query-Id: q\r\nTrailer: a\r\nCookie: b=c\r\n", false)
	f.Add("HEAD", "/a%20b//c?response-expires=1", "Host: data.s3.test:80\r\nTE: trailers\r\nDate: 1\r\n", false)
	f.Add("GET", "/data/empty", "Host: :a\r\n", false)
	f.Fuzz(func(t *testing.T, method, target, header string, signed bool) {
		w := *w
		w.t = t
		if method != "GET" && method != "HEAD" {
			return
		}
		if u, err := url.ParseRequestURI(target); signed && err == nil && u.Host == "" && u.Path != "" && u.Path[0] == '/' {
			req := w.signed(method, u.RequestURI(), adminID, adminKey, unsigned, time.Now(), nil)
			var lines strings.Builder
			must(t, req.Header.Write(&lines))
			target, header = u.RequestURI(), "Host: "+req.URL.Host+"\r\n"+lines.String()+header
		}
		s := framing.Scanner{Limits: framing.Limits{HeaderBytes: maxHeaderBytes}}
		raw := []byte(method + " " + target + " HTTP/1.1\r\n" + header + "\r\n")
		if n, err := s.Scan(raw); err != nil || n != len(raw) || s.Requests() != 1 {
			return // it is not one request
		}
		w.bothWays(method, target, header)
	})
}

// socket is a connection that notes what is done to it.
type socket struct {
	net.Conn
	deadlines int
}

func (s *socket) SetReadDeadline(time.Time) error  { s.deadlines++; return nil }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
func (s *socket) Write(p []byte) (int, error)      { return len(p), nil }

func newSocketConn(f *Front) (*socket, *conn) {
	s := &socket{}
	return s, &conn{Conn: framing.NewConn(s, framing.Limits{}), raw: s, front: f}
}

// TestDeadlinesHoldWithoutBeingSetEachTime: a client has never less than its time,
// and never more than five quarters of it.
func TestDeadlinesHoldWithoutBeingSetEachTime(t *testing.T) {
	f := &Front{Options: Options{BlockTimeout: time.Minute}}
	s, c := newSocketConn(f)
	now := time.Unix(1e9, 0)
	for range 100 {
		must(t, c.giveTime(now))
		now = now.Add(f.BlockTimeout / 400)
	}
	if s.deadlines != 1 {
		t.Errorf("set %d times in a quarter of the time", s.deadlines)
	}
	must(t, c.giveTime(now.Add(time.Second)))
	must(t, c.SetReadDeadline(now)) // by the server
	must(t, c.giveTime(now.Add(time.Second)))
	if s.deadlines != 4 {
		t.Errorf("set %d times", s.deadlines)
	}
}

// TestShutdownLetsAnswersEnd: clients that go on asking get whole answers until
// their connections are closed, and the shutdown comes to its end.
func TestShutdownLetsAnswersEnd(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.RevalidateMS.Store(-1)
	data := content("k", 1, testBlock)
	w.put("k", data)
	w.get("k", "", data)
	w.flush()
	var clients, warm sync.WaitGroup
	for range 8 {
		warm.Add(1)
		clients.Go(func() { // ends with its connection
			once := sync.OnceFunc(warm.Done)
			defer once()
			c, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			for n := 0; ; n++ {
				if n == 10 {
					once()
				}
				if _, err := io.WriteString(c, "GET /data/k HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
					return
				}
				if _, err := in.Peek(1); err != nil {
					return // closed between two requests
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes, %v", len(got), err)
					return
				}
				if resp.Close {
					return
				}
			}
		})
	}
	warm.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	clients.Wait()
}
