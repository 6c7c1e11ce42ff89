package blockcache

import (
	"sync/atomic"
	"unsafe"

	"headstart/engine/block"
)

// The state of a slot. All edges but the two marked ones happen under the
// volume's lock; readers load it while they hold a pin.
//
//	           take                written (writer)
//	vacant ───────────▶ pending ─────────────────▶ ready
//	 ▲ ▲ │ recover                 checked (reader)  │
//	 │ │ └────────────▶ unchecked ────────────────▶──┤
//	 │ │                           doubt (writer)    │
//	 │ │                unchecked ◀──────────────────┤
//	 │ │                                             │
//	 │ └─────────── dying ◀──────────────────────────┘
//	 │     reap               retire (from any of the three)
//	 └────────────▶ claimed: kept free of blocks while a hole is made, or what a
//	                block is moved to: vacant or ready next (writer)
//
// A slot is in the index from take or recover on until retire. It becomes
// vacant, and its bytes may be written again, only when nobody holds a pin.
const (
	slotVacant uint32 = iota
	slotPending
	slotUnchecked
	slotReady
	slotDying
	slotClaimed
)

// slot is one tile of a volume: a block, or a vacant stretch. 0 is nobody's
// number. It is one cache line, and holds no pointers, so that the garbage
// collector skips a million of them.
type slot struct {
	// id, start, size and crc are written under the volume's lock while the slot
	// is vacant, and don't change until it is vacant again: who holds a pin reads
	// them without the lock.
	id    block.ID
	state atomic.Uint32
	start uint32 // in units; nowhere until the block has a place
	size  uint32 // of the block, in bytes
	crc   uint32

	// The rest is guarded by the volume's lock.
	units       uint32 // what the tile spans
	next, prev  uint32 // neighbours in a list of the policy or in a bin
	left, right uint32 // neighbours in the file
	seen        uint8  // hits that the policy has already honoured, modulo 256
	where       where  // which list has it
	queue       block.Queue
	born        uint8 // the age of the volume when a TTL block came
}

// nowhere is the start of a block that has no place yet.
const nowhere = ^uint32(0)

// live reports whether the slot has a block that can be found.
func (s *slot) live() bool {
	st := s.state.Load()
	return st == slotPending || st == slotUnchecked || st == slotReady
}

// atRest reports whether the slot has a block whose record is on disk.
func (s *slot) atRest() bool {
	st := s.state.Load()
	return st == slotUnchecked || st == slotReady
}

// written is the writer's edge: false means that the block was dropped.
func (s *slot) written() bool { return s.state.CompareAndSwap(slotPending, slotReady) }

// checked is the edge of a reader that has verified the bytes.
func (s *slot) checked() { s.state.CompareAndSwap(slotUnchecked, slotReady) }

// doubt is the writer's edge when the file was cut short: the bytes of a ready
// block have to be looked at again.
func (s *slot) doubt() { s.state.CompareAndSwap(slotReady, slotUnchecked) }

// retire marks a slot that is no longer in the index. It competes with written,
// checked and doubt only, so it needs a few tries at most.
func (s *slot) retire() {
	for {
		old := s.state.Load()
		if old == slotDying || s.state.CompareAndSwap(old, slotDying) {
			return
		}
	}
}

// reaped reports whether the caller is the one who makes the slot vacant.
func (s *slot) reaped() bool { return s.state.CompareAndSwap(slotDying, slotVacant) }

const (
	segBits  = 10
	segSlots = 1 << segBits
	segMask  = segSlots - 1

	// stripes spread the pins of one slot, because a single word in a hot block
	// would bounce between all cores.
	stripeBits = 3
	stripes    = 1 << stripeBits

	// A pin word counts leases in its low bits, and in the high ones all hits
	// ever: one atomic add pins and tells both eviction and metrics.
	pinBits = 20
	pinMask = 1<<pinBits - 1
	onePin  = uint64(1)
	oneHit  = uint64(1)<<pinBits + onePin
)

// segment is a part of the slot table: grown by segments, so that a slot never
// moves under a reader.
type segment struct {
	// v is whose slots these are: the one pointer, and at the front, so that the
	// garbage collector looks at no more than it. It fills a cache line.
	v *volume
	// first is the number of its first slot.
	first uint32
	_     [52]byte

	slots [segSlots]slot
	// pins of one stripe lie together, away from those of another stripe.
	pins [stripes][segSlots]atomic.Uint64
	// tail is 2 more than the place of the last byte of a block that is not zero, 1
	// where all are; 0 when nobody has looked. Readers write it, who hold a pin.
	tail [segSlots]atomic.Uint32
}

// slotTable numbers the slots of one volume. Its segments are some of those of
// the cache, which finds a slot by its place among the slots of all volumes.
type slotTable struct {
	v     *volume
	first uint64 // the place of slot 0
	segs  []atomic.Pointer[segment]
}

// newSlotTables cuts a table for the segments of all volumes up.
func newSlotTables(volumes []*volume) (segs []atomic.Pointer[segment]) {
	sum := uint64(0)
	for _, v := range volumes {
		sum += uint64(maxSlots(v.capacity)>>segBits) + 1
	}
	segs = make([]atomic.Pointer[segment], sum)
	at := uint64(0)
	for _, v := range volumes {
		n := uint64(maxSlots(v.capacity)>>segBits) + 1
		v.slots = slotTable{v: v, first: at << segBits, segs: segs[at : at+n]}
		at += n
	}
	return segs
}

// atRest reports whether slot n has a block whose record is on disk. It may be one
// that was never usable: of a record of when the capacity was larger.
func (t *slotTable) atRest(n uint32) bool {
	g := t.segs[n>>segBits].Load()
	return g != nil && g.slots[n&segMask].atRest()
}

// place returns where slot n is among the slots of all volumes.
func (t *slotTable) place(n uint32) uint64 { return t.first + uint64(n) }

// grow makes slot n usable; under the volume's lock, or when the volume is read
// in, by who reads it.
func (t *slotTable) grow(n uint32) {
	if p := &t.segs[n>>segBits]; p.Load() == nil {
		p.CompareAndSwap(nil, &segment{v: t.v, first: n &^ segMask})
	}
}

func (t *slotTable) at(n uint32) *slot {
	return &t.segs[n>>segBits].Load().slots[n&segMask]
}

func (t *slotTable) pin(n, stripe uint32) *atomic.Uint64 {
	return &t.segs[n>>segBits].Load().pins[stripe&(stripes-1)][n&segMask]
}

func (t *slotTable) tail(n uint32) *atomic.Uint32 {
	return &t.segs[n>>segBits].Load().tail[n&segMask]
}

// letGo takes back a pin of the writer's, which is on stripe 0.
func (t *slotTable) letGo(n uint32) { t.pin(n, 0).Add(^uint64(0)) }

// segment returns the part of the table that has slot n.
func (t *slotTable) segment(n uint32) *segment { return t.segs[n>>segBits].Load() }

// both returns a slot and its pin word of one stripe. A token, a place and a
// slot's number end in the same bits.
func (g *segment) both(n, stripe uint32) (*slot, *atomic.Uint64) {
	return &g.slots[n&segMask], &g.pins[stripe&(stripes-1)][n&segMask]
}

// pinned reports whether anybody holds n. Stripes are read one after another:
// a pin is given back where it was taken, so a lasting one is always seen; who
// comes later finds the index entry gone and lets go again.
func (t *slotTable) pinned(n uint32) bool {
	seg := t.segs[n>>segBits].Load()
	for i := range seg.pins {
		if seg.pins[i][n&segMask].Load()&pinMask != 0 {
			return true
		}
	}
	return false
}

// hits returns the hits that slot number n has ever had.
func (t *slotTable) hits(n uint32) uint64 {
	seg := t.segs[n>>segBits].Load()
	var sum uint64
	for i := range seg.pins {
		sum += seg.pins[i][n&segMask].Load() >> pinBits
	}
	return sum
}

// ownStripe picks a stripe by the address of the goroutine's stack: cheap, and
// the same goroutine keeps to the same lines.
func ownStripe() uint32 {
	var here byte
	page := uint64(uintptr(unsafe.Pointer(&here))) >> 12
	return uint32(page * 0x9E3779B97F4A7C15 >> (64 - stripeBits))
}
