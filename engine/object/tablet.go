package object

import (
	"slices"

	"headstart/engine/block"
)

// maxShared is how many further tablets are remembered of an object that holds
// packed files of several.
const maxShared = 1024

// NoteRoute notes which tablet the object is read for; of several it is the last
// one, but for an object of packed files, which belongs to all of them. It costs a
// load when that is known already, and a search when the object is shared.
func (k *Known) NoteRoute(r block.Route, packed bool) {
	switch {
	case r.Kind != block.RouteTablet || k.tablet.Load() == r.ID+1:
	case !packed:
		k.tablet.Store(r.ID + 1)
	default:
		k.share(r.ID)
	}
}

// share adds a tablet to those of an object of packed files.
func (k *Known) share(id uint64) {
	for !k.tablet.CompareAndSwap(0, id+1) {
		var list []uint64
		old := k.shared.Load()
		if old != nil {
			list = *old
		}
		at, found := slices.BinarySearch(list, id)
		if found || len(list) == maxShared {
			return
		}
		longer := slices.Insert(slices.Clone(list), at, id) // of its own: who finds the tablet allocates nothing
		if k.shared.CompareAndSwap(old, &longer) {
			return
		}
	}
}

// OfTablets calls yield for each object that has been read for one of the
// tablets, or for any when tablets is nil, until it returns false: an object of
// packed files once for each of its tablets. It looks at all objects.
func (t *Table) OfTablets(tablets map[uint64]bool, yield func(tablet uint64, k Key, known *Known) bool) {
	t.entries.Range(func(k Key, known *Known) bool {
		if id := known.tablet.Load(); id != 0 && (tablets == nil || tablets[id-1]) && !yield(id-1, k, known) {
			return false
		}
		shared := known.shared.Load()
		if shared == nil {
			return true
		}
		for _, id := range *shared {
			if (tablets == nil || tablets[id]) && id+1 != known.tablet.Load() && !yield(id, k, known) {
				return false
			}
		}
		return true
	})
}
