package blockcache

const (
	// A ghost's stamp counts in grains, 1/128 of the volume, and goes round
	// after eight volumes.
	stampFine = 7
	stampBits = 10
	stampMask = 1<<stampBits - 1

	markBits  = 11
	markMask  = 1<<markBits - 1
	markShift = stampBits + 3

	// bucketGhosts share a cache line: who comes takes the place of the one that
	// is nearest to its end.
	bucketGhosts = 21
)

// ghost is what is remembered of a block that has left, in 24 bits: 11 of its
// hash (never all zero), 2 of its queue, 1 of the list it left, 10 of when.
type ghost uint32

func ghostOf(queue, kind int, stamp uint32) ghost {
	return ghost(queue<<(stampBits+1) | kind<<stampBits | int(stamp))
}

func (g ghost) mark() uint32  { return uint32(g) >> markShift }
func (g ghost) queue() int    { return int(g>>(stampBits+1)) & 3 }
func (g ghost) kind() int     { return int(g>>stampBits) & 1 }
func (g ghost) stamp() uint32 { return uint32(g) & stampMask }

func ghostMark(h uint64) uint32 { return max(1, uint32(h)&markMask) }

// bucket is one cache line of ghosts.
type ghostBucket [64]byte

func (b *ghostBucket) at(i int) ghost {
	p := b[3*i : 3*i+3 : 3*i+3]
	return ghost(p[0]) | ghost(p[1])<<8 | ghost(p[2])<<16
}

func (b *ghostBucket) set(i int, g ghost) {
	b[3*i], b[3*i+1], b[3*i+2] = byte(g), byte(g>>8), byte(g>>16)
}

// ghosts are the blocks that have left lately: less than six bytes for each
// block that the volume holds.
type ghosts struct {
	buckets []ghostBucket
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
	if want := blocks*19/10/bucketGhosts + 1; want > len(t.buckets) {
		t.buckets = make([]ghostBucket, want)
	}
}

func (t *ghosts) bucket(h uint64) *ghostBucket {
	return &t.buckets[h>>32*uint64(len(t.buckets))>>32]
}

// put remembers a block.
func (t *ghosts) put(p *policy, h uint64, g ghost) {
	if len(t.buckets) == 0 {
		return
	}
	b := t.bucket(h)
	oldest, least := 0, int64(1)<<62
	for i := range bucketGhosts {
		if life := t.life(p, b.at(i)); life < least {
			oldest, least = i, life
		}
	}
	b.set(oldest, g|ghost(ghostMark(h)<<markShift))
}

// life returns how many units may still leave before the ghost is too old:
// one from probation lasts for one and a half of what its queue holds, one
// from protection for a quarter of it.
func (t *ghosts) life(p *policy, g ghost) int64 {
	if g == 0 {
		return -1 << 62
	}
	q := &p.queues[g.queue()]
	span := q.units() / 4
	if g.kind() == 0 {
		span *= 6
	}
	return int64(span) - int64(t.age(g, q.left[g.kind()]))
}

// take returns what is remembered of a block, and forgets it.
func (t *ghosts) take(p *policy, h uint64) (ghost, bool) {
	if len(t.buckets) == 0 {
		return 0, false
	}
	b := t.bucket(h)
	for i := range bucketGhosts {
		if g := b.at(i); g.mark() == ghostMark(h) {
			b.set(i, 0)
			return g, t.life(p, g) >= 0
		}
	}
	return 0, false
}
