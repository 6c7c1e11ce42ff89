package s3

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// FuzzAuthorization: whatever the header says, it is refused or names all that a
// signature needs.
func FuzzAuthorization(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=abc", "20260101T000000Z")
	f.Add("AWS4-HMAC-SHA256 Credential=////,SignedHeaders=,Signature=", "Thu, 01 Jan 2026 00:00:00 GMT")
	f.Add("AWS AK:sig", "")
	now := time.Date(2026, 1, 1, 0, 5, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, auth, date string) {
		h := &fasthttp.RequestHeader{}
		h.Set("X-Amz-Date", date)
		s := &signature{}
		if err := s.parseHeader(auth, h, now); err != nil {
			if err.Status() < 400 || err.Message == "" {
				t.Errorf("%+v", err)
			}
			return
		}
		if s.id == "" || len(s.day) != 8 || s.given == "" || len(s.headers) == 0 || s.at.Format("20060102") != s.day {
			t.Errorf("%q is taken for %+v", auth, s)
		}
		if d := now.Sub(s.at); d > maxSkew || d < -maxSkew {
			t.Errorf("%v is %v off", s.at, d)
		}
	})
}

// FuzzQuery: the same of what was signed in advance.
func FuzzQuery(f *testing.F) {
	f.Add("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F20260101%2Fr%2Fs3%2Faws4_request&X-Amz-Date=20260101T000000Z&X-Amz-Expires=600&X-Amz-SignedHeaders=host&X-Amz-Signature=abc")
	f.Add("X-Amz-Expires=-1&X-Amz-Algorithm")
	f.Add("b=2&a=1&a%2B=0&a=&a-=%C3%BC&b=10&=x&a=0")
	now := time.Date(2026, 1, 1, 0, 5, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, query string) {
		var args fasthttp.Args
		args.Parse(query)
		s := &signature{}
		err := s.parseQuery(&args, now)
		if err == nil && (s.id == "" || !s.presigned || now.After(s.at.Add(maxExpiry)) || now.Before(s.at.Add(-maxSkew))) {
			t.Errorf("%q is taken for %+v", query, s)
		}
		if got, want := string(new(request).appendQuery([]byte("before"), &args)), "before"+sortedQuery(&args); got != want {
			t.Errorf("%q is signed as %q, want %q", query, got, want)
		}
	})
}

// sortedQuery is a query as it is signed, made in the plainest way.
func sortedQuery(args *fasthttp.Args) string {
	var pairs [][2]string
	for name, value := range args.All() {
		if string(name) != "X-Amz-Signature" {
			pairs = append(pairs, [2]string{string(appendEscaped(nil, string(name), false)), string(appendEscaped(nil, string(value), false))})
		}
	}
	slices.SortFunc(pairs, func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
	var text []string
	for _, p := range pairs {
		text = append(text, p[0]+"="+p[1])
	}
	return strings.Join(text, "&")
}

// FuzzChunks: a body in chunks gives the bytes that were announced, or an error;
// never io.EOF for less, never more.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\n\r\n"), int64(5), "")
	f.Add([]byte("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"), int64(5), "x-amz-checksum-crc32")
	f.Add([]byte("ffffffffffffffff\r\n"), int64(1), "")
	f.Add([]byte("5;chunk-signature=abc\r\nhello\r\n0;chunk-signature=\r\n\r\n"), int64(5), "")
	f.Fuzz(func(t *testing.T, body []byte, size int64, trailers string) {
		d, bad := newChunked(bytes.NewReader(body), size, &caller{payload: streamingUnsigned}, trailers)
		if bad != nil {
			return
		}
		got, err := io.ReadAll(newHeld(d))
		if err == nil && int64(len(got)) != size {
			t.Errorf("%d bytes of %d, and no error", len(got), size)
		}
		if int64(len(got)) > max(0, size) {
			t.Errorf("%d bytes of %d", len(got), size)
		}
		if err != nil && size > 0 && int64(len(got)) == size {
			t.Errorf("all bytes were handed out before %v", err)
		}
	})
}

// FuzzRange: a range lies in the object, or is none.
func FuzzRange(f *testing.F) {
	for _, text := range []string{"bytes=0-0", "bytes=-5", "bytes=5-", "bytes=0-1,2-3", "bytes=99999999999999999999-", "bytes= 1-2", "b=1-2"} {
		f.Add(text, int64(10))
	}
	f.Fuzz(func(t *testing.T, text string, size int64) {
		if size < 0 || size > 5<<40 {
			return
		}
		from, to, ok := parseRange(text).in(size)
		if ok && (from < 0 || to > size || from > to || from == to && size > 0) {
			t.Errorf("%q of %d bytes is %d to %d", text, size, from, to)
		}
	})
}

// FuzzPath: every target is refused or names a bucket and a key that, escaped,
// are read as the same again.
func FuzzPath(f *testing.F) {
	for _, uri := range []string{"/", "/b", "/b/k", "/b/a%20b?x=1", "http://h/b/k", "//k", "/b//k/../k", "/%zz", "*", "/b/k%3Fq#f", "/b/k!"} {
		f.Add(uri)
	}
	front := &Front{Options: Options{Settings: NewSettings()}}
	f.Fuzz(func(t *testing.T, uri string) {
		if strings.ContainsAny(uri, " \r\n\x00") {
			return // framing and fasthttp let none through
		}
		var ctx fasthttp.RequestCtx
		ctx.Request.SetRequestURI(uri)
		ctx.Request.Header.SetRequestURI(uri)
		var r, again request
		if err := front.parse(&ctx, &r); err != nil {
			return
		}
		r.own() // what comes now overwrites the connection's bytes
		ctx.Request.Header.SetRequestURI("/" + string(appendEscaped(nil, r.path, true)))
		if err := front.parse(&ctx, &again); err != nil || again.bucket != r.bucket || again.key != r.key {
			t.Errorf("%q is bucket %q key %q, which is read as %q, %q: %v", uri, r.bucket, r.key, again.bucket, again.key, err)
		}
	})
}
