package object

import (
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
)

func TestOfTabletsFindsWhatWasReadForThem(t *testing.T) {
	table := NewTable(0)
	for i := range 6 {
		known := table.Learn(KeyOf(named(i), block.Immutable), meta(block.Immutable), time.Now())
		switch {
		case i < 4:
			known.NoteRoute(block.TabletRoute(int64(i%2)), false)
		case i == 4:
			known.NoteRoute(block.ExternalRoute(named(i)), false)
		}
	}
	count := func(tablets map[uint64]bool) (n int) {
		table.OfTablets(tablets, func(id uint64, k Key, known *Known) bool {
			if tablets != nil && !tablets[id] || known == nil || !k.Immutable {
				t.Errorf("%v of tablet %d", k, id)
			}
			n++
			return true
		})
		return n
	}
	for _, tt := range []struct {
		tablets map[uint64]bool
		want    int
	}{{nil, 4}, {map[uint64]bool{}, 0}, {map[uint64]bool{0: true}, 2}, {map[uint64]bool{0: true, 1: true, 9: true}, 4}} {
		if got := count(tt.tablets); got != tt.want {
			t.Errorf("%v: %d objects, want %d", tt.tablets, got, tt.want)
		}
	}
	known := table.Get(KeyOf(named(0), block.Immutable))
	known.NoteRoute(block.TabletRoute(1), false)
	if got := count(map[uint64]bool{1: true}); got != 3 {
		t.Errorf("%d objects after one has moved to tablet 1, want 3", got)
	}
	stopped := 0
	table.OfTablets(nil, func(uint64, Key, *Known) bool { stopped++; return false })
	if stopped != 1 {
		t.Errorf("went on %d times", stopped)
	}
	route := block.TabletRoute(1)
	if n := testing.AllocsPerRun(100, func() { known.NoteRoute(route, false) }); n != 0 {
		t.Errorf("%v allocations for what is known already", n)
	}
}

// TestS17S88_APackedObjectBelongsToAllTablets: files of several tablets were merged
// into one object: it is copied when any of them moves.
func TestS17S88_APackedObjectBelongsToAllTablets(t *testing.T) {
	table := NewTable(0)
	known := table.Learn(KeyOf(named(1), block.Immutable), meta(block.Immutable), time.Now())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for id := range int64(100) {
				known.NoteRoute(block.TabletRoute((id+int64(i))%100), true)
			}
		})
	}
	all.Wait()
	seen := map[uint64]int{}
	table.OfTablets(nil, func(id uint64, _ Key, _ *Known) bool { seen[id]++; return true })
	for id := range uint64(100) {
		if seen[id] != 1 {
			t.Errorf("tablet %d has the object %d times", id, seen[id])
		}
	}
	one := 0
	table.OfTablets(map[uint64]bool{42: true}, func(uint64, Key, *Known) bool { one++; return true })
	if one != 1 || len(seen) != 100 {
		t.Errorf("%d objects of one tablet, %d tablets", one, len(seen))
	}
	for id := range int64(3000) { // it is bounded
		known.NoteRoute(block.TabletRoute(id), true)
	}
	if n := len(*known.shared.Load()); n != maxShared {
		t.Errorf("%d further tablets", n)
	}
	for id := range int64(100) { // whichever of them came first
		route := block.TabletRoute(id)
		if n := testing.AllocsPerRun(10, func() { known.NoteRoute(route, true) }); n != 0 {
			t.Fatalf("%v allocations for what is known already", n)
		}
	}
}
