package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// growing makes the world's GETs as large as they may be, of an object of n
// blocks.
func (w *world) growing(n int64) {
	w.e.Settings.ObjectStorageGetMaxBlocks.Store(block.MaxRun)
	w.mu.objects[testObject()].size = n * testBlock
}

func TestS39_ScanTakesFewGETsAndAPointReadOneBlock(t *testing.T) {
	inWorld(t, func(w *world) {
		w.growing(200)
		for i := range int64(200) {
			if _, err := w.read(i*testBlock, testBlock); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(w.gets()); n > 30 {
			t.Errorf("a scan of 200 blocks took %d GETs", n)
		}
	})
	inWorld(t, func(w *world) {
		w.growing(200)
		for _, i := range []int64{100, 17, 180, 60} {
			w.read(i*testBlock, 10)
		}
		for _, g := range w.gets() {
			if g.req.Run.Count() != 1 {
				t.Errorf("a lone point read asked for %v", g.req.Run)
			}
		}
	})
}

func TestS39_BlocksThatComeAlongAreJoinedOnTheirWay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.growing(200)
		next := int64(0)
		for ; next < 40 || int(next) < w.e.Cache.Metrics().Blocks; next++ {
			w.read(next*testBlock, testBlock)
		}
		before := len(w.gets())
		done := make(chan error, 4)
		for i := range int64(4) {
			go func() { _, err := w.read((next+i)*testBlock, testBlock); done <- err }()
			synctest.Wait()
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := len(w.gets()) - before; n != 1 {
			t.Errorf("%d GETs for four neighbours of a scan, want 1", n)
		}
	})
}

func TestS39_GivenUpGETIsAbortedThoughItCarriesMore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.growing(200)
		for i := range int64(8) {
			w.read(i*testBlock, testBlock)
		}
		w.e.Cache.Flush(context.Background())
		w.mu.store = func(int, *block.Fetch) reply { return reply{after: time.Minute} }
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: 150 * testBlock}
		w.e.Read(ctx, req, make([]byte, testBlock))
		req.Offset = 100 * testBlock
		synctest.Wait()
		for _, g := range w.gets() {
			if g.at > w.since()-20*time.Millisecond && g.req.Run.First >= 8 && !g.cancelled {
				t.Errorf("the GET of %v goes on", g.req.Run)
			}
		}
		if n := w.e.Metrics().FlightsGetting; n != 0 {
			t.Errorf("%d flights are left", n)
		}
	})
}

func TestS39_OneBlockAGETNeverGrows(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mu.objects[testObject()].size = 200 * testBlock
		for i := range int64(60) {
			w.read(i*testBlock, testBlock)
		}
		if n := len(w.gets()); n != 60 {
			t.Errorf("%d GETs for 60 blocks, want 60", n)
		}
	})
}

func TestS37_SlowFillIsNoSlowPeer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(100, "v1")
		w.learn()
		group := "cg_write"
		w.e.Settings.PeerCacheFillComputeGroupID.Store(&group)
		w.know(tablet(), candidate(1, group))
		w.peer(1, func(_ int, f *block.Fetch) reply {
			if f.Wait {
				return reply{after: 2 * time.Second}
			}
			return reply{after: time.Millisecond, all: true, status: block.StatusFilling}
		})
		for n := range 40 {
			if src, _, err := w.one(30 + n); src != block.SourceStore || err != nil {
				t.Errorf("from %v, want the hedge of a slow fill", src)
			}
		}
		for _, v := range w.e.Breakers.Show() {
			if v.SlowUntilMS != 0 || v.Failures != 0 {
				t.Errorf("%+v: the peer is as fast as object storage, which it has to read", v)
			}
		}
	})
}
