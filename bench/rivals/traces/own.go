package main

import (
	"container/heap"
	"container/list"

	"headstart/bench/cachehit"
)

// lru evicts what was used longest ago.
type lru struct {
	size  int
	order *list.List
	at    map[uint32]*list.Element
}

func newLRU(size int, _ *cachehit.Trace) policy {
	return &lru{size, list.New(), map[uint32]*list.Element{}}
}

func (p *lru) access(key uint32) bool {
	if e := p.at[key]; e != nil {
		p.order.MoveToFront(e)
		return true
	}
	if p.order.Len() == p.size {
		delete(p.at, p.order.Remove(p.order.Back()).(uint32))
	}
	p.at[key] = p.order.PushFront(key)
	return false
}

func (p *lru) close() {}

// entry is a key with what its policy notes of it.
type entry struct {
	key  uint32
	hits int
}

// sieve is SIEVE (Zhang and others, NSDI 2024).
type sieve struct {
	size  int
	order *list.List
	at    map[uint32]*list.Element
	hand  *list.Element
}

func newSieve(size int, _ *cachehit.Trace) policy {
	return &sieve{size: size, order: list.New(), at: map[uint32]*list.Element{}}
}

func (p *sieve) access(key uint32) bool {
	if e := p.at[key]; e != nil {
		e.Value.(*entry).hits = 1
		return true
	}
	if p.order.Len() == p.size {
		p.evict()
	}
	p.at[key] = p.order.PushFront(&entry{key: key})
	return false
}

func (p *sieve) evict() {
	e := p.hand
	for {
		if e == nil {
			e = p.order.Back()
		}
		v := e.Value.(*entry)
		if v.hits == 0 {
			p.hand = e.Prev()
			p.order.Remove(e)
			delete(p.at, v.key)
			return
		}
		v.hits, e = 0, e.Prev()
	}
}

func (p *sieve) close() {}

// s3fifo is S3-FIFO (Yang and others, SOSP 2023): a tenth of the cache small,
// a ghost for each entry of the main queue.
type s3fifo struct {
	size, most         int
	small, main, ghost *list.List
	at, gone           map[uint32]*list.Element
}

func newS3FIFO(size int, _ *cachehit.Trace) policy {
	return &s3fifo{size: size, most: max(1, size/10), small: list.New(), main: list.New(), ghost: list.New(),
		at: map[uint32]*list.Element{}, gone: map[uint32]*list.Element{}}
}

func (p *s3fifo) access(key uint32) bool {
	if e := p.at[key]; e != nil {
		v := e.Value.(*entry)
		v.hits = min(v.hits+1, 3)
		return true
	}
	g := p.gone[key]
	if g != nil {
		p.ghost.Remove(g)
		delete(p.gone, key)
	}
	for p.small.Len()+p.main.Len() >= p.size {
		p.evict()
	}
	if g != nil {
		p.at[key] = p.main.PushFront(&entry{key: key})
	} else {
		p.at[key] = p.small.PushFront(&entry{key: key})
	}
	return false
}

func (p *s3fifo) evict() {
	if p.small.Len() < p.most && p.main.Len() > 0 {
		v := p.main.Remove(p.main.Back()).(*entry)
		if v.hits > 0 {
			v.hits--
			p.at[v.key] = p.main.PushFront(v)
			return
		}
		delete(p.at, v.key)
		return
	}
	v := p.small.Remove(p.small.Back()).(*entry)
	if v.hits > 1 {
		v.hits = 0
		p.at[v.key] = p.main.PushFront(v)
		return
	}
	delete(p.at, v.key)
	p.gone[v.key] = p.ghost.PushFront(v.key)
	if p.ghost.Len() > p.size-p.most {
		delete(p.gone, p.ghost.Remove(p.ghost.Back()).(uint32))
	}
}

func (p *s3fifo) close() {}

// opt is Belady's optimum: it evicts what is needed latest, and what is needed
// later than all others it does not take.
type opt struct {
	size, now int
	next      []int // of each access, when its key comes again
	due       map[uint32]int
	queue     dueQueue
}

type dueKey struct {
	at  int
	key uint32
}

type dueQueue []dueKey

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].at > q[j].at }
func (q dueQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *dueQueue) Push(x any)        { *q = append(*q, x.(dueKey)) }
func (q *dueQueue) Pop() any {
	x := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return x
}

func newOPT(size int, t *cachehit.Trace) policy {
	p := &opt{size: size, next: make([]int, len(t.Access)), due: map[uint32]int{}}
	last := make([]int, t.Keys)
	for i := range last {
		last[i] = 1 << 40
	}
	for i := len(t.Access) - 1; i >= 0; i-- {
		p.next[i] = last[t.Access[i]]
		last[t.Access[i]] = i
	}
	return p
}

func (p *opt) access(key uint32) bool {
	_, hit := p.due[key]
	p.due[key] = p.next[p.now]
	heap.Push(&p.queue, dueKey{p.next[p.now], key})
	p.now++
	for len(p.due) > p.size {
		d := heap.Pop(&p.queue).(dueKey)
		if at, ok := p.due[d.key]; ok && at == d.at {
			delete(p.due, d.key)
		}
	}
	return hit
}

func (p *opt) close() {}
