package warmup

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
)

func TestS84_TheSourceIsTheFirstCandidateBeforeTheAnswer(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		target := w.nodes[2]
		w.mu.deaf[w.nodes[0].addr] = true // the work itself will fail
		w.mu.err = errors.New("no store")
		progress := target.Warm(w.t.Context(), move("b1", []uint64{7, 8}, w.nodes[0], w.nodes[1]))
		for _, id := range []int64{7, 8} {
			view, ok := target.Table.Show(block.TabletRoute(id))
			if !ok || len(view.Candidates) != 2 || view.Candidates[0].Host != "10.0.0.1" || view.Candidates[1].Host != "10.0.0.2" {
				t.Errorf("tablet %d: %+v", id, view)
			}
		}
		if len(progress) != 1 || progress[0].ID != "b1" || progress[0].State != placement.WarmQueued && progress[0].State != placement.WarmRunning {
			t.Errorf("%+v", progress)
		}
		job := move("b2", []uint64{9}, w.nodes[1])
		job.Start[0].Balance = false
		target.Warm(w.t.Context(), job)
		if _, ok := target.Table.Show(block.TabletRoute(9)); ok {
			t.Error("a job's source has become a candidate")
		}
		target.finish(w, "b1")
	})
}

// TestS84_TheSourcesAreGreetedBeforeTheAnswer: who has just answered is no suspect
// for the reads that the FE is about to send here. A source that is silent keeps
// the answer waiting for half a second, and is no more than a suspect.
func TestS84_TheSourcesAreGreetedBeforeTheAnswer(t *testing.T) {
	inWorld(t, 4, func(w *world) {
		silent, deaf, source, target := w.nodes[0], w.nodes[1], w.nodes[2], w.nodes[3]
		w.mu.silent[silent.addr], w.mu.deaf[deaf.addr] = true, true
		began := time.Now()
		target.Warm(w.t.Context(), move("a", []uint64{7, 8}, silent, deaf, source))
		if took := time.Since(began); took != greetTimeout {
			t.Errorf("the answer took %v, want %v", took, greetTimeout)
		}
		for n, want := range map[*node]bool{silent: false, deaf: false, source: true} {
			if got := target.Engine.Breakers.Vouched(n.addr); got != want {
				t.Errorf("%v vouched for: %t", n.addr, got)
			}
		}
		w.mu.Lock()
		w.mu.silent[silent.addr] = false
		w.mu.Unlock()
		target.finish(w, "a")
		target.Warm(w.t.Context(), move("b", []uint64{9}, silent, source))
		if a, b := silent.greetings.Load(), source.greetings.Load(); a != 1 || b != 1 {
			t.Errorf("%d and %d greetings were answered, want one each: once is enough", a, b)
		}
		target.finish(w, "b")
	})
}

// TestS88_BlocksComeFromTheSource: with warm_up_from_peer the store sees
// nothing, without it the peer gives no block.
func TestS88_BlocksComeFromTheSource(t *testing.T) {
	for _, fromPeer := range []bool{true, false} {
		inWorld(t, 2, func(w *world) {
			source, target := w.nodes[0], w.nodes[1]
			target.Settings.FromPeer.Store(fromPeer)
			source.read(w, 7, file(1), 0, 5)
			source.read(w, 7, file(1), 10, 11) // to the end
			source.read(w, 7, file(2), 3, 1)
			source.read(w, 8, file(3), 0, 1) // another tablet
			before := w.gets()
			target.Warm(w.t.Context(), move("b", []uint64{7}, source))
			p := target.finish(w, "b")
			if want := int64(16*testBlock + 100); p.State != placement.WarmDone || p.Blocks != 17 || p.Bytes != want {
				t.Errorf("from peer %t: %+v, want 17 blocks and %d bytes", fromPeer, p, want)
			}
			if fromPeer != (w.gets() == before) || fromPeer != (source.fetches.Load() > 0) {
				t.Errorf("from peer %t: %d GETs and %d fetches of the peer", fromPeer, w.gets()-before, source.fetches.Load())
			}
			synctest.Wait()
			after := w.gets()
			for _, r := range [][3]int{{1, 0, 5}, {1, 10, 11}, {2, 3, 1}} {
				if src := target.read(w, 7, file(r[0]), r[1], r[2]); src != block.SourceLocal {
					t.Errorf("from peer %t: blocks %v come from %v", fromPeer, r, src)
				}
			}
			if w.gets() != after {
				t.Error("what was warmed up is not here")
			}
			if target.Cache.Has(block.BaseID(file(3), block.Immutable)) {
				t.Error("a tablet that was not asked for was warmed up")
			}
		})
	}
}

func TestS88_ObjectStorageStandsInForASourceThatFails(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		source, other, target := w.nodes[0], w.nodes[1], w.nodes[2]
		target.Settings.FromPeer.Store(true)
		source.read(w, 7, file(1), 0, 4)
		other.read(w, 7, file(1), 0, 4)
		w.mu.deaf[source.addr] = true
		before := w.gets()
		target.Warm(w.t.Context(), move("b", []uint64{7}, source, other))
		if p := target.finish(w, "b"); p.State != placement.WarmDone || p.Blocks != 4 || w.gets() != before {
			t.Errorf("the second source was not asked: %+v, %d GETs", p, w.gets()-before)
		}
		w.mu.deaf[other.addr] = true
		target.Warm(w.t.Context(), move("c", []uint64{7}, source, other))
		if p := target.finish(w, "c"); p.State != placement.WarmFailed || !strings.Contains(p.Err, "10.0.0.1:8060") || !strings.Contains(p.Err, "10.0.0.2:8060") {
			t.Errorf("nobody knows what is hot: %+v", p)
		}
		// A source that says what it has, and then does not give it.
		hot := source.Hot([]uint64{7})
		c, ok := target.wanted(hot.Objects[0], hot.BlockSize, source.addr)
		if err := target.Cache.Clear(w.t.Context()); err != nil || !ok {
			t.Fatal(err)
		}
		before = w.gets()
		b := newBatch(w.t.Context(), placement.WarmBatch{})
		defer b.cancel()
		if err := target.copyObject(b, c); err != nil || b.blocks.Load() != 4 || w.gets() == before {
			t.Errorf("%v: %d blocks, %d GETs", err, b.blocks.Load(), w.gets()-before)
		}
	})
}

func TestS10_WarmUpNeverUsesPeerRead(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		source, target := w.nodes[0], w.nodes[1]
		source.read(w, 7, file(1), 0, 8)
		target.Warm(w.t.Context(), move("b", []uint64{7}, source)) // the source is the first candidate now
		if p := target.finish(w, "b"); p.State != placement.WarmDone || p.Blocks != 8 {
			t.Errorf("%+v", p)
		}
		if n := source.fetches.Load(); n != 0 {
			t.Errorf("a warm-up without warm_up_from_peer asked a peer %d times", n)
		}
	})
}

func TestS85_ObjectsOutsideTablets(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		n := w.nodes[0]
		o := placement.WarmObject{Object: block.Object{Bucket: "b", Key: "x"}, Meta: block.Meta{Size: w.mu.size, Version: "v1", ETag: "v1"}}
		n.Warm(w.t.Context(), placement.WarmCall{Start: []placement.WarmBatch{{ID: "b", Objects: []placement.WarmObject{o}}}})
		if p := n.finish(w, "b"); p.State != placement.WarmDone || p.Blocks != 21 || p.Bytes != w.mu.size {
			t.Errorf("%+v", p)
		}
		o.Object.Store = block.DefaultStore
		for i := range uint64(21) {
			if !n.Cache.Has(block.BaseID(o.Object, "v1").At(i)) {
				t.Fatalf("block %d is not there", i)
			}
		}
		// It shrinks between the listing and the copy.
		o.Object.Key = "y"
		o.Meta.Size *= 3
		n.Warm(w.t.Context(), placement.WarmCall{Start: []placement.WarmBatch{{ID: "c", Objects: []placement.WarmObject{o}}}})
		if p := n.finish(w, "c"); p.State != placement.WarmDone || p.Blocks != 21 {
			t.Errorf("%+v", p)
		}
	})
}

func TestS85_RateLimit(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		source, target := w.nodes[0], w.nodes[1]
		target.Settings.FromPeer.Store(true)
		var tablets []uint64
		for i := range 10 {
			source.read(w, int64(i), file(i), 0, 16)
			tablets = append(tablets, uint64(i))
		}
		target.Settings.BytesPerSecond.Store(16 * testBlock) // one file a second
		began := time.Now()
		target.Warm(w.t.Context(), move("b", tablets, source))
		if p := target.finish(w, "b"); p.Blocks != 160 {
			t.Errorf("%+v", p)
		}
		if took := time.Since(began); took < 8500*time.Millisecond || took > 11*time.Second {
			t.Errorf("160 blocks at 16 a second took %v", took)
		}
		// A limit that was far too low is lifted while a batch waits.
		target.Settings.BytesPerSecond.Store(1)
		if err := target.Cache.Clear(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		target.Warm(w.t.Context(), move("c", tablets, source))
		time.Sleep(time.Second)
		target.Settings.BytesPerSecond.Store(0)
		if p := target.finish(w, "c"); p.State != placement.WarmDone || time.Since(began) > 3*time.Second {
			t.Errorf("%+v after %v", p, time.Since(began))
		}
	})
}

func TestS85_BatchesThatAreSaidTwiceDroppedOrForgotten(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		source, target := w.nodes[0], w.nodes[1]
		for i := range 5 {
			source.read(w, 7, file(i), 0, 16)
		}
		call := move("b", []uint64{7}, source)
		target.Warm(w.t.Context(), call)
		target.Warm(w.t.Context(), call)
		if p := target.finish(w, "b"); p.State != placement.WarmDone || source.hots.Load() != 1 {
			t.Errorf("%+v: said twice, done %d times", p, source.hots.Load())
		}
		if p := target.Warm(w.t.Context(), call); p[0].State != placement.WarmDone {
			t.Errorf("%+v", p)
		}
		if err := target.Cache.Clear(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		target.Settings.BytesPerSecond.Store(testBlock)
		target.Warm(w.t.Context(), move("slow", []uint64{7}, source))
		time.Sleep(time.Second)
		target.Warm(w.t.Context(), placement.WarmCall{Drop: []string{"slow", "never heard of"}})
		if p := target.finish(w, "slow"); p.State != placement.WarmUnknown {
			t.Errorf("a batch that was dropped: %+v", p)
		}
		if m := target.Metrics(); m.Running != 0 || m.Queued != 0 {
			t.Errorf("%+v", m)
		}
		if p := target.Warm(w.t.Context(), placement.WarmCall{Ask: []string{"x"}}); !reflect.DeepEqual(p, []placement.WarmProgress{{ID: "x"}}) {
			t.Errorf("%+v", p)
		}
	})
}

func TestHotTellsWhatIsStillThere(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		n := w.nodes[0]
		n.read(w, 7, file(1), 0, 2)
		n.read(w, 7, file(1), 5, 1)
		n.read(w, 7, file(2), 0, 1)
		if hot := n.Hot([]uint64{6, 7}); hot.BlockSize != testBlock || len(hot.Objects) != 2 {
			t.Errorf("%+v", hot)
		}
		n.Cache.DropObject(block.BaseID(file(2), block.Immutable), 21)
		hot := n.Hot([]uint64{7})
		if len(hot.Objects) != 1 || hot.Objects[0].Object != file(1) || hot.Objects[0].Meta.Size != w.mu.size {
			t.Fatalf("%+v", hot)
		}
		if want := []placement.BlockRange{{First: 0, Count: 2}, {First: 5, Count: 1}}; !reflect.DeepEqual(hot.Objects[0].Blocks, want) {
			t.Errorf("%+v", hot.Objects[0].Blocks)
		}
		if hot := n.Hot(nil); len(hot.Objects) != 0 {
			t.Errorf("%+v", hot)
		}
	})
}

// TestWantedDistrustsSources: a source may cut objects otherwise, and lie.
func TestWantedDistrustsSources(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		n := w.nodes[0]
		meta := block.Meta{Size: 10 * testBlock, Version: block.Immutable}
		for _, tt := range []struct {
			blockSize int64
			meta      block.Meta
			blocks    []placement.BlockRange
			want      []placement.BlockRange
		}{
			{testBlock, meta, []placement.BlockRange{{First: 2, Count: 3}}, []placement.BlockRange{{First: 2, Count: 3}}},
			{testBlock, meta, []placement.BlockRange{{First: 8, Count: 1 << 30}}, []placement.BlockRange{{First: 8, Count: 2}}},
			{testBlock, meta, []placement.BlockRange{{First: 1 << 62, Count: 3}, {First: 1, Count: -1}}, nil},
			{3 * testBlock, meta, []placement.BlockRange{{First: 1, Count: 1}}, []placement.BlockRange{{First: 3, Count: 3}}},
			{1000, meta, []placement.BlockRange{{First: 4, Count: 1}}, []placement.BlockRange{{First: 0, Count: 2}}},
			{0, meta, []placement.BlockRange{{Count: 1}}, nil},
			{testBlock, block.UnknownMeta(block.Immutable), []placement.BlockRange{{Count: 1}}, nil},
			{testBlock, block.Meta{Size: 100, Version: "v1"}, []placement.BlockRange{{Count: 1}}, nil},
		} {
			c, ok := n.wanted(placement.HotObject{WarmObject: placement.WarmObject{Object: file(1), Meta: tt.meta}, Blocks: tt.blocks}, tt.blockSize, block.Addr{Host: "x", Port: 1})
			if ok != (tt.want != nil) || ok && !reflect.DeepEqual(c.blocks, tt.want) || ok && (c.source.Port != 0) != (tt.blockSize == testBlock) {
				t.Errorf("%d bytes, %v: %v from %v", tt.blockSize, tt.blocks, c.blocks, c.source)
			}
		}
	})
}

func TestWithoutACacheNothingIsWarm(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		n := w.nodes[0]
		w.mu.err = block.ErrDenied
		n.Warm(w.t.Context(), placement.WarmCall{Start: []placement.WarmBatch{{ID: "b", Objects: []placement.WarmObject{{Object: file(1), Meta: block.Meta{Size: 5, Version: "v1"}}}}}})
		if p := n.finish(w, "b"); p.State != placement.WarmFailed || !strings.Contains(p.Err, "access denied") {
			t.Errorf("%+v", p)
		}
		if m := n.Metrics(); m.Batches != 1 || m.Failed != 1 {
			t.Errorf("%+v", m)
		}
	})
}

// TestS88_ARestartedNodeKnowsWhatItHasOfTablets: nobody has read anything since.
func TestS88_ARestartedNodeKnowsWhatItHasOfTablets(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		n := w.nodes[0]
		n.read(w, 7, file(1), 0, 3)
		n.read(w, 8, file(2), 2, 1)
		if err := n.Cache.Flush(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		want := n.Hot([]uint64{7})
		n.end(t)
		n = w.newNodeIn(n.addr, n.dir)
		w.nodes[0] = n
		if err := n.Cache.AwaitLoaded(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		n.Engine.LearnCached()
		if got := n.Hot([]uint64{7}); len(want.Objects) != 1 || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, before the restart %+v", got, want)
		}
		if got := n.Hot([]uint64{7, 8}); len(got.Objects) != 2 {
			t.Errorf("two tablets have %+v", got.Objects)
		}
	})
}
