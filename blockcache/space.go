package blockcache

import "math/bits"

const (
	// unit is the grain of space in a data file, in bytes: small, so that tails
	// of objects don't waste a page each.
	unit = 1 << 10

	// A bin holds vacant tiles of similar size: 16 bins to each power of two.
	binSteps = 4
	binCount = (32 - binSteps + 1) << binSteps
	// binLook is how many tiles of the very bin of a size are tried before a
	// larger bin, whose tiles all fit, is taken.
	binLook = 16
)

// space tiles the file with slots from 0 to the frontier: vacant ones in bins,
// the others blocks. Everything is done in memory and in constant time, under
// the volume's lock.
type space struct {
	slots    *slotTable
	bins     [binCount]uint32
	filled   [(binCount + 63) / 64]uint64 // a bit for each bin that is not empty
	frontier uint32                       // in units
	last     uint32                       // the tile that ends at the frontier
	// limit is where the frontier must stop: it yields to the metadata.
	limit uint32
	// spare is what the bins hold, unplaced what is promised to blocks that have
	// no place yet: in units.
	spare, unplaced uint64
	// numbers is the list of slot numbers that are not tiles; high is the highest
	// number ever used, mayUse tells whether it may grow.
	numbers, high uint32
	mayUse        func(high uint32) bool
}

// unitsOf returns how many units a block of size bytes takes.
func unitsOf(size int) uint32 { return uint32((size + unit - 1) / unit) }

// binOf returns the bin of tiles of the given length.
func binOf(units uint32) int {
	if units < 1<<binSteps {
		return int(units)
	}
	shift := bits.Len32(units) - 1 - binSteps
	return (shift+1)<<binSteps + int(units>>shift) - 1<<binSteps
}

// number returns a slot number that is no tile, or 0.
func (p *space) number() uint32 {
	if n := p.numbers; n != 0 {
		p.numbers = p.slots.at(n).next
		return n
	}
	if !p.mayUse(p.high + 1) {
		return 0
	}
	p.high++
	p.slots.grow(p.high)
	return p.high
}

func (p *space) giveNumber(n uint32) {
	p.slots.at(n).next, p.numbers = p.numbers, n
}

// free returns how many units are neither taken nor promised.
func (p *space) free() int64 {
	return int64(p.spare) + int64(p.limit) - int64(p.frontier) - int64(p.unplaced)
}

// promise gives a block a slot number and the right to a place; 0 when there
// is no number left.
func (p *space) promise(units uint32) uint32 {
	n := p.number()
	if n != 0 {
		p.slots.at(n).units, p.slots.at(n).start = units, nowhere
		p.unplaced += uint64(units)
	}
	return n
}

// breakPromise takes the number back from a block that never had a place.
func (p *space) breakPromise(n uint32) {
	s := p.slots.at(n)
	p.unplaced -= uint64(s.units)
	s.units = 0
	p.giveNumber(n)
}

// place makes n a tile of its length, and reports whether there was a place.
func (p *space) place(n uint32) bool {
	s := p.slots.at(n)
	if hole := p.find(s.units); hole != 0 {
		p.carve(n, hole)
	} else if p.frontier+s.units <= p.limit {
		p.append(n, s.units)
	} else {
		return false
	}
	p.unplaced -= uint64(s.units)
	return true
}

// carve makes n the front of a vacant tile.
func (p *space) carve(n, hole uint32) {
	p.unbin(hole)
	s, h := p.slots.at(n), p.slots.at(hole)
	s.start, s.left, s.right = h.start, h.left, hole
	if s.left != 0 {
		p.slots.at(s.left).right = n
	}
	h.start, h.units, h.left = h.start+s.units, h.units-s.units, n
	if h.units > 0 {
		p.bin(hole)
		return
	}
	p.join(n, hole)
}

// append makes n the tile behind the frontier.
func (p *space) append(n, units uint32) {
	s := p.slots.at(n)
	if s.start != p.frontier { // or else readers have it already
		s.start = p.frontier
	}
	s.units, s.left, s.right = units, p.last, 0
	if p.last != 0 {
		p.slots.at(p.last).right = n
	}
	p.last, p.frontier = n, p.frontier+units
}

// find returns a vacant tile of at least the given length.
func (p *space) find(units uint32) uint32 {
	bin := binOf(units)
	n := p.bins[bin]
	for range binLook {
		if n == 0 {
			break
		}
		if s := p.slots.at(n); s.units >= units {
			return n
		} else {
			n = s.next
		}
	}
	for i := (bin + 1) / 64; i < len(p.filled); i++ {
		w := p.filled[i]
		if i == (bin+1)/64 {
			w &= ^uint64(0) << ((bin + 1) % 64)
		}
		if w != 0 {
			return p.bins[i*64+bits.TrailingZeros64(w)]
		}
	}
	return 0
}

// give makes tile n vacant and joins it with vacant neighbours; at the
// frontier it is given up altogether. It returns the vacant tile, 0 when the
// frontier moved back.
func (p *space) give(n uint32) uint32 {
	s := p.slots.at(n)
	if r := s.right; r != 0 && p.vacant(r) {
		p.unbin(r)
		p.join(n, r)
	}
	if l := s.left; l != 0 && p.vacant(l) {
		p.unbin(l)
		p.join(l, n)
		n, s = l, p.slots.at(l)
	}
	if n != p.last {
		p.bin(n)
		return n
	}
	p.last, p.frontier = s.left, s.start
	if s.left != 0 {
		p.slots.at(s.left).right = 0
	}
	s.units = 0
	p.giveNumber(n)
	return 0
}

// claim takes a vacant tile out of its bin, for nobody to lay a block there;
// unclaim makes it vacant again.
func (p *space) claim(n uint32) uint32 {
	p.unbin(n)
	s := p.slots.at(n)
	p.spare += uint64(s.units)
	s.state.Store(slotClaimed)
	return n
}

func (p *space) unclaim(n uint32) {
	s := p.slots.at(n)
	p.spare -= uint64(s.units)
	s.state.Store(slotVacant)
	p.give(n)
}

// vacant reports whether tile n is in a bin: a slot that has just left its
// block is vacant only when it has been given.
func (p *space) vacant(n uint32) bool { return p.slots.at(n).state.Load() == slotVacant }

// join makes the right neighbour part of n.
func (p *space) join(n, right uint32) {
	s, r := p.slots.at(n), p.slots.at(right)
	s.units += r.units
	s.right = r.right
	if s.right != 0 {
		p.slots.at(s.right).left = n
	} else {
		p.last = n
	}
	r.units = 0
	p.giveNumber(right)
}

func (p *space) bin(n uint32) {
	s := p.slots.at(n)
	b := binOf(s.units)
	s.prev, s.next = 0, p.bins[b]
	if s.next != 0 {
		p.slots.at(s.next).prev = n
	}
	p.bins[b] = n
	p.filled[b/64] |= 1 << (b % 64)
	p.spare += uint64(s.units)
}

func (p *space) unbin(n uint32) {
	s := p.slots.at(n)
	b := binOf(s.units)
	p.spare -= uint64(s.units)
	if s.next != 0 {
		p.slots.at(s.next).prev = s.prev
	}
	if s.prev != 0 {
		p.slots.at(s.prev).next = s.next
		return
	}
	p.bins[b] = s.next
	if s.next == 0 {
		p.filled[b/64] &^= 1 << (b % 64)
	}
}
