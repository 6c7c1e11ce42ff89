package blockcache

import "headstart/engine/block"

const (
	// windowTries is how many holes are looked at for the cheapest window to
	// make a place in; windowTiles how many tiles a window may have.
	windowTries = 48
	windowTiles = 2048
	// placeTries bounds the rounds of moving and evicting for one block.
	placeTries = 64
)

// place gives a promised block its place in the file. When no hole is large
// enough the writer, who is the only one to move blocks, makes one: it moves
// the blocks of the cheapest window into smaller holes, or evicts one more
// block when all windows are dear. It reports false when the block has gone or
// nothing helps.
func (v *volume) place(n uint32) bool {
	for range placeTries {
		v.mu.Lock()
		s := v.slots.at(n)
		if s.state.Load() != slotPending {
			v.mu.Unlock()
			return false
		}
		if v.mu.space.place(n) {
			v.mu.Unlock()
			return true
		}
		window := v.windowLocked(s.units)
		if window == nil {
			for more := int64(0); more <= int64(s.units)/32; {
				victim := v.mu.policy.victim(wish{queue: s.queue, fill: s.where == inFills})
				if victim == 0 {
					v.mu.Unlock()
					return false
				}
				more += int64(v.slots.at(victim).units)
				v.evictLocked(victim)
			}
		}
		v.mu.Unlock()
		v.vacate(window)
	}
	return false
}

// windowLocked returns neighbouring tiles of at least so many units together
// that can be vacated by moving no more than that; nil when there are none.
func (v *volume) windowLocked(units uint32) []uint32 {
	p := &v.mu.space
	best, cost := []uint32(nil), uint64(units)+1
	tries := 0
	for bin := binOf(units); bin > 0 && tries < windowTries; bin-- {
		for n := p.bins[bin]; n != 0 && tries < windowTries; n = v.slots.at(n).next {
			tries++
			if w, c := v.growLocked(n, units, cost); w != nil && c < cost {
				best, cost = w, c
			}
		}
	}
	return best
}

// growLocked extends a vacant tile over its neighbours, the cheaper one first,
// until it has so many units, and returns the tiles and what has to be moved;
// it gives up when that comes to most.
func (v *volume) growLocked(n, units uint32, most uint64) (window []uint32, cost uint64) {
	s := v.slots.at(n)
	window = append(window, n)
	left, right, sum := s.left, s.right, uint64(s.units)
	for sum < uint64(units) && cost < most && len(window) < windowTiles {
		l, r := v.moveCostLocked(left), v.moveCostLocked(right)
		next := left
		if r < l {
			next, l = right, r
		}
		if l == cannotMove {
			return nil, 0
		}
		t := v.slots.at(next)
		window, cost, sum = append(window, next), cost+l, sum+uint64(t.units)
		if next == left {
			left = t.left
		} else {
			right = t.right
		}
	}
	if sum < uint64(units) {
		return nil, 0
	}
	return window, cost
}

const cannotMove = ^uint64(0)

// moveCostLocked returns the units to move for tile n to become vacant.
func (v *volume) moveCostLocked(n uint32) uint64 {
	if n == 0 {
		return cannotMove
	}
	s := v.slots.at(n)
	switch s.state.Load() {
	case slotVacant:
		return 0
	case slotReady, slotUnchecked:
		if !v.slots.pinned(n) {
			return uint64(s.units)
		}
	}
	return cannotMove
}

// vacate moves the blocks of a window elsewhere, or evicts those that fit
// nowhere. The vacant tiles are claimed meanwhile, so that no block is moved
// from one part of the window to another.
func (v *volume) vacate(window []uint32) {
	var claimed []uint32
	v.mu.Lock()
	for _, n := range window {
		if s := v.slots.at(n); s.state.Load() == slotVacant && s.units > 0 {
			claimed = append(claimed, v.mu.space.claim(n))
		}
	}
	v.mu.Unlock()
	for _, n := range window {
		hole := v.move(n)
		v.mu.Lock()
		if hole != 0 && v.slots.at(hole).state.Load() == slotVacant {
			claimed = append(claimed, v.mu.space.claim(hole))
		}
		v.mu.Unlock()
	}
	v.mu.Lock()
	for _, n := range claimed {
		v.mu.space.unclaim(n)
	}
	v.mu.Unlock()
}

// move brings a block to another place in the file, in a slot of its own. It
// returns the vacant tile that it leaves, 0 when it could not leave.
func (v *volume) move(n uint32) (hole uint32) {
	v.mu.Lock()
	m := v.moveToLocked(n)
	if m == 0 {
		defer v.mu.Unlock()
		if v.moveCostLocked(n) == cannotMove || v.slots.at(n).state.Load() == slotVacant {
			return 0
		}
		return v.evictLocked(n)
	}
	seq := v.mu.seq
	v.mu.Unlock()
	err := v.copyBlock(n, m, seq)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.slots.letGo(n)
	s, t := v.slots.at(n), v.slots.at(m)
	h := hashID(s.id)
	t.state.Store(slotReady)
	if err != nil || !v.index.replace(h, makeWord(h, v.slots.place(n)), makeWord(h, v.slots.place(m))) {
		t.state.Store(slotVacant)
		v.mu.space.give(m)
		// A record that was written for m must not bring a block back that was
		// dropped on its way.
		v.pushLocked(job{kind: jobErase, list: []uint32{m}})
		if err != nil {
			v.readFailed()
			v.retireLocked(n)
		}
		return v.reapLocked(n)
	}
	v.count.moved.Add(uint64(s.size))
	v.mu.policy.moved(n, m)
	v.mu.objects.hold(keyOf(s.id), 1)
	s.retire()
	v.mu.dying++
	return v.reapLocked(n)
}

// moveToLocked gives the block of slot n, which is then pinned, a second slot
// and place; 0 when it can't move.
func (v *volume) moveToLocked(n uint32) uint32 {
	s := v.slots.at(n)
	if !s.atRest() || v.slots.pinned(n) {
		return 0
	}
	if v.mu.space.find(s.units) == 0 {
		return 0
	}
	m := v.mu.space.promise(s.units)
	if m == 0 {
		return 0
	}
	t := v.slots.at(m)
	t.id, t.size, t.crc, t.queue, t.where, t.born = s.id, s.size, s.crc, s.queue, s.where, s.born
	v.slots.tail(m).Store(0)
	t.state.Store(slotClaimed) // in no list yet: nobody but the writer may touch it
	if !v.mu.space.place(m) {
		t.state.Store(slotVacant)
		v.mu.space.breakPromise(m)
		return 0
	}
	v.mu.seq++
	v.slots.pin(n, 0).Add(onePin)
	return m
}

// copyBlock writes the bytes and the record of slot n again, for slot m. The
// old record goes last: until then a crash leaves two of one block, both true.
func (v *volume) copyBlock(n, m uint32, seq uint64) error {
	s, t := v.slots.at(n), v.slots.at(m)
	buf := v.scratch.Get().(*[scratchSize]byte)
	defer v.scratch.Put(buf)
	if err := v.reserve(int64(t.start+t.units) * unit); err != nil {
		return err
	}
	sum := checksum{}
	for off := 0; off < int(s.size); {
		p := buf[:min(int(s.size)-off, len(buf))]
		if got, err := v.data.ReadAt(p, int64(s.start)*unit+int64(off)); got < len(p) {
			return err
		}
		sum.add(p)
		to := int64(t.start)*unit + int64(off)
		if _, err := v.data.WriteAt(p, to); err != nil {
			return err
		}
		v.arena.wrote(to, p)
		off += len(p)
	}
	if sum.crc != s.crc {
		return block.ErrCorrupt
	}
	if err := v.writeRecord(m, t, seq); err != nil {
		return err
	}
	return v.eraseRecord(n)
}

// giveMetadataRoom moves the end of the data back when records and cells are
// about to run into it, as they do when blocks become smaller, and when the
// limit has come down.
func (v *volume) giveMetadataRoom() {
	for range 16 * placeTries {
		if !v.cramped() {
			return
		}
		v.getsOn()
		if v.trimReserved() != nil {
			v.writeFault()
			return
		}
		v.mu.Lock()
		v.fitLocked(v.mu.space.high, v.mu.objects.high())
		last := v.mu.space.last
		stuck := v.moveCostLocked(last) == cannotMove
		v.mu.Unlock()
		if !v.cramped() || stuck {
			return
		}
		v.vacate([]uint32{last})
	}
}

func (v *volume) cramped() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.crampedLocked()
}
