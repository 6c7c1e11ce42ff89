package s3

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	algorithm  = "AWS4-HMAC-SHA256"
	timeFormat = "20060102T150405Z"
	// maxSkew is how far a caller's clock may be off, maxExpiry how long a URL that
	// was signed in advance may hold.
	maxSkew   = 15 * time.Minute
	maxExpiry = 7 * 24 * time.Hour
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	unsigned  = "UNSIGNED-PAYLOAD"
)

// signature is what a request says of its signature. Its strings are the
// connection's, until the request owns them.
type signature struct {
	id, day, region string
	// headers is the list of the headers that were signed, with semicolons.
	headers string
	given   string
	at      time.Time
	// presigned: it came with the query.
	presigned bool
}

// appendScope appends what a signing key is good for.
func (s *signature) appendScope(b []byte) []byte {
	b = append(append(b, s.day...), '/')
	return append(append(b, s.region...), "/s3/aws4_request"...)
}

// caller is who makes a request. key is never nil: without a signature it is
// what anybody may do.
type caller struct {
	key *Key
	// payload is what the signature says of the body: a SHA-256 or one of the words
	// for its absence. "" means that nothing is said.
	payload string
	// sign and signing are set for signed requests: the chunks of a body are signed
	// with them.
	sign    *signature
	signing *signingKey
}

// admit finds out who the caller is and whether that may do what is asked.
func (f *Front) admit(ctx *fasthttp.RequestCtx, r *request) *Error {
	err := f.authenticate(ctx, r)
	if err == nil {
		err = f.permit(ctx, r)
	}
	if err != nil {
		f.count.denied.Add(1)
	}
	return err
}

func (f *Front) authenticate(ctx *fasthttp.RequestCtx, r *request) *Error {
	h := &ctx.Request.Header
	auth := borrowed(h.Peek("Authorization"))
	inQuery := r.query != "" && (ctx.QueryArgs().Has("X-Amz-Algorithm") || ctx.QueryArgs().Has("X-Amz-Signature"))
	r.caller.payload = borrowed(h.Peek("X-Amz-Content-Sha256"))
	if r.query != "" && ctx.QueryArgs().Has("AWSAccessKeyId") {
		return &Error{Code: codeInvalidRequest, Message: "The authorization mechanism you have provided is not supported. Please use " + algorithm + "."}
	}
	if auth == "" && !inQuery {
		r.caller.key = &f.anybody[f.Settings.Anonymous.Load()]
		if strings.HasPrefix(r.caller.payload, "STREAMING-AWS4-") {
			return &Error{Code: codeInvalidRequest, Message: "The chunks of the body are signed, the request is not."}
		}
		return nil
	}
	if auth != "" && inQuery {
		return &Error{Code: codeInvalidArgument, Message: "Only one auth mechanism allowed."}
	}
	s := &r.signature
	var err *Error
	if inQuery {
		err = s.parseQuery(ctx.QueryArgs(), time.Now())
	} else {
		err = s.parseHeader(auth, h, time.Now())
	}
	if err != nil {
		return err
	}
	key := f.Settings.Keys.Load().find(s.id)
	if key == nil {
		return &Error{Code: codeInvalidKeyID, Message: "The access key Id you provided does not exist in our records."}
	}
	if err := s.covers(h); err != nil {
		return err
	}
	if r.caller.payload == "" {
		r.caller.payload = emptyHash
		if inQuery {
			r.caller.payload = unsigned
		}
	}
	signing, cached := f.keys.get(key, s)
	hash := sha256.Sum256(canonical(ctx, r))
	b := s.appendToSign(r.scratch[:0], hash)
	text := len(b)
	b = signing.appendSum(b, b)
	mac := len(b)
	b = hex.AppendEncode(b, b[text:mac])
	r.scratch = b
	if subtle.ConstantTimeCompare(b[mac:], []byte(s.given)) != 1 {
		return &Error{Code: codeSignature, Message: "The request signature we calculated does not match the signature you provided. Check your key and signing method."}
	}
	if !cached {
		f.keys.put(key, s, signing)
	}
	r.caller.key, r.caller.sign, r.caller.signing = key, s, signing
	return nil
}

// parseHeader reads an Authorization header.
func (s *signature) parseHeader(auth string, h *fasthttp.RequestHeader, now time.Time) *Error {
	bad := func(why string) *Error {
		return &Error{Code: codeMalformedAuth, Message: "The authorization header is malformed; " + why + "."}
	}
	rest, ok := strings.CutPrefix(auth, algorithm)
	if !ok {
		return &Error{Code: codeInvalidRequest, Message: "The authorization mechanism you have provided is not supported. Please use " + algorithm + "."}
	}
	var credential string
	for more := true; more; {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			credential = value
		case "SignedHeaders":
			s.headers = value
		case "Signature":
			s.given = value
		}
	}
	if credential == "" || s.headers == "" || s.given == "" {
		return bad("want Credential, SignedHeaders and Signature")
	}
	if !s.takeCredential(credential) {
		return bad("want Credential=<key id>/YYYYMMDD/<region>/s3/aws4_request")
	}
	at, err := time.Parse(timeFormat, borrowed(h.Peek("X-Amz-Date")))
	if err != nil {
		if at, err = time.Parse(time.RFC1123, string(h.Peek("Date"))); err != nil {
			return &Error{Code: codeAccessDenied, Message: "AWS authentication requires a valid Date or x-amz-date header."}
		}
	}
	if s.at = at.UTC(); !s.ofDay() {
		return bad("the credential's day is not the request's")
	}
	if d := now.Sub(s.at); d > maxSkew || d < -maxSkew {
		return &Error{Code: codeTimeSkewed, Message: "The difference between the request time and the current time is too large."}
	}
	return nil
}

// ofDay reports whether the request was signed on the credential's day.
func (s *signature) ofDay() bool {
	var day [8]byte
	return string(s.at.AppendFormat(day[:0], "20060102")) == s.day
}

// parseQuery reads a signature that was made in advance.
func (s *signature) parseQuery(args *fasthttp.Args, now time.Time) *Error {
	bad := func(why string) *Error {
		return &Error{Code: codeMalformedQuery, Message: why}
	}
	s.presigned, s.given, s.headers = true, borrowed(args.Peek("X-Amz-Signature")), borrowed(args.Peek("X-Amz-SignedHeaders"))
	if string(args.Peek("X-Amz-Algorithm")) != algorithm {
		return bad("X-Amz-Algorithm only supports " + algorithm + ".")
	}
	if !s.takeCredential(borrowed(args.Peek("X-Amz-Credential"))) {
		return bad("X-Amz-Credential: want <key id>/YYYYMMDD/<region>/s3/aws4_request.")
	}
	var err error
	if s.at, err = time.Parse(timeFormat, borrowed(args.Peek("X-Amz-Date"))); err != nil || !s.ofDay() {
		return bad("X-Amz-Date: want YYYYMMDDTHHMMSSZ, on the credential's day.")
	}
	seconds, err := strconv.ParseUint(borrowed(args.Peek("X-Amz-Expires")), 10, 32)
	if err != nil || seconds > uint64(maxExpiry/time.Second) {
		return bad("X-Amz-Expires: want a number of seconds of at most a week.")
	}
	switch {
	case now.Before(s.at.Add(-maxSkew)):
		return &Error{Code: codeAccessDenied, Message: "Request is not valid yet."}
	case now.After(s.at.Add(time.Duration(seconds) * time.Second)):
		return &Error{Code: codeAccessDenied, Message: "Request has expired."}
	}
	return nil
}

// takeCredential reads key id, day, region, service and terminator. A key id may
// have a slash in it.
func (s *signature) takeCredential(text string) bool {
	rest, ok := strings.CutSuffix(text, "/s3/aws4_request")
	region := strings.LastIndexByte(rest, '/')
	if !ok || region < 0 {
		return false
	}
	day := strings.LastIndexByte(rest[:region], '/')
	if day <= 0 {
		return false
	}
	s.id, s.day, s.region = rest[:day], rest[day+1:region], rest[region+1:]
	return len(s.day) == len("YYYYMMDD")
}

// covers checks that the signature is about all that it must be about.
func (s *signature) covers(h *fasthttp.RequestHeader) *Error {
	if !s.lists([]byte("host")) {
		return &Error{Code: codeSignature, Message: "The signature must cover the Host header."}
	}
	for name := range h.All() {
		if !hasPrefixFold(borrowed(name), "x-amz-") || s.lists(name) {
			continue
		}
		if s.presigned && (strings.EqualFold(borrowed(name), "x-amz-content-sha256") || strings.EqualFold(borrowed(name), "x-amz-date")) {
			continue
		}
		return &Error{Code: codeAccessDenied, Message: "There were headers present in the request which were not signed: " + valid(strings.ToLower(string(name))) + "."}
	}
	return nil
}

// lists reports whether a header was signed; the list has its name in small
// letters.
func (s *signature) lists(name []byte) bool {
	for rest, more := s.headers, true; more; {
		var one string
		one, rest, more = strings.Cut(rest, ";")
		if len(one) != len(name) {
			continue
		}
		same := true
		for i, c := range name {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			same = same && one[i] == c
		}
		if same {
			return true
		}
	}
	return false
}

// canonical is the request as it is signed, until the scratch is used again.
func canonical(ctx *fasthttp.RequestCtx, r *request) []byte {
	s, b := &r.signature, r.scratch[:0]
	b = append(append(b, ctx.Method()...), '\n', '/')
	b = append(appendEscaped(b, r.called, true), '\n')
	b = append(r.appendQuery(b, ctx.QueryArgs()), '\n')
	for rest, more := s.headers, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, ";")
		b = append(append(b, name...), ':')
		b = append(appendHeader(b, &ctx.Request.Header, name), '\n')
	}
	b = append(append(b, '\n'), s.headers...)
	b = append(b, '\n')
	r.scratch = append(b, r.caller.payload...)
	return r.scratch
}

// appendHeader appends all values of a header, without needless blanks.
func appendHeader(b []byte, h *fasthttp.RequestHeader, name string) []byte {
	if name == "content-length" {
		return strconv.AppendInt(b, int64(h.ContentLength()), 10)
	}
	for i, value := range h.PeekAll(name) {
		if i > 0 {
			b = append(b, ',')
		}
		blank := true // leading ones go
		for _, c := range value {
			if c == ' ' && blank {
				continue
			}
			blank = c == ' '
			b = append(b, c)
		}
		if n := len(b); blank && n > 0 && b[n-1] == ' ' {
			b = b[:n-1]
		}
	}
	return b
}

// pair is where in a text a parameter of a query begins, and where its name and
// the whole of it end.
type pair struct{ from, name, to int }

// appendQuery appends the parameters in the order of their names, less the
// signature itself.
func (r *request) appendQuery(b []byte, args *fasthttp.Args) []byte {
	begin, pairs := len(b), r.pairs[:0]
	for name, value := range args.All() {
		if string(name) == "X-Amz-Signature" {
			continue
		}
		p := pair{from: len(b)}
		b = appendEscaped(b, borrowed(name), false)
		p.name = len(b)
		b = appendEscaped(append(b, '='), borrowed(value), false)
		p.to = len(b)
		pairs = append(pairs, p)
	}
	r.pairs = pairs
	slices.SortFunc(pairs, func(x, y pair) int { // by name first: '=' sorts above some of what names have
		if c := bytes.Compare(b[x.from:x.name], b[y.from:y.name]); c != 0 {
			return c
		}
		return bytes.Compare(b[x.name:x.to], b[y.name:y.to])
	})
	end := len(b)
	for i, p := range pairs {
		if i > 0 {
			b = append(b, '&')
		}
		b = append(b, b[p.from:p.to]...)
	}
	return b[:begin+copy(b[begin:], b[end:])]
}

// appendEscaped escapes all but the unreserved characters, and slashes of a path.
func appendEscaped(b []byte, text string, path bool) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(text) {
		c := text[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if letter || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~' || c == '/' && path {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}

// appendToSign appends what the signature of a canonical request is made of.
func (s *signature) appendToSign(b []byte, canonical [sha256.Size]byte) []byte {
	b = append(append(b, algorithm...), '\n')
	b = append(s.at.AppendFormat(b, timeFormat), '\n')
	b = append(s.appendScope(b), '\n')
	return hex.AppendEncode(b, canonical[:])
}

func sum(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

// signingKey signs for one pair of keys, day and region.
type signingKey struct {
	key []byte
	// macs has hash.Hash that were used: they have read the key.
	macs sync.Pool
}

// appendSum appends the MAC of a text.
func (k *signingKey) appendSum(b, text []byte) []byte {
	mac, ok := k.macs.Get().(hash.Hash)
	if !ok {
		mac = hmac.New(sha256.New, k.key)
	}
	mac.Reset()
	mac.Write(text)
	b = mac.Sum(b)
	k.macs.Put(mac)
	return b
}

// keyCache keeps what signing keys were made: it takes four hashes to make one,
// and it holds for a day.
type keyCache struct {
	// made is replaced, never changed.
	made atomic.Pointer[map[madeFor]*signingKey]
}

type madeFor struct {
	key         *Key
	day, region string
}

// maxMade bounds the keys: a caller who is known could ask for any region.
const maxMade = 64

// get returns the signing key and whether it was there.
func (c *keyCache) get(key *Key, s *signature) (*signingKey, bool) {
	if made := c.made.Load(); made != nil {
		if k, ok := (*made)[madeFor{key, s.day, s.region}]; ok {
			return k, true
		}
	}
	k := sum([]byte("AWS4"+key.Secret), []byte(s.day))
	k = sum(k, []byte(s.region))
	k = sum(k, []byte("s3"))
	return &signingKey{key: sum(k, []byte("aws4_request"))}, false
}

// put keeps the key of a signature that was right.
func (c *keyCache) put(key *Key, s *signature, signing *signingKey) {
	next := make(map[madeFor]*signingKey, maxMade)
	if made := c.made.Load(); made != nil && len(*made) < maxMade {
		maps.Copy(next, *made)
	}
	next[madeFor{key, strings.Clone(s.day), strings.Clone(s.region)}] = signing
	c.made.Store(&next) // of two at once one is lost, and made anew when it is needed
}
