package s3law

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// serveMiB answers everything with 1 MiB in one Write.
func serveMiB(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write(make([]byte, 1<<20))
}

// took runs one request through h and returns the virtual time of it.
func took(h http.Handler, r *http.Request) time.Duration {
	began := time.Now()
	h.ServeHTTP(httptest.NewRecorder(), r)
	return time.Since(began)
}

func TestInjectorDelaysGETsOfObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		law := Law{Seed: 3}
		i := NewInjector(law, http.HandlerFunc(serveMiB))
		for n := range uint64(5) {
			want := law.FirstByte(n) + law.Body(1<<20)
			if got := took(i, httptest.NewRequest("GET", "/bucket/a/b", nil)); got != want {
				t.Errorf("GET %d took %v, want %v", n, got, want)
			}
		}
		for _, r := range []*http.Request{
			httptest.NewRequest("HEAD", "/bucket/a/b", nil),
			httptest.NewRequest("GET", "/bucket?list-type=2", nil),
			httptest.NewRequest("GET", "/", nil),
		} {
			if got := took(i, r); got != 0 {
				t.Errorf("%s %s took %v", r.Method, r.URL, got)
			}
		}
		if m := i.Metrics(); m != (Metrics{GETs: 5, Bytes: 5 << 20}) {
			t.Errorf("metrics %+v", m)
		}
	})
}

func TestInjectorOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := NewInjector(Law{}, http.HandlerFunc(serveMiB))
		i.Enable(false)
		if got := took(i, httptest.NewRequest("GET", "/bucket/key", nil)); got != 0 {
			t.Errorf("took %v with the law off", got)
		}
		if m := i.Metrics(); m != (Metrics{GETs: 1, Bytes: 1 << 20}) {
			t.Errorf("metrics %+v", m)
		}
		i.Enable(true)
		if got := took(i, httptest.NewRequest("GET", "/bucket/key", nil)); got == 0 {
			t.Error("no delay with the law on again")
		}
	})
}

// TestInjectorLetsGo: a client that goes away ends its request at once, before
// the first byte and in the body.
func TestInjectorLetsGo(t *testing.T) {
	law := Law{}
	for _, after := range []time.Duration{law.FirstByte(0) / 2, law.FirstByte(0) + law.Body(512<<10)} {
		synctest.Test(t, func(t *testing.T) {
			i := NewInjector(law, http.HandlerFunc(serveMiB))
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, "GET", "/bucket/key", nil)
			if got := took(i, r); got != after {
				t.Errorf("ended after %v, want %v", got, after)
			}
			if m := i.Metrics(); m.GETs != 1 || m.Bytes >= 1<<20 {
				t.Errorf("metrics %+v", m)
			}
		})
	}
}

// TestInjectorConcurrent: requests that come at once wait beside each other,
// not one after another, and take different draws.
func TestInjectorConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		law := Law{Seed: 9}
		i := NewInjector(law, http.HandlerFunc(serveMiB))
		var all sync.WaitGroup
		began := time.Now()
		var longest time.Duration
		for n := range uint64(8) {
			longest = max(longest, law.FirstByte(n)+law.Body(1<<20))
			all.Go(func() { // ends with its request
				i.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/bucket/key", nil))
			})
		}
		all.Wait()
		if got := time.Since(began); got != longest {
			t.Errorf("8 requests took %v, the longest alone takes %v", got, longest)
		}
	})
}
