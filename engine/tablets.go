package engine

import (
	"time"

	"headstart/engine/block"
	"headstart/engine/object"
)

// LearnOfTablet takes another node's word on a tablet's file, unless the node
// knows the file: files of tablets never change.
func (e *Engine) LearnOfTablet(r block.Route, o block.Object, meta block.Meta) {
	key := object.KeyOf(o, block.Immutable)
	known := e.objects.Get(key)
	if known == nil {
		meta.Version = block.Immutable
		known = e.objects.Learn(key, meta, time.Now())
	}
	known.NoteRoute(r, true) // it may hold packed files
}

// OfTablets calls yield for each file that was read here since the start for one
// of the tablets, or for any when tablets is nil, until it returns false. It
// looks at all objects known.
func (e *Engine) OfTablets(tablets map[uint64]bool, yield func(tablet uint64, o block.Object, known *object.Known) bool) {
	e.objects.OfTablets(tablets, func(tablet uint64, k object.Key, known *object.Known) bool {
		return !k.Immutable || yield(tablet, k.Object, known)
	})
}
