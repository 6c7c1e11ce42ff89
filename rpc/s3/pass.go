package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine/block"
)

// changedTimeout bounds how long a writer waits until the other holders of an
// object know.
const changedTimeout = 2 * time.Second

// pass sends a request on to object storage and its reply back. What a write has
// changed, or may have, is forgotten before the writer hears of it.
func (f *Front) pass(ctx *fasthttp.RequestCtx, r *request) {
	f.count.passed.Add(1)
	up, err := f.upstream(ctx, r)
	if err != nil {
		f.fail(ctx, r, err)
		return
	}
	defer up.end()
	resp, failed := f.Upstream.Forward(up.req)
	if r.kind == passWrite {
		var body []byte
		if failed == nil {
			body, failed = io.ReadAll(io.LimitReader(resp.Body, maxListBytes))
			_ = resp.Body.Close() // its bytes are here
		}
		f.changed(r, up.keys)
		if failed == nil {
			resp.Body = io.NopCloser(bytes.NewReader(body))
		}
	}
	if failed != nil {
		// What is wrong with the client's body is why sending it has failed.
		if e := up.body.wrong(); e != nil {
			failed = e
		}
		f.fail(ctx, r, errorOf(failed))
		return
	}
	f.relay(ctx, r, resp, up)
}

// changed makes this node, and the others that hold the objects, forget them.
func (f *Front) changed(r *request, keys []string) {
	if len(keys) == 0 {
		return
	}
	f.count.changed.Add(int64(len(keys)))
	objects := make([]block.Object, len(keys))
	for i, key := range keys {
		objects[i] = block.Object{Store: block.DefaultStore, Bucket: r.bucket, Key: key}
		f.Engine.Changed(objects[i])
	}
	if f.Changed != nil {
		ctx, cancel := context.WithTimeout(context.Background(), changedTimeout)
		defer cancel()
		f.Changed(ctx, objects)
	}
}

// relay answers with what object storage has answered.
func (f *Front) relay(ctx *fasthttp.RequestCtx, r *request, resp *http.Response, up *upstream) {
	f.identify(ctx)
	ctx.SetStatusCode(resp.StatusCode)
	h := &ctx.Response.Header
	for name, values := range resp.Header {
		if hopByHop(name) {
			continue
		}
		name = wireName(name)
		h.Del(name)
		for _, value := range values {
			h.Add(name, value)
		}
	}
	if ctx.IsHead() || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified {
		_ = resp.Body.Close() // it has none
		ctx.Response.SkipBody = true
		if resp.ContentLength >= 0 && ctx.IsHead() {
			h.SetContentLength(int(resp.ContentLength))
		}
		return
	}
	if r.kind == passWrite {
		body, _ := io.ReadAll(resp.Body) // of memory
		ctx.SetBody(body)
		return
	}
	ctx.Response.ImmediateHeaderFlush = false
	body := &relayed{ReadCloser: resp.Body, end: up.keep(), patience: f.BlockTimeout}
	body.conn, _ = ctx.Conn().(*conn)
	ctx.Response.SetBodyStream(body, int(resp.ContentLength))
}

// wireName is a header's name as S3 writes it.
func wireName(name string) string {
	switch {
	case name == "Etag":
		return "ETag"
	case strings.HasPrefix(name, "X-Amz-"):
		return strings.ToLower(name)
	}
	return name
}

// hopByHop reports whether a header is about the connection, or is made anew.
func hopByHop(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "Date", "Server":
		return true
	}
	return false
}

// relayed is the body of a reply on its way; its end is the request's. A client
// has patience for each piece of it: the server gives it that once, for all.
type relayed struct {
	io.ReadCloser
	end      func()
	conn     *conn
	patience time.Duration
}

// Read implements io.Reader.
func (b *relayed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && b.conn != nil {
		_ = b.conn.SetWriteDeadline(time.Now().Add(b.patience)) // fails only on a closed connection
	}
	return n, err
}

// Close implements io.Closer.
func (b *relayed) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// upstream is a request to object storage on behalf of a client.
type upstream struct {
	req  *http.Request
	body *clientBody
	// keys are what the request changes.
	keys []string
	stop []func()
}

// end lets go of what the request holds.
func (u *upstream) end() {
	for _, stop := range u.stop {
		stop()
	}
	u.stop = nil
}

// keep passes the duty to call end on.
func (u *upstream) keep() func() {
	kept := &upstream{stop: u.stop}
	u.stop = nil
	return kept.end
}

// upstream makes the request that object storage gets.
func (f *Front) upstream(ctx *fasthttp.RequestCtx, r *request) (*upstream, *Error) {
	u := &upstream{}
	if r.kind == passWrite && r.key != "" {
		u.keys = []string{r.key}
	}
	header := http.Header{}
	for name, value := range ctx.Request.Header.All() {
		if passesOn(string(name)) {
			header.Add(string(name), string(value))
		}
	}
	body, size, err := f.clientBody(ctx, r, header)
	if err != nil {
		return nil, err
	}
	u.body = body
	bound, cancel := context.WithCancel(context.Background())
	if body != nil {
		u.stop = append(u.stop, body.shut)
	} else if c, ok := ctx.Conn().(*conn); ok {
		cancel()
		w := watchClient(c)
		bound, cancel = context.WithCancel(w.ctx)
		u.stop = append(u.stop, w.stop)
	}
	u.stop = append(u.stop, cancel)
	if body != nil && r.deletes(ctx) {
		err = u.readDeletes(r, size)
	} else if body != nil && len(body.sums()) > 0 {
		size, err = f.passSums(u, r, size, header)
	}
	if err != nil {
		u.end()
		return nil, err
	}
	if body != nil && body.whole != nil {
		size = int64(body.whole.Len())
		for name, sum := range body.sums() { // object storage does not delete without one
			header.Set(name, base64.StdEncoding.EncodeToString(sum.Sum(nil)))
		}
	}
	path := "/" + r.path
	u.req = (&http.Request{
		Method: string(ctx.Method()), Header: header, ContentLength: size,
		URL: &url.URL{Path: path, RawPath: string(appendEscaped(nil, path, true)), RawQuery: passedQuery(ctx.QueryArgs())},
	}).WithContext(bound)
	if body != nil {
		u.req.Body = body
	}
	return u, nil
}

// passesOn reports whether a header of the client goes on to object storage. The
// signature and what it was made of do not: the node signs by itself.
func passesOn(name string) bool {
	switch canonical := http.CanonicalHeaderKey(name); canonical {
	case "Content-Type", "Content-Md5", "Content-Encoding", "Content-Disposition", "Content-Language", "Cache-Control", "Expires",
		"Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Origin",
		"Access-Control-Request-Method", "Access-Control-Request-Headers":
		return true
	case "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256", "X-Amz-Decoded-Content-Length", "X-Amz-Trailer",
		"X-Amz-Sdk-Checksum-Algorithm":
		return false
	default:
		return strings.HasPrefix(canonical, "X-Amz-")
	}
}

// passedQuery is the query less a signature.
func passedQuery(args *fasthttp.Args) string {
	var b []byte
	for name, value := range args.All() {
		if hasPrefixFold(string(name), "x-amz-") {
			continue
		}
		if len(b) > 0 {
			b = append(b, '&')
		}
		b = append(appendEscaped(b, string(name), false), '=')
		b = appendEscaped(b, string(value), false)
	}
	return string(b)
}

// clientBody returns the body that object storage gets, nil when there is none,
// and how long it is. It sets what the header says of it.
func (f *Front) clientBody(ctx *fasthttp.RequestCtx, r *request, header http.Header) (*clientBody, int64, *Error) {
	src := ctx.RequestBodyStream()
	size := int64(ctx.Request.Header.ContentLength())
	payload := r.caller.payload
	chunks := strings.HasPrefix(payload, "STREAMING-")
	if src == nil || size == 0 || size == -2 {
		header.Set("X-Amz-Content-Sha256", emptyHash)
		if chunks || payload != "" && payload != unsigned && payload != emptyHash && size == 0 {
			return nil, 0, incomplete("it is empty")
		}
		return nil, 0, nil
	}
	b := &clientBody{}
	b.conn, _ = ctx.Conn().(*conn)
	b.mu.src = src
	var from io.Reader = readerFunc(b.readClient)
	switch {
	case chunks:
		decoded, ok := parseSize(string(ctx.Request.Header.Peek("X-Amz-Decoded-Content-Length")))
		if !ok {
			return nil, 0, &Error{Code: codeMissingLength, Message: "You must provide the x-amz-decoded-content-length header."}
		}
		switch payload {
		case streaming, streamingTrailer, streamingUnsigned:
		default:
			return nil, 0, &Error{Code: codeNotImplemented, Message: "x-amz-content-sha256: this kind of chunks is not supported."}
		}
		d, err := newChunked(from, decoded, &r.caller, string(ctx.Request.Header.Peek("X-Amz-Trailer")))
		if err != nil {
			return nil, 0, err
		}
		b.chunked = d
		from, size, payload = d, decoded, unsigned
		withoutChunked(header)
	case size < 0:
		return nil, 0, &Error{Code: codeMissingLength, Message: "You must provide the Content-Length HTTP header."}
	case payload == "" || payload == unsigned:
		payload = unsigned
	case len(payload) == 64:
		from = &hashed{src: from, hash: sha256.New(), want: payload}
	default:
		return nil, 0, &Error{Code: codeInvalidArgument, Message: "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, a kind of chunks, or a SHA-256."}
	}
	header.Set("X-Amz-Content-Sha256", payload)
	b.held = newHeld(from)
	return b, size, nil
}

// withoutChunked takes the chunks out of what an object is encoded in.
func withoutChunked(header http.Header) {
	var rest []string
	for one := range strings.SplitSeq(strings.Join(header.Values("Content-Encoding"), ","), ",") {
		if one = strings.TrimSpace(one); one != "" && one != "aws-chunked" {
			rest = append(rest, one)
		}
	}
	header.Del("Content-Encoding")
	if len(rest) > 0 {
		header.Set("Content-Encoding", strings.Join(rest, ","))
	}
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// clientBody is the body of a client's request. Whoever sends it on may still
// read it when the reply has come: shut ends that.
type clientBody struct {
	conn *conn
	held *held
	// chunked is set where the body comes in S3's own chunks.
	chunked *chunked
	// whole is the body where all of it was read before it goes on.
	whole *bytes.Reader
	mu    struct {
		sync.Mutex
		src  io.Reader
		fail *Error
	}
}

// sums are the checksums that come behind the body.
func (b *clientBody) sums() map[string]hash.Hash {
	if b.chunked == nil {
		return nil
	}
	return b.chunked.sums
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	if b.whole != nil {
		return b.whole.Read(p)
	}
	n, err := b.held.Read(p)
	if e, ok := err.(*Error); ok {
		b.mu.Lock()
		b.mu.fail = e
		b.mu.Unlock()
	}
	return n, err
}

// readClient reads from the connection, a while at most.
func (b *clientBody) readClient(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.src == nil {
		return 0, io.ErrClosedPipe
	}
	if b.conn != nil {
		if err := b.conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
			return 0, err
		}
	}
	return b.mu.src.Read(p)
}

// wrong returns what is wrong with the body itself.
func (b *clientBody) wrong() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.fail == nil {
		return nil
	}
	return b.mu.fail
}

// Close implements io.Closer; shut does the work.
func (b *clientBody) Close() error { return nil }

// shut ends all reading. It waits for a Read that is under way, not for long.
func (b *clientBody) shut() {
	if b.conn != nil {
		_ = b.conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed connection
	}
	b.mu.Lock()
	b.mu.src = nil
	b.mu.Unlock()
	if b.conn != nil {
		_ = b.conn.SetReadDeadline(time.Now().Add(readTimeout))
	}
}

// deletes reports whether the request is DeleteObjects.
func (r *request) deletes(ctx *fasthttp.RequestCtx) bool {
	return ctx.IsPost() && r.key == "" && ctx.QueryArgs().Has("delete")
}

// deletes is the body of DeleteObjects.
type deletes struct {
	Objects []struct {
		Key string
	} `xml:"Object"`
}

// readDeletes reads what DeleteObjects is to delete: each key needs the right to
// write it, and is forgotten afterwards.
func (u *upstream) readDeletes(r *request, size int64) *Error {
	if size > maxListBytes {
		return &Error{Code: codeEntityTooLarge, Message: "A list may have " + strconv.Itoa(maxListBytes) + " bytes."}
	}
	data, err := io.ReadAll(io.LimitReader(u.body, maxListBytes+1))
	if err != nil {
		return unread(err)
	}
	var list deletes
	if len(data) > maxListBytes || xml.Unmarshal(data, &list) != nil {
		return &Error{Code: codeMalformedXML, Message: "The XML you provided was not well-formed or did not validate against our published schema."}
	}
	for _, o := range list.Objects {
		if !r.caller.key.covers(r.bucket, o.Key) {
			return denied()
		}
		u.keys = append(u.keys, o.Key)
	}
	u.body.whole = bytes.NewReader(data)
	return nil
}

// unread is why a body could not be read to its end.
func unread(err error) *Error {
	if e, ok := err.(*Error); ok {
		return e
	}
	return incomplete("it ended early")
}

// copySource reads the header that names what is copied.
func copySource(text string) (bucket, key string, ok bool) {
	text, _, _ = strings.Cut(text, "?")
	path, err := url.PathUnescape(strings.TrimPrefix(text, "/"))
	if err != nil || strings.HasPrefix(path, "arn:") {
		return "", "", false
	}
	bucket, key, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return bucket, key, bucket != "" && key != ""
}
