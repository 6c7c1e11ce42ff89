package placement

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"headstart/engine/block"
)

// member is one backend of a ranking.
type member struct {
	id     int64
	holder Holder
	weight int64
}

// ranking answers which member of one group serves a route: rendezvous
// hashing (D. Thaler, C. Ravishankar, "Using name-based mappings to increase
// hit rates", IEEE/ACM Transactions on Networking 6(1), 1998), weighted by the
// logarithmic method (C. Schindelhauer, G. Schomaker, "Weighted distributed
// hash tables", SPAA 2005).
//
// Each pair of route and member has a draw of its own, and the best draw wins.
// So a member that joins takes its share, weight over total weight, and
// nothing else moves; when one leaves, its routes alone move. Ranking
// those that are alive names the member that is next by rank of all.
//
// Members of equal weight stand together: among them the highest hash has the
// best draw, so that a logarithm is taken once a weight, not once a member. It
// never changes.
type ranking struct {
	// seeds, ids and holders are parallel; seeds is all that the search walks.
	seeds   []uint64
	ids     []int64
	holders []Holder
	classes []class
	// at is the position of each member by its backend's number.
	at map[int64]int
}

// class is the members of one weight: those up to end, from the end of the
// class before it.
type class struct {
	weight float64
	end    int
}

// newRanking orders the members; it keeps the slice.
func newRanking(members []member) *ranking {
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.id, b.id))
	})
	r := &ranking{at: make(map[int64]int, len(members))}
	for i, m := range members {
		r.seeds = append(r.seeds, seedOf(m.holder.Addr))
		r.ids = append(r.ids, m.id)
		r.holders = append(r.holders, m.holder)
		r.at[m.id] = i
		if i == 0 || members[i-1].weight != m.weight {
			r.classes = append(r.classes, class{weight: float64(m.weight)})
		}
		r.classes[len(r.classes)-1].end = i + 1
	}
	return r
}

// first returns the position of the member that ranks first for the route of
// key, -1 when there are no members.
func (r *ranking) first(key uint64) int {
	at, _ := r.best(key)
	return at
}

// best returns first and the cost of its draw: of two rankings that one has the
// route whose best costs less. Without members the cost is infinite.
func (r *ranking) best(key uint64) (at int, cost float64) {
	at, cost = -1, math.Inf(1)
	from := 0
	for _, c := range r.classes {
		here, top := from, uint64(0)
		for i, seed := range r.seeds[from:c.end] {
			if h := draw(key, seed); h > top {
				here, top = from+i, h
			}
		}
		// The draw as an exponential variate of rate weight: the least wins.
		unit := (float64(top>>11) + 0.5) / (1 << 53)
		if price := -math.Log(unit) / c.weight; price < cost {
			at, cost = here, price
		}
		from = c.end
	}
	return at, cost
}

// undercuts reports whether a member's draw costs less than cost. It stops at
// the first that does: against a good draw of one other member that is after a
// handful of draws, however many members there are.
func (r *ranking) undercuts(key uint64, cost float64) bool {
	from := 0
	for _, c := range r.classes {
		// best's price, solved for the draw.
		limit := math.Exp(-cost*c.weight)*(1<<53) - 0.5
		for _, seed := range r.seeds[from:c.end] {
			if float64(draw(key, seed)>>11) > limit {
				return true
			}
		}
		from = c.end
	}
	return false
}

// position returns the position of a backend, -1 when it is not a member.
func (r *ranking) position(id int64) int {
	if at, ok := r.at[id]; ok {
		return at
	}
	return -1
}

// weightOf returns a backend's weight: the capacity of its cache, with three
// leading bits kept so that backends of nearly the same size weigh the same
// and a small change moves nothing. Without a cache it is next to nothing.
func weightOf(capacityBytes int64) int64 {
	n := bits.Len64(uint64(max(capacityBytes, 1)))
	return max(capacityBytes, 1) &^ (1<<max(n-3, 0) - 1)
}

// keyOf returns where a route draws from. Numbers of different kinds are
// numbers apart.
func keyOf(r block.Route) uint64 { return mix(mix(uint64(r.Kind)) ^ r.ID) }

// seedOf returns where a backend draws from. It is made of the address and not
// of the backend's number, so that tablets stay where their blocks are cached
// even when the FE has lost its store.
func seedOf(a block.Addr) uint64 {
	h := uint64(len(a.Host))
	for _, c := range []byte(a.Host) {
		h = mix(h ^ uint64(c))
	}
	return mix(h ^ uint64(a.Port))
}

// draw returns the draw of a route and a member, both already mixed: the two
// halves of one product, folded.
func draw(key, seed uint64) uint64 {
	hi, lo := bits.Mul64(key^seed, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// mix spreads each bit of x over all bits: a bijection, by two rounds of
// multiply and fold with the constants of Stafford's variant 13.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
