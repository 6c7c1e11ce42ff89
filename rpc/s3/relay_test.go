package s3

import (
	"bytes"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestLongRepliesArePassedOnWhole: what goes on to object storage and takes longer
// than a client has for one write comes whole, as long as bytes move.
func TestLongRepliesArePassedOnWhole(t *testing.T) {
	const limit, pieces = time.Second, 25
	w := newWorld(t, options{front: func(o *Options) { o.BlockTimeout = limit }})
	piece := content("k", 1, 8<<10)
	fault := func(rw http.ResponseWriter, r *http.Request) bool {
		rw.Header().Set("Content-Length", "204800")
		pace := time.NewTicker(limit / 10)
		defer pace.Stop()
		for range pieces {
			<-pace.C
			_, _ = rw.Write(piece) // a client that has gone is the test's to notice
			_ = http.NewResponseController(rw).Flush()
		}
		return true
	}
	w.store.fault.Store(&fault)
	resp, err := http.Get("http://" + w.addr + "/data/k?versionId=1")
	must(t, err)
	defer resp.Body.Close()
	var got bytes.Buffer
	if _, err := got.ReadFrom(resp.Body); err != nil || !bytes.Equal(got.Bytes(), bytes.Repeat(piece, pieces)) {
		t.Errorf("%d of %d bytes, %v", got.Len(), pieces*len(piece), err)
	}
}

// TestOnlyListsAreForWhoMaySeeAPart: a parameter that makes another operation of a
// list, now or in years to come, asks for the rights to all of the bucket. One of
// them hands out credentials.
func TestOnlyListsAreForWhoMaySeeAPart(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Keys.Store(NewKeys([]Key{{ID: adminID, Secret: adminKey, Access: AccessWrite, Paths: []string{testBucket + "/pub/"}}}))
	var reached atomic.Int64
	fault := func(rw http.ResponseWriter, r *http.Request) bool {
		reached.Add(1)
		return true
	}
	w.store.fault.Store(&fault)
	for query, may := range map[string]bool{
		"prefix=pub/": true, "list-type=2&prefix=pub/x&max-keys=5&x-id=ListObjectsV2": true, "versions=&prefix=pub/": true, "uploads=&prefix=pub/": true,
		"prefix=": false, "list-type=2": false, "session=&prefix=pub/": false, "acl=&prefix=pub/": false, "nobody-knows=&prefix=pub/": false,
	} {
		before := reached.Load()
		resp, _ := w.send(w.signed("GET", "/data?"+query, adminID, adminKey, emptyHash, time.Now(), nil))
		if passed := reached.Load() > before; passed != may || !may && resp.StatusCode != 403 {
			t.Errorf("%s: passed on %v, status %d", query, passed, resp.StatusCode)
		}
	}
}

// TestOneSourceOfACopy: of two object storage might take the one that was not
// looked at.
func TestOneSourceOfACopy(t *testing.T) {
	w := newWorld(t, options{})
	w.settings.Keys.Store(NewKeys([]Key{{ID: adminID, Secret: adminKey, Access: AccessWrite, Paths: []string{testBucket + "/pub/"}}}))
	w.put("pub/a", []byte("a"))
	w.put("priv/a", []byte("secret"))
	for list, status := range map[string]int{"/data/pub/a": 200, "/data/priv/a": 403, "/data/pub/a /data/priv/a": 400} {
		req := w.signed("PUT", "/data/pub/b", adminID, adminKey, emptyHash, time.Now(), func(r *http.Request) {
			for source := range strings.FieldsSeq(list) {
				r.Header.Add("X-Amz-Copy-Source", source)
			}
		})
		if resp, body := w.send(req); resp.StatusCode != status {
			t.Errorf("%s: status %d, want %d: %s", list, resp.StatusCode, status, body)
		}
	}
}

// TestEncodingsOfAllLinesStay: only the chunks of S3's own are taken out.
func TestEncodingsOfAllLinesStay(t *testing.T) {
	for _, lines := range [][]string{{"aws-chunked", "gzip"}, {"aws-chunked,gzip"}, {"gzip", "aws-chunked"}, {"gzip"}} {
		h := http.Header{"Content-Encoding": lines}
		if withoutChunked(h); strings.Join(h.Values("Content-Encoding"), ",") != "gzip" {
			t.Errorf("%q became %q", lines, h.Values("Content-Encoding"))
		}
	}
}
