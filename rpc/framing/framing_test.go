package framing

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/bench/latency"
)

const bodyLimit = 64

func scanner() *Scanner { return &Scanner{Limits: Limits{HeaderBytes: 256, BodyBytes: bodyLimit}} }

// wire writes line feeds as they are on the wire, so that tests can be read.
func wire(text string) []byte { return []byte(strings.ReplaceAll(text, "\n", "\r\n")) }

func TestHT05_WellFramedRequestsPass(t *testing.T) {
	for name, text := range map[string]string{
		"get":          "GET / HTTP/1.1\nHost: a\n\n",
		"post nothing": "POST /api/x?y=z HTTP/1.1\nHost: a\n\n",
		"length":       "POST / HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello",
		"no blank":     "POST / HTTP/1.1\nhost:a\ncontent-length:5\n\nhello",
		"chunks":       "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\nhello\n0A\n0123456789\n0\n\n",
		"http 1.0":     "GET / HTTP/1.0\n\n",
		"empty line":   "\nGET / HTTP/1.1\nHost: a\n\n",
		"tab in value": "GET / HTTP/1.1\nHost: a\nX: a\tb\n\n",
	} {
		in := wire(text)
		for _, piece := range []int{1, 3, len(in)} {
			s := scanner()
			for rest := in; len(rest) > 0; {
				n := min(piece, len(rest))
				if good, err := s.Scan(rest[:n]); err != nil || good != n {
					t.Fatalf("%s in pieces of %d: passed %d of %d: %v", name, piece, good, n, err)
				}
				rest = rest[n:]
			}
			if s.Requests() != 1 {
				t.Errorf("%s in pieces of %d: %d requests", name, piece, s.Requests())
			}
		}
	}
}

// smuggled is a second request that must never run.
const smuggled = "GET /hidden HTTP/1.1\nHost: a\n\n"

// doubtful are requests whose end is a matter of opinion.
func doubtful() map[string][]byte {
	post := "POST /seen HTTP/1.1\nHost: a\n"
	return map[string][]byte{
		"length and chunks":       wire(post + "Content-Length: 4\nTransfer-Encoding: chunked\n\n0\n\n" + smuggled),
		"chunks and length":       wire(post + "Transfer-Encoding: chunked\nContent-Length: 4\n\n0\n\n" + smuggled),
		"two lengths":             wire(post + "Content-Length: 0\nContent-Length: 5\n\n" + smuggled),
		"the same length twice":   wire(post + "Content-Length: 5\nContent-Length: 5\n\nhello" + smuggled),
		"list of lengths":         wire(post + "Content-Length: 5, 5\n\nhello" + smuggled),
		"plus":                    wire(post + "Content-Length: +5\n\nhello" + smuggled),
		"minus":                   wire(post + "Content-Length: -5\n\nhello" + smuggled),
		"hex length":              wire(post + "Content-Length: 0x5\n\nhello" + smuggled),
		"empty length":            wire(post + "Content-Length:\n\n" + smuggled),
		"length that overflows":   wire(post + "Content-Length: 18446744073709551621\n\nhello" + smuggled),
		"length behind blanks":    wire(post + "Content-Length:  5\n\nhello" + smuggled),
		"length before a blank":   wire(post + "Content-Length: 5 \n\nhello" + smuggled),
		"blank before the colon":  wire(post + "Content-Length : 5\n\nhello" + smuggled),
		"blank before chunked":    wire(post + "Transfer-Encoding:  chunked\n\n0\n\n" + smuggled),
		"tab before chunked":      wire(post + "Transfer-Encoding:\tchunked\n\n0\n\n" + smuggled),
		"vertical tab":            wire(post + "Transfer-Encoding: \vchunked\n\n0\n\n" + smuggled),
		"blank line start":        wire(post + " Transfer-Encoding: chunked\n\n0\n\n" + smuggled),
		"chunked twice":           wire(post + "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n0\n\n" + smuggled),
		"list of encodings":       wire(post + "Transfer-Encoding: gzip, chunked\n\n0\n\n" + smuggled),
		"identity":                wire(post + "Transfer-Encoding: identity\n\n" + smuggled),
		"chunks in 1.0":           wire("POST /seen HTTP/1.0\nTransfer-Encoding: chunked\n\n0\n\n" + smuggled),
		"folded":                  wire(post + "X: a\n b: c\n\n" + smuggled),
		"folded length":           wire(post + "Content-Length:\n 5\n\nhello" + smuggled),
		"bare line feeds":         []byte(strings.ReplaceAll(smuggled, "hidden", "seen") + smuggled),
		"bare line feed in a row": []byte("GET /seen HTTP/1.1\r\nHost: a\nX: y\r\n\r\n" + string(wire(smuggled))),
		"bare CR":                 []byte("GET /seen HTTP/1.1\r\nHost: a\rX: y\r\n\r\n" + string(wire(smuggled))),
		"NUL":                     wire("GET /seen HTTP/1.1\nHost: a\nX: \x00\n\n" + smuggled),
		"no colon":                wire(post + "Content-Length\n\n" + smuggled),
		"name of other letters":   wire(post + "Content-Length\xc2\xa0: 5\n\nhello" + smuggled),
		"huge chunk":              wire(post + "Transfer-Encoding: chunked\n\nffffffffffffffff1\nx" + smuggled),
		"chunk that wraps to 0":   wire(post + "Transfer-Encoding: chunked\n\n10000000000000000\n\n" + smuggled),
		"chunk with a sign":       wire(post + "Transfer-Encoding: chunked\n\n+5\nhello\n0\n\n" + smuggled),
		"chunk with 0x":           wire(post + "Transfer-Encoding: chunked\n\n0x5\nhello\n0\n\n" + smuggled),
		"chunk of no size":        wire(post + "Transfer-Encoding: chunked\n\n\n0\n\n" + smuggled),
		"chunk extension":         wire(post + "Transfer-Encoding: chunked\n\n5;a=b\nhello\n0\n\n" + smuggled),
		"bare LF behind a size":   []byte(string(wire(post+"Transfer-Encoding: chunked\n\n")) + "5\nhello\r\n0\r\n\r\n" + string(wire(smuggled))),
		"chunk too short":         wire(post + "Transfer-Encoding: chunked\n\n4\nhello\n0\n\n" + smuggled),
		"trailer":                 wire(post + "Transfer-Encoding: chunked\n\n0\nContent-Length: 3\n\n" + smuggled),
		"version":                 wire("GET /seen HTTP/1.2\nHost: a\n\n" + smuggled),
		"no version":              wire("GET /seen\n" + smuggled),
		"two blanks":              wire("GET  /seen HTTP/1.1\nHost: a\n\n" + smuggled),
		"blank in the target":     wire("GET /seen /x HTTP/1.1\nHost: a\n\n" + smuggled),
	}
}

func TestHT05_DoubtfulRequestsAreRefused(t *testing.T) {
	for name, in := range doubtful() {
		for _, piece := range []int{1, 7, len(in)} {
			s := scanner()
			passed, err := scanIn(s, in, piece)
			wrong := new(Error)
			if !errors.As(err, &wrong) || wrong.Status != http.StatusBadRequest {
				t.Errorf("%s in pieces of %d: %v after %q", name, piece, err, passed)
			}
			if s.Requests() != 0 {
				t.Errorf("%s in pieces of %d: %d requests have ended", name, piece, s.Requests())
			}
		}
	}
}

// scanIn scans in pieces until something is refused, and returns what passed.
func scanIn(s *Scanner, in []byte, piece int) (passed []byte, err error) {
	for len(in) > 0 && err == nil {
		n := min(piece, len(in))
		good := 0
		good, err = s.Scan(in[:n])
		passed = append(passed, in[:good]...)
		in = in[n:]
	}
	return passed, err
}

// serve starts a server with the handler and returns its address.
func serve(t *testing.T, h fasthttp.RequestHandler, stream bool) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &Server{Limits: scanner().Limits, HTTP: &fasthttp.Server{
		Handler: h, StreamRequestBody: stream, DisablePreParseMultipartForm: true, ErrorHandler: statusOf, Logger: mute{},
	}}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }() // ended by Shutdown
	t.Cleanup(func() {
		if err := errors.Join(server.Shutdown(context.Background()), <-done); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// statusOf answers with the status of the error, as a server is meant to.
func statusOf(ctx *fasthttp.RequestCtx, err error) {
	if wrong := Refused(ctx.Conn()); wrong != nil {
		ctx.Error(wrong.Reason, wrong.Status)
		return
	}
	ctx.Error("not ours: "+err.Error(), http.StatusTeapot)
}

// talk sends bytes over one connection and returns all that comes back until
// the server closes it.
func talk(t *testing.T, addr string, in []byte) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go c.Write(in) // ends with the connection
	out, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%.60q: the server does not close: %v after %q", in, err, out)
	}
	return string(out)
}

func TestHT05_TheHiddenRequestNeverRuns(t *testing.T) {
	for _, stream := range []bool{false, true} {
		addr := serve(t, func(ctx *fasthttp.RequestCtx) {
			if string(ctx.Path()) == "/hidden" {
				t.Errorf("the hidden request ran")
			}
			_ = ctx.PostBody() // in streaming mode the error comes here
		}, stream)
		for name, in := range doubtful() {
			out := talk(t, addr, in)
			// A streaming server may have run the request before it met the bad chunk.
			late := stream && bytes.Contains(in, []byte("chunked\r\n\r\n"))
			if !strings.HasPrefix(out, "HTTP/1.1 400 ") && !late {
				t.Errorf("%s, streaming %t: %.60q", name, stream, out)
			}
			if n := strings.Count(out, "HTTP/1.1 "); n > 1 {
				t.Errorf("%s, streaming %t: %d answers", name, stream, n)
			}
		}
	}
}

func TestHT02_BodiesOverTheLimitAreRefusedUnread(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for name, in := range map[string][]byte{
		"length":    wire(fmt.Sprintf("POST / HTTP/1.1\nHost: a\nContent-Length: %d\n\n%s", len(big), big)),
		"announced": wire("POST / HTTP/1.1\nHost: a\nContent-Length: 999999999999\n\n"),
		"one chunk": wire(fmt.Sprintf("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n%x\n%s\n0\n\n", len(big), big)),
		"chunks":    wire("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n" + strings.Repeat("10\n0123456789abcdef\n", 100)),
	} {
		for _, stream := range []bool{false, true} {
			addr := serve(t, func(ctx *fasthttp.RequestCtx) {
				if n := len(ctx.PostBody()); n > 2*bodyLimit {
					t.Errorf("%s: a body of %d bytes", name, n)
				}
			}, stream)
			out := talk(t, addr, in)
			if !strings.HasPrefix(out, "HTTP/1.1 413 ") && (!stream || name == "length" || name == "announced") {
				t.Errorf("%s, streaming %t: %.60q", name, stream, out)
			}
		}
	}
}

func TestHeaderIsBounded(t *testing.T) {
	s := scanner()
	_, err := s.Scan(wire("GET / HTTP/1.1\nX: " + strings.Repeat("x", 300)))
	wrong := new(Error)
	if !errors.As(err, &wrong) || wrong.Status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a line without an end: %v", err)
	}
	s = scanner()
	if _, err = s.Scan(wire("GET / HTTP/1.1\n" + strings.Repeat("A: b\n", 100))); !errors.As(err, &wrong) {
		t.Errorf("lines without an end: %v", err)
	}
	// The bound is of one request, not of the connection.
	s = scanner()
	if _, err := s.Scan(bytes.Repeat(wire("GET / HTTP/1.1\nHost: a\n\n"), 100)); err != nil || s.Requests() != 100 {
		t.Errorf("%d requests, %v", s.Requests(), err)
	}
}

// FuzzFraming: whatever passes means the same to three readers. Nobody runs a
// request that the scanner has not seen end, and fasthttp and net/http read the
// same bodies; and pieces make no difference.
func FuzzFraming(f *testing.F) {
	for _, in := range doubtful() {
		f.Add(in, uint8(5))
	}
	f.Add(wire("POST / HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello"+smuggled), uint8(1))
	f.Add(wire("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n"+smuggled), uint8(2))
	f.Fuzz(func(t *testing.T, in []byte, piece uint8) {
		s := scanner()
		passed, err := scanIn(s, in, len(in)+1)
		pieces := scanner()
		_, errAgain := scanIn(pieces, in, int(piece)+1)
		if fmt.Sprint(err) != fmt.Sprint(errAgain) || s.Requests() != pieces.Requests() {
			t.Fatalf("whole: %v after %d, in pieces: %v after %d", err, s.Requests(), errAgain, pieces.Requests())
		}
		ran, read := runs(passed), reads(passed)
		if len(ran) > s.Requests() || len(read) > s.Requests() {
			t.Errorf("fasthttp ran %q, net/http reads %q, %d requests have ended", ran, read, s.Requests())
		}
		// Either may refuse what is none of framing's business, and ends there.
		for i := range min(len(ran), len(read)) {
			if ran[i] != read[i] {
				t.Errorf("fasthttp ran %q, net/http reads %q", ran, read)
			}
		}
	})
}

// runs returns what fasthttp makes of bytes: method and body of each request
// that its handler is called for.
func runs(in []byte) (ran []string) {
	server := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			ran = append(ran, fmt.Sprintf("%s %q", ctx.Method(), ctx.PostBody()))
		},
		DisablePreParseMultipartForm: true, NoDefaultServerHeader: true, Logger: mute{},
	}
	_ = server.ServeConn(&script{in: bytes.NewReader(in)}) // it ends in an error when the bytes do
	return ran
}

// reads returns the same as net/http reads it.
func reads(in []byte) (all []string) {
	r := bufio.NewReader(bytes.NewReader(in))
	for {
		for { // net/http knows no empty lines before a request
			if next, err := r.Peek(2); err != nil || string(next) != "\r\n" {
				break
			}
			_, _ = r.Discard(2)
		}
		req, err := http.ReadRequest(r)
		if err != nil {
			return all
		}
		text, err := io.ReadAll(req.Body)
		if err != nil {
			return all
		}
		all = append(all, fmt.Sprintf("%s %q", req.Method, text))
	}
}

type mute struct{}

func (mute) Printf(string, ...any) {}

// script is a connection whose client has said all it will ever say.
type script struct{ in *bytes.Reader }

func (c *script) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c *script) Write(p []byte) (int, error)      { return len(p), nil }
func (c *script) Close() error                     { return nil }
func (c *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *script) SetDeadline(time.Time) error      { return nil }
func (c *script) SetReadDeadline(time.Time) error  { return nil }
func (c *script) SetWriteDeadline(time.Time) error { return nil }

func BenchmarkScan(b *testing.B) {
	in := wire("GET /read?path=s3://bucket/some/key&tablet_id=10086&offset=1048576&size=65536 HTTP/1.1\n" +
		"Host: 127.0.0.1:8040\nUser-Agent: curl/8.5.0\nAccept: */*\n\n")
	s := Scanner{}
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Scan(in); err != nil {
			b.Fatal(err)
		}
	}
	latency.ReportEach(b, func() { _, _ = s.Scan(in) })
}

func TestScanAllocatesNothing(t *testing.T) {
	in := wire("GET / HTTP/1.1\nHost: a\n\n")
	s := scanner()
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Scan(in) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAlone: only what one Read has brought of exactly one request without a body
// stands alone.
func TestAlone(t *testing.T) {
	const get = "GET / HTTP/1.1\nHost: a\n\n"
	for name, c := range map[string]struct {
		pieces []string
		want   []bool
	}{
		"one":             {[]string{get}, []bool{true}},
		"one by one":      {[]string{get, get}, []bool{true, true}},
		"two at once":     {[]string{get + get}, []bool{false}},
		"in pieces":       {[]string{get[:5], get[5:], get}, []bool{false, false, true}},
		"one and a piece": {[]string{get + get[:5], get[5:]}, []bool{false, false}},
		"no body":         {[]string{"POST / HTTP/1.1\nContent-Length: 0\n\n"}, []bool{true}},
		"a body":          {[]string{"POST / HTTP/1.1\nContent-Length: 2\n\nab", get}, []bool{false, true}},
		"chunks":          {[]string{"POST / HTTP/1.1\nTransfer-Encoding: chunked\n\n0\n\n", get}, []bool{false, true}},
		"one and wrong":   {[]string{get + "x\n"}, []bool{false}},
		"refused":         {[]string{"GET / HTTP/1.1\nHost: a\n b\n\n"}, []bool{false}},
	} {
		client, server := net.Pipe()
		conn := NewConn(server, Limits{BodyBytes: bodyLimit})
		for i, piece := range c.pieces {
			sent := make(chan struct{})
			go func() { // ends with the read
				defer close(sent)
				_, _ = client.Write(wire(piece)) // whole, into the buffer below
			}()
			var buf [256]byte
			_, _ = conn.Read(buf[:]) // its error is another test's
			<-sent
			if conn.Alone() != c.want[i] {
				t.Errorf("%s: piece %d: %v", name, i, conn.Alone())
			}
		}
		_ = client.Close()
		_ = server.Close()
	}
}
