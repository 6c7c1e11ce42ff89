package ctl

import (
	"strings"
	"testing"
	"time"

	"headstart/shards"
)

// healthy is a cluster of two groups; what a test changes in it is what is wrong.
func healthy() *cluster {
	c := &cluster{now: time.UnixMilli(1_000_000), whole: true}
	for addr, group := range map[string]string{"a:1": "cg_a", "b:1": "cg_b"} {
		c.nodes = append(c.nodes, &node{addr: addr, counters: map[string]int64{}, conf: map[string]string{
			"compute_group_id": group, "compute_group_name": "name_" + group, "enable_cache_read_from_peer": "true",
			"fe_endpoints": "fe:9020", "enable_peer_server_cache_fill": "true", "enable_file_cache": "true",
			"file_cache_each_block_size": "1048576", "enable_peer_tls": "false",
		}})
	}
	if c.nodes[0].addr != "a:1" {
		c.nodes[0], c.nodes[1] = c.nodes[1], c.nodes[0]
	}
	return c
}

// TestS79_ChecksAreNamedOnceAndOnlyWhenMeant looks at both sides of each line
// that a check draws.
func TestS79_ChecksAreNamedOnceAndOnlyWhenMeant(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(a, b *node)
		want   string
	}{
		"healthy":                     {func(a, b *node) {}, ""},
		"few races":                   {func(a, b *node) { a.counters["peer_race_s3_win"] = fewReads - 1 }, ""},
		"races that are even":         {func(a, b *node) { a.counters["peer_race_s3_win"], a.counters["peer_race_peer_win"] = 60, 30 }, ""},
		"races lost":                  {func(a, b *node) { a.counters["peer_race_s3_win"], a.counters["peer_race_peer_win"] = 61, 30 }, "s3_wins"},
		"fill group by id":            {func(a, b *node) { a.conf["peer_cache_fill_compute_group_id"] = "cg_b" }, ""},
		"fill group by name":          {func(a, b *node) { a.conf["peer_cache_fill_compute_group_id"] = "name_cg_b" }, "fill_group_by_name"},
		"fill group of nobody":        {func(a, b *node) { a.conf["peer_cache_fill_compute_group_id"] = "cg_c" }, "fill_group_unknown"},
		"fill group known by tablets": {func(a, b *node) { a.conf["peer_cache_fill_compute_group_id"] = "cg_c"; a.tablets = tabletOf("cg_c", 0) }, ""},
		"fills late": {func(a, b *node) {
			b.counters["peer_server_fill_requested"], b.counters["peer_server_fill_timeout"] = 10, 3
		}, "fill_overloaded"},
		"fills nearly all done": {func(a, b *node) {
			b.counters["peer_server_fill_requested"], b.counters["peer_server_fill_rejected"] = 100, 24
		}, ""},
		"fills without a cache": {func(a, b *node) {
			a.conf["peer_cache_fill_compute_group_id"], b.conf["enable_file_cache"] = "cg_b", "false"
		}, "fill_switched_off"},
		"cooldown":         {func(a, b *node) { a.tablets = tabletOf("cg_b", 1_000_001) }, "cooldown"},
		"cooldown is over": {func(a, b *node) { a.tablets = tabletOf("cg_b", 1_000_000) }, ""},
		"cross-group":      {func(a, b *node) { a.counters["peer_cross_compute_group_read"] = 20 }, "cross_group"},
		"cross-group, and meant": {func(a, b *node) {
			a.counters["peer_cross_compute_group_read"], a.conf["peer_read_allowed_compute_groups"] = 20, "cg_b"
		}, ""},
		"half-open": {func(a, b *node) { a.breakers = []shards.BreakerView{{Address: "x:1", State: "half_open"}} }, "circuit_open"},
		"closed":    {func(a, b *node) { a.breakers = []shards.BreakerView{{Address: "x:1", State: "closed"}} }, ""},
		"queue": {func(a, b *node) {
			b.counters["file_cache_get_by_peer_num"], b.counters["file_cache_get_by_peer_queue_timeout_num"] = 100, 5
		}, "queue_overloaded"},
		"callers refused":  {func(a, b *node) { a.counters["headstart_peer_server_refused_total"] = fewReads }, "callers_refused"},
		"a scan of ports":  {func(a, b *node) { a.counters["headstart_peer_server_refused_total"] = fewReads - 1 }, ""},
		"switched in part": {func(a, b *node) { b.conf["compute_group_id"], b.conf["enable_cache_read_from_peer"] = "cg_a", "false" }, "switched_in_part"},
		"no FE":            {func(a, b *node) { a.conf["fe_endpoints"] = "" }, "no_candidates"},
		"no FE, by hand":   {func(a, b *node) { a.conf["fe_endpoints"] = ""; a.tablets = tabletOf("cg_b", 0) }, ""},
		"block sizes":      {func(a, b *node) { b.conf["file_cache_each_block_size"] = "4096" }, "disagreement"},
		"one cause, not its consequence": {func(a, b *node) {
			a.counters["peer_race_s3_win"] = 100
			a.tablets = tabletOf("cg_b", 2_000_000)
		}, "cooldown"},
	} {
		c := healthy()
		tc.change(c.nodes[0], c.nodes[1])
		for _, check := range checks() {
			check(c)
		}
		var got []string
		for _, f := range c.found {
			got = append(got, f.Check)
			if f.Node == "" || f.Fault == "" || f.Key == "" || f.Advice == "" {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if list := strings.Join(got, " "); list != tc.want {
			t.Errorf("%s: %q, want %q", name, list, tc.want)
		}
	}
}

func tabletOf(group string, cooldownUntilMS int64) []shards.View {
	return []shards.View{{TabletID: 1, CooldownUntilMS: cooldownUntilMS, Candidates: []shards.CandidateView{{Host: "h", Port: 1, GroupID: group}}}}
}
