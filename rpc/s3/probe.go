package s3

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// spoolBytes is the largest body that is read whole before it goes on.
	spoolBytes = 8 << 20
	// MaxSpoolBytes is what all such bodies may have together.
	MaxSpoolBytes = 64 << 20
)

// spool counts the bodies that are read whole. It never waits.
type spool struct {
	each, all int64
	used      atomic.Int64
}

// enter reports whether there is room for a body, which leave gives back.
func (s *spool) enter(size int64) (leave func(), ok bool) {
	if size > s.each {
		return nil, false
	}
	if s.used.Add(size) > s.all {
		s.used.Add(-size)
		return nil, false
	}
	return func() { s.used.Add(-size) }, true
}

const (
	// probeTimeout bounds the probe; what it finds holds for probeHolds, and for
	// probePause when that is nothing.
	probeTimeout = 10 * time.Second
	probeHolds   = time.Hour
	probePause   = time.Minute
)

// trailers is whether object storage understands bodies in chunks with a trailer.
type trailers struct {
	mu struct {
		sync.Mutex
		until time.Time
		taken bool
		// bucket is the only one that this holds for, where not "": it has refused the
		// probe, which says nothing of the others.
		bucket string
	}
}

// taken returns what is known, and finds it out before if that is nothing: who
// comes meanwhile waits for the same answer.
func (t *trailers) taken(f *Front, r *request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.mu.until) && (t.mu.bucket == "" || t.mu.bucket == r.bucket) {
		return t.mu.taken
	}
	p := probe{f: f, path: "/" + r.path}
	taken, err := p.run()
	holds, bucket := probeHolds, ""
	if err != nil {
		holds = probePause
		if errors.Is(err, errRefused) {
			bucket = r.bucket
		}
		f.Logger.Warn("object storage did not tell whether it takes checksums behind bodies: large uploads go without them", "error", err)
	}
	t.mu.taken, t.mu.until, t.mu.bucket = taken, time.Now().Add(holds), bucket
	return taken
}

// probe asks object storage for a part of an upload that never ends: nobody sees
// an object of it, whatever is made of its bytes.
type probe struct {
	f    *Front
	path string
}

// errRefused is that of a bucket in which no upload can be begun.
var errRefused = errors.New("the bucket refuses it")

// probeData is the part's bytes.
const probeData = "headstart"

func (p probe) run() (taken bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	var begun struct {
		UploadID string `xml:"UploadId"`
	}
	resp, body, err := p.ask(ctx, http.MethodPost, "uploads=", http.Header{"X-Amz-Content-Sha256": {emptyHash}}, "")
	if err == nil && resp.StatusCode/100 == 4 {
		err = fmt.Errorf("begin an upload of %s: status %d: %w", p.path, resp.StatusCode, errRefused)
	}
	if err == nil && (resp.StatusCode != http.StatusOK || xml.Unmarshal(body, &begun) != nil || begun.UploadID == "") {
		err = fmt.Errorf("begin an upload of %s: status %d", p.path, resp.StatusCode)
	}
	if err != nil {
		return false, err
	}
	id := "uploadId=" + url.QueryEscape(begun.UploadID)
	taken, err = p.part(ctx, "partNumber=1&"+id)
	ctx, cancel = context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	resp, _, failed := p.ask(ctx, http.MethodDelete, id, http.Header{"X-Amz-Content-Sha256": {emptyHash}}, "")
	if failed != nil || resp.StatusCode/100 != 2 {
		p.f.Logger.Warn("an upload was begun to see what object storage understands, and could not be aborted",
			"path", p.path, "upload", begun.UploadID, "error", failed)
	}
	return taken, err
}

// part sends the part. It was understood when its checksum or its ETag is that of
// the bytes in the chunks.
func (p probe) part(ctx context.Context, query string) (taken bool, err error) {
	const name = "x-amz-checksum-crc32"
	sum := newSum(name)
	sum.Write([]byte(probeData))
	crc := base64.StdEncoding.EncodeToString(sum.Sum(nil))
	resp, _, err := p.ask(ctx, http.MethodPut, query, http.Header{
		"X-Amz-Content-Sha256": {streamingUnsigned}, "Content-Encoding": {"aws-chunked"},
		"X-Amz-Decoded-Content-Length": {strconv.Itoa(len(probeData))}, "X-Amz-Trailer": {name},
	}, fmt.Sprintf("%x\r\n%s\r\n0\r\n%s:%s\r\n\r\n", len(probeData), probeData, name, crc))
	switch {
	case err != nil:
		return false, err
	case resp.StatusCode >= http.StatusInternalServerError:
		return false, fmt.Errorf("send a part of %s: status %d", p.path, resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		return false, nil // it has said no
	}
	md := md5.Sum([]byte(probeData))
	etag := strings.Trim(resp.Header.Get("ETag"), `"`)
	return resp.Header.Get(name) == crc || strings.EqualFold(etag, hex.EncodeToString(md[:])), nil
}

func (p probe) ask(ctx context.Context, method, query string, header http.Header, body string) (*http.Response, []byte, error) {
	req := (&http.Request{
		Method: method, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		URL: &url.URL{Path: p.path, RawPath: string(appendEscaped(nil, p.path, true)), RawQuery: query},
	}).WithContext(ctx)
	resp, err := p.f.Upstream.Forward(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxListBytes))
	return resp, data, err
}
