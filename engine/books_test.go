package engine

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

func TestOB02_RacesAreCountedOnceAndSequencesNever(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(400, "v1")
		w.rules.SlowPeerEjection.Store(false)
		w.know(tablet(), candidate(1, "cg_a"))
		w.setStore(serves(30 * time.Millisecond))
		w.peer(1, serves(5*time.Millisecond))
		for n := range 100 { // within the head start
			w.one(n)
		}
		gets := len(w.gets())
		w.peer(1, serves(60*time.Millisecond))
		for n := range 100 { // the store wins
			w.one(100 + n)
		}
		sequence(w)
		for n := range 100 {
			w.one(200 + n)
		}
		synctest.Wait()
		m := w.e.Metrics()
		if m.RacePeerWin != 100 || m.RaceStoreWin != 100 || m.RaceBothFail != 0 || m.RaceAbandoned != 0 || m.RaceSequential != 100 {
			t.Errorf("peer %d, store %d, none %d, abandoned %d, sequences %d; want 100, 100, 0, 0, 100",
				m.RacePeerWin, m.RaceStoreWin, m.RaceBothFail, m.RaceAbandoned, m.RaceSequential)
		}
		if gets != 0 || m.StoreReads != 100 || m.Hedges != 100 || m.PeerReads != 300 {
			t.Errorf("%d GETs within the head start, %d in all, %d hedges, %d calls; want 0, 100, 100, 300", gets, m.StoreReads, m.Hedges, m.PeerReads)
		}
	})
}

// mixedPeers scripts three peers that answer in all the ways there are, late and
// early, by one source of chance.
func mixedPeers(w *world, blocks uint64) {
	rng := rand.New(rand.NewPCG(1, 2))
	answer := func(int, *block.Fetch) reply {
		w.mu.Lock() // one source of chance for all scripts
		defer w.mu.Unlock()
		r := reply{after: time.Duration(rng.ExpFloat64() * float64(25*time.Millisecond))}
		switch rng.IntN(12) {
		case 0:
			r.all = true
		case 1:
			r.all, r.status = true, block.StatusQueueFull
		case 2:
			r.err = errReset
		case 3:
			r.gap = 25 * time.Millisecond
		case 4:
			r.lacks = map[uint64]bool{rng.Uint64N(blocks): true}
		}
		return r
	}
	for n := range 3 {
		w.peer(n+1, answer)
	}
}

func TestOB07_BooksBalance(t *testing.T) {
	const blocks, readers = 2000, 20
	each := 500
	if testing.Short() {
		each = 50
	}
	inWorld(t, func(w *world) {
		w.put(blocks, "v1")
		w.rules.AllMissThreshold.Store(1 << 30)
		w.rules.EvictionThreshold.Store(1 << 30)
		w.rules.FailureThreshold.Store(1 << 30)
		w.know(tablet(), candidate(1, "cg_read"), candidate(2, "cg_b"), candidate(3, "cg_c"))
		mixedPeers(w, blocks)
		served := make(chan int64, readers)
		for g := range readers {
			go func() {
				var n int64
				rng := rand.New(rand.NewPCG(uint64(g), 3))
				for range each {
					count := 1 + rng.Int64N(4)
					if _, err := w.read(rng.Int64N(blocks-4)*testBlock, int(count)*testBlock); err != nil {
						t.Error(err)
					}
					n += count
				}
				served <- n
			}()
		}
		var sum int64
		for range readers {
			sum += <-served
		}
		w.idle("mixed reads")
		m := w.e.Metrics()
		if m.Reads != int64(readers*each) || m.ReadErrors != 0 || m.LocalBlocks+m.PeerBlocks+m.StoreBlocks != sum {
			t.Errorf("%d reads, %d failed; %d local, %d peer, %d store blocks of %d", m.Reads, m.ReadErrors, m.LocalBlocks, m.PeerBlocks, m.StoreBlocks, sum)
		}
		if races := m.RacePeerWin + m.RaceStoreWin + m.RaceBothFail + m.RaceAbandoned; m.RaceBothFail != 0 || m.RaceAbandoned != 0 || m.RacePeerWin == 0 || m.RaceStoreWin == 0 {
			t.Errorf("%d races: peer %d, store %d, failed %d, abandoned %d", races, m.RacePeerWin, m.RaceStoreWin, m.RaceBothFail, m.RaceAbandoned)
		}
		if m.StoreReads != int64(len(w.gets())) || m.PeerReads != int64(len(w.calls())) {
			t.Errorf("%d GETs and %d calls counted, %d and %d on the wire", m.StoreReads, m.PeerReads, len(w.gets()), len(w.calls()))
		}
		var sent int64
		for _, c := range append(w.gets(), w.calls()...) {
			sent += c.bytes
		}
		if m.PeerBytes+m.StoreBytes != sent {
			t.Errorf("%d + %d bytes counted, %d on the wire", m.PeerBytes, m.StoreBytes, sent)
		}
		// Each block that came in went to the reader that had asked for it, or to waste.
		if led := (m.PeerBlocks + m.StoreBlocks - m.JoinedBlocks) * testBlock; led != sent-m.WastedBytes {
			t.Errorf("%d bytes in, %d wasted, %d for readers", sent, m.WastedBytes, led)
		}
		if m.WastedBytes == 0 || m.JoinedBlocks == 0 || m.LocalBlocks == 0 {
			t.Errorf("the mix is too tame: %+v", m)
		}
	})
}

func TestOB07_BlocksThatComeTwiceAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put(400, "v1")
		w.learn()
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(60*time.Millisecond)) // when the store answers, too
		for n := range 200 {
			w.one(n + 1)
		}
		w.idle("ties")
		m := w.e.Metrics()
		if m.PeerBytes+m.StoreBytes-m.WastedBytes != 201*testBlock {
			t.Errorf("%d bytes from the peer, %d from the store, %d wasted, of 201 blocks", m.PeerBytes, m.StoreBytes, m.WastedBytes)
		}
	})
}

func TestSF05OB07_ReadersOfOneBlockAreBookedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.learn()
		w.know(tablet(), candidate(1, "cg_read"))
		w.peer(1, serves(10*time.Millisecond))
		done := make(chan error)
		for range 500 { // SF-05: overlapping, different parts of one block
			go func() {
				_, err := w.read(5*testBlock+rand.Int64N(4000), 90)
				done <- err
			}()
		}
		peak := int64(0)
		time.AfterFunc(10*time.Millisecond, func() { peak = w.bufs.Load() })
		for range 500 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		m := w.e.Metrics()
		if len(w.calls()) != 1 || len(w.gets()) != 1 || m.PeerBlocks != 500 || m.JoinedBlocks != 499 || m.PeerBytes != testBlock || m.SameGroupReads != 1 {
			t.Errorf("%d calls, %d GETs with the first read's; %+v", len(w.calls()), len(w.gets()), m)
		}
		if peak > 3 {
			t.Errorf("%d blocks in memory for one", peak)
		}
		req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: 9 * testBlock, QueryID: "q"}
		w.readAs(context.Background(), req, 100)
		if c := w.e.Profiles.Get("q").Counters(); c.SameCGPeerIOTotal != 1 || c.BytesScannedFromPeer != testBlock || c.PeerRaceWin > 1 {
			t.Errorf("the profile: %+v", c)
		}
	})
}
