package s3

import (
	"bytes"
	"net/http"
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
