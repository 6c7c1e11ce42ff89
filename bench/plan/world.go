package main

import (
	"container/heap"
	"time"

	"headstart/bench/s3law"
	"headstart/engine/block"
	"headstart/engine/plan"
)

// geometry is the block size of all loads.
const geometry = block.Geometry(block.DefaultSize)

// key is one block of one object.
type key struct {
	object int
	index  uint64
}

// read is a ranged read of an object.
type read struct {
	object       int
	offset, size int64
}

// figures is what a world has counted.
type figures struct {
	gets, bytes int64
	took        time.Duration
	growth      plan.GrowthMetrics
}

// world is a node alone with object storage, in virtual time: reads, flights,
// a cache of bounded size that drops the oldest block, and GETs after the law.
type world struct {
	now     time.Duration
	events  events
	law     s3law.Law
	sizes   []int64
	growth  *plan.Growth // nil: one block a GET
	room    int          // blocks that the cache holds
	cache   map[key]bool
	age     []key
	flights map[key][]func()
	// known has the objects whose size a reply has told; reads of one that is
	// being learned wait in learning.
	known    map[int]bool
	learning map[int][]func()
	seen     figures
}

func newWorld(seed uint64, sizes []int64, room int, growth *plan.Growth) *world {
	return &world{law: s3law.Law{Seed: seed}, sizes: sizes, growth: growth, room: room,
		cache: make(map[key]bool), flights: make(map[key][]func()),
		known: make(map[int]bool), learning: make(map[int][]func())}
}

// empty empties the cache. What is known of objects, and of what was asked for,
// stays.
func (w *world) empty() {
	clear(w.cache)
	w.age = w.age[:0]
}

// read starts a read; done is called when its last block is there.
func (w *world) read(r read, done func()) {
	if !w.known[r.object] {
		if waiting, busy := w.learning[r.object]; busy {
			w.learning[r.object] = append(waiting, func() { w.read(r, done) })
			return
		}
		w.learning[r.object] = []func(){func() { w.foresee(r) }}
	}
	rng, _ := plan.Clamp(geometry, r.offset, r.size, w.sizes[r.object])
	missing := 0
	landed := func() {
		if missing--; missing == 0 {
			done()
		}
	}
	var led []uint64
	for i := rng.First; i < rng.First+rng.Count; i++ {
		k := key{r.object, i}
		waiters, flying := w.flights[k]
		if w.cache[k] || flying {
			w.use(k)
		} else {
			led = append(led, i)
		}
		if !w.cache[k] {
			missing++
			w.flights[k] = append(waiters, landed)
		}
	}
	w.fetch(r.object, led)
	if len(led) > 0 && w.known[r.object] {
		w.foresee(r)
	}
	if missing == 0 {
		w.after(0, done)
	}
}

func (w *world) use(k key) {
	if w.growth != nil && w.growth.Used(base(k.object), k.index) {
		w.bring(k.object, w.growth.Ahead(base(k.object), k.index, geometry.Blocks(w.sizes[k.object]), block.MaxRun, w.now))
	}
}

func base(object int) block.ID {
	h := (uint64(object) + 1) * 0x9e3779b97f4a7c15
	return block.ID{Hi: h ^ h>>29, Lo: h * 0xbf58476d1ce4e5b9}
}

// fetch starts the GETs for led blocks, as the engine does.
func (w *world) fetch(object int, led []uint64) {
	most := 1
	if w.growth != nil {
		most = block.MaxRun
	}
	for _, run := range plan.Runs(led, most) {
		for _, span := range plan.Spans(run, most) {
			w.get(object, w.grow(object, span))
		}
	}
}

// grow leads the neighbours that come along with span: outward from it, up to
// the first that is there already.
func (w *world) grow(object int, span block.Run) block.Run {
	if w.growth == nil {
		return span
	}
	var blocks uint64
	if w.known[object] {
		blocks = geometry.Blocks(w.sizes[object])
	}
	run := w.growth.Grow(base(object), span, blocks, block.MaxRun, w.now)
	first, end := span.First, span.First+uint64(span.Count())
	for run.Has(first-1) && w.lead(key{object, first - 1}) {
		first--
	}
	for run.Has(end) && w.lead(key{object, end}) {
		end++
	}
	grown := block.NewRun(first, int(end-first))
	if run.Want &^= grown.Want << (first - run.First); run.Want != 0 {
		w.growth.Return(base(object), run)
	}
	return grown
}

// foresee brings the rest of a small object along with its footer, as the engine
// does.
func (w *world) foresee(r read) {
	size := w.sizes[r.object]
	if w.growth == nil || r.offset+r.size != size || r.size >= int64(geometry) {
		return
	}
	rng, _ := plan.Clamp(geometry, r.offset, r.size, size)
	span := block.NewRun(rng.First, int(rng.Count))
	for _, run := range w.growth.Rest(base(r.object), span, geometry.Blocks(size), block.MaxRun, w.now) {
		w.bring(r.object, run)
	}
}

// bring fetches a run that nobody waits for, up to the first block that is there
// already.
func (w *world) bring(object int, run block.Run) {
	count := 0
	for count < run.Count() && w.lead(key{object, run.First + uint64(count)}) {
		count++
	}
	if count < run.Count() {
		w.growth.Return(base(object), block.NewRun(run.First+uint64(count), run.Count()-count))
	}
	if count > 0 {
		w.get(object, block.NewRun(run.First, count))
	}
}

// lead starts a flight that nobody waits for, unless the block is there or on
// its way.
func (w *world) lead(k key) bool {
	if _, flying := w.flights[k]; flying || w.cache[k] {
		return false
	}
	w.flights[k] = nil
	return true
}

// get fetches a run with one GET: its blocks land one after the other.
func (w *world) get(object int, run block.Run) {
	at := w.law.FirstByte(uint64(w.seen.gets))
	w.seen.gets++
	for i := run.First; i < run.First+uint64(run.Count()); i++ {
		n := int64(geometry.Len(i, w.sizes[object]))
		w.seen.bytes += n
		at += w.law.Body(n)
		w.after(at, func() { w.land(key{object, i}) })
	}
}

func (w *world) land(k key) {
	waiters := w.flights[k]
	delete(w.flights, k)
	w.cache[k] = true
	w.age = append(w.age, k)
	if len(w.age) > w.room {
		delete(w.cache, w.age[0])
		w.age = w.age[1:]
	}
	for _, wake := range waiters {
		wake()
	}
	if !w.known[k.object] {
		w.known[k.object] = true
		waiting := w.learning[k.object]
		delete(w.learning, k.object)
		for _, again := range waiting {
			again()
		}
	}
}

// after calls do in d.
func (w *world) after(d time.Duration, do func()) {
	heap.Push(&w.events, event{w.now + d, w.events.count, do})
	w.events.count++
}

// run lets time pass until nothing is left to happen.
func (w *world) run() {
	for len(w.events.list) > 0 {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

// event is something to do at a time; those of one time go in the order of
// their numbers.
type event struct {
	at     time.Duration
	number int
	do     func()
}

// events is a heap of events.
type events struct {
	list  []event
	count int
}

func (e *events) Len() int { return len(e.list) }
func (e *events) Less(i, j int) bool {
	a, b := &e.list[i], &e.list[j]
	return a.at < b.at || a.at == b.at && a.number < b.number
}
func (e *events) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }
func (e *events) Push(x any)    { e.list = append(e.list, x.(event)) }
func (e *events) Pop() any {
	last := len(e.list) - 1
	x := e.list[last]
	e.list = e.list[:last]
	return x
}
