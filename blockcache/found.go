package blockcache

import "slices"

// found is a record of before the start, and the slot number that its place
// gives it.
type found struct {
	record
	n uint32
	// entered: readers find the block already.
	entered bool
}

// claims marks the parts of a data file that records speak of, some units to a
// bit: where two want the same bit, they may want the same bytes.
type claims struct {
	bits  []uint64
	shift int
}

// claimBits bounds the marks of a file; more space gets a coarser grain.
const claimBits = 1 << 24

func newClaims(units uint64) claims {
	c := claims{}
	for units>>c.shift >= claimBits {
		c.shift++
	}
	c.bits = make([]uint64, units>>c.shift/64+1)
	return c
}

// take marks what the record speaks of, and reports whether nobody else had.
func (c *claims) take(f *found) bool {
	free := true
	for at := uint64(f.start) >> c.shift; at <= (f.end()-1)>>c.shift; at++ {
		w, bit := &c.bits[at/64], uint64(1)<<(at%64)
		free = free && *w&bit == 0
		*w |= bit
	}
	return free
}

// readRecords reads what the volume holds. A block whose record nothing speaks
// against is in the index at once: its bytes are verified before they are lent,
// whatever is found later.
func (v *volume) readRecords() (list []found, err error) {
	size, err := v.blocks.Size()
	if err != nil {
		return nil, err
	}
	cells, err := v.objects.Size()
	if err != nil {
		return nil, err
	}
	records := uint32(min(size/recordSize, int64(maxSlots(v.capacity))))
	end := uint64(max(0, v.capacity-overhead(v.capacity)-metaBytes(records, uint32(cells/cellSize)))) / unit
	taken := newClaims(end)
	list = make([]found, 0, records)
	v.index.reserve(int(records))
	var wrong []uint32
	err = scan(v.blocks, recordSize, func(n uint32, b []byte) {
		f := found{n: n}
		if n > maxSlots(v.capacity) || !f.decode(b) || int64(f.size) > v.blockSize {
			return
		}
		if f.end() > end { // the capacity was larger
			wrong = append(wrong, n)
			return
		}
		f.entered = taken.take(&f) && v.enter(&f)
		list = append(list, f)
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.wrong = wrong
	return list, err
}

// enter makes a block known to readers, and reports whether it is the first of
// its name: another directory may hold it as well, and a crash in the middle of a
// move leaves two copies.
func (v *volume) enter(f *found) bool {
	v.slots.grow(f.n)
	s := v.slots.at(f.n)
	s.id, s.start, s.size, s.crc, s.queue, s.born = f.id, f.start, f.size, f.crc, f.queue, v.mu.age
	s.state.Store(slotUnchecked)
	h := hashID(f.id)
	_, ok := v.index.put(f.id, h, makeWord(h, v.slots.place(f.n)))
	if !ok {
		s.state.Store(slotVacant)
	}
	return ok
}

// leave takes a block back out that others than readers know nothing of yet. It
// fails where the bytes were verified meanwhile, or somebody is about to.
func (v *volume) leave(f *found) bool {
	s, h := v.slots.at(f.n), hashID(f.id)
	w := makeWord(h, v.slots.place(f.n))
	if s.state.Load() == slotReady || !v.index.remove(h, w) {
		return false
	}
	// As with eviction: who pins from now on finds the word gone.
	if v.slots.pinned(f.n) {
		v.index.put(f.id, h, w)
		return false
	}
	s.state.Store(slotVacant)
	return true
}

// ordered returns the numbers of the elements of list by rising key.
func ordered(list []found, key func(*found) uint32) []uint64 {
	order := make([]uint64, len(list))
	for i := range list {
		order[i] = uint64(key(&list[i]))<<32 | uint64(i)
	}
	slices.Sort(order)
	return order
}

// pickLocked returns the records that can be true together, in the order of the
// file: of two on the same bytes the younger one, unless a reader has found the
// older one right. All of them are in the index then; the slots of the others are
// wrong.
func (v *volume) pickLocked(list []found) (kept []found) {
	kept = make([]found, 0, len(list))
	for _, o := range ordered(list, func(f *found) uint32 { return f.start }) {
		f := &list[uint32(o)]
		v.mu.seq = max(v.mu.seq, f.seq)
		if len(kept) > 0 && uint64(f.start) < kept[len(kept)-1].end() {
			last := &kept[len(kept)-1]
			young, old := last, f
			if f.seq > last.seq {
				young, old = f, last
			}
			if old.entered && !v.leave(old) {
				young, old = old, young
			}
			v.mu.wrong = append(v.mu.wrong, old.n)
			if young == last {
				continue
			}
			kept = kept[:len(kept)-1]
		}
		kept = append(kept, *f)
	}
	return slices.DeleteFunc(kept, func(f found) bool {
		if f.entered || v.enter(&f) {
			return false
		}
		v.mu.wrong = append(v.mu.wrong, f.n)
		return true
	})
}
