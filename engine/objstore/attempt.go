package objstore

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"headstart/engine/block"
)

// attempt is one request from its turn to its last byte. It holds a place in
// the gate.
type attempt struct {
	s        *Store
	ctx      context.Context
	cancel   context.CancelCauseFunc
	timeout  context.CancelFunc
	watchdog *time.Timer
}

// begin waits for a turn and a place. The watchdog runs from here on: whoever
// gets a byte resets it.
func (s *Store) begin(ctx context.Context) (*attempt, error) {
	if err := s.pacer.wait(ctx); err != nil {
		return nil, err
	}
	if err := s.gate.enter(ctx); err != nil {
		return nil, err
	}
	a := &attempt{s: s}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.ctx, a.timeout = context.WithTimeoutCause(a.ctx, s.opts.AttemptTimeout, errSlow)
	a.watchdog = time.AfterFunc(s.opts.IdleTimeout, func() { a.cancel(errIdle) })
	return a, nil
}

// progress is called when bytes have come.
func (a *attempt) progress() { a.watchdog.Reset(a.s.opts.IdleTimeout) }

func (a *attempt) end() {
	a.watchdog.Stop()
	a.timeout()
	a.cancel(nil)
	a.s.gate.leave()
}

// Head asks object storage what an object is now. The version is that of the
// headers, never block.Immutable.
func (s *Store) Head(ctx context.Context, o block.Object) (block.Meta, error) {
	retry := retrier{s: s}
	for {
		retry.tried++
		meta, fail := s.headOnce(ctx, o)
		if fail.err == nil {
			return meta, nil
		}
		if err := retry.again(ctx, fail); err != nil {
			return block.Meta{}, &block.Error{Op: "head", Object: o, Source: block.SourceStore, Err: err}
		}
	}
}

func (s *Store) headOnce(ctx context.Context, o block.Object) (block.Meta, failure) {
	a, err := s.begin(ctx)
	if err != nil {
		return block.Meta{}, classify(ctx, err)
	}
	defer a.end()
	s.count.heads.Add(1)
	out, err := s.client.HeadObject(a.ctx, &s3.HeadObjectInput{Bucket: aws.String(o.Bucket), Key: aws.String(o.Key)})
	if err != nil {
		return block.Meta{}, classify(a.ctx, err)
	}
	s.pacer.served()
	s.health.served()
	h := headerOf(out.ResultMetadata)
	if h.length < 0 {
		return block.Meta{}, failure{ReasonReply, fmt.Errorf("%w: no Content-Length", errReply)}
	}
	return h.meta(h.length, ""), failure{}
}

// want is what one GET asks for: the bytes from from up to, not including, to,
// of what known says the object is.
type want struct {
	from, to int64
	known    block.Meta
}

// get sends the GET. On success the attempt is the body's and ends with it.
func (a *attempt) get(o block.Object, w want) (io.ReadCloser, header, error) {
	a.s.count.gets.Add(1)
	in := &s3.GetObjectInput{
		Bucket: aws.String(o.Bucket), Key: aws.String(o.Key),
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", w.from, w.to-1)),
	}
	// A weak ETag never matches.
	if etag := w.known.ETag; etag != "" && !strings.HasPrefix(etag, "W/") {
		in.IfMatch = aws.String(`"` + etag + `"`)
	}
	out, err := a.s.client.GetObject(a.ctx, in)
	if err != nil {
		return nil, header{}, err
	}
	a.s.pacer.served()
	a.s.health.served()
	return out.Body, headerOf(out.ResultMetadata), nil
}

// header is what a reply says of itself.
type header struct {
	status int
	// length is -1 when the reply doesn't tell.
	length                    int64
	contentRange, contentType string
	etag, extra               string
	modified                  time.Time
}

// headerOf takes the header from where the SDK puts it: its own output does not
// tell 200 from 206.
func headerOf(m middleware.Metadata) header {
	raw, ok := awsmiddleware.GetRawResponse(m).(*smithyhttp.Response)
	if !ok {
		return header{length: -1}
	}
	h := header{
		status: raw.StatusCode, length: raw.ContentLength,
		contentRange: raw.Header.Get("Content-Range"), contentType: raw.Header.Get("Content-Type"),
		etag: strings.ReplaceAll(raw.Header.Get("ETag"), `"`, ""), extra: extraOf(raw.Header),
	}
	if t, err := http.ParseTime(raw.Header.Get("Last-Modified")); err == nil {
		h.modified = t
	}
	return h
}

// maxExtra bounds what is kept of an object's further headers. S3's own bound for
// those of a user is 2 KiB, those of other stores are 8 to 16 KiB.
const maxExtra = 16 << 10

// extraOf puts those headers of a reply together that belong to the object.
func extraOf(h http.Header) string {
	var lines []string
	for name, values := range h {
		switch name {
		case "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires":
		case "X-Amz-Request-Id", "X-Amz-Id-2", "X-Amz-Date", "X-Amz-Content-Sha256":
			continue
		default:
			if !strings.HasPrefix(name, "X-Amz-") || strings.HasPrefix(name, "X-Amz-Checksum-") {
				continue
			}
		}
		if strings.HasPrefix(name, "X-Amz-") {
			name = strings.ToLower(name) // as S3 writes them
		}
		for _, value := range values {
			lines = append(lines, name+": "+value+"\n")
		}
	}
	slices.Sort(lines)
	extra := strings.Join(lines, "")
	if len(extra) > maxExtra {
		return block.ExtraUnkept
	}
	return extra
}

// meta puts together what is known of the object. An immutable object stays
// one.
func (h header) meta(size int64, known block.Version) block.Meta {
	m := block.Meta{Size: size, Version: known, ETag: h.etag, Modified: h.modified, ContentType: h.contentType, Extra: h.extra}
	if known != block.Immutable {
		m.Version = block.VersionOf(h.etag, size, h.modified)
	}
	return m
}

// check holds a reply against what was asked for. It returns what the object is
// and where the reply's bytes end.
func (w want) check(h header) (meta block.Meta, to int64, err error) {
	bad := func(why string) error {
		return fmt.Errorf("%w: %s (asked for bytes %d-%d; status %d, Content-Range %q, Content-Length %d)",
			errReply, why, w.from, w.to-1, h.status, h.contentRange, h.length)
	}
	var size int64
	switch h.status {
	case http.StatusPartialContent:
		first, end, total, ok := parseContentRange(h.contentRange)
		if !ok || first != w.from {
			return block.Meta{}, 0, bad("another range")
		}
		size, to = total, end
		if size < 0 {
			size = w.known.Size
		}
		if size < 0 {
			return block.Meta{}, 0, bad("no size")
		}
	case http.StatusOK:
		// Fine only as the answer to a range that holds the whole object.
		size, to = h.length, h.length
		if size < 0 || w.from != 0 || size > w.to {
			return block.Meta{}, 0, bad("not a range")
		}
	default:
		return block.Meta{}, 0, bad("no bytes")
	}
	meta = h.meta(size, w.known.Version)
	if err := sameObject(w.known, meta); err != nil {
		return block.Meta{}, 0, err
	}
	if to != min(w.to, size) {
		return block.Meta{}, 0, bad("another range")
	}
	if h.length >= 0 && h.length != to-w.from {
		return block.Meta{}, 0, bad("the length does not fit the range")
	}
	return meta, to, nil
}

// sameObject fails with block.ErrChanged when now can't be the object that was
// known.
func sameObject(known, now block.Meta) error {
	switch {
	case known.Size >= 0 && known.Size != now.Size:
		return fmt.Errorf("%w: its size was %d and is %d", block.ErrChanged, known.Size, now.Size)
	case known.ETag != "" && known.ETag != now.ETag:
		return fmt.Errorf("%w: its ETag was %q and is %q", block.ErrChanged, known.ETag, now.ETag)
	case known.Version != "" && known.Version != now.Version:
		return fmt.Errorf("%w: its version was %q and is %q", block.ErrChanged, known.Version, now.Version)
	}
	return nil
}

// parseContentRange reads "bytes first-last/total", where total may be "*":
// that is -1. end is behind the last byte.
func parseContentRange(s string) (first, end, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, size, ok2 := strings.Cut(s, "/")
	from, last, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, false
	}
	first, ok = parseSize(from)
	end, ok2 = parseSize(last)
	if total, ok3 = parseSize(size); size == "*" {
		total, ok3 = -1, true
	}
	if !ok || !ok2 || !ok3 || end < first {
		return 0, 0, 0, false
	}
	return first, end + 1, total, true
}

// parseSize takes digits only: strconv would take a sign as well.
func parseSize(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil && n < math.MaxInt64
}

// limited cuts the bodies of replies. Whatever a server sends, no more of it is
// read than was asked for, and not much of an error, which the SDK would read
// to its end.
type limited struct{ next http.RoundTripper }

const maxErrorBody = 64 << 10

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	most := int64(maxErrorBody)
	if from, last, ok := strings.Cut(strings.TrimPrefix(req.Header.Get("Range"), "bytes="), "-"); ok && resp.StatusCode < 300 {
		first, _ := parseSize(from)
		end, _ := parseSize(last)
		most = end + 1 - first
	}
	body := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, most), body}
	return resp, nil
}
