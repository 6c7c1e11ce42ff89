package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
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

// signature is what a request says of its signature.
type signature struct {
	id, day, region string
	headers         []string
	given           string
	at              time.Time
	// presigned: it came with the query.
	presigned bool
}

// scope is what a signing key is good for.
func (s *signature) scope() string { return s.day + "/" + s.region + "/s3/aws4_request" }

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
	signing []byte
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
	auth := string(h.Peek("Authorization"))
	inQuery := r.query != "" && (ctx.QueryArgs().Has("X-Amz-Algorithm") || ctx.QueryArgs().Has("X-Amz-Signature"))
	r.caller.payload = string(h.Peek("X-Amz-Content-Sha256"))
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
	var s *signature
	var err *Error
	if inQuery {
		s, err = parseQuery(ctx.QueryArgs(), time.Now())
	} else {
		s, err = parseHeader(auth, h, time.Now())
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
	toSign := s.toSign(canonical(ctx, r, s))
	want := hex.EncodeToString(sum(signing, toSign))
	if subtle.ConstantTimeCompare([]byte(want), []byte(s.given)) != 1 {
		return &Error{Code: codeSignature, Message: "The request signature we calculated does not match the signature you provided. Check your key and signing method."}
	}
	if !cached {
		f.keys.put(key, s, signing)
	}
	r.caller.key, r.caller.sign, r.caller.signing = key, s, signing
	return nil
}

// parseHeader reads an Authorization header.
func parseHeader(auth string, h *fasthttp.RequestHeader, now time.Time) (*signature, *Error) {
	bad := func(why string) (*signature, *Error) {
		return nil, &Error{Code: codeMalformedAuth, Message: "The authorization header is malformed; " + why + "."}
	}
	rest, ok := strings.CutPrefix(auth, algorithm)
	if !ok {
		return nil, &Error{Code: codeInvalidRequest, Message: "The authorization mechanism you have provided is not supported. Please use " + algorithm + "."}
	}
	s := &signature{}
	var credential string
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			credential = value
		case "SignedHeaders":
			s.headers = strings.Split(value, ";")
		case "Signature":
			s.given = value
		}
	}
	if credential == "" || len(s.headers) == 0 || s.given == "" {
		return bad("want Credential, SignedHeaders and Signature")
	}
	if !s.takeCredential(credential) {
		return bad("want Credential=<key id>/YYYYMMDD/<region>/s3/aws4_request")
	}
	date := string(h.Peek("X-Amz-Date"))
	at, err := time.Parse(timeFormat, date)
	if err != nil {
		if at, err = time.Parse(time.RFC1123, string(h.Peek("Date"))); err != nil {
			return nil, &Error{Code: codeAccessDenied, Message: "AWS authentication requires a valid Date or x-amz-date header."}
		}
	}
	if s.at = at.UTC(); s.at.Format("20060102") != s.day {
		return bad("the credential's day is not the request's")
	}
	if d := now.Sub(s.at); d > maxSkew || d < -maxSkew {
		return nil, &Error{Code: codeTimeSkewed, Message: "The difference between the request time and the current time is too large."}
	}
	return s, nil
}

// parseQuery reads a signature that was made in advance.
func parseQuery(args *fasthttp.Args, now time.Time) (*signature, *Error) {
	bad := func(why string) (*signature, *Error) {
		return nil, &Error{Code: codeMalformedQuery, Message: why}
	}
	s := &signature{
		presigned: true, given: string(args.Peek("X-Amz-Signature")),
		headers: strings.Split(string(args.Peek("X-Amz-SignedHeaders")), ";"),
	}
	if string(args.Peek("X-Amz-Algorithm")) != algorithm {
		return bad("X-Amz-Algorithm only supports " + algorithm + ".")
	}
	if !s.takeCredential(string(args.Peek("X-Amz-Credential"))) {
		return bad("X-Amz-Credential: want <key id>/YYYYMMDD/<region>/s3/aws4_request.")
	}
	at, err := time.Parse(timeFormat, string(args.Peek("X-Amz-Date")))
	if err != nil || at.Format("20060102") != s.day {
		return bad("X-Amz-Date: want YYYYMMDDTHHMMSSZ, on the credential's day.")
	}
	s.at = at
	seconds, err := strconv.ParseUint(string(args.Peek("X-Amz-Expires")), 10, 32)
	if err != nil || seconds > uint64(maxExpiry/time.Second) {
		return bad("X-Amz-Expires: want a number of seconds of at most a week.")
	}
	switch {
	case now.Before(at.Add(-maxSkew)):
		return nil, &Error{Code: codeAccessDenied, Message: "Request is not valid yet."}
	case now.After(at.Add(time.Duration(seconds) * time.Second)):
		return nil, &Error{Code: codeAccessDenied, Message: "Request has expired."}
	}
	return s, nil
}

// takeCredential reads key id, day, region, service and terminator. A key id may
// have a slash in it.
func (s *signature) takeCredential(text string) bool {
	parts := strings.Split(text, "/")
	n := len(parts)
	if n < 5 || parts[n-1] != "aws4_request" || parts[n-2] != "s3" || len(parts[n-4]) != 8 {
		return false
	}
	s.id, s.day, s.region = strings.Join(parts[:n-4], "/"), parts[n-4], parts[n-3]
	return s.id != ""
}

// covers checks that the signature is about all that it must be about.
func (s *signature) covers(h *fasthttp.RequestHeader) *Error {
	if !slices.Contains(s.headers, "host") {
		return &Error{Code: codeSignature, Message: "The signature must cover the Host header."}
	}
	for name := range h.All() {
		lower := strings.ToLower(string(name))
		if strings.HasPrefix(lower, "x-amz-") && !slices.Contains(s.headers, lower) {
			if lower == "x-amz-content-sha256" && s.presigned || lower == "x-amz-date" && s.presigned {
				continue
			}
			return &Error{Code: codeAccessDenied, Message: "There were headers present in the request which were not signed: " + valid(lower) + "."}
		}
	}
	return nil
}

// canonical is the request as it is signed.
func canonical(ctx *fasthttp.RequestCtx, r *request, s *signature) []byte {
	b := make([]byte, 0, 1024)
	b = append(append(b, ctx.Method()...), '\n')
	path, err := url.PathUnescape(r.rawPath)
	if err != nil {
		path = r.rawPath // parse has refused it
	}
	b = append(appendEscaped(b, path, true), '\n')
	b = append(appendQuery(b, ctx.QueryArgs()), '\n')
	for _, name := range s.headers {
		b = append(append(b, name...), ':')
		b = append(appendHeader(b, &ctx.Request.Header, name), '\n')
	}
	b = append(b, '\n')
	for i, name := range s.headers {
		if i > 0 {
			b = append(b, ';')
		}
		b = append(b, name...)
	}
	b = append(b, '\n')
	return append(b, r.caller.payload...)
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

// appendQuery appends the parameters in the order of their names, less the
// signature itself.
func appendQuery(b []byte, args *fasthttp.Args) []byte {
	if args.Len() == 0 {
		return b
	}
	pairs := make([]string, 0, args.Len())
	for name, value := range args.All() {
		if string(name) == "X-Amz-Signature" {
			continue
		}
		pair := append(appendEscaped(nil, string(name), false), '=')
		pairs = append(pairs, string(appendEscaped(pair, string(value), false)))
	}
	slices.SortFunc(pairs, func(x, y string) int { // by name first: '=' sorts above some of what names have
		nameX, valueX, _ := strings.Cut(x, "=")
		nameY, valueY, _ := strings.Cut(y, "=")
		if c := strings.Compare(nameX, nameY); c != 0 {
			return c
		}
		return strings.Compare(valueX, valueY)
	})
	return append(b, strings.Join(pairs, "&")...)
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

// toSign is what the signature of a canonical request is made of.
func (s *signature) toSign(canonical []byte) []byte {
	hash := sha256.Sum256(canonical)
	b := make([]byte, 0, 192)
	b = append(append(b, algorithm...), '\n')
	b = append(s.at.AppendFormat(b, timeFormat), '\n')
	b = append(append(b, s.scope()...), '\n')
	return hex.AppendEncode(b, hash[:])
}

func sum(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

// keyCache keeps what signing keys were made: it takes four hashes to make one,
// and it holds for a day.
type keyCache struct {
	// made is replaced, never changed.
	made atomic.Pointer[map[madeFor][]byte]
}

type madeFor struct {
	key         *Key
	day, region string
}

// maxMade bounds the keys: a caller who is known could ask for any region.
const maxMade = 64

// get returns the signing key and whether it was there.
func (c *keyCache) get(key *Key, s *signature) ([]byte, bool) {
	if made := c.made.Load(); made != nil {
		if k, ok := (*made)[madeFor{key, s.day, s.region}]; ok {
			return k, true
		}
	}
	k := sum([]byte("AWS4"+key.Secret), []byte(s.day))
	k = sum(k, []byte(s.region))
	k = sum(k, []byte("s3"))
	return sum(k, []byte("aws4_request")), false
}

// put keeps the key of a signature that was right.
func (c *keyCache) put(key *Key, s *signature, signing []byte) {
	next := make(map[madeFor][]byte, maxMade)
	if made := c.made.Load(); made != nil && len(*made) < maxMade {
		maps.Copy(next, *made)
	}
	next[madeFor{key, strings.Clone(s.day), strings.Clone(s.region)}] = signing
	c.made.Store(&next) // of two at once one is lost, and made anew when it is needed
}
