package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

func TestS02_OneLookupForAThousandMisses(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(1000, "v1")
		done := make(chan time.Duration)
		for n := range 1000 {
			go func() {
				_, took, err := w.at(n)
				if err != nil {
					t.Error(err)
				}
				done <- took
			}()
		}
		for range 1000 {
			// Until the object's size is known, one fetch learns it for all.
			if took := <-done; took > 80*time.Millisecond {
				t.Errorf("a read took %v: it waited for the FE", took)
			}
		}
		if n := len(w.lookups()); n != 1 {
			t.Errorf("%d look-ups, want 1", n)
		}
		if m := w.e.Metrics(); m.Lookups != 1 || m.LazyFetches != 1000 {
			t.Errorf("%d look-ups and %d lazy fetches counted, want 1 and 1000", m.Lookups, m.LazyFetches)
		}
	})
}

func TestS02_SilentFEDelaysNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		w.setLookup(func(block.Route) ([]shards.Candidate, error) {
			time.Sleep(time.Minute)
			return nil, errors.New("timed out")
		})
		for n := range 20 {
			if _, took, err := w.at(n); err != nil || took != 40*time.Millisecond {
				t.Errorf("read %d: %v after %v", n, err, took)
			}
		}
	})
}

func TestS29_LookupsThatFailBackOff(t *testing.T) {
	for name, answer := range map[string]error{"empty": nil, "failed": errors.New("no FE")} {
		inWorld(t, func(w *world) {
			w.put(2000, "v1")
			w.setLookup(func(block.Route) ([]shards.Candidate, error) { return nil, answer })
			for n := range 1200 { // ten minutes of misses
				w.at(n)
				time.Sleep(460 * time.Millisecond)
			}
			// 1, 2, 4 … 60 s, each at least half of that: 6 to reach the cap, then one
			// or two a minute.
			if n := len(w.lookups()); n < 12 || n > 30 {
				t.Errorf("%s: %d look-ups in ten minutes, want 12 to 30", name, n)
			}
			w.setLookup(func(block.Route) ([]shards.Candidate, error) {
				return []shards.Candidate{candidate(1, "cg_a")}, nil
			})
			w.peer(1, serves(time.Millisecond))
			time.Sleep(time.Minute)
			w.at(1500)
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
			if src, _, _ := w.at(1501); src != block.SourcePeer {
				t.Errorf("%s: from %v when the FE knows again", name, src)
			}
		})
	}
}

func TestS29_ListsInUseAreRefreshedBehindTheReads(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(2000, "v1")
		w.rules.RefreshSeconds.Store(60)
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(time.Millisecond))
		w.setLookup(func(block.Route) ([]shards.Candidate, error) {
			return []shards.Candidate{candidate(1, "cg_a"), candidate(2, "cg_b")}, nil
		})
		for n := range 130 {
			if _, took, _ := w.at(n); took > 41*time.Millisecond {
				t.Errorf("a read took %v", took)
			}
			time.Sleep(time.Second)
		}
		if got := w.candidates(); len(got) != 2 {
			t.Errorf("the list is %v after two minutes, want the FE's new candidate in it", got)
		}
		asked := len(w.lookups())
		time.Sleep(30 * time.Minute) // nobody reads
		if n := len(w.lookups()) - asked; n > 2 {
			t.Errorf("%d look-ups for a list that nobody uses", n)
		}
	})
}

// A busy node has many lists in use: all of them are refreshed in time.
func TestS29_RefreshKeepsUpWithManyTablets(t *testing.T) {
	const tablets = 5000
	inWorld(t, func(w *world) {
		w.setLookup(func(r block.Route) ([]shards.Candidate, error) { return []shards.Candidate{candidate(1, "cg_a")}, nil })
		for id := range int64(tablets) {
			w.know(block.TabletRoute(id+1), candidate(1, "cg_a"))
		}
		for w.since() < 930*time.Second { // the refresh interval of 600 s, and half of it
			time.Sleep(100 * time.Second)
			for id := range int64(tablets) { // in use
				r := block.TabletRoute(id + 1)
				w.e.Table.Note(r, w.e.Table.Candidates(r), []shards.Result{{Addr: peerAddr(1), Outcome: block.OutcomeBusy}})
			}
		}
		seen := map[block.Route]bool{}
		for _, r := range w.lookups() {
			seen[r] = true
		}
		if len(seen) != tablets {
			t.Errorf("%d of %d lists were refreshed", len(seen), tablets)
		}
	})
}

func TestPR14_DeadFEIsSaidOnceInHalfAMinute(t *testing.T) {
	var log bytes.Buffer
	inWorld(t, func(w *world) {
		w.put(1000, "v1")
		w.setLookup(func(block.Route) ([]shards.Candidate, error) {
			return nil, errors.New("fe.example:9020: connection refused")
		})
		for n := range 600 {
			if src, err := w.readRoute(block.TabletRoute(int64(n)), n); src != block.SourceStore {
				t.Errorf("from %v (%v)", src, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if m := w.e.Metrics(); m.LookupFailures < 600 || m.LookupFailures != m.Lookups {
			t.Errorf("%d of %d look-ups failed, want all of 600 at least", m.LookupFailures, m.Lookups)
		}
	}, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	// 600 reads of 140 ms each: 84 s.
	if n := strings.Count(log.String(), "fe.example:9020"); n != 3 {
		t.Errorf("%d warnings in 84 s, want one each 30 s:\n%s", n, log.String())
	}
}

func TestS87_KnownPeersServeWithoutTheFE(t *testing.T) {
	inWorld(t, func(w *world) {
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(time.Millisecond))
		w.setLookup(func(block.Route) ([]shards.Candidate, error) { return nil, errors.New("no FE") })
		time.Sleep(11 * time.Minute)
		for n := range 10 {
			if src, _, err := w.at(n); src != block.SourcePeer {
				t.Errorf("from %v (%v)", src, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestNoDirectoryAndNoPeers(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Directory = nil },
		func(o *Options) { o.Directory, o.Peers = nil, nil },
	} {
		inWorld(t, func(w *world) {
			for n := range 3 {
				if src, _, err := w.at(n); src != block.SourceStore || err != nil {
					t.Errorf("from %v (%v)", src, err)
				}
			}
			req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet()}
			if src, _ := w.readAs(context.Background(), req, 10); src != block.SourceLocal {
				t.Errorf("again from %v", src)
			}
		}, change)
	}
}
