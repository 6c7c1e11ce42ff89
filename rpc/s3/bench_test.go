package s3

import (
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/bench/latency"
)

// BenchmarkHit is one small answer out of the cache, without the socket: where its
// request is read, and in the server's loop, unsigned and with a signature to check.
func BenchmarkHit(b *testing.B) {
	b.Run("short", func(b *testing.B) {
		w := newWorld(b, options{})
		w.settings.RevalidateMS.Store(-1)
		data := content("k", 1, 1024)
		w.put("k", data)
		w.get("k", "", data)
		w.flush()
		_, c := newSocketConn(w.Front)
		request := []byte("GET /data/k HTTP/1.1\r\nHost: a\r\n\r\n")
		b.ReportAllocs()
		for b.Loop() {
			if done, err := w.answerShort(c, request); !done || err != nil {
				b.Fatal(done, err)
			}
		}
	})
	for name, signed := range map[string]bool{"unsigned": false, "signed": true} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, options{})
			w.settings.RevalidateMS.Store(-1)
			data := content("k", 1, 1024)
			w.put("k", data)
			w.get("k", "", data)
			w.flush()
			var ctx fasthttp.RequestCtx
			ctx.Init(&fasthttp.Request{}, nil, nil)
			ctx.Request.Header.SetRequestURI("/data/k")
			ctx.Request.Header.SetHost(w.addr)
			if signed {
				req := w.signed("GET", "/data/k", adminID, adminKey, unsigned, time.Now(), nil)
				for _, h := range []string{"Authorization", "X-Amz-Date", "X-Amz-Content-Sha256"} {
					ctx.Request.Header.Set(h, req.Header.Get(h))
				}
			}
			hit := func() {
				ctx.Response.Reset()
				w.handle(&ctx)
			}
			b.ReportAllocs()
			for b.Loop() {
				hit()
			}
			latency.ReportEach(b, hit)
			if ctx.Response.StatusCode() != 200 || len(ctx.Response.Body()) != 1024 {
				b.Fatalf("status %d: %s", ctx.Response.StatusCode(), ctx.Response.Body())
			}
		})
	}
}
