package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/puzpuzpuz/xsync/v3"

	"headstart/engine/block"
)

// sidesOf returns a group with a round under way, between two sides.
func sidesOf(old, new []member) *tableGroup {
	return &tableGroup{
		old: newRanking(old), new: newRanking(new), switched: &Buckets{},
		assigned: xsync.NewMapOfWithHasher[block.Route, int64](hashRoute),
	}
}

// The plan is exactly what differs between the owners of the two sides: the
// short cuts leave nothing out and add nothing.
func TestS83_PlanIsWhatDiffersBetweenTheSides(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		weights := make([]int64, 2+random.IntN(30))
		for i := range weights {
			weights[i] = 1 << random.IntN(3)
		}
		members := membersOf(weights...)
		var old, new []member
		for _, m := range members {
			side := random.IntN(6)
			if side != 0 {
				old = append(old, m)
			}
			if side != 1 {
				new = append(new, m)
			}
		}
		g := sidesOf(old, new)
		if round%2 == 0 {
			for id := range uint64(50) {
				g.assigned.Store(block.Route{Kind: block.RouteTablet, ID: id}, members[random.IntN(len(members))].id)
			}
		}
		after := *g
		after.switched = &Buckets{}
		for i := range after.switched {
			after.switched[i] = ^uint64(0)
		}
		p := newPlanner(g)
		for id := range uint64(2000) {
			route := block.Route{Kind: block.RouteTablet, ID: id}
			var from, to int64
			if r, at := g.owner(route, keyOf(route)); at >= 0 {
				from = r.ids[at]
			}
			if r, at := after.owner(route, keyOf(route)); at >= 0 {
				to = r.ids[at]
			}
			m, moves := p.move(id)
			if moves != (from != to) || moves && (m.FromID != from || m.ToID != to) {
				t.Fatalf("round %d, weights %v: tablet %d: plan %d → %d (%t), owners %d → %d",
					round, weights, id, m.FromID, m.ToID, moves, from, to)
			}
		}
	}
}

func TestUndercutsIsTheSearchForABetterDraw(t *testing.T) {
	all := membersOf(1, 1, 2, 2, 4, 1)
	others, one := newRanking(all[:5:5]), newRanking(all[5:])
	for id := range uint64(tablets) {
		key := keyOf(block.Route{Kind: block.RouteTablet, ID: id})
		_, cost := one.best(key)
		_, least := others.best(key)
		if got := others.undercuts(key, cost); got != (least < cost) {
			t.Fatalf("tablet %d: cost %v against %v, undercut %t", id, cost, least, got)
		}
	}
}

// A plan of a million tablets and a thousand backends: all of one group, or of
// ten groups.
func BenchmarkPlanMillion(b *testing.B) {
	k := &known{max: 1 << 30}
	for id := range uint64(1_000_000) {
		k.note(id, keyOf(block.Route{Kind: block.RouteTablet, ID: id}), 1)
	}
	for _, n := range []int{100, 1000} {
		members := membersOf(make([]int64, n)...)
		for i := range members {
			members[i].weight = 1 << (i % 2)
		}
		b.Run(fmt.Sprintf("join/backends=%d", n), func(b *testing.B) {
			p := newPlanner(sidesOf(members[1:], members))
			for b.Loop() {
				if moves := p.countMoves(k); moves == 0 {
					b.Fatal("no moves")
				}
			}
		})
		b.Run(fmt.Sprintf("leave/backends=%d", n), func(b *testing.B) {
			p := newPlanner(sidesOf(members, members[1:]))
			for b.Loop() {
				p.countMoves(k)
			}
		})
		b.Run(fmt.Sprintf("double/backends=%d", n), func(b *testing.B) {
			p := newPlanner(sidesOf(members[:n/2], members))
			for b.Loop() {
				p.countMoves(k)
			}
		})
		b.Run(fmt.Sprintf("count/backends=%d", n), func(b *testing.B) {
			g := sidesOf(members, members)
			t := &table{groups: []tableGroup{*g}}
			for b.Loop() {
				t.countTablets(k)
			}
		})
	}
}
