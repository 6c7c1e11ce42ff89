package blockcache

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

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
	bits  []atomic.Uint64
	shift int
}

// claimBits bounds the marks of a file; more space gets a coarser grain.
const claimBits = 1 << 24

func newClaims(units uint64) claims {
	c := claims{}
	for units>>c.shift >= claimBits {
		c.shift++
	}
	c.bits = make([]atomic.Uint64, units>>c.shift/64+1)
	return c
}

// take marks what the record speaks of, and reports whether nobody else had. Of
// two that meet here both may hear that they were not alone, never neither.
func (c *claims) take(f *found) bool {
	free := true
	for at := uint64(f.start) >> c.shift; at <= (f.end()-1)>>c.shift; at++ {
		bit := uint64(1) << (at % 64)
		free = c.bits[at/64].Or(bit)&bit == 0 && free
	}
	return free
}

// readRecords reads what the volume holds: an entry for each slot, and the places
// of those that make sense. A block whose record nothing speaks against is in the
// index at once: its bytes are verified before they are lent, whatever is found
// later.
func (v *volume) readRecords() (list []found, good []uint32, err error) {
	size, err := v.blocks.Size()
	if err != nil {
		return nil, nil, err
	}
	cells, err := v.objects.Size()
	if err != nil {
		return nil, nil, err
	}
	v.mu.Lock()
	capacity, gone := v.mu.capacity, map[uint32]bool{}
	for _, n := range v.mu.unerased {
		gone[n] = true
	}
	v.mu.Unlock()
	records := uint32(min(size/recordSize, int64(maxSlots(v.capacity))))
	end := uint64(max(0, capacity-overhead(capacity)-metaBytes(records, uint32(cells/cellSize)))) / unit
	v.index.reserve(int(records))
	taken := newClaims(end)
	list = make([]found, records)
	var parts [readParts]part
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { // ends with its part of the file
			p := &parts[i]
			p.err = scan(v.blocks, recordSize, int64(i), readParts, func(n uint32, b []byte) {
				switch {
				case gone[n]:
					p.wrong = append(p.wrong, n)
				case n <= records:
					v.readRecord(p, &list[n-1], n, b, &taken, end)
				}
			})
		})
	}
	wg.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.wrong = nil
	for i := range parts {
		good = append(good, parts[i].good...)
		v.mu.wrong = append(v.mu.wrong, parts[i].wrong...)
		err = errors.Join(err, parts[i].err)
	}
	return list, good, err
}

// readParts is how many goroutines read the records of a directory.
const readParts = 2

// part is what one of them has found: places of records in the list, and slots
// whose records are no good.
type part struct {
	good, wrong []uint32
	err         error
}

// readRecord takes a record in that makes sense and ends before end, in units.
func (v *volume) readRecord(p *part, f *found, n uint32, b []byte, taken *claims, end uint64) {
	switch {
	case !f.decode(b) || int64(f.size) > v.blockSize:
	case f.end() > end: // the capacity was larger
		p.wrong = append(p.wrong, n)
	default:
		f.n = n
		p.good = append(p.good, n-1)
		f.entered = taken.take(f) && v.enter(f)
	}
}

// enter makes a block known to readers, and reports whether it is the first of
// its name: another directory may hold it as well, and a crash in the middle of a
// move leaves two copies.
func (v *volume) enter(f *found) bool {
	v.slots.grow(f.n)
	s := v.slots.at(f.n)
	s.id, s.start, s.size, s.crc, s.queue, s.born = f.id, f.start, f.size, f.crc, f.queue, v.mu.age
	v.slots.tail(f.n).Store(0)
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

// ordered returns the given places of list by rising key.
func ordered(list []found, places []uint32, key func(*found) uint32) []uint32 {
	order := make([]uint64, len(places))
	for i, at := range places {
		order[i] = uint64(key(&list[at]))<<32 | uint64(at)
	}
	slices.Sort(order)
	out := make([]uint32, len(order))
	for i, o := range order {
		out[i] = uint32(o)
	}
	return out
}

// pickLocked returns those of the given places whose records can be true together,
// in the order of the file: of two on the same bytes the younger one, unless a reader has
// found the older one right. All of them are in the index then; the slots of the
// others are wrong.
func (v *volume) pickLocked(list []found, places []uint32) (kept []uint32) {
	kept = make([]uint32, 0, len(places))
	for _, at := range ordered(list, places, func(f *found) uint32 { return f.start }) {
		f := &list[at]
		v.mu.seq = max(v.mu.seq, f.seq)
		if len(kept) > 0 && uint64(f.start) < list[kept[len(kept)-1]].end() {
			last := &list[kept[len(kept)-1]]
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
		kept = append(kept, at)
	}
	return slices.DeleteFunc(kept, func(at uint32) bool {
		f := &list[at]
		if f.entered || v.enter(f) {
			return false
		}
		v.mu.wrong = append(v.mu.wrong, f.n)
		return true
	})
}
