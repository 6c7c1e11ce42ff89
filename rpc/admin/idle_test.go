package admin

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/rpc/framing"
)

// TestWordsAfterALongPause: what a connection hears after it has been idle for longer
// than an answer may take to be accepted does not fall to the deadline of the answer
// before.
func TestWordsAfterALongPause(t *testing.T) {
	_ = new(fasthttp.ResponseHeader).Header() // starts fasthttp's clock, which never ends
	for name, c := range map[string]struct{ request, status string }{
		"asked for a body": {"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", "100 Continue"},
		"misunderstood":    {"GET  / HTTP/1.1\r\n", "400 Bad Request"},
		"answered":         {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newHTTP(func(*fasthttp.RequestCtx) {}, slog.New(slog.DiscardHandler))
				client, conn := net.Pipe()
				go func() { // ends with the connection
					_ = server.ServeConn(framing.NewConn(conn, framing.Limits{BodyBytes: maxBodyBytes}))
				}()
				defer client.Close()
				in := bufio.NewReader(client)
				ask := func(request string) string {
					go func() { _, _ = io.WriteString(client, request) }() // ends with the connection
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						return err.Error()
					}
					return resp.Status
				}
				if got := ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); got != "200 OK" {
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
