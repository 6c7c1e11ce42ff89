package blockcache

import "headstart/engine/block"

// objectTable knows which objects have blocks in a volume, and which cells of
// the objects file describe them. Under the volume's lock.
type objectTable struct {
	byKey map[objectKey]objectRef
	// next chains the cells of an object and the free cells; cell 0 is none.
	next []uint32
	free uint32
}

type objectRef struct {
	blocks uint32
	cells  uint32 // first cell, 0 when nothing is written yet
}

func newObjectTable() objectTable {
	return objectTable{byKey: map[objectKey]objectRef{}, next: []uint32{0}}
}

// high returns the highest cell number in use.
func (t *objectTable) high() uint32 { return uint32(len(t.next) - 1) }

// hold counts so many more blocks of an object.
func (t *objectTable) hold(key objectKey, blocks uint32) {
	if blocks == 0 {
		return
	}
	ref := t.byKey[key]
	ref.blocks += blocks
	t.byKey[key] = ref
}

// release counts one block less; the last one frees the object's cells.
func (t *objectTable) release(key objectKey) {
	ref := t.byKey[key]
	ref.blocks--
	if ref.blocks > 0 {
		t.byKey[key] = ref
		return
	}
	delete(t.byKey, key)
	t.freeChain(ref.cells)
}

func (t *objectTable) freeChain(c uint32) {
	for c != 0 {
		next := t.next[c]
		t.next[c], t.free = t.free, c
		c = next
	}
}

// take chains n cells, first to last, and returns the first; 0 when mayUse
// refuses a new cell.
func (t *objectTable) take(n int, mayUse func(high uint32) bool) uint32 {
	var chain uint32
	for range n {
		c := t.free
		if c != 0 {
			t.free = t.next[c]
		} else {
			if !mayUse(t.high() + 1) {
				t.freeChain(chain)
				return 0
			}
			c = uint32(len(t.next))
			t.next = append(t.next, 0)
		}
		t.next[c], chain = chain, c
	}
	return chain
}

// highest returns the highest slot number in use.
func (v *volume) highest() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return uint64(v.mu.space.high)
}

// dropObject drops the first so many blocks of an object's version, by a look at
// all slots. A block that is moved meanwhile may be where the look has been, so
// then there is another one.
func (v *volume) dropObject(base block.ID, blocks uint64) {
	const rounds = 3
	for range rounds {
		moved := v.count.moved.Load()
		for n, done := uint32(1), false; !done; n += chunk {
			done = v.dropChunk(n, base, blocks)
		}
		if v.count.moved.Load() == moved {
			return
		}
	}
}

// dropChunk is dropObject for the slots from n on, and reports whether those were
// the last ones.
func (v *volume) dropChunk(n uint32, base block.ID, blocks uint64) (done bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	high := v.mu.space.high
	var gone []uint32
	for end := min(n+chunk-1, high); n <= end; n++ {
		if s := v.slots.at(n); s.live() && keyOf(s.id) == keyOf(base) && s.id.Index < blocks && !v.mu.closed {
			gone = append(gone, n)
			v.retireLocked(n)
		}
	}
	if len(gone) > 0 {
		v.pushLocked(job{kind: jobErase, list: gone})
	}
	return n > high
}
