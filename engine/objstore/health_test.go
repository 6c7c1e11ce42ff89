package objstore

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestOS19_RefusalAndRecoveryAreSaidOnce: one line a change, however many
// requests there are, and not one for each request of a store that wavers.
func TestOS19_RefusalAndRecoveryAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer // written by this goroutine's own requests
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 5})
		s := fake.store(Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		want := func(what string, failing, again int) {
			t.Helper()
			for range 5 {
				_, _, _ = get(t.Context(), t, s, fetch(o, 0, 1)) // fails or not, as the store says
			}
			f, a := strings.Count(out.String(), "object storage fails requests"), strings.Count(out.String(), "object storage serves again")
			if f != failing || a != again {
				t.Errorf("%s: %d lines that it fails and %d that it serves, want %d and %d\n%s", what, f, a, failing, again, out.String())
			}
		}
		serve := func(n int64, w http.ResponseWriter, r *http.Request) bool { return false }
		want("well", 0, 0)
		fake.onGet(refuse(http.StatusForbidden, "AccessDenied"))
		want("denied", 1, 0)
		if !strings.Contains(out.String(), "reason=denied") || strings.Contains(out.String(), "secret") {
			t.Errorf("%s", out.String())
		}
		fake.onGet(serve)
		want("well too soon to say", 1, 0)
		time.Sleep(settle)
		want("well", 1, 1)
		fake.onGet(refuse(http.StatusForbidden, "AccessDenied"))
		want("wavering", 1, 1)
		time.Sleep(settle)
		want("failing for longer", 2, 1)
		fake.onGet(refuse(http.StatusInternalServerError, "InternalError"))
		time.Sleep(time.Minute)
		want("failing in another way", 2, 1)
		fake.onGet(refuse(http.StatusNotFound, "NoSuchKey"))
		want("it answers", 2, 2)
	})
}
