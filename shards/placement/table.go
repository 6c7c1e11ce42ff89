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

type tableGroup struct {
	id string
	// assigned is the group's own map, shared with the registry.
	assigned *xsync.MapOf[block.Route, int64]
	ranking  *ranking
}

// table judges who may be handed out now. Groups without any such backend are
// left out.
func (r *registry) table(now time.Time, l limits) *table {
	t := &table{goodUntil: now.Add(recheck)}
	members := make(map[string][]member, len(r.groups))
	for _, b := range r.byID {
		until := r.goodUntil(b, l)
		if !until.After(now) {
			continue
		}
		if until.Before(t.goodUntil) {
			t.goodUntil = until
		}
		h := &b.Heartbeat
		members[h.GroupID] = append(members[h.GroupID], member{
			id:     b.ID,
			holder: Holder{Addr: h.Addr(), GroupID: h.GroupID, Location: h.Location},
			weight: weightOf(h.CacheCapacityBytes),
		})
	}
	for id, m := range members {
		t.groups = append(t.groups, tableGroup{id: id, assigned: r.groups[id].assigned, ranking: newRanking(m)})
	}
	slices.SortFunc(t.groups, func(a, b tableGroup) int { return cmp.Compare(a.id, b.id) })
	return t
}

// appendHolders appends the primary of each group for a route.
func (t *table) appendHolders(to []Holder, route block.Route) []Holder {
	key := keyOf(route)
	for i := range t.groups {
		g := &t.groups[i]
		at := -1
		if id, ok := g.assigned.Load(route); ok {
			at = g.ranking.position(id)
		}
		if at < 0 {
			at = g.ranking.first(key)
		}
		to = append(to, g.ranking.holders[at])
	}
	return to
}
