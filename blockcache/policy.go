package blockcache

import "headstart/engine/block"

const queueCount = int(block.QueueDisposable) + 1

// The constants of the policy; docs/CACHE.md has the figures they come from.
const (
	// The probation queue's bounds, as parts of what its queue holds.
	leastProbation = 200 // 1/200
	mostProbation  = 3   // 1/3
	// A block that comes back while what left after it is less than this part of
	// its queue would have been a hit in a longer probation queue.
	nearMiss = 10 // 1/10
	// looks is how many protected blocks are looked at for one that may go when
	// a block comes back: one less for a block that was away for long, and only
	// one after regrets. More looks would wear off the marks of a loop faster than
	// the loop renews them.
	looks = 3
)

// policy decides what goes when space is short. All of it is under the
// volume's lock: a hit only adds to the slot's pin word.
//
// Each kind of blocks has two lists. A new block goes on probation, a short
// FIFO; hits there don't count, because the reads of one scan follow each other
// closely. Who leaves is remembered by a few bits (ghosts), and who comes back
// in time is protected: in a clock whose hand spares blocks that were hit since
// it came by last. The hand takes few steps for a newcomer: where they find
// only used blocks, the newcomer stays on probation, so a loop larger than the
// cache keeps the part of it that fits. Probation grows by near misses, and
// shrinks when protected blocks were missed.
type policy struct {
	slots  *slotTable
	queues [queueCount]queue
	fills  fills
	ghosts ghosts
	total  uint64 // units of the volume
}

// wish is what a block needs that wants to come in.
type wish struct {
	units uint32
	queue block.Queue
	fill  bool
}

// queue is one of the four kinds of blocks.
type queue struct {
	probation, protected list
	share                uint64 // what it may hold whatever the others want, in units
	target               uint64 // of the probation list, in units
	// left counts the units that have left probation and protection so far: the
	// clocks by which ghosts age.
	left [2]uint64
	// regret grows with protected blocks that were missed soon after they went,
	// and wanes with other returns: the mark of a loop that wears its own marks
	// off.
	regret int
}

func (q *queue) blocks() int   { return q.probation.blocks + q.protected.blocks }
func (q *queue) units() uint64 { return q.probation.units + q.protected.units }

// blocks returns how many blocks there are.
func (p *policy) blocks() (n int) {
	n = p.fills.blocks
	for i := range p.queues {
		n += p.queues[i].blocks()
	}
	return n
}

// list is blocks in the order of their coming.
type list struct {
	newest, oldest uint32
	blocks         int
	units          uint64
}

// setShares divides a volume's units by percent.
func (p *policy) setShares(units uint32, percent [queueCount]int) {
	for i := range p.queues {
		p.queues[i].share = uint64(units) * uint64(percent[i]) / 100
	}
	p.total = uint64(units)
	p.ghosts.grain = max(1, uint64(units)>>stampFine)
}

func (p *policy) listOf(s *slot) *list {
	switch s.where {
	case isProtected:
		return &p.queues[s.queue].protected
	case inFills:
		return &p.fills.list
	}
	return &p.queues[s.queue].probation
}

func (p *policy) push(l *list, n uint32) {
	s := p.slots.at(n)
	s.prev, s.next = 0, l.newest
	if l.newest != 0 {
		p.slots.at(l.newest).prev = n
	} else {
		l.oldest = n
	}
	l.newest = n
	l.blocks++
	l.units += uint64(s.units)
}

func (p *policy) unlink(l *list, n uint32) {
	s := p.slots.at(n)
	if s.prev != 0 {
		p.slots.at(s.prev).next = s.next
	} else {
		l.newest = s.next
	}
	if s.next != 0 {
		p.slots.at(s.next).prev = s.prev
	} else {
		l.oldest = s.prev
	}
	l.blocks--
	l.units -= uint64(s.units)
}

// insert adds a block; protect is what admit has said.
func (p *policy) insert(n uint32, protect bool) {
	s := p.slots.at(n)
	q := &p.queues[s.queue]
	p.used(n)
	s.where = onProbation
	if protect {
		s.where = isProtected
	}
	p.push(p.listOf(s), n)
	// What does not fit on probation was not pushed out either: protection has
	// room for it. Two a time, so that no insertion takes long.
	for range 2 {
		if o := q.probation.oldest; o != n && q.probation.units > p.probationOf(q) {
			p.protect(q, o)
		}
	}
}

func (p *policy) protect(q *queue, n uint32) {
	p.unlink(&q.probation, n)
	p.used(n)
	p.slots.at(n).where = isProtected
	p.push(&q.protected, n)
}

// grownOld makes a TTL block a NORMAL one.
func (p *policy) grownOld(n uint32) {
	s := p.slots.at(n)
	if s.where == inFills {
		s.queue = block.QueueNormal
		return
	}
	p.remove(n)
	s.queue = block.QueueNormal
	p.insert(n, s.where == isProtected)
}

// remove takes a block out, for whatever reason it goes.
func (p *policy) remove(n uint32) {
	p.unlink(p.listOf(p.slots.at(n)), n)
}

// moved puts slot m where n is: the same block, elsewhere in the file.
func (p *policy) moved(n, m uint32) {
	from, to := p.slots.at(n), p.slots.at(m)
	hit := p.used(n)
	p.used(m)
	if hit {
		to.seen--
	}
	to.where, to.queue = from.where, from.queue
	l := p.listOf(from)
	to.prev, to.next = from.prev, from.next
	if to.prev != 0 {
		p.slots.at(to.prev).next = m
	} else {
		l.newest = m
	}
	if to.next != 0 {
		p.slots.at(to.next).prev = m
	} else {
		l.oldest = m
	}
}

// evicted remembers a block that is about to make room.
func (p *policy) evicted(n uint32) {
	s := p.slots.at(n)
	p.fills.idle += uint64(s.units)
	q, kind := &p.queues[s.queue], 0
	switch s.where {
	case isProtected:
		kind = 1
	case inFills:
		return
	}
	q.left[kind] += uint64(s.units)
	p.ghosts.put(p, hashID(s.id), ghostOf(int(s.queue), kind, p.ghosts.stamp(q.left[kind])))
}

// used reports whether a block was hit since this was asked last.
func (p *policy) used(n uint32) bool {
	s := p.slots.at(n)
	hits := uint8(p.slots.hits(n))
	used := hits != s.seen
	s.seen = hits
	return used
}

// probationOf returns how many units the probation list should have.
func (p *policy) probationOf(q *queue) uint64 {
	units := q.units()
	return max(1, units/leastProbation, min(q.target, units/mostProbation))
}

// admit says whether a block that is about to come is to be protected, and
// which block of its queue should make room for it then; 0 for none.
func (p *policy) admit(h uint64, w wish) (protect bool, victim uint32) {
	if w.fill {
		return false, 0
	}
	kind, units, q := w.queue, w.units, &p.queues[w.queue]
	g, ok := p.ghosts.take(p, h)
	if !ok || int(kind) != g.queue() {
		return false, 0
	}
	if g.kind() == 1 {
		q.target -= min(q.target, uint64(units+1)/2)
		q.regret = min(q.regret+8, q.blocks())
		return false, 0
	}
	age, size := p.ghosts.age(g, q.left[0]), q.units()
	if age < size/nearMiss {
		q.target = min(max(q.target, size/leastProbation)+uint64(units), size/mostProbation)
	}
	steps := looks
	if age > size {
		steps--
	}
	if q.regret--; q.regret < 0 {
		q.regret = 0
	} else if q.regret > q.blocks()/8 {
		steps = 1
	}
	for range steps {
		n := q.protected.oldest
		if n == 0 {
			return true, 0
		}
		if !p.used(n) && !p.slots.pinned(n) {
			return true, n
		}
		p.unlink(&q.protected, n)
		p.push(&q.protected, n)
	}
	return false, 0
}

// victim returns the block that should make room for another, or 0 when all
// blocks that may are held.
func (p *policy) victim(w wish) uint32 {
	if w.fill {
		return p.victimForFill(w)
	}
	if p.fills.units > p.fills.quota || p.fills.idle > p.total {
		if n := p.fromFills(); n != 0 {
			return n
		}
	}
	if n := p.fromQueues(w); n != 0 {
		return n
	}
	return p.fromFills()
}

// fromQueues returns a block of the queue that is furthest above its share.
func (p *policy) fromQueues(w wish) uint32 {
	want, units := w.queue, w.units
	var tried [queueCount]bool
	for range queueCount {
		best, bestOver := -1, int64(0)
		for i := range p.queues {
			q := &p.queues[i]
			if q.blocks() == 0 || tried[i] {
				continue
			}
			over := int64(q.units()) - int64(q.share)
			if i == int(want) {
				over += int64(units)
			}
			if best < 0 || over > bestOver {
				best, bestOver = i, over
			}
		}
		if best < 0 {
			return 0
		}
		tried[best] = true
		more := units
		if best != int(want) {
			more = 0
		}
		if n := p.victimOf(&p.queues[best], more); n != 0 {
			return n
		}
	}
	return 0
}

// victimOf returns the next block to go from a queue, 0 when all are held.
func (p *policy) victimOf(q *queue, units uint32) uint32 {
	first, second := p.fromProbation, p.fromProtected
	if q.probation.units+uint64(units) <= p.probationOf(q) {
		first, second = second, first
	}
	if n := first(q); n != 0 {
		return n
	}
	return second(q)
}

func (p *policy) fromProbation(q *queue) uint32 {
	for range q.probation.blocks {
		n := q.probation.oldest
		if !p.slots.pinned(n) {
			return n
		}
		p.unlink(&q.probation, n)
		p.push(&q.probation, n)
	}
	return 0
}

func (p *policy) fromProtected(q *queue) uint32 {
	for range 2 * q.protected.blocks {
		n := q.protected.oldest
		if !p.used(n) && !p.slots.pinned(n) {
			return n
		}
		p.unlink(&q.protected, n)
		p.push(&q.protected, n)
	}
	return 0
}
