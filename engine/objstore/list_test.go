package objstore

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"headstart/engine/block"
)

// TestS85_ListPagesThroughAPrefix: every object comes once, with the version that
// a GET of it would have.
func TestS85_ListPagesThroughAPrefix(t *testing.T) {
	mem := s3mem.New()
	if err := mem.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	for i := range 25 {
		for _, key := range []string{fmt.Sprintf("hot/%03d", i), fmt.Sprintf("other/%03d", i)} {
			body := bytes.Repeat([]byte{byte(i)}, i)
			if _, err := mem.PutObject("bucket", key, nil, bytes.NewReader(body), int64(len(body)), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	var tried atomic.Int64
	fake := gofakes3.New(mem, gofakes3.WithTimeSkewLimit(0)).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tried.Add(1) == 1 {
			http.Error(w, "", http.StatusServiceUnavailable)
			return
		}
		fake.ServeHTTP(w, r)
	}))
	defer server.Close()
	s, err := New(t.Context(), Options{Endpoint: server.URL, PathStyle: true, AccessKey: "a", SecretKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	prefix := block.Object{Store: "s3", Bucket: "bucket", Key: "hot/"}
	var all []Listed
	for after, more := "", true; more; {
		var page []Listed
		if page, more, err = s.List(t.Context(), prefix, after, 10); err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		after = all[len(all)-1].Object.Key
	}
	if len(all) != 25 {
		t.Fatalf("%d objects", len(all))
	}
	for i, l := range all {
		head, err := s.Head(t.Context(), l.Object)
		head.ContentType, head.Extra, head.Modified = "", "", l.Meta.Modified // a list lacks them, and this server's HEAD has no valid time
		if want := fmt.Sprintf("hot/%03d", i); err != nil || l.Object.Key != want || l.Object.Store != "s3" || l.Meta.Size != int64(i) || l.Meta != head {
			t.Errorf("object %d: %+v, its HEAD says %+v (%v)", i, l, head, err)
		}
	}
	prefix.Bucket = "nowhere"
	_, _, err = s.List(t.Context(), prefix, "", 10)
	if _, ok := errors.AsType[*block.Error](err); !ok {
		t.Errorf("a bucket that there isn't: %v", err)
	}
}
