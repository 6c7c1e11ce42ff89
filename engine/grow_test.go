package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards"
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

// TestS39_ScanDoesNotWaitForItsNextGET: a scan that takes its time finds each
// block in the cache or on its way, in the front's ways as well as in the
// library's; with peers that have it, object storage is not read ahead.
func TestS39_ScanDoesNotWaitForItsNextGET(t *testing.T) {
	for _, peers := range []bool{false, true} {
		for _, way := range []string{"library", "hit"} {
			t.Run(fmt.Sprintf("%s, peers %v", way, peers), func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.growing(128)
					slow := 0
					if peers {
						w.know(block.ExternalRoute(testObject()), candidate(1, "cg_read"))
						w.peer(1, func(int, *block.Fetch) reply { return reply{after: time.Millisecond} })
					}
					for i := range int64(128) {
						req := external(i * testBlock)
						req.Size, req.MaxAge, req.NoPeer = testBlock, -1, i < 20
						began := time.Now()
						v, hit := block.View{}, false
						if known := w.e.Fresh(req); way == "hit" && known != nil {
							if v, hit = w.e.Hit(req, known); hit {
								v.Lease.Release()
							}
						}
						if !hit {
							w.readAs(context.Background(), req, testBlock)
						}
						if time.Since(began) > 0 {
							slow++
						}
						time.Sleep(10 * time.Millisecond)
					}
					gets := len(w.gets())
					// Six GETs until the scan goes steadily, as without reading ahead.
					if !peers && (gets != 13 || slow != 6) {
						t.Errorf("%d GETs, %d of 128 reads have waited", gets, slow)
					}
					if peers && gets != 6 {
						t.Errorf("%d GETs though a peer has it all", gets)
					}
				})
			})
		}
	}
}

// footer reads the last bytes of the object.
func (w *world) footer(req block.Read, n int64) {
	w.t.Helper()
	req.Offset = w.mu.objects[testObject()].size - n
	if _, err := w.readAs(context.Background(), &req, int(n)); err != nil {
		w.t.Error(err)
	}
	synctest.Wait()
}

// TestS39_FooterBringsTheRest: of a small object, at once and in GETs beside each
// other, whether the object was known before or not; only when its end is what is
// read, and only from object storage.
func TestS39_FooterBringsTheRest(t *testing.T) {
	plain := block.Read{Object: testObject(), Version: block.Immutable, Route: tablet()}
	forPeer, alone := plain, plain
	forPeer.ForPeer, alone.NoPeer = true, true
	head := func(w *world) {
		if _, err := w.e.Stat(context.Background(), &block.Read{Object: testObject()}); err != nil {
			t.Error(err)
		}
	}
	external, current := plain, alone
	external.Version, current.Version = "", ""
	peers := func(w *world) {
		w.mu.lookup = func(block.Route) ([]shards.Candidate, error) {
			return []shards.Candidate{candidate(1, "cg_read")}, nil
		}
	}
	for _, c := range []struct {
		name  string
		read  block.Read
		n     int64
		size  int64
		ready func(w *world)
		want  string
	}{
		{"unknown", alone, 100, 12, nil, "[0+6 11+1 6+5]"},
		{"known by its HEAD", current, 100, 12, head, "[0+6 11+1 6+5]"},
		{"all of the last block", alone, testBlock, 12, nil, "[11+1]"},
		{"large", alone, 100, 17, nil, "[16+1]"},
		{"for a peer", forPeer, 100, 12, nil, "[11+1]"},
		{"one block a GET", alone, 100, 12, func(w *world) { w.e.Settings.ObjectStorageGetMaxBlocks.Store(1) }, "[11+1]"},
		{"nobody else has it, says the FE", plain, 100, 12, nil, "[0+6 11+1 6+5]"},
		{"known, and nobody else has it", external, 100, 12, head, "[0+6 11+1 6+5]"},
		{"peers are found meanwhile", plain, 100, 12, peers, "[11+1]"},
		{"known, and peers are found meanwhile", external, 100, 12, func(w *world) { head(w); peers(w) }, "[11+1]"},
		{"a peer may have it", plain, 100, 12, func(w *world) {
			w.know(tablet(), candidate(1, "cg_read"))
			w.peer(1, func(int, *block.Fetch) reply { return reply{after: time.Millisecond} })
		}, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.growing(c.size)
				if c.ready != nil {
					c.ready(w)
				}
				w.footer(c.read, c.n)
				gets := []string{}
				for _, g := range w.gets() {
					gets = append(gets, fmt.Sprintf("%d+%d", g.req.Run.First, g.req.Run.Count()))
				}
				slices.Sort(gets) // those of one moment have no order
				if got := fmt.Sprint(gets); got != c.want {
					t.Errorf("GETs %s, want %s", got, c.want)
				}
			})
		})
	}
}

// TestS39_RestIsReadOnce: who reads a part of the rest while it is on its way, or
// when it is there, starts no GET of his own; and blocks that are there before
// don't come again.
func TestS39_RestIsReadOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.growing(12)
		alone := block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), NoPeer: true}
		var all sync.WaitGroup
		all.Go(func() { w.footer(alone, 100) })
		time.Sleep(50 * time.Millisecond) // the footer came after 40
		for i := range int64(11) {
			all.Go(func() {
				if src, err := w.read(i*testBlock, testBlock); src != block.SourceStore || err != nil {
					t.Errorf("block %d from %v: %v", i, src, err)
				}
			})
		}
		all.Wait()
		if n := len(w.gets()); n != 3 || w.since() > 81*time.Millisecond {
			t.Errorf("%d GETs, %v", n, w.since())
		}
		if m := w.e.growth.Metrics(); m.Extra != 11 || m.Used != 11 {
			t.Errorf("%+v", m)
		}
	})
	inWorld(t, func(w *world) {
		w.growing(12)
		alone := block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), NoPeer: true, Offset: 3 * testBlock}
		w.readAs(context.Background(), &alone, 10)
		time.Sleep(time.Minute) // asked for long ago, but there
		w.footer(alone, 100)
		var asked []uint64
		for _, g := range w.gets() {
			for i := range uint64(12) {
				if g.req.Run.Has(i) {
					asked = append(asked, i)
				}
			}
		}
		slices.Sort(asked)
		// The GET of the first six ends before the block that is there.
		if m := w.e.growth.Metrics(); !slices.Equal(asked, []uint64{0, 1, 2, 3, 6, 7, 8, 9, 10, 11}) || m.Extra != 8 {
			t.Errorf("GETs of %v; %+v", asked, m)
		}
	})
}

func TestS39_BlocksThatComeAlongAreJoinedOnTheirWay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.growing(200)
		next := int64(0)
		for ; next < 3; next++ { // the fourth makes it a scan
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
