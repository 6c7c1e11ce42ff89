package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// The store's side of races has room of its own: as many GETs as it has slots
// start beside slow peers, the other races wait for their peers, and a read
// that is no race does not feel it.
func TestS42_TheStoresSideOfRacesHasAPoolOfItsOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		const races, slots = 10, 3
		w.put((races+1)*2*block.MaxRun, "v1")
		w.learn()
		known := len(w.gets())
		w.e.RaceGets.SetLimit(slots)
		w.know(tablet(), candidate(1, "cg_a"))
		w.peer(1, serves(48*time.Millisecond)) // not when a refused hedge asks again
		sources := make(chan block.Source, races)
		for i := range races {
			go func() { // ends with its read
				src, _, err := w.at((i + 1) * 2 * block.MaxRun)
				if err != nil {
					t.Error(err)
				}
				sources <- src
			}()
		}
		time.Sleep(30 * time.Millisecond) // the head start is over, no GET is
		synctest.Wait()
		if n := w.e.RaceGets.InUse(); n != slots || len(w.gets())-known != slots {
			t.Errorf("%d slots are taken and %d GETs under way, want %d", n, len(w.gets())-known, slots)
		}
		w.e.Settings.EnableCacheReadFromPeer.Store(false)
		if src, took, err := w.at(1); src != block.SourceStore || took != 40*time.Millisecond {
			t.Errorf("a read that is no race: from %v in %v (%v)", src, took, err)
		}
		for range races {
			if src := <-sources; src != block.SourcePeer {
				t.Errorf("a race is won by %v", src)
			}
		}
		synctest.Wait()
		if m := w.e.Metrics(); m.Hedges != slots || m.HedgeNoSlot != races-slots {
			t.Errorf("%d hedges, %d without a slot", m.Hedges, m.HedgeNoSlot)
		}
	})
}
