package s3

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine/block"
)

// The short way of an answer: a request that came in one piece and is about bytes
// in one block of the cache is answered where it is read, by the same rules and
// with the same words as in the server's loop behind it (TestShortWayIsTheSame
// compares them), without what that loop does for requests of all kinds. What it is
// not sure of it leaves to that loop, which begins anew.

// maxShort bounds the requests that go the short way.
const maxShort = 4 << 10

// short is what the short way works with, of a pool.
type short struct {
	ctx fasthttp.RequestCtx
	in  bytes.Reader
	buf *bufio.Reader
	r   request
}

func (f *Front) getShort() *short {
	if s, ok := f.shorts.Get().(*short); ok {
		return s
	}
	s := &short{buf: bufio.NewReaderSize(nil, maxShort)}
	s.ctx.Init2(nil, quiet{f.Logger}, false)
	return s
}

// Read implements net.Conn: it answers what it can on the short way, and returns
// the first bytes that it can't.
func (c *conn) Read(p []byte) (int, error) {
	for answered := false; ; answered = true {
		n, err := c.Conn.Read(p)
		if n == 0 && answered {
			return 0, io.EOF // between requests; the server would tell of an error
		}
		if err == nil && n <= maxShort && c.Alone() {
			if !c.Hold() {
				return 0, io.EOF
			}
			done, err := c.front.answerShort(c, p[:n])
			if !c.Let() || err != nil {
				return 0, io.EOF // the answer was the last one, or has been cut
			}
			if done {
				continue
			}
		}
		if answered && err == nil { // the server knows of no request before this one, and sets none
			err = c.SetReadDeadline(time.Now().Add(readTimeout))
		}
		return n, err
	}
}

// answerShort reports false when the request has to go the long way: nothing has
// been said yet.
func (f *Front) answerShort(c *conn, p []byte) (done bool, err error) {
	if f.framed.Stopping() || !bytes.HasPrefix(p, []byte("GET ")) && !bytes.HasPrefix(p, []byte("HEAD ")) {
		return false, nil
	}
	s := f.getShort()
	defer f.putShort(s)
	s.in.Reset(p)
	s.buf.Reset(&s.in)
	h := &s.ctx.Request.Header
	if h.Read(s.buf) != nil || s.buf.Buffered() > 0 || s.in.Len() > 0 ||
		!h.IsHTTP11() || h.ConnectionClose() || s.ctx.Request.MayContinue() || !plain(h) {
		return false, nil
	}
	a, v, ok := f.findShort(s)
	if !ok {
		return false, nil
	}
	now := time.Now()
	if err := c.giveTime(now); err != nil {
		v.Lease.Release()
		return true, err
	}
	return f.sayShort(c, s, &a, v, now)
}

// plain reports whether target and host are of the kind that the server's loop
// takes without looking closer.
func plain(h *fasthttp.RequestHeader) bool {
	if uri := h.RequestURI(); len(uri) == 0 || uri[0] != '/' || len(uri) > 1 && uri[1] == '/' {
		return false // a second slash may begin a host
	}
	host, port, _ := bytes.Cut(h.Host(), []byte(":"))
	for _, c := range host {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '-' {
			return false
		}
	}
	for _, c := range port {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(host) > 0
}

func (f *Front) putShort(s *short) {
	s.ctx.Request.Reset()
	s.ctx.ResetUserValues()
	s.r = request{scratch: s.r.scratch, pairs: s.r.pairs}
	f.shorts.Put(s)
}

// findShort looks for the answer. The view is empty for HEAD.
func (f *Front) findShort(s *short) (a answer, v block.View, ok bool) {
	ctx, r := &s.ctx, &s.r
	if f.parse(ctx, r) != nil || r.kind != readObject || f.Ready != nil && f.Ready() != "" ||
		f.authenticate(ctx, r) != nil || f.permit(ctx, r) != nil {
		return a, v, false
	}
	if r.query != "" {
		for name := range ctx.QueryArgs().All() {
			if overrides(string(name)) != "" {
				return a, v, false
			}
		}
	}
	r.read = block.Read{Object: r.object(), MaxAge: f.Settings.maxAge(), Size: -1, QueryID: string(r.asked.queryID)}
	known := f.Engine.Fresh(&r.read)
	if known == nil || !complete(known) || unkept(known) {
		return a, v, false
	}
	a, status, ok := r.resolve(known, parseRange(borrowed(r.asked.part)))
	if !ok || status != 0 || a.from == a.to {
		return a, v, false
	}
	if !ctx.IsHead() {
		v, ok = f.Engine.Hit(&r.read, known)
		a.source = v.Source
	}
	return a, v, ok
}

// sayShort answers.
func (f *Front) sayShort(c *conn, s *short, a *answer, v block.View, now time.Time) (done bool, err error) {
	n := int(a.to - a.from)
	if s.ctx.IsHead() {
		n = 0
	}
	chunk := f.chunk()
	defer f.chunks.Put(chunk)
	head := f.appendHeader(chunk[:0], a, now)
	if n <= copyBytes {
		whole := slices.Grow(head, n)[:len(head)+n]
		if n > 0 {
			k, err := v.Lease.CopyAt(whole[len(head):], v.From)
			v.Lease.Release()
			if err != nil || k != n {
				return false, nil // it has vanished from the disk, as the cache knows now
			}
			f.count.sources[a.source].Add(1)
			f.count.bytes.Add(int64(n))
		}
		f.count.requests.Add(1)
		f.count.short.Add(1)
		_, err = c.raw.Write(whole)
		return true, err
	}
	f.count.requests.Add(1)
	f.count.short.Add(1)
	c.holdHeader()
	_, _ = c.Write(head) // it is held
	b := f.body(c, a, &s.r.read, nil, v)
	_, err = b.WriteTo(c)
	_ = b.Close() // never fails
	return true, err
}

// appendHeader appends the header of an answer, as describe and the server behind
// it write it.
func (f *Front) appendHeader(b []byte, a *answer, now time.Time) []byte {
	var digits [64]byte
	if a.part {
		b = append(b, "HTTP/1.1 206 Partial Content\r\n"...)
		b = appendLine(b, "Content-Range", a.appendRange(digits[:0]))
	} else {
		b = append(b, "HTTP/1.1 200 OK\r\n"...)
	}
	b = append(b, f.date.at(now)...)
	b = append(b, a.header().Block...)
	b = appendLine(b, "Content-Length", strconv.AppendInt(digits[:0], a.to-a.from, 10))
	b = appendLine(b, "x-amz-request-id", f.appendID(digits[:0]))
	b = appendLine(b, "Age", a.appendAge(digits[:0], now))
	if a.source != block.SourceNone {
		b = append(append(append(b, "X-Headstart-Source: "...), a.source.String()...), "\r\n"...)
	}
	return append(b, "\r\n"...)
}
