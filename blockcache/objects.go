package blockcache

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

// hold counts one more block of an object.
func (t *objectTable) hold(key objectKey) {
	ref := t.byKey[key]
	ref.blocks++
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
