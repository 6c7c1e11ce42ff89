package engine

import (
	"context"
	"testing"

	"headstart/engine/block"
)

func TestS01_HitsDoNotAllocate(t *testing.T) {
	if testing.Short() {
		t.Skip("-short is how the race detector's build runs, whose copies out of the cache allocate")
	}
	inWorld(t, func(w *world) {
		dst := make([]byte, 3*testBlock)
		for _, req := range []*block.Read{
			{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: 100},
			{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: 5, QueryID: "q"},
			{Object: testObject(), Route: block.ExternalRoute(testObject()), Offset: 7},
		} {
			ctx := context.Background()
			w.e.Read(ctx, req, dst)
			w.e.Cache.Flush(ctx)
			allocs := testing.AllocsPerRun(100, func() {
				if n, src, err := w.e.Read(ctx, req, dst); n != len(dst) || src != block.SourceLocal || err != nil {
					t.Errorf("%d bytes from %v (%v)", n, src, err)
				}
			})
			if allocs != 0 {
				t.Errorf("a hit of %+v allocates %v times", req, allocs)
			}
		}
	})
}
