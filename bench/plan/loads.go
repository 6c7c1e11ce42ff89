package main

import (
	"math/rand/v2"
	"time"

	"headstart/bench/tpch"
	"headstart/engine/plan"
)

const (
	mib = 1 << 20
	// pointRate is how many point reads a second there are, pointBytes their size.
	pointRate  = 200
	pointBytes = 64 << 10
)

// load is something that reads.
type load struct {
	name  string
	sizes []int64
	// room is how many blocks the cache holds.
	room int
	// start starts it in a world that has the sizes, from object first on.
	start func(w *world, first int, seed uint64)
}

// run plays a load to its end.
func (l load) run(seed uint64, growth *plan.Growth) figures {
	w := newWorld(seed, l.sizes, l.room, growth)
	l.start(w, 0, seed)
	w.run()
	w.seen.took = w.now
	if growth != nil {
		w.seen.growth = growth.Metrics()
	}
	return w.seen
}

// analytics is the recorded TPC-H reads: within a query, some readers take the
// reads in order; the next query starts when the last read has ended. The cache
// is empty before the first query, or before each.
func analytics(t *tpch.Trace, each bool) load {
	l := load{name: "TPC-H, cache empty before the first query", room: 1 << 20}
	if each {
		l.name = "TPC-H, cache empty before each query"
	}
	for _, o := range t.Objects {
		l.sizes = append(l.sizes, o.Size)
	}
	l.start = func(w *world, first int, _ uint64) {
		var query func(n int)
		query = func(n int) {
			if n == len(t.Queries) {
				return
			}
			if each {
				w.empty()
			}
			reads, readers := t.Queries[n].Reads, tpch.ReaderCount
			var next func()
			next = func() {
				if len(reads) == 0 {
					if readers--; readers == 0 {
						query(n + 1)
					}
					return
				}
				r := reads[0]
				reads = reads[1:]
				w.read(read{first + r.Object, r.Offset, r.Length}, next)
			}
			for range readers {
				next()
			}
		}
		query(0)
	}
	return l
}

// points is count reads at random places of objects that are known, at random
// times.
func points(name string, objects int, size int64, count int) load {
	l := load{name: name, room: 8 << 10, sizes: repeat(size, objects)}
	l.start = func(w *world, first int, seed uint64) {
		for i := range objects {
			w.known[first+i] = true
		}
		rng := rand.New(rand.NewPCG(seed, 0x706f696e7473))
		left := count
		var next func()
		next = func() {
			if left--; left < 0 {
				return
			}
			w.read(read{first + rng.IntN(objects), rng.Int64N(size - pointBytes), pointBytes}, func() {})
			w.after(time.Duration(rng.ExpFloat64()*float64(time.Second)/pointRate), next)
		}
		next()
	}
	return l
}

// scans is readers that read objects of 256 MiB from the first byte to the last,
// 1 MiB at a time; each has its own objects.
func scans(name string, readers, objects int) load {
	const size = 256 * mib
	l := load{name: name, room: 8 << 10, sizes: repeat(size, readers*objects)}
	l.start = func(w *world, first int, _ uint64) {
		for i := range readers {
			mine, at := first+i*objects, int64(0)
			var next func()
			next = func() {
				if at < int64(objects)*size {
					r := read{mine + int(at/size), at % size, mib}
					at += mib
					w.read(r, next)
				}
			}
			next()
		}
	}
	return l
}

// together is all loads at once.
func together(name string, loads ...load) load {
	all := load{name: name, room: 8 << 10}
	for _, l := range loads {
		all.sizes = append(all.sizes, l.sizes...)
	}
	all.start = func(w *world, first int, seed uint64) {
		for _, l := range loads {
			l.start(w, first, seed)
			first += len(l.sizes)
		}
	}
	return all
}

func repeat(size int64, count int) []int64 {
	sizes := make([]int64, count)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}
