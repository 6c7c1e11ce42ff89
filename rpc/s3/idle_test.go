package s3

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine"
	"headstart/rpc/framing"
)

// TestWordsAfterALongPause: what a connection hears after it has been idle for longer
// than an answer may take to be accepted does not fall to the deadline of the answer
// before.
func TestWordsAfterALongPause(t *testing.T) {
	_ = new(fasthttp.ResponseHeader).Header() // starts fasthttp's clock, which never ends
	for name, c := range map[string]struct{ request, status string }{
		"asked for a body": {"PUT /b/k HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\nX-Amz-Content-Sha256: x\r\n\r\n", "100 Continue"},
		"refused a body":   {"PUT /b/k HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\nAuthorization: x\r\n\r\n", "400 Bad Request"},
		"misunderstood":    {"GET  / HTTP/1.1\r\n", "400 Bad Request"},
		"answered":         {"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "400 Bad Request"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				settings := NewSettings()
				settings.Anonymous.Store(uint32(AccessWrite))
				f, err := New(Options{Engine: &engine.Engine{}, Upstream: struct{ Upstream }{}, Settings: settings})
				must(t, err)
				client, server := net.Pipe()
				go func() { // ends with the connection
					_ = f.framed.HTTP.ServeConn(f.newConn(framing.NewConn(server, f.framed.Limits)))
				}()
				defer client.Close()
				in := bufio.NewReader(client)
				ask := func(request string) string {
					go func() { _, _ = io.WriteString(client, request) }() // ends with the connection
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						return err.Error()
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					return resp.Status
				}
				if got := ask("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n"); got != "400 Bad Request" {
					t.Errorf("first %s", got)
				}
				time.Sleep(idleTimeout - time.Second)
				if got := ask(c.request); got != c.status {
					t.Errorf("%s, want %s", got, c.status)
				}
			})
		})
	}
}
