package placement

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"headstart/engine/block"
)

const tablets = 100_000

// membersOf returns one member for each weight, at addresses of its own.
func membersOf(weights ...int64) []member {
	var all []member
	for i, w := range weights {
		addr := block.Addr{Host: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Port: 8060}
		all = append(all, member{id: int64(10001 + i), holder: Holder{Addr: addr}, weight: w})
	}
	return all
}

// owners returns who serves each of the tablets, by address.
func owners(members []member) []block.Addr {
	r := newRanking(slices.Clone(members))
	all := make([]block.Addr, tablets)
	for id := range all {
		all[id] = r.holders[r.first(keyOf(block.TabletRoute(int64(id))))].Addr
	}
	return all
}

// atMost is five standard deviations above the expected number of tablets of
// a share: with a fixed hash the test does not depend on luck.
func atMost(share float64) int {
	return int(share*tablets + 5*math.Sqrt(share*(1-share)*tablets))
}

func TestS81_JoiningBackendTakesItsShareAndNothingElseMoves(t *testing.T) {
	for _, weights := range [][]int64{{1, 1}, {1, 1, 1, 1, 1}, {1, 4, 2, 2}, slices.Repeat([]int64{3}, 60)} {
		members := membersOf(weights...)
		before, after := owners(members[:len(members)-1]), owners(members)
		joined, moved := members[len(members)-1], 0
		for id := range after {
			if before[id] == after[id] {
				continue
			}
			moved++
			if after[id] != joined.holder.Addr {
				t.Fatalf("weights %v: tablet %d moved between two backends that stayed", weights, id)
			}
		}
		var total int64
		for _, w := range weights {
			total += w
		}
		share := float64(joined.weight) / float64(total)
		if limit := atMost(share); moved > limit || moved < int(share*tablets*0.9) {
			t.Errorf("weights %v: %d tablets moved, want about %.0f, at most %d", weights, moved, share*tablets, limit)
		}
	}
}

func TestS81_LeavingBackendMovesOnlyItsOwnTablets(t *testing.T) {
	members := membersOf(slices.Repeat([]int64{1}, 20)...)
	before, after := owners(members), owners(members[1:])
	gone, heirs := members[0].holder.Addr, map[block.Addr]int{}
	for id := range after {
		if before[id] == gone {
			heirs[after[id]]++
		} else if before[id] != after[id] {
			t.Fatalf("tablet %d moved although its backend stayed", id)
		}
	}
	if len(heirs) != len(members)-1 {
		t.Errorf("the tablets went to %d of the %d others", len(heirs), len(members)-1)
	}
}

func TestS81_TabletsFollowTheWeights(t *testing.T) {
	weights := []int64{1, 1, 2, 4, 8}
	members := membersOf(weights...)
	got := map[block.Addr]int{}
	for _, addr := range owners(members) {
		got[addr]++
	}
	for _, m := range members {
		share := float64(m.weight) / 16
		n, far := got[m.holder.Addr], 5*math.Sqrt(share*(1-share)*tablets)
		if math.Abs(float64(n)-share*tablets) > far {
			t.Errorf("weight %d: %d tablets, want %.0f ± %.0f", m.weight, n, share*tablets, far)
		}
	}
}

// Figures that must never change: an FE of another version, or one that has
// lost its store, has to come to the same placement.
func TestS81_PlacementIsTheSameInEveryVersion(t *testing.T) {
	members := membersOf(1, 1, 2, 4, 8, 8)
	r := newRanking(members)
	var got []string
	for id := range int64(12) {
		got = append(got, r.holders[r.first(keyOf(block.TabletRoute(id)))].Addr.Host)
	}
	want := []string{
		"10.0.0.2", "10.0.0.4", "10.0.0.4", "10.0.0.4", "10.0.0.5", "10.0.0.5",
		"10.0.0.5", "10.0.0.0", "10.0.0.3", "10.0.0.5", "10.0.0.2", "10.0.0.5",
	}
	if !slices.Equal(got, want) {
		t.Errorf("tablets 0 to 11 are on %q, want %q", got, want)
	}
}

func TestS18_ExternalRoutesArePlacedApart(t *testing.T) {
	r := newRanking(membersOf(1, 1, 1, 1))
	same := 0
	for id := range uint64(tablets) {
		tablet := r.first(keyOf(block.Route{Kind: block.RouteTablet, ID: id}))
		external := r.first(keyOf(block.Route{Kind: block.RouteExternal, ID: id}))
		if tablet == external {
			same++
		}
	}
	if limit := atMost(0.25); same > limit {
		t.Errorf("%d of %d numbers are placed alike for both kinds, want about a quarter", same, tablets)
	}
}

func TestWeightKeepsThreeLeadingBits(t *testing.T) {
	for capacity, want := range map[int64]int64{
		-1: 1, 0: 1, 1: 1, 7: 7, 8: 8, 9: 8, 100 << 30: 96 << 30, 111 << 30: 96 << 30, 112 << 30: 112 << 30,
		math.MaxInt64: 7 << 60,
	} {
		if got := weightOf(capacity); got != want {
			t.Errorf("weightOf(%d) = %d, want %d", capacity, got, want)
		}
	}
}

func TestHashOfRoutesSpreads(t *testing.T) {
	for _, stride := range []uint64{1, 1 << 20, 1 << 40} {
		var buckets [256]int
		for i := range uint64(tablets) {
			buckets[hashRoute(block.Route{Kind: block.RouteTablet, ID: i * stride}, 42)&255]++
		}
		if limit := atMost(1.0 / 256); slices.Max(buckets[:]) > limit {
			t.Errorf("stride %d: a bucket has %d of %d, want at most %d", stride, slices.Max(buckets[:]), tablets, limit)
		}
	}
}
