package blockcache

const (
	// A ghost's stamp counts in grains, 1/1024 of the volume, and goes round
	// after 16 volumes.
	stampFine = 10
	stampBits = 14
	stampMask = 1<<stampBits - 1
	markShift = 32 - 15

	// bucketGhosts share a cache line: who comes takes the place of the one that
	// is nearest to its end.
	bucketGhosts = 16
)

// ghost is what is remembered of a block that has left: 15 bits of its hash
// (never all zero), 2 of its queue, 1 of the list it left, 14 of when.
type ghost uint32

func ghostOf(queue, kind int, stamp uint32) ghost {
	return ghost(queue<<(stampBits+1) | kind<<stampBits | int(stamp))
}

func (g ghost) mark() uint32  { return uint32(g) >> markShift }
func (g ghost) queue() int    { return int(g>>(stampBits+1)) & 3 }
func (g ghost) kind() int     { return int(g>>stampBits) & 1 }
func (g ghost) stamp() uint32 { return uint32(g) & stampMask }

// ghosts are the blocks that have left lately: six bytes for each block that
// the volume holds.
type ghosts struct {
	buckets [][bucketGhosts]ghost
	grain   uint64 // units of a step of the stamps
}

func (t *ghosts) stamp(left uint64) uint32 { return uint32(left/t.grain) & stampMask }

// age returns how many units have left since the ghost did.
func (t *ghosts) age(g ghost, left uint64) uint64 {
	return uint64((t.stamp(left)-g.stamp())&stampMask) * t.grain
}

// fit makes the table large enough for a volume of so many blocks. It starts
// over then: a volume that still grows has hardly any ghosts.
func (t *ghosts) fit(blocks int) {
	if want := blocks*3/2/bucketGhosts + 1; want > len(t.buckets) {
		t.buckets = make([][bucketGhosts]ghost, want)
	}
}

func ghostMark(h uint64) uint32 { return max(1, uint32(h)&(1<<15-1)) }

func (t *ghosts) bucket(h uint64) *[bucketGhosts]ghost {
	return &t.buckets[h>>32*uint64(len(t.buckets))>>32]
}

// put remembers a block.
func (t *ghosts) put(p *policy, h uint64, g ghost) {
	if len(t.buckets) == 0 {
		return
	}
	b := t.bucket(h)
	oldest, life := 0, int64(1)<<62
	for i, old := range b {
		if l := t.life(p, old); l < life {
			oldest, life = i, l
		}
	}
	b[oldest] = g | ghost(ghostMark(h)<<markShift)
}

// life returns how many units may still leave before the ghost is too old:
// one from probation lasts for one and a half of what its queue holds, one
// from protection for half of it.
func (t *ghosts) life(p *policy, g ghost) int64 {
	if g == 0 {
		return -1 << 62
	}
	q := &p.queues[g.queue()]
	span := q.units() / 2
	if g.kind() == 0 {
		span *= 3
	}
	return int64(span) - int64(t.age(g, q.left[g.kind()]))
}

// take returns what is remembered of a block, and forgets it.
func (t *ghosts) take(p *policy, h uint64) (ghost, bool) {
	if len(t.buckets) == 0 {
		return 0, false
	}
	b := t.bucket(h)
	for i, g := range b {
		if g != 0 && g.mark() == ghostMark(h) {
			b[i] = 0
			return g, t.life(p, g) >= 0
		}
	}
	return 0, false
}
