package object

import "headstart/engine/block"

// NoteRoute notes which tablet the object is read for; of several it is the last
// one. It costs a load when that is known already.
func (k *Known) NoteRoute(r block.Route) {
	if r.Kind == block.RouteTablet && k.tablet.Load() != r.ID+1 {
		k.tablet.Store(r.ID + 1)
	}
}

// OfTablets calls yield for each object that has been read for one of the
// tablets, or for any when tablets is nil, until it returns false. It looks at
// all objects.
func (t *Table) OfTablets(tablets map[uint64]bool, yield func(tablet uint64, k Key, known *Known) bool) {
	t.entries.Range(func(k Key, known *Known) bool {
		id := known.tablet.Load()
		return id == 0 || tablets != nil && !tablets[id-1] || yield(id-1, k, known)
	})
}
