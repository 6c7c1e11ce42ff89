package blockcache

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"headstart/engine/block"
)

// The space against a plain model: every tile is where nobody else is, and all
// of it comes back.
func TestSpaceTilesWithoutOverlap(t *testing.T) {
	const limit = 4096
	slots := slotTable{segs: make([]atomic.Pointer[segment], limit>>segBits+1)}
	p := space{slots: &slots, limit: limit, mayUse: func(high uint32) bool { return high <= 600 }}
	rng := rand.New(rand.NewPCG(3, 4))
	var owner [limit]uint32
	var live []uint32
	for range 50_000 {
		if rng.IntN(100) < 55 {
			units := 1 + rng.Uint32N(64)
			n := p.promise(units)
			if n == 0 {
				continue
			}
			s := slots.at(n)
			if !p.place(n) {
				p.breakPromise(n)
				continue
			}
			s.state.Store(slotReady)
			if s.units < units {
				t.Fatalf("asked for %d units, got %d", units, s.units)
			}
			for i := s.start; i < s.start+s.units; i++ {
				if owner[i] != 0 {
					t.Fatalf("unit %d belongs to %d and %d", i, owner[i], n)
				}
				owner[i] = n
			}
			live = append(live, n)
		} else if len(live) > 0 {
			i := rng.IntN(len(live))
			s := slots.at(live[i])
			for u := s.start; u < s.start+s.units; u++ {
				owner[u] = 0
			}
			s.state.Store(slotVacant)
			p.give(live[i])
			live = slices.Delete(live, i, i+1)
		}
	}
	for _, n := range live {
		slots.at(n).state.Store(slotVacant)
		p.give(n)
	}
	if p.frontier != 0 || p.last != 0 {
		t.Errorf("frontier %d after all was given back", p.frontier)
	}
	if n := p.promise(limit); n == 0 || !p.place(n) || p.free() != 0 {
		t.Error("the whole space can't be taken again")
	}
}

func TestBinsAreOrdered(t *testing.T) {
	last := 0
	for units := uint32(1); units < 1<<21; units++ {
		b := binOf(units)
		if b != last && b != last+1 {
			t.Fatalf("%d units are in bin %d, one less in %d", units, b, last)
		}
		last = b
	}
	if b := binOf(^uint32(0)); b != binCount-1 {
		t.Errorf("the largest bin is %d of %d", b, binCount)
	}
}

func TestIndexAgainstAMap(t *testing.T) {
	ids := []block.ID{{}}
	x := newIndex(func(w word) block.ID { return ids[w.place()] })
	model := map[block.ID]word{}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200_000 {
		id := block.ID{Hi: rng.Uint64N(50), Lo: 1, Index: rng.Uint64N(1000)}
		h := hashID(id)
		if old, ok := model[id]; ok && rng.IntN(3) == 0 {
			if !x.remove(h, old) || x.remove(h, old) {
				t.Fatalf("remove %v: want once", id)
			}
			delete(model, id)
			continue
		}
		ids = append(ids, id)
		w := makeWord(h, uint64(len(ids)-1))
		got, added := x.put(id, h, w)
		if old, ok := model[id]; ok == added || ok && got != old {
			t.Fatalf("put %v: %v, %v; the model has %v, %v", id, got, added, old, ok)
		}
		if added {
			model[id] = w
		}
	}
	if x.len() != len(model) {
		t.Errorf("%d entries, want %d", x.len(), len(model))
	}
}

// A hash that clusters is a cliff: made-up ids of every simple kind must
// spread like random ones.
func TestHashSpreads(t *testing.T) {
	const n = 1 << 16
	for name, make := range map[string]func(i uint64) block.ID{
		"index": func(i uint64) block.ID { return block.ID{Hi: 1, Lo: 2, Index: i} },
		"hi":    func(i uint64) block.ID { return block.ID{Hi: i} },
		"lo":    func(i uint64) block.ID { return block.ID{Lo: i << 40} },
		"big":   func(i uint64) block.ID { return block.ID{Hi: 7, Lo: 7, Index: i << 32} },
		"both":  func(i uint64) block.ID { return block.ID{Hi: i / 256, Lo: i / 256, Index: i % 256} },
		"real":  func(i uint64) block.ID { return id(int(i/64), i%64) },
	} {
		var low, top [n / 4]int
		tags := map[uint64]int{}
		for i := range uint64(n) {
			h := hashID(make(i))
			low[h%(n/4)]++
			top[h>>50]++
			tags[hashTag(h)]++
		}
		// 4 on average: more than 20 happens once in a hundred million.
		if a, b := slices.Max(low[:]), slices.Max(top[:]); a > 20 || b > 20 {
			t.Errorf("%s: up to %d and %d ids in one of %d buckets", name, a, b, n/4)
		}
		if len(tags) < n*99/100 {
			t.Errorf("%s: %d tags for %d ids", name, len(tags), n)
		}
	}
}

func FuzzRecord(f *testing.F) {
	var b [recordSize]byte
	r := record{seq: 9, id: id(1, 2), start: 3, size: 4, crc: 5, queue: block.QueueTTL}
	r.encode(&b)
	f.Add(b[:])
	f.Add(make([]byte, recordSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		var r record
		if !r.decode(in) {
			return
		}
		var out [recordSize]byte
		r.encode(&out)
		var again record
		if !again.decode(out[:]) || again != r || int(r.queue) >= queueCount || r.size == 0 {
			t.Errorf("%+v, again %+v", r, again)
		}
	})
}

func FuzzDescription(f *testing.F) {
	f.Add(describe(&Entry{Object: object(1), Meta: meta(1)}), uint64(0))
	f.Add(describe(&Entry{}), uint64(1))
	f.Add(describe(&Entry{Object: object(1), Meta: block.Meta{Size: 7}, Route: block.TabletRoute(1 << 62)}), uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, hi uint64) {
		e, ok := parseDescription(b, objectKey{hi: hi})
		if ok && keyOf(block.BaseID(e.Object, e.Meta.Version)).hi != hi {
			t.Errorf("%v was taken for another object", e.Object)
		}
		key := keyOf(block.BaseID(e.Object, e.Meta.Version))
		if again, ok := parseDescription(describe(&e), key); !ok || again != e {
			t.Errorf("%+v became %+v (%v)", e, again, ok)
		}
	})
}

func FuzzHeaderAndCell(f *testing.F) {
	f.Add(header{1 << 20}.encode())
	f.Add([]byte{})
	var b [cellSize]byte
	(&cell{seq: 1, key: objectKey{2, 3}, part: 1, parts: 2, payload: []byte("x")}).encode(&b)
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		if h, err := decodeHeader(in); err == nil && h.blockSize != 0 {
			if again, err := decodeHeader(h.encode()); err != nil || again != h {
				t.Errorf("header %+v became %+v, %v", h, again, err)
			}
		}
		var c cell
		if c.decode(in) && (c.part >= c.parts || len(c.payload) > cellPayload) {
			t.Errorf("cell %+v", c)
		}
	})
}
