package placement

import (
	"cmp"
	"slices"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"headstart/engine/block"
)

// recheck is how long a table is used at most before liveness is judged anew,
// so that a shorter timeout takes effect soon.
const recheck = time.Second

// table is what lookups read: for each group those of its backends that may
// be handed out. It never changes but for the assignments, and is replaced
// when a backend comes, goes or falls silent.
type table struct {
	groups []tableGroup
	// goodUntil is when the first of the backends may have fallen silent.
	goodUntil time.Time
}

// tableGroup is one group. While a round of balance is under way there are two
// rankings; else they are the same.
type tableGroup struct {
	id string
	// assigned is the group's own map, shared with the registry.
	assigned *xsync.MapOf[block.Route, int64]
	// old ranks those who served when the round started, new those who will serve
	// when it ends. A route goes by new once its bucket is switched.
	old, new *ranking
	switched *Buckets
}

// table judges who may be handed out now. Groups without any such backend are
// left out.
func (r *registry) table(now time.Time, l limits) *table {
	t := &table{goodUntil: now.Add(recheck)}
	type sides struct{ old, new []member }
	members := make(map[string]*sides, len(r.groups))
	for _, b := range r.byID {
		until := r.goodUntil(b, l)
		if !until.After(now) {
			continue
		}
		if until.Before(t.goodUntil) {
			t.goodUntil = until
		}
		h := &b.Heartbeat
		m := member{
			id:     b.ID,
			holder: Holder{Addr: h.Addr(), GroupID: h.GroupID, Location: h.Location},
			weight: weightOf(h.CacheCapacityBytes),
		}
		s := members[h.GroupID]
		if s == nil {
			s = &sides{}
			members[h.GroupID] = s
		}
		if b.Membership != Joining {
			s.old = append(s.old, m)
		}
		if b.Membership != Leaving {
			s.new = append(s.new, m)
		}
	}
	for id, s := range members {
		g := r.groups[id]
		row := tableGroup{id: id, assigned: g.assigned, new: newRanking(s.new)}
		row.old = row.new
		if g.round.active() {
			row.old = newRanking(s.old)
			switched := g.round.Switched
			row.switched = &switched
		}
		t.groups = append(t.groups, row)
	}
	slices.SortFunc(t.groups, func(a, b tableGroup) int { return cmp.Compare(a.id, b.id) })
	return t
}

// group returns the row of a group, nil when it has no backend to hand out.
func (t *table) group(id string) *tableGroup {
	at, found := slices.BinarySearchFunc(t.groups, id, func(g tableGroup, id string) int { return cmp.Compare(g.id, id) })
	if !found {
		return nil
	}
	return &t.groups[at]
}

// appendHolders appends the primary of each group for the route of key.
func (t *table) appendHolders(to []Holder, route block.Route, key uint64) []Holder {
	for i := range t.groups {
		r, at := t.groups[i].owner(route, key)
		to = append(to, r.holders[at])
	}
	return to
}

// owner returns who serves a route: a ranking and the position in it. There is
// always one: a side without any backend to hand out is stood in for by the
// other.
func (g *tableGroup) owner(route block.Route, key uint64) (*ranking, int) {
	r, other := g.new, g.old
	if g.switched != nil && !g.switched.Has(bucketOf(key)) {
		r, other = g.old, g.new
	}
	if id, ok := g.assigned.Load(route); ok {
		if at := r.position(id); at >= 0 {
			return r, at
		}
		if r == g.old {
			// Assigned to one that joins: an order goes before the round.
			if at := g.new.position(id); at >= 0 {
				return g.new, at
			}
		}
	}
	if at := r.first(key); at >= 0 {
		return r, at
	}
	return other, other.first(key)
}
