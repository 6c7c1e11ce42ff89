package s3

import (
	"context"
	"sync"
	"testing"

	"headstart/engine/block"
)

// TestAnAnswerThatBeginsAnewHasItsRoute: an object that has changed under a
// request is looked for at its own holder again, not at nobody's.
func TestAnAnswerThatBeginsAnewHasItsRoute(t *testing.T) {
	var mu sync.Mutex
	var asked []block.Route
	w := newWorld(t, options{front: func(o *Options) {
		o.Place = func(_ context.Context, route block.Route) block.Addr {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, route)
			return block.Addr{}
		}
	}})
	w.settings.RevalidateMS.Store(-1)
	w.settings.ReadaheadBlocks.Store(2) // of three: the first attempt does not bring all of what the second needs
	w.put("k", content("k", 1, 50*testBlock))
	w.get("k", rangeOf(0, 10), content("k", 1, 10))
	for version := 2; version < 5; version++ { // past the front: it finds out by the store's answer
		data := content("k", version, int64(version+50)*testBlock)
		w.put("k", data)
		from := int64(version) * 10 * testBlock
		w.get("k", rangeOf(from, from+3*testBlock), data[from:from+3*testBlock])
	}
	want := block.ExternalRoute(block.Object{Store: block.DefaultStore, Bucket: testBucket, Key: "k"})
	mu.Lock()
	defer mu.Unlock()
	if len(asked) < 7 {
		t.Errorf("asked %d times for a holder: no answer has begun anew", len(asked))
	}
	for i, route := range asked {
		if route != want {
			t.Errorf("question %d is about %v, want %v", i, route, want)
		}
	}
}
