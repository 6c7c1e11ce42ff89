package tpch

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestDirectReadsRangesAndFindsWrongBytes(t *testing.T) {
	trace := &Trace{Objects: []Object{{Key: "a", Size: 1000}, {Key: "b", Size: 500}}}
	contents := Generate(trace.Objects, 1)
	gets := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gets <- r.URL.Path + " " + r.Header.Get("Range")
		data := contents.Object(map[string]int{"/bucket/a": 0, "/bucket/b": 1}[r.URL.Path])
		if r.URL.Path == "/bucket/b" { // another object's bytes
			data = contents.Object(0)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	defer s.Close()
	d := NewDirect(trace, contents, s.URL+"/bucket/")
	defer d.Close()
	took, err := d.Run(t.Context(), []Read{{0, 100, 200}, {0, 0, 1000}})
	if err != nil || len(took) != 2 || took[0] <= 0 || took[1] <= 0 || len(gets) != 2 {
		t.Fatalf("%v, %v, %d GETs", took, err, len(gets))
	}
	both := <-gets + <-gets
	if !strings.Contains(both, "/bucket/a bytes=100-299") || !strings.Contains(both, "/bucket/a bytes=0-999") {
		t.Errorf("GETs: %s", both)
	}
	if _, err := d.Run(t.Context(), []Read{{1, 0, 500}}); err == nil || !strings.Contains(err.Error(), "bytes are wrong") {
		t.Errorf("another object's bytes: %v", err)
	}
	s.Config.Handler = http.NotFoundHandler()
	if _, err := d.Run(t.Context(), []Read{{0, 0, 10}}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("no such object: %v", err)
	}
}
