package s3

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
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
