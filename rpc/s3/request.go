package s3

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"strings"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"

	"headstart/engine/block"
)

// kind says how a request is served.
type kind uint8

const (
	// readObject is answered from the File Cache, listBuckets from object storage
	// less what the caller may not see; passRead and passWrite go on to object
	// storage.
	readObject kind = iota
	listBuckets
	passRead
	passWrite
)

// request is what a request of HTTP means. Its strings are the connection's until
// own: what may outlive the handler, or be kept by others, comes after that.
type request struct {
	kind kind
	// bucket and key are empty where there is none; path is both as they came,
	// query the query as it came.
	bucket, key, path, query string
	// called is the path behind its first slash, without escapes: what a signature
	// is about.
	called    string
	caller    caller
	signature signature
	asked     asked
	read      block.Read
	owned     bool
	// scratch and pairs are what signatures are made in.
	scratch []byte
	pairs   []pair
}

// borrowed is b as a string, for as long as nobody writes to b.
func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// own makes the strings the request's own. A hit does without.
func (r *request) own() {
	if r.owned {
		return
	}
	r.owned = true
	sign := &r.signature
	for _, s := range [...]*string{
		&r.bucket, &r.key, &r.path, &r.query, &r.called,
		&sign.id, &sign.day, &sign.region, &sign.headers, &sign.given, &r.caller.payload,
	} {
		*s = strings.Clone(*s)
	}
}

// route makes the read one that goes beyond the cache: it knows who is to hold the
// object. A hit does without, and each attempt begins as one.
func (r *request) route() {
	r.own()
	r.read.Object = r.object()
	r.read.Route = block.ExternalRoute(r.read.Object)
}

// object returns the object that the request names.
func (r *request) object() block.Object {
	return block.Object{Store: block.DefaultStore, Bucket: r.bucket, Key: r.key}
}

// asked is what the header says of a read, as it came and as long as it lasts.
type asked struct {
	part, match, none, since, unless, still []byte
	queryID                                 []byte
	// conditional: the read has any condition. secret: the client has the key to the
	// object's bytes.
	conditional, secret bool
}

// take goes through the header once: to look for each name would cost more.
func (a *asked) take(h *fasthttp.RequestHeader) {
	for name, value := range h.All() {
		if len(value) == 0 {
			continue
		}
		var field *[]byte
		switch string(name) {
		case "Range":
			field = &a.part
		case "If-Match":
			field, a.conditional = &a.match, true
		case "If-None-Match":
			field, a.conditional = &a.none, true
		case "If-Modified-Since":
			field, a.conditional = &a.since, true
		case "If-Unmodified-Since":
			field, a.conditional = &a.unless, true
		case "If-Range":
			field, a.conditional = &a.still, true
		case "X-Headstart-Query-Id":
			field = &a.queryID
		case "X-Amz-Server-Side-Encryption-Customer-Algorithm":
			a.secret = true
		}
		if field != nil && *field == nil {
			*field = value
		}
	}
}

// parse finds out what is asked for.
func (f *Front) parse(ctx *fasthttp.RequestCtx, r *request) *Error {
	uri := borrowed(ctx.Request.Header.RequestURI())
	if i := strings.Index(uri, "://"); i > 0 && !strings.Contains(uri[:i], "/") { // as proxies send it
		uri = uri[i+3:]
		uri = uri[max(0, strings.IndexAny(uri+"/", "/?")):]
	}
	raw, query, _ := strings.Cut(uri, "?")
	if i := strings.IndexByte(query, '#'); i >= 0 {
		query = query[:i]
	}
	r.query = query
	path, err := url.PathUnescape(strings.TrimPrefix(raw, "/"))
	if err != nil || raw != "" && raw[0] != '/' {
		return &Error{Code: codeInvalidURI, Message: "Couldn't parse the specified URI."}
	}
	r.called, r.path = path, path
	if bucket := f.bucketOfHost(ctx); bucket != "" {
		r.bucket, r.key = bucket, path
		r.path = bucket + "/" + path
	} else {
		r.bucket, r.key, _ = strings.Cut(path, "/")
	}
	if r.bucket == "" && r.key != "" {
		return &Error{Code: codeInvalidURI, Message: "The URI names no bucket."}
	}
	if len(r.key) > 1024 {
		return &Error{Code: "KeyTooLongError", Message: "Your key is too long."}
	}
	r.asked.take(&ctx.Request.Header)
	return r.classify(ctx)
}

// bucketOfHost returns the bucket that stands before one of the front's domains
// in the name that the client has called.
func (f *Front) bucketOfHost(ctx *fasthttp.RequestCtx) string {
	domains := f.Settings.Domains.Load()
	if domains == nil || len(*domains) == 0 {
		return ""
	}
	host := borrowed(ctx.Request.Header.Host())
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 {
		host = host[:colon]
	}
	for _, d := range *domains {
		bucket := len(host) - len(d) - 1
		if bucket > 0 && host[bucket] == '.' && strings.EqualFold(host[bucket+1:], d) {
			return strings.ToLower(host[:bucket])
		}
	}
	return ""
}

// classify decides who answers.
func (r *request) classify(ctx *fasthttp.RequestCtx) *Error {
	method := string(ctx.Method())
	read := method == fasthttp.MethodGet || method == fasthttp.MethodHead
	switch {
	case r.bucket == "" && method == fasthttp.MethodGet:
		r.kind = listBuckets
	case r.bucket == "":
		return &Error{Code: codeMethodNotAllowed, Message: "The specified method is not allowed against this resource."}
	case read && r.key != "" && !r.special(ctx):
		r.kind = readObject
	case read, method == fasthttp.MethodOptions:
		r.kind = passRead
	case method == fasthttp.MethodPost && r.key == "" && strings.HasPrefix(string(ctx.Request.Header.ContentType()), "multipart/form-data"):
		return &Error{Code: codeNotImplemented, Message: "Uploads by forms are not passed on."}
	case method == fasthttp.MethodPost && ctx.QueryArgs().Has("select"):
		r.kind = passRead
	case method == fasthttp.MethodPut, method == fasthttp.MethodPost, method == fasthttp.MethodDelete:
		r.kind = passWrite
	default:
		return &Error{Code: codeMethodNotAllowed, Message: "The specified method is not allowed against this resource."}
	}
	return nil
}

// special reports whether a read is of something else than the current bytes of
// an object as they are: only those are cached.
func (r *request) special(ctx *fasthttp.RequestCtx) bool {
	if r.asked.secret {
		return true
	}
	if r.query == "" {
		return false
	}
	for name := range ctx.QueryArgs().All() {
		known := string(name) == "x-id" || hasPrefixFold(string(name), "x-amz-") || overrides(string(name)) != ""
		if !known {
			return true
		}
	}
	return false
}

// overrides returns the header that a parameter of the query replaces.
func overrides(param string) string {
	switch param {
	case "response-content-type":
		return "Content-Type"
	case "response-content-language":
		return "Content-Language"
	case "response-expires":
		return "Expires"
	case "response-cache-control":
		return "Cache-Control"
	case "response-content-disposition":
		return "Content-Disposition"
	case "response-content-encoding":
		return "Content-Encoding"
	}
	return ""
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// handle serves one request.
func (f *Front) handle(ctx *fasthttp.RequestCtx) {
	r, ok := f.requests.Get().(*request)
	if !ok {
		r = &request{}
	}
	f.serve(ctx, r)
	if !r.owned { // else somebody may have kept some of it
		*r = request{scratch: r.scratch, pairs: r.pairs}
		f.requests.Put(r)
	}
}

// check finds out what is asked for, and whether it may be.
func (f *Front) check(ctx *fasthttp.RequestCtx, r *request) *Error {
	if err := f.parse(ctx, r); err != nil {
		return err
	}
	if f.Ready != nil {
		if why := f.Ready(); why != "" {
			return &Error{Code: codeUnavailable, Message: "The node is not ready: " + why + "."}
		}
	}
	return f.admit(ctx, r)
}

// expect answers a client that waits with its body until it is asked for it: who is
// refused hears so before it has sent gigabytes, and ends the connection.
func (f *Front) expect(ctx *fasthttp.RequestCtx) int {
	r := &request{}
	if err := f.check(ctx, r); err != nil {
		f.count.requests.Add(1)
		f.fail(ctx, r, err)
		return err.Status()
	}
	return fasthttp.StatusContinue
}

func (f *Front) serve(ctx *fasthttp.RequestCtx, r *request) {
	f.count.requests.Add(1)
	if err := f.check(ctx, r); err != nil {
		f.fail(ctx, r, err)
		return
	}
	switch r.kind {
	case readObject:
		f.readObject(ctx, r)
	case listBuckets:
		f.listBuckets(ctx, r)
	default:
		r.own()
		f.pass(ctx, r)
	}
}

func newNodeName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// identify begins the header of an answer: with its id. Names are sent as S3 sends
// them: some clients tell ETag from Etag, and metadata has its names in small
// letters.
func (f *Front) identify(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.DisableNormalizing()
	ctx.Response.Header.SetNoDefaultContentType(true)
	var buf [40]byte
	ctx.Response.Header.SetBytesV("x-amz-request-id", f.appendID(buf[:0]))
}

// appendID appends the id of an answer, which no other one has.
func (f *Front) appendID(b []byte) []byte {
	const hex, digits = "0123456789abcdef", 16
	b = append(b, f.node...)
	n := f.ids.Add(1)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		b = append(b, hex[n>>shift&15])
	}
	return b
}

// maxAge is how long what is known of an object holds, as block.Read has it.
func (s *Settings) maxAge() time.Duration {
	switch ms := s.RevalidateMS.Load(); {
	case ms < 0:
		return -1
	case ms == 0:
		return 1
	default:
		return time.Duration(ms) * time.Millisecond
	}
}
