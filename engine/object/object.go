// Package object keeps what is known of objects: size, version and headers,
// and when that was learned. It is bounded and lock-free to read, and learns
// from the replies of others: it asks nobody itself.
package object

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/puzpuzpuz/xsync/v3"

	"headstart/engine/block"
)

// DefaultMaxObjects bounds the table when Options do not.
const DefaultMaxObjects = 1 << 20

// Key is what a Table is kept by. A file that is read as a part of a tablet is
// immutable; the same object read from outside is whatever it is now.
type Key struct {
	Object    block.Object
	Immutable bool
}

// KeyOf returns the key under which a read's object is kept.
func KeyOf(o block.Object, v block.Version) Key {
	return Key{Object: o, Immutable: v == block.Immutable}
}

// Known is what a node knows of an object. It never changes, but for its marks:
// news is a new Known.
type Known struct {
	Meta block.Meta
	// Base is the id of the version's block 0.
	Base    block.ID
	Learned time.Time
	// Asked is when the question was, whose answer this is.
	Asked time.Time
	// used is set by readers and cleared by the sweep for room: an entry that is
	// found cleared has not been read since the last sweep.
	used atomic.Bool
	// changed stands for an object that somebody has changed at Asked: nothing is
	// known of it, and no older news is taken.
	changed bool
	// tablet is one more than the tablet that the object was last read for, 0
	// before. Readers write it; who reads it learns where the object belongs now.
	tablet atomic.Uint64
	// header is what the answers of a front say of the object. The first one writes
	// it; who reads it may take it for what Meta says.
	header atomic.Pointer[Header]
	// shared is further tablets whose packed files the object holds, in order; nil
	// for none. Readers replace it, and never change what it points to.
	shared atomic.Pointer[[]uint64]
}

// Line is one line of an HTTP header.
type Line struct{ Name, Value []byte }

// Header is what answers say of an object: line by line, and as bytes of HTTP.
type Header struct {
	Lines []Line
	Block []byte
}

// Header returns what make returns for the object, which is asked once: it holds
// as long as what is known, and nobody changes it.
func (k *Known) Header(make func(*block.Meta) *Header) *Header {
	if h := k.header.Load(); h != nil {
		return h
	}
	h := make(&k.Meta)
	k.header.Store(h) // of two at once both are right
	return h
}

// Table is what a node knows of objects.
type Table struct {
	entries *xsync.MapOf[Key, *Known]
	max     int
}

// NewTable returns a table of at most maxObjects objects, DefaultMaxObjects
// when that is not positive.
func NewTable(maxObjects int) *Table {
	if maxObjects <= 0 {
		maxObjects = DefaultMaxObjects
	}
	return &Table{entries: xsync.NewMapOfWithHasher[Key, *Known](hash), max: maxObjects}
}

func hash(k Key, seed uint64) uint64 {
	h := xxhash.Sum64String(k.Object.Key) ^ seed
	h ^= xxhash.Sum64String(k.Object.Bucket)*31 ^ xxhash.Sum64String(k.Object.Store)*37
	if k.Immutable {
		h++
	}
	return h * 0x9e3779b97f4a7c15
}

// Get returns what is known under k, nil when nothing is.
func (t *Table) Get(k Key) *Known {
	known, ok := t.entries.Load(k)
	if !ok || known.changed {
		return nil
	}
	if !known.used.Load() {
		known.used.Store(true)
	}
	return known
}

// Learn replaces what is known under k and returns it.
func (t *Table) Learn(k Key, meta block.Meta, now time.Time) *Known {
	return t.LearnAsked(k, meta, now, now)
}

// LearnAsked is Learn for the answer to a question of the time asked: it says
// nothing about what happened after, so it does not replace what is younger. What
// it returns is what meta makes, whatever the table holds.
func (t *Table) LearnAsked(k Key, meta block.Meta, asked, now time.Time) *Known {
	known := &Known{Meta: meta, Base: block.BaseID(k.Object, meta.Version), Learned: now, Asked: asked}
	t.store(k, known)
	return known
}

// Change notes that somebody has changed the object: what was known of it is
// returned and forgotten, and what was asked before now is not taken any more.
func (t *Table) Change(k Key, now time.Time) (old *Known) {
	old = t.Get(k)
	t.store(k, &Known{Asked: now, changed: true})
	return old
}

// Changed reports whether the last that is known of the object is that somebody
// has changed it.
func (t *Table) Changed(k Key) bool {
	known, ok := t.entries.Load(k)
	return ok && known.changed
}

func (t *Table) store(k Key, known *Known) {
	t.entries.Compute(k, func(now *Known, loaded bool) (*Known, bool) {
		if loaded && (now.Asked.After(known.Asked) || now.changed && !known.Asked.After(now.Asked)) {
			return now, false
		}
		return known, false
	})
	if t.entries.Size() > t.max {
		t.makeRoom(k)
	}
}

// Forget drops known, and no later news, from under k.
func (t *Table) Forget(k Key, known *Known) {
	t.entries.Compute(k, func(now *Known, loaded bool) (*Known, bool) {
		return now, !loaded || now == known
	})
}

// Len returns the number of objects known.
func (t *Table) Len() int { return t.entries.Size() }

// makeRoom drops a sixteenth of the objects, those not read lately first, and
// never keep. Dropping many at once spreads the cost of the walk over as many
// calls of Learn. It begins anywhere: if all walks began at the map's first
// entry, they would drop what is new there and never get to what is old behind.
func (t *Table) makeRoom(keep Key) {
	drop, skip := t.max/16+1, rand.IntN(t.max)
	for round := 0; round < 3 && drop > 0; round++ {
		t.entries.Range(func(k Key, known *Known) bool {
			if skip > 0 {
				skip--
				return true
			}
			if k == keep || (known.used.Swap(false) && round < 2) {
				return true
			}
			t.Forget(k, known)
			drop--
			return drop > 0
		})
	}
}
