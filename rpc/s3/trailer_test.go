package s3

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// TestChecksumsBehindBodiesGoOn: object storage gets the checksums that a client
// sends behind a body of any size, and the length that is announced is the body's.
func TestChecksumsBehindBodiesGoOn(t *testing.T) {
	for _, size := range []int64{0, 1, 15, 16, passedChunk - 1, passedChunk, passedChunk + 1, 3*passedChunk + 4096} {
		for _, trailers := range []string{"x-amz-checksum-crc32", "x-amz-checksum-sha256", "x-amz-checksum-crc64nvme,x-amz-checksum-sha1"} {
			data := content("k", 1, size)
			var sent bytes.Buffer
			if size > 0 {
				fmt.Fprintf(&sent, "%x\r\n%s\r\n", size, data)
			}
			sent.WriteString("0\r\n")
			for name := range strings.SplitSeq(trailers, ",") {
				sum := newSum(name)
				sum.Write(data)
				fmt.Fprintf(&sent, "%s:%s\r\n", name, base64.StdEncoding.EncodeToString(sum.Sum(nil)))
			}
			sent.WriteString("\r\n")
			d, bad := newChunked(&sent, size, &caller{payload: streamingUnsigned}, trailers)
			if bad != nil {
				t.Fatal(bad)
			}
			header := http.Header{"Content-Encoding": {"gzip"}}
			from, length := newTrailed(d, size, header)
			passed, err := io.ReadAll(from)
			if err != nil || int64(len(passed)) != length {
				t.Errorf("%d bytes, %s: %d bytes come out, want %d, %v", size, trailers, len(passed), length, err)
			}
			r := &http.Request{Header: header}
			got, err := unchunked(r, passed)
			if err != nil || !bytes.Equal(got, data) || r.Header.Get("Content-Encoding") != "gzip" {
				t.Errorf("%d bytes, %s: object storage reads %d bytes of %q, %v", size, trailers, len(got), r.Header.Get("Content-Encoding"), err)
			}
		}
	}
}

// TestChecksumBehindDeletesGoesOn: object storage deletes nothing without a checksum
// of the list; one that comes behind it goes on before it.
func TestChecksumBehindDeletesGoesOn(t *testing.T) {
	w := newWorld(t, options{})
	w.put("k", []byte("gone"))
	list := []byte("<Delete><Object><Key>k</Key></Object></Delete>")
	req := w.signed("POST", "/data?delete=", adminID, adminKey, streamingUnsigned, time.Now(), func(r *http.Request) {
		r.Header.Set("X-Amz-Decoded-Content-Length", fmt.Sprint(len(list)))
		r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
	})
	chunks := chunksOf(req, list, streamingUnsigned, 1<<20)
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(chunks)), int64(len(chunks))
	if resp, body := w.send(req); resp.StatusCode != 200 {
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	sum := newSum("x-amz-checksum-crc32")
	sum.Write(list)
	seen := w.store.seen.Load()
	if got := seen.Header.Get("X-Amz-Checksum-Crc32"); got != base64Of(sum.Sum(nil)) || seen.Header.Get("X-Amz-Trailer") != "" {
		t.Errorf("object storage got the checksum %q, X-Amz-Trailer %q", got, seen.Header.Get("X-Amz-Trailer"))
	}
	if resp, _ := w.do("GET", "/data/k"); resp.StatusCode != 404 {
		t.Errorf("status %d of what was deleted", resp.StatusCode)
	}
}

// trailing sends data in chunks with a checksum behind them.
func (w *world) trailing(path string, data []byte, wrong bool) (*http.Response, []byte) {
	w.t.Helper()
	req := w.signed("PUT", path, adminID, adminKey, streamingUnsigned, time.Now(), func(r *http.Request) {
		r.Header.Set("X-Amz-Decoded-Content-Length", fmt.Sprint(len(data)))
		r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
		r.Header.Set("Content-Encoding", "aws-chunked")
	})
	of := data
	if wrong {
		of = append([]byte{data[0] ^ 1}, data[1:]...)
	}
	chunks := bytes.Replace(chunksOf(req, of, streamingUnsigned, len(of)), of, data, 1)
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(chunks)), int64(len(chunks))
	return w.send(req)
}

// TestTrailersNeverBecomeBytes: whether or not object storage knows of chunks with
// a trailer, and whether or not there is room to wait for it, what is stored is what
// the client has sent. The checksum goes on where it can.
func TestTrailersNeverBecomeBytes(t *testing.T) {
	const size = 100_000
	for _, old := range []bool{false, true} {
		for name, c := range map[string]struct {
			each, all, used int64
			where           string
		}{
			"small": {size, size, 0, "before"}, "large": {size - 1, 1 << 30, 0, "behind"}, "no room": {size, 2*size - 1, size, "behind"},
		} {
			w := newWorld(t, options{})
			w.store.old.Store(old)
			w.spool.each, w.spool.all = c.each, c.all
			w.spool.used.Store(c.used)
			data := content("k", 1, size)
			if resp, body := w.trailing("/data/k", data, true); resp.StatusCode != 400 || code(body) != "BadDigest" {
				t.Errorf("old %v, %s: a wrong checksum: status %d, %s", old, name, resp.StatusCode, body)
			}
			if resp, _ := w.do("GET", "/data/k"); resp.StatusCode != 404 {
				t.Errorf("old %v, %s: something wrong was stored: status %d", old, name, resp.StatusCode)
			}
			writes := w.store.writes.Load()
			if resp, body := w.trailing("/data/k", data, false); resp.StatusCode != 200 {
				t.Errorf("old %v, %s: status %d, %s", old, name, resp.StatusCode, body)
			}
			if n := w.store.writes.Load() - writes; n != 1 {
				t.Errorf("old %v, %s: %d requests for one that writes", old, name, n)
			}
			w.get("k", "", data)
			seen, where := w.store.seen.Load().Header, ""
			switch {
			case seen.Get("X-Amz-Checksum-Crc32") != "":
				where = "before"
			case seen.Get("X-Amz-Trailer") != "":
				where = "behind"
			}
			if want := c.where; where != want && !(old && want == "behind" && where == "") {
				t.Errorf("old %v, %s: the checksum is %q the body, want %q", old, name, where, want)
			}
			w.partsWithTrailers(fmt.Sprintf("old %v, %s", old, name))
			if used := w.spool.used.Load(); used != c.used {
				t.Errorf("old %v, %s: %d bytes of room are lost", old, name, used-c.used)
			}
		}
	}
}

// partsWithTrailers uploads an object in parts, and looks for uploads that nobody
// has ended.
func (w *world) partsWithTrailers(name string) {
	t := w.t
	bucket, key := aws.String(testBucket), aws.String("parts")
	up, err := w.direct.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key})
	must(t, err)
	first, second := content("parts", 1, 5<<20), content("parts", 2, 10)
	var parts []types.CompletedPart
	for i, data := range [][]byte{first, second} {
		path := fmt.Sprintf("/data/parts?partNumber=%d&uploadId=%s", i+1, url.QueryEscape(*up.UploadId))
		resp, body := w.trailing(path, data, false)
		if resp.StatusCode != 200 {
			t.Errorf("%s: part %d: status %d, %s", name, i+1, resp.StatusCode, body)
		}
		parts = append(parts, types.CompletedPart{ETag: aws.String(resp.Header.Get("ETag")), PartNumber: aws.Int32(int32(i + 1))})
	}
	_, err = w.direct.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{
		Bucket: bucket, Key: key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	must(t, err)
	w.get("parts", "", append(first, second...))
	open, err := w.direct.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: bucket})
	if err != nil || len(open.Uploads) != 0 {
		t.Errorf("%s: uploads that are open: %+v, %v", name, open, err)
	}
}

// TestProbeOfAStoreThatFails: a store that can't be asked gets bodies without
// chunks, and is asked again later.
func TestProbeOfAStoreThatFails(t *testing.T) {
	for _, at := range []string{"POST", "PUT", "DELETE"} {
		w := newWorld(t, options{})
		w.spool.each = 0
		data := content("k", 1, 1000)
		healed := w.faulty(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method != at || !strings.Contains(r.URL.RawQuery, "upload") {
				return false
			}
			http.Error(rw, "<Error><Code>InternalError</Code></Error>", http.StatusInternalServerError)
			return true
		})
		if resp, body := w.trailing("/data/k", data, false); resp.StatusCode != 200 {
			t.Errorf("%s fails: status %d, %s", at, resp.StatusCode, body)
		}
		healed()
		w.get("k", "", data)
		w.trailers.mu.Lock()
		if holds := time.Until(w.trailers.mu.until); (holds > probePause) != (at == "DELETE") {
			t.Errorf("%s fails: what was found holds for %v", at, holds)
		}
		w.trailers.mu.Unlock()
	}
}

// TestEachChecksumIsChecked: a trailer has each checksum that was announced, once.
func TestEachChecksumIsChecked(t *testing.T) {
	const body = "5\r\nhello\r\n0\r\n"
	line := func(name string) string {
		sum := newSum(name)
		sum.Write([]byte("hello"))
		return name + ":" + base64Of(sum.Sum(nil)) + "\r\n"
	}
	const one, two = "x-amz-checksum-crc32", "x-amz-checksum-sha256"
	for name, c := range map[string]struct {
		trailer string
		right   bool
	}{
		"both":             {line(one) + line(two), true},
		"the other way":    {line(two) + line(one), true},
		"one missing":      {line(two), false},
		"one twice":        {line(one) + line(one), false},
		"one too often":    {line(one) + line(one) + line(two), true},
		"none":             {"", false},
		"one is wrong":     {line(one) + two + ":" + base64Of(make([]byte, 32)) + "\r\n", false},
		"right in the end": {one + ":AAAAAA==\r\n" + line(one) + line(two), false},
	} {
		d, bad := newChunked(strings.NewReader(body+c.trailer+"\r\n"), 5, &caller{payload: streamingUnsigned}, one+","+two)
		if bad != nil {
			t.Fatal(bad)
		}
		if got, err := io.ReadAll(d); (err == nil) != c.right || c.right && string(got) != "hello" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestProbeOfABucketThatRefuses: what a bucket says to the probe, that it is not there
// or not for this node, holds for no other one, and for itself a while.
func TestProbeOfABucketThatRefuses(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden} {
		w := newWorld(t, options{})
		w.spool.each = 0
		data := content("k", 1, 1000)
		w.faulty(func(rw http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/other/") {
				return false
			}
			w.store.writes.Add(1)
			http.Error(rw, "<Error><Code>Refused</Code></Error>", status)
			return true
		})
		for _, want := range []int64{2, 1} { // the probe's and its own, its own
			before := w.store.writes.Load()
			if resp, body := w.trailing("/other/k", data, false); resp.StatusCode != status {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, status, body)
			}
			if n := w.store.writes.Load() - before; n != want {
				t.Errorf("%d: %d requests, want %d", status, n, want)
			}
		}
		if resp, body := w.trailing("/data/k", data, false); resp.StatusCode != 200 {
			t.Errorf("status %d: %s", resp.StatusCode, body)
		}
		if got := w.store.seen.Load().Header.Get("X-Amz-Trailer"); got == "" {
			t.Errorf("%d of another bucket keeps a checksum back", status)
		}
	}
}
