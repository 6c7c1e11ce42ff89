package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// TestS14_WhatSomebodyHasChangedIsAskedForAnew: after Changed nothing of what was
// known holds, however young, nor does an answer to what was asked before it.
func TestS14_WhatSomebodyHasChangedIsAskedForAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(4, "v1")
		req := external(0)
		req.MaxAge = -1
		dst := make([]byte, 4*testBlock)
		read := func() string {
			if _, _, err := w.e.Read(context.Background(), req, dst); err != nil {
				t.Error(err)
			}
			return uniform(dst, 0, "v1", "v2", "v3")
		}
		read()
		w.put(4, "v2")
		time.Sleep(time.Hour)
		if v := read(); v != "v1" {
			t.Fatalf("version %q: MaxAge -1 means for ever", v)
		}
		w.e.Changed(req.Object)
		if v := read(); v != "v2" {
			t.Errorf("version %q after the change", v)
		}
		// A look at the store that began before a change ends after it.
		w.mu.headTakes = 50 * time.Millisecond
		young := *req
		young.MaxAge = 1
		var late sync.WaitGroup
		late.Go(func() { // ends with the HEAD
			if _, err := w.e.Stat(context.Background(), &young); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		w.e.Changed(req.Object)
		if w.e.Known(req.Object, "") != nil {
			t.Error("something is known right after a change")
		}
		late.Wait()
		w.put(4, "v3")
		w.e.Changed(req.Object)
		time.Sleep(time.Millisecond)
		if v := read(); v != "v3" {
			t.Errorf("version %q: an old answer has come in behind the change", v)
		}
	})
}

// TestS14_StatAsksOnceForAll and no more often than MaxAge says.
func TestS14_StatAsksOnceForAll(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(4, "v1")
		w.mu.headTakes = 20 * time.Millisecond
		req := external(0)
		req.MaxAge = time.Second
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { // ends with the HEAD
				if known, err := w.e.Stat(context.Background(), req); err != nil || known.Meta.Version != "v1" {
					t.Errorf("%+v, %v", known, err)
				}
			})
		}
		all.Wait()
		if w.mu.heads != 1 {
			t.Errorf("%d HEADs for 50 questions at once", w.mu.heads)
		}
		time.Sleep(900 * time.Millisecond)
		_, _ = w.e.Stat(context.Background(), req)
		if w.mu.heads != 1 {
			t.Errorf("%d HEADs within MaxAge", w.mu.heads)
		}
		time.Sleep(101 * time.Millisecond)
		_, _ = w.e.Stat(context.Background(), req)
		if w.mu.heads != 2 {
			t.Errorf("%d HEADs after MaxAge", w.mu.heads)
		}
		req.Object.Key = "none"
		if _, err := w.e.Stat(context.Background(), req); !errors.Is(err, block.ErrNotFound) {
			t.Errorf("error %v", err)
		}
	})
}

// TestS14_StatIsYoungerThanItsQuestion: who asks each time does not get the answer
// to a question that was asked before.
func TestS14_StatIsYoungerThanItsQuestion(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(4, "v1")
		w.mu.headTakes = 50 * time.Millisecond
		req := external(0)
		req.MaxAge = 1
		var early sync.WaitGroup
		early.Go(func() { // ends with the HEAD
			_, _ = w.e.Stat(context.Background(), req)
		})
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		if _, err := w.e.Stat(context.Background(), req); err != nil || w.mu.heads != 2 {
			t.Errorf("%d HEADs, %v: want one of its own", w.mu.heads, err)
		}
		early.Wait()
	})
}

func TestHitAllocatesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(4, "v1")
		req := external(0)
		req.MaxAge = -1
		if w.e.Fresh(req) != nil {
			t.Fatal("an object is known before it was read")
		}
		dst := make([]byte, 4*testBlock)
		if _, _, err := w.e.Read(context.Background(), req, dst); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			from, size int64
			hit        bool
		}{
			{0, testBlock, true}, {testBlock - 1, 1, true}, {3*testBlock + 5, -1, true}, {3 * testBlock, 1 << 40, true},
			{testBlock - 1, 2, false}, {0, -1, false}, {4 * testBlock, -1, false}, {5 * testBlock, 1, false}, {0, 0, false},
		} {
			req.Offset, req.Size = c.from, c.size
			v, ok := w.e.Hit(req, w.e.Fresh(req))
			if ok != c.hit {
				t.Fatalf("%d bytes at %d: hit %v", c.size, c.from, ok)
			}
			if ok {
				k, err := v.Lease.CopyAt(dst[:v.To-v.From], v.From)
				if err != nil || string(dst[:k]) != string(content(req.Object, "v1", c.from, k)) {
					t.Errorf("%d bytes at %d: %v", c.size, c.from, err)
				}
				v.Lease.Release()
			}
		}
		req.Offset, req.Size = 10, 100
		req.Packed = &block.Slice{Offset: testBlock, Size: 100}
		if _, ok := w.e.Hit(req, w.e.Fresh(req)); ok {
			t.Error("a hit at the offset in a packed file")
		}
		req.Packed = nil
		if n := testing.AllocsPerRun(100, func() {
			v, ok := w.e.Hit(req, w.e.Fresh(req))
			if !ok {
				t.Fatal("no hit")
			}
			v.Lease.Release()
		}); n != 0 {
			t.Errorf("a hit allocates %v times", n)
		}
	})
}

// TestHits: a read of several blocks that are all there is served without a fetch
// and counted as any other; one that lacks a block gets none and counts nothing.
func TestHits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(6, "v1")
		req := external(0)
		req.MaxAge, req.QueryID = -1, "q"
		dst := make([]byte, 4*testBlock)
		if _, _, err := w.e.Read(context.Background(), req, dst); err != nil { // blocks 0 to 3
			t.Fatal(err)
		}
		known, before, gets := w.e.Fresh(req), w.e.Metrics(), w.e.Cache.Metrics().Hits
		for _, c := range []struct {
			from, size int64
			most, want int
		}{
			{0, 4 * testBlock, 4, 4}, {testBlock - 1, 2, 4, 2}, {5, 3 * testBlock, 9, 4},
			{0, 4 * testBlock, 3, 0},             // more than the caller may hold
			{0, testBlock, 4, 0},                 // one block: Hit's
			{3 * testBlock, testBlock + 1, 4, 0}, // block 4 is missing
			{0, -1, 9, 0}, {6 * testBlock, -1, 9, 0}, {7 * testBlock, 1, 9, 0}, {0, 0, 9, 0},
		} {
			req.Offset, req.Size = c.from, c.size
			views := w.e.Hits(req, known, c.most)
			if len(views) != c.want {
				t.Fatalf("%d bytes at %d: %d views, want %d", c.size, c.from, len(views), c.want)
			}
			at := c.from
			for _, v := range views {
				n := v.To - v.From
				k, err := v.Lease.CopyAt(dst[:n], v.From)
				if err != nil || string(dst[:k]) != string(content(req.Object, "v1", at, n)) || v.Source != block.SourceLocal {
					t.Errorf("%d bytes at %d, from %d on: %v", c.size, c.from, at, err)
				}
				at += int64(n)
				v.Lease.Release()
			}
			if c.want > 0 && at != c.from+c.size {
				t.Errorf("%d bytes at %d end at %d", c.size, c.from, at)
			}
		}
		req.Offset, req.Size, req.Packed = 0, 2*testBlock, &block.Slice{Offset: testBlock, Size: 3 * testBlock}
		if views := w.e.Hits(req, known, 4); views != nil {
			t.Error("hits at the offset in a packed file")
		}
		m := w.e.Metrics()
		if m.Reads-before.Reads != 3 || m.LocalBlocks-before.LocalBlocks != 10 || m.LocalBytes-before.LocalBytes != 7*testBlock+2 {
			t.Errorf("%d reads, %d blocks, %d bytes", m.Reads-before.Reads, m.LocalBlocks-before.LocalBlocks, m.LocalBytes-before.LocalBytes)
		}
		if n := w.e.Cache.Metrics().Hits - gets; n != 10 {
			t.Errorf("the cache has counted %d hits, want 10: what is not served does not count", n)
		}
	})
}

// TestWindowOfARead: a read has no more blocks in hand than it asked for.
func TestWindowOfARead(t *testing.T) {
	for _, window := range []int{1, 3, 8} {
		inWorld(t, func(w *world) {
			w.put(40, "v1")
			w.e.Settings.ObjectStorageGetMaxBlocks.Store(1)
			req := external(0)
			req.Size, req.Window = -1, window
			w.mu.store = func(int, *block.Fetch) reply { return reply{after: time.Millisecond} }
			r, err := w.e.Open(context.Background(), req)
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				v, err := r.Next(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				v.Lease.Release()
				time.Sleep(10 * time.Millisecond)
				if len(r.ring) > window {
					t.Fatalf("window %d: %d blocks are in hand", window, len(r.ring))
				}
			}
			r.Close()
		})
	}
}
