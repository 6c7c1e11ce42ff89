package placement

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// Move is a tablet that a round of balance takes from one backend to another.
type Move struct {
	Tablet uint64
	// FromID is 0 when nobody serves the tablet.
	FromID, ToID int64
	From, To     Holder
}

// planner compares the two sides of a round, tablet by tablet. A tablet that
// stays costs a draw of each backend that comes or goes, and a few of the
// others; only one that moves is ranked among all. It never changes.
type planner struct {
	group *tableGroup
	// stay is who is on both sides, come and go who is on one.
	stay, come, leave *ranking
}

func newPlanner(g *tableGroup) *planner {
	var stay, come, leave []member
	for i, id := range g.new.ids {
		m := member{id: id, holder: g.new.holders[i], weight: g.new.weightAt(i)}
		if g.old.position(id) >= 0 {
			stay = append(stay, m)
		} else {
			come = append(come, m)
		}
	}
	for i, id := range g.old.ids {
		if g.new.position(id) < 0 {
			leave = append(leave, member{id: id, holder: g.old.holders[i], weight: g.old.weightAt(i)})
		}
	}
	return &planner{group: g, stay: newRanking(stay), come: newRanking(come), leave: newRanking(leave)}
}

// weightAt returns the weight of the member at a position.
func (r *ranking) weightAt(at int) int64 {
	for _, c := range r.classes {
		if at < c.end {
			return int64(c.weight)
		}
	}
	return 0
}

// move reports where a tablet goes, if it goes anywhere.
func (p *planner) move(tablet uint64) (Move, bool) {
	route := block.Route{Kind: block.RouteTablet, ID: tablet}
	key := keyOf(route)
	if id, ok := p.group.assigned.Load(route); ok {
		if p.group.new.position(id) >= 0 {
			return Move{}, false // the order holds on both sides
		}
		if at := p.group.old.position(id); at >= 0 {
			m := Move{Tablet: tablet, FromID: id, From: p.group.old.holders[at]}
			return m, m.goTo(p.group.new, p.group.new.first(key))
		}
	}
	come, comeCost := p.come.best(key)
	leave, leaveCost := p.leave.best(key)
	if p.stay.undercuts(key, min(comeCost, leaveCost)) {
		return Move{}, false
	}
	stay, stayCost := p.stay.best(key)
	m := Move{Tablet: tablet}
	if leaveCost < stayCost {
		m.FromID, m.From = p.leave.ids[leave], p.leave.holders[leave]
	} else if stay >= 0 {
		m.FromID, m.From = p.stay.ids[stay], p.stay.holders[stay]
	}
	if comeCost < stayCost {
		return m, m.goTo(p.come, come)
	}
	return m, m.goTo(p.stay, stay)
}

// goTo sets the end of a move. It reports whether there is one that is not its
// beginning.
func (m *Move) goTo(r *ranking, at int) bool {
	if at < 0 {
		return false
	}
	m.ToID, m.To = r.ids[at], r.holders[at]
	return m.ToID != m.FromID
}

// forEachBucket calls f for all buckets on all cores, and waits.
func forEachBucket(f func(bucket int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() { // ends with the buckets
			for {
				bucket := int(next.Add(1)) - 1
				if bucket >= BucketCount {
					return
				}
				f(bucket)
			}
		})
	}
	workers.Wait()
}

// countMoves returns how many of the known tablets a round moves.
func (p *planner) countMoves(k *known) int {
	var moves atomic.Int64
	forEachBucket(func(bucket int) {
		n := 0
		for _, id := range k.appendIDs(nil, bucket) {
			if _, ok := p.move(id); ok {
				n++
			}
		}
		moves.Add(int64(n))
	})
	return int(moves.Load())
}

// tabletCounts keeps how many of the known tablets each backend serves: to
// count a million of them means to rank each in every group.
type tabletCounts struct {
	sync.Mutex
	byID map[int64]int
	// of is the table that was counted by, size how many tablets there were.
	of   *table
	size int64
	// at is when it was counted, took how long that took.
	at   time.Time
	took time.Duration
}

// countCost bounds what counting may cost: a twentieth of one's time.
const countCost = 20

// get returns the number of tablets by backend, counted anew when something
// has changed and the last count is long enough ago. The caller doesn't change
// the map.
func (c *tabletCounts) get(t *table, k *known) map[int64]int {
	c.Lock()
	defer c.Unlock()
	now := time.Now()
	if size := k.size.Load(); c.byID == nil || (c.of != t || c.size != size) && now.Sub(c.at) >= countCost*c.took {
		c.byID, c.of, c.size = t.countTablets(k), t, size
		c.at = time.Now()
		c.took = c.at.Sub(now)
	}
	return c.byID
}

func (t *table) countTablets(k *known) map[int64]int {
	byID := make(map[int64]int)
	var mu sync.Mutex
	forEachBucket(func(bucket int) {
		tablets := k.appendIDs(nil, bucket)
		here := make(map[int64]int)
		for i := range t.groups {
			for _, id := range tablets {
				route := block.Route{Kind: block.RouteTablet, ID: id}
				r, at := t.groups[i].owner(route, keyOf(route))
				here[r.ids[at]]++
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for id, n := range here {
			byID[id] += n
		}
	})
	return byID
}
