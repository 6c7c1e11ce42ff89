package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/engine/object"
)

func external(off int64) *block.Read {
	return &block.Read{Object: testObject(), Route: block.ExternalRoute(testObject()), Offset: off, Size: -1}
}

// uniform reports which of the versions all of data is of, "" for a mix.
func uniform(data []byte, off int64, versions ...string) string {
	for _, v := range versions {
		if bytes.Equal(data, content(testObject(), v, off, len(data))) {
			return v
		}
	}
	return ""
}

// The object changes behind block n of a read of 40, for each n; blocks come
// from the cache, the store and a peer in turns.
func TestS14OS05_ReadThatMeetsAChangeStartsOver(t *testing.T) {
	const blocks = 40
	for change := 0; change < blocks; change += 3 {
		for _, peer := range []bool{false, true} {
			inWorld(t, func(w *world) {
				w.put(blocks, "v1")
				if peer {
					w.know(block.ExternalRoute(testObject()), candidate(1, "cg_a"))
					w.peer(1, func(_ int, f *block.Fetch) reply {
						return reply{after: time.Millisecond, version: "v1", lacks: map[uint64]bool{f.Run.First: true}}
					})
				}
				for _, n := range []int64{0, 3, 17, 18} { // some of it is cached
					dst := make([]byte, 10)
					if _, _, err := w.e.Read(context.Background(), external(n*testBlock), dst); err != nil {
						t.Fatal(err)
					}
				}
				w.setStore(func(_ int, f *block.Fetch) reply {
					if f.Run.First <= uint64(change) && f.Run.First+block.MaxRun > uint64(change) {
						w.put(blocks, "v2") // the GETs before it have seen v1
					}
					return reply{after: time.Millisecond}
				})
				dst := make([]byte, blocks*testBlock)
				n, _, err := w.e.Read(context.Background(), external(0), dst)
				if err != nil || n != len(dst) {
					t.Fatalf("change at %d, peer %v: %d bytes, %v", change, peer, n, err)
				}
				if uniform(dst, 0, "v1", "v2") == "" {
					t.Errorf("change at %d, peer %v: a mix of versions", change, peer)
				}
			}, func(o *Options) { o.Window = 8 })
		}
	}
}

func TestS14OS05_ReaderThatHasHandedOutBytesFails(t *testing.T) {
	const blocks = 40
	for change := range blocks {
		inWorld(t, func(w *world) {
			w.put(blocks, "v1")
			r, err := w.e.Open(context.Background(), external(0))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var got []byte
			for n := 0; ; n++ {
				if n == change {
					w.put(blocks, "v2")
				}
				v, err := r.Next(context.Background())
				if err == io.EOF {
					break
				}
				if err != nil {
					if !errors.Is(err, block.ErrChanged) || n == 0 {
						t.Errorf("change at %d, block %d: %v", change, n, err)
					}
					break
				}
				part := make([]byte, v.To-v.From)
				if _, err := v.Lease.CopyAt(part, v.From); err != nil {
					t.Error(err)
				}
				v.Lease.Release()
				got = append(got, part...)
			}
			if uniform(got, 0, "v1", "v2") == "" {
				t.Errorf("change at %d: a mix in %d bytes", change, len(got))
			}
		}, func(o *Options) { o.Window = 4 })
	}
}

func TestS14_FreshnessIsBounded(t *testing.T) {
	for _, bound := range []int64{0, 1000, 5000} {
		inWorld(t, func(w *world) {
			w.e.Settings.ExternalRevalidateMS.Store(bound)
			w.put(4, "v1")
			read := func() string {
				dst := make([]byte, 4*testBlock)
				if _, _, err := w.e.Read(context.Background(), external(0), dst); err != nil {
					t.Error(err)
				}
				return uniform(dst, 0, "v1", "v2", "v3")
			}
			read()
			begin := w.since()
			w.put(4, "v2")
			if bound > 0 {
				time.Sleep(time.Duration(bound-41) * time.Millisecond)
				if v := read(); v != "v1" || w.mu.heads != 0 {
					t.Errorf("bound %d: version %q after %v with %d HEADs, want the cached one", bound, v, w.since()-begin, w.mu.heads)
				}
				time.Sleep(41 * time.Millisecond)
			}
			if v := read(); v != "v2" || w.mu.heads == 0 {
				t.Errorf("bound %d: version %q after %v with %d HEADs", bound, v, w.since()-begin, w.mu.heads)
			}
		})
	}
}

func TestS14_NeverChangingFilesAreNotLookedAtAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.e.Settings.ExternalRevalidateMS.Store(0)
		w.at(0)
		time.Sleep(2 * time.Hour)
		if src, took, _ := w.at(0); src != block.SourceLocal || took != 0 || w.mu.heads != 0 {
			t.Errorf("from %v in %v with %d HEADs", src, took, w.mu.heads)
		}
	})
}

func TestS14_RevalidationThatNobodyWaitsForTeachesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(4, "v1")
		dst := make([]byte, 10)
		w.e.Read(context.Background(), external(0), dst)
		w.put(4, "v2")
		time.Sleep(2 * time.Second)
		w.mu.headTakes = 50 * time.Millisecond
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if _, _, err := w.e.Read(ctx, external(0), dst); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		synctest.Wait()
		if _, _, err := w.e.Read(context.Background(), external(0), dst); err != nil || uniform(dst, 0, "v1", "v2") != "v2" {
			t.Errorf("version %q (%v): a HEAD that was given up made the old one fresh", uniform(dst, 0, "v1", "v2"), err)
		}
		if m := w.e.Metrics(); m.StaleMetaUsed != 0 {
			t.Errorf("%d stale uses counted", m.StaleMetaUsed)
		}
	})
}

func TestS14_RevalidationThatCloseCutsOffLeavesNothingInUse(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(4, "v1")
		dst := make([]byte, 10)
		w.e.Read(context.Background(), external(0), dst)
		w.put(4, "v2")
		time.Sleep(2 * time.Second)
		w.mu.headTakes = 50 * time.Millisecond
		time.AfterFunc(10*time.Millisecond, w.e.Close)
		if n, _, err := w.e.Read(context.Background(), external(0), dst); !errors.Is(err, errClosed) {
			t.Errorf("%d bytes of %q, error %v: nobody has said that they still hold", n, uniform(dst, 0, "v1", "v2"), err)
		}
	})
}

func TestS14_StoreThatDoesNotAnswerLeavesTheOldVersionInUse(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(4, "v1")
		dst := make([]byte, 10)
		w.e.Read(context.Background(), external(0), dst)
		time.Sleep(2 * time.Second)
		for err, want := range map[error]error{errReset: nil, block.ErrNotFound: block.ErrNotFound} {
			w.mu.headErr = err
			_, _, got := w.e.Read(context.Background(), external(0), dst)
			if !errors.Is(got, want) {
				t.Errorf("HEAD says %v: the read %v, want %v", err, got, want)
			}
			w.mu.headErr = nil
			w.e.Read(context.Background(), external(0), dst)
			time.Sleep(2 * time.Second)
		}
		w.mu.headErr, w.mu.headPanics = nil, true
		if _, _, err := w.e.Read(context.Background(), external(0), dst); err != nil || w.e.Metrics().Panics != 1 {
			t.Errorf("a HEAD that panics: %v, %d panics counted", err, w.e.Metrics().Panics)
		}
	})
}

func TestPR22_OldVersionOfAPeerIsNotTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(20, "v1")
		w.know(block.ExternalRoute(testObject()), candidate(1, "cg_a"))
		dst := make([]byte, 10)
		w.setStore(serves(10 * time.Millisecond))
		w.put(20, "v2")
		w.e.Read(context.Background(), external(0), dst) // learns v2
		w.peer(1, always(reply{after: time.Millisecond, version: "v1"}))
		if _, src, err := w.e.Read(context.Background(), external(5*testBlock), dst); src != block.SourceStore || err != nil {
			t.Errorf("from %v (%v), want the store's", src, err)
		}
		if uniform(dst, 5*testBlock, "v2") == "" {
			t.Error("the peer's old bytes were taken")
		}
	})
}

// A peer goes on serving the old version to readers that know none.
func TestPR22_ReaderGetsPastAPeerThatIsBehind(t *testing.T) {
	for _, lacks := range []uint64{0, 1} {
		inWorld(t, func(w *world) {
			w.put(20, "v2")
			w.know(block.ExternalRoute(testObject()), candidate(1, "cg_a"))
			w.peer(1, always(reply{after: time.Millisecond, version: "v1", lacks: map[uint64]bool{lacks: true}}))
			dst := make([]byte, 4*testBlock)
			if n, _, err := w.e.Read(context.Background(), external(0), dst); err != nil || uniform(dst[:n], 0, "v2") == "" {
				t.Errorf("the peer lacks block %d: %d bytes, %v", lacks, n, err)
			}
			if lacks != 0 {
				return
			}
			w.e.forget(object.KeyOf(testObject(), ""), w.e.Known(testObject(), ""))
			r, err := w.e.Open(context.Background(), external(0))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			v, err := r.Next(context.Background())
			if err != nil {
				t.Errorf("an open reader: %v", err)
			}
			v.Lease.Release()
		})
	}
}

func TestS14_WhatIsKnownOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	open := func(o *Options) {
		c, err := openCache(dir)
		if err != nil {
			t.Fatal(err)
		}
		o.Cache.Close()
		o.Cache = c
	}
	dst := make([]byte, 10)
	inWorld(t, func(w *world) {
		w.at(3)
		w.e.Read(context.Background(), external(0), dst)
	}, open)
	inWorld(t, func(w *world) {
		if src, _, err := w.at(3); src != block.SourceLocal || err != nil {
			t.Errorf("tablet file from %v (%v) after a restart", src, err)
		}
		// What may have changed meanwhile is looked at before it is used.
		w.put(20, "v2")
		if _, _, err := w.e.Read(context.Background(), external(0), dst); err != nil || uniform(dst, 0, "v1", "v2") != "v2" {
			t.Errorf("version %q (%v), want the present one", uniform(dst, 0, "v1", "v2"), err)
		}
	}, open)
}
