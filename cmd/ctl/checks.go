package ctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Fewer events than these tell nothing.
const (
	fewReads = 20
	fewFills = 10
)

// checks are doctor's opinions: docs/OPERATING.md has them in words.
func checks() []func(*cluster) {
	return []func(*cluster){
		fillGroup, fillOverloaded, fillRefused, cooldowns, crossGroup, circuits, queueOverloaded,
		refused, switchedInPart, noDirectory, disagreement, storeWins,
	}
}

// storeWins: the peers are not the faster way. It comes last: where something
// else is wrong, that is the reason, and what is said here would be bad advice.
func storeWins(c *cluster) {
	if len(c.found) > 0 {
		return
	}
	var worst []finding
	for _, n := range c.nodes {
		peer, s3 := n.counters["peer_race_peer_win"], n.counters["peer_race_s3_win"]
		if peer+s3 >= fewReads && s3 > 2*peer {
			worst = append(worst, finding{n.addr, "s3_wins", fmt.Sprintf("object storage has won %d races and peers only %d: they are not the faster way, or lack the blocks", s3, peer),
				"peer_race_hedge_delay_ms", fmt.Sprintf("raise it (it is %s) and watch both counters; if that does not help, enable_cache_read_from_peer = false",
					n.conf["peer_race_hedge_delay_ms"])})
		}
	}
	c.found = worst
}

// fillGroup: the fill group is named, or nobody belongs to it.
func fillGroup(c *cluster) {
	const key = "peer_cache_fill_compute_group_id"
	groups := c.groups()
	for _, n := range c.nodes {
		id := n.conf[key]
		if _, known := groups[id]; known || id == "" {
			continue
		}
		var named []string
		for group, name := range groups {
			if name == id {
				named = append(named, group)
			}
		}
		slices.Sort(named)
		switch {
		case len(named) > 0:
			c.report(n.addr, "fill_group_by_name", fmt.Sprintf("%s = %s is the name of a compute group, not its id: no fill is ever asked for", key, id),
				key, "set it to "+strings.Join(named, " or "))
		case c.whole || n.counters["headstart_peer_fill_group_unmatched_total"] > 0:
			c.report(n.addr, "fill_group_unknown", fmt.Sprintf("%s = %s is the id of no compute group: no fill is ever asked for", key, id),
				key, "set it to one of "+strings.Join(slices.Sorted(maps.Keys(groups)), ", "))
		}
	}
}

// fillOverloaded: fills are asked for and do not get done.
func fillOverloaded(c *cluster) {
	for _, n := range c.nodes {
		asked := n.counters["peer_server_fill_requested"]
		late, refused := n.counters["peer_server_fill_timeout"], n.counters["peer_server_fill_rejected"]
		if asked < fewFills || 4*(late+refused) < asked {
			continue
		}
		key := "max_concurrent_peer_server_fills"
		if late > refused {
			key = "peer_server_cache_fill_timeout_ms"
		}
		c.report(n.addr, "fill_overloaded", fmt.Sprintf("of %d fills that peers asked for, %d were rejected and %d took too long", asked, refused, late),
			key, fmt.Sprintf("raise it (it is %s), add BEs to the fill group, or let fewer groups fill there", n.conf[key]))
	}
}

// fillRefused: the fill group is right, but a BE of it does not fill.
func fillRefused(c *cluster) {
	wanted := make(map[string]string) // group id → a BE that wants fills of it
	for _, n := range c.nodes {
		if id := n.conf["peer_cache_fill_compute_group_id"]; id != "" {
			wanted[id] = n.addr
		}
	}
	for _, n := range c.nodes {
		by := wanted[n.conf["compute_group_id"]]
		for _, key := range []string{"enable_peer_server_cache_fill", "enable_file_cache"} {
			if by != "" && n.conf[key] == "false" {
				c.report(n.addr, "fill_switched_off", fmt.Sprintf("this BE belongs to the fill group of %s and does not fill", by), key, "set it to true")
			}
		}
	}
}

// cooldowns: tablets whose candidates have nothing of them.
func cooldowns(c *cluster) {
	const shown = 5
	for _, n := range c.nodes {
		var ids []string
		for _, t := range n.tablets {
			if t.CooldownUntilMS > c.now.UnixMilli() {
				ids = append(ids, fmt.Sprint(t.TabletID))
			}
		}
		if len(ids) == 0 {
			continue
		}
		more := ""
		if len(ids) > shown {
			more = fmt.Sprintf(" and %d more", len(ids)-shown)
		}
		c.report(n.addr, "cooldown", "in cooldown, so that their reads go straight to object storage: tablet "+strings.Join(ids[:min(shown, len(ids))], ", ")+more,
			"peer_all_miss_cooldown_threshold", fmt.Sprintf("their candidates had none of the blocks %s times in a row; `headstart ctl reset TABLET -be %s` ends it",
				n.conf["peer_all_miss_cooldown_threshold"], n.addr))
	}
}

// crossGroup: groups use each other's BEs, and nobody has said that they should.
func crossGroup(c *cluster) {
	for _, n := range c.nodes {
		same, cross := n.counters["peer_same_compute_group_read"], n.counters["peer_cross_compute_group_read"]
		meant := n.conf["peer_cache_fill_compute_group_id"] != "" || n.conf["peer_read_allowed_compute_groups"] != ""
		if cross >= fewReads && cross > same && !meant {
			c.report(n.addr, "cross_group", fmt.Sprintf("%d peer reads went to other compute groups and %d stayed in %s: the groups are not isolated", cross, same, n.conf["compute_group_id"]),
				"enable_cross_compute_group_peer_read", "set it to false, or say which groups are meant with peer_read_allowed_compute_groups")
		}
	}
}

// circuits: nodes that do not answer.
func circuits(c *cluster) {
	for _, n := range c.nodes {
		for _, b := range n.breakers {
			if b.State != "closed" {
				c.report(n.addr, "circuit_open", fmt.Sprintf("the circuit to %s is %s after %d failures in a row", b.Address, b.State, b.Failures),
					"cache_peer_read_circuit_open_seconds", "look at that node; once it answers, the next probe closes the circuit, or `headstart ctl breaker reset "+b.Address+" -be "+n.addr+"`")
			}
		}
	}
}

// queueOverloaded: peers wait longer than they may.
func queueOverloaded(c *cluster) {
	for _, n := range c.nodes {
		asked, late := n.counters["file_cache_get_by_peer_num"], n.counters["file_cache_get_by_peer_queue_timeout_num"]
		if asked >= fewReads && 20*late >= asked {
			c.report(n.addr, "queue_overloaded", fmt.Sprintf("%d of %d peer reads waited too long in the queue", late, asked),
				"brpc_peer_fetch_pool_threads", fmt.Sprintf("raise it and restart (it is %s), or peer_fetch_queue_timeout_ms (%s)",
					n.conf["brpc_peer_fetch_pool_threads"], n.conf["peer_fetch_queue_timeout_ms"]))
		}
	}
}

// refused: nodes knock that are not let in.
func refused(c *cluster) {
	for _, n := range c.nodes {
		if turned := n.counters["headstart_peer_server_refused_total"]; turned >= fewReads {
			c.report(n.addr, "callers_refused", fmt.Sprintf("%d callers of its brpc_port were refused: if they are nodes of this cluster, they read from object storage instead", turned),
				"cluster_token", "the log of this BE says who they are and why; cluster_token, cluster_id, enable_peer_tls and peer_tls_allowed_names have to agree")
		}
	}
}

// switchedInPart: the master switch is on at some BEs of a group only.
func switchedInPart(c *cluster) {
	const key = "enable_cache_read_from_peer"
	on := make(map[string]string)
	for _, n := range c.nodes {
		if n.conf[key] == "true" {
			on[n.conf["compute_group_id"]] = n.addr
		}
	}
	for _, n := range c.nodes {
		if other := on[n.conf["compute_group_id"]]; other != "" && n.conf[key] == "false" {
			c.report(n.addr, "switched_in_part", fmt.Sprintf("peer read is off here and on at %s of the same compute group", other), key, "set it alike on every BE")
		}
	}
}

// noDirectory: peer read is on, and nobody names peers.
func noDirectory(c *cluster) {
	for _, n := range c.nodes {
		if n.conf["enable_cache_read_from_peer"] == "true" && n.conf["fe_endpoints"] == "" && len(n.tablets) == 0 {
			c.report(n.addr, "no_candidates", "peer read is on, but the BE knows no FE and has no candidates set by hand", "fe_endpoints", "name the FEs and restart")
		}
	}
}

// disagreement: keys that the nodes of a cluster must agree on.
func disagreement(c *cluster) {
	for _, key := range []string{"file_cache_each_block_size", "enable_peer_tls"} {
		for _, n := range c.nodes[min(1, len(c.nodes)):] {
			if first := c.nodes[0]; n.conf[key] != first.conf[key] {
				c.report(n.addr, "disagreement", fmt.Sprintf("%s is %s here and %s at %s: these nodes can't read from each other", key, n.conf[key], first.conf[key], first.addr),
					key, "set it alike on every BE")
			}
		}
	}
}
