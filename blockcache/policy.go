package blockcache

import "headstart/engine/block"

const queueCount = int(block.QueueDisposable) + 1

// policy decides what goes when space is short. It is four lists of slots,
// youngest first; a block that was hit since it was last looked at gets another
// round. All of it is under the volume's lock: a hit only adds to the slot's
// pin word.
type policy struct {
	slots  *slotTable
	queues [queueCount]queue
}

// queue is one of the four kinds of blocks.
type queue struct {
	newest, oldest uint32
	blocks         int
	units          uint64 // held
	share          uint64 // what it may hold whatever the others want, in units
}

// setShares divides a volume's units by percent.
func (p *policy) setShares(units uint32, percent [queueCount]int) {
	for i := range p.queues {
		p.queues[i].share = uint64(units) * uint64(percent[i]) / 100
	}
}

// insert adds a block as the youngest of its queue.
func (p *policy) insert(n uint32) {
	s := p.slots.at(n)
	s.seen = uint32(p.slots.hits(n))
	q := &p.queues[s.queue]
	q.blocks++
	q.units += uint64(s.units)
	p.push(q, n)
}

// remove takes a block out, for whatever reason it goes.
func (p *policy) remove(n uint32) {
	s := p.slots.at(n)
	q := &p.queues[s.queue]
	q.blocks--
	q.units -= uint64(s.units)
	p.unlink(q, n)
}

func (p *policy) push(q *queue, n uint32) {
	s := p.slots.at(n)
	s.prev, s.next = 0, q.newest
	if q.newest != 0 {
		p.slots.at(q.newest).prev = n
	} else {
		q.oldest = n
	}
	q.newest = n
}

func (p *policy) unlink(q *queue, n uint32) {
	s := p.slots.at(n)
	if s.prev != 0 {
		p.slots.at(s.prev).next = s.next
	} else {
		q.newest = s.next
	}
	if s.next != 0 {
		p.slots.at(s.next).prev = s.prev
	} else {
		q.oldest = s.prev
	}
}

// victim returns the block that should make room for units more of queue
// want, or 0 when all blocks are held.
func (p *policy) victim(want block.Queue, units uint32) uint32 {
	var tried [queueCount]bool
	for range queueCount {
		best, bestOver := -1, int64(0)
		for i := range p.queues {
			q := &p.queues[i]
			if q.blocks == 0 || tried[i] {
				continue
			}
			over := int64(q.units) - int64(q.share)
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
		if n := p.oldestUnused(&p.queues[best]); n != 0 {
			return n
		}
	}
	return 0
}

// oldestUnused walks from the old end: blocks with hits get another round, and
// so do blocks that somebody holds.
func (p *policy) oldestUnused(q *queue) uint32 {
	for range 2 * q.blocks {
		n := q.oldest
		s := p.slots.at(n)
		hits := uint32(p.slots.hits(n))
		if hits == s.seen && !p.slots.pinned(n) {
			return n
		}
		s.seen = hits
		p.unlink(q, n)
		p.push(q, n)
	}
	return 0
}
