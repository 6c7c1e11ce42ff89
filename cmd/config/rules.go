package config

import (
	"fmt"
	"strings"
)

// rule is something that must hold between two keys. Rules of keys that the
// node does not have are left out.
type rule struct {
	a, b string
	ok   func(a, b Value) bool
	// refuse tells a contradiction from a combination that is only unwise.
	refuse bool
	why    string
}

func less(a, b Value) bool   { return a.num < b.num }
func atMost(a, b Value) bool { return a.num <= b.num }

// together: neither or both are given.
func together(a, b Value) bool { return (a.text == "") == (b.text == "") }

// needs: the switch a is off or b is given.
func needs(a, b Value) bool { return !a.Bool() || b.text != "" }

// overTLS: a is not given, or the store b is reached by TLS.
func overTLS(a, b Value) bool { return a.text == "" || strings.HasPrefix(b.text, "etcds://") }

// differ is for ports: two that the system chooses (0) or that are off are
// not the same.
func differ(a, b Value) bool { return a.num <= 0 || a.num != b.num }

// rules returns what is checked at every start and every update.
func rules() []rule {
	const (
		inRace      = "the peer leg has failed by then: object storage would never be hedged"
		lateRefusal = "the requester has given up before it hears of the rejection, and takes it for a failure"
		pair        = "want both or neither"
		onePort     = "want different ports"
		etcds       = "it is for an fe_store that begins with etcds://"
		tls         = "enable_peer_tls = true needs it"
	)
	return []rule{
		{"min_peer_race_s3_thread_num", "max_peer_race_s3_thread_num", atMost, true, "want the first to be at most the second"},
		{"file_cache_exit_disk_resource_limit_mode_percent", "file_cache_enter_disk_resource_limit_mode_percent", less, true, "want the first to be below the second"},
		{"file_cache_exit_need_evict_cache_in_advance_percent", "file_cache_enter_need_evict_cache_in_advance_percent", less, true, "want the first to be below the second"},
		{"file_cache_enter_need_evict_cache_in_advance_percent", "file_cache_enter_disk_resource_limit_mode_percent", atMost, false, "caching stops before eviction in advance starts"},
		{"heartbeat_interval_ms", "heartbeat_timeout_ms", less, true, "a BE would be dead between two heartbeats"},
		{"peer_all_miss_cooldown_duration_s", "peer_candidate_expiry_s", atMost, false, "a tablet's candidates expire before its cooldown ends"},
		{"peer_race_hedge_delay_ms", "peer_read_rpc_timeout_ms", less, false, inRace},
		{"peer_fetch_queue_timeout_ms", "peer_read_rpc_timeout_ms", less, false, lateRefusal},
		{"peer_fetch_queue_timeout_ms", "peer_server_cache_fill_timeout_ms", less, false, lateRefusal},
		{"s3_get_idle_timeout_ms", "s3_get_timeout_ms", atMost, false, "the first never comes to bear"},
		{"s3_access_key", "s3_secret_key", together, true, pair},
		{"query_tls_cert_path", "query_tls_key_path", together, true, pair},
		{"fe_store_tls_cert_path", "fe_store_tls_key_path", together, true, pair},
		{"fe_store_user", "fe_store_password", together, true, pair},
		{"fe_store_tls_ca_path", "fe_store", overTLS, true, etcds},
		{"fe_store_tls_cert_path", "fe_store", overTLS, true, etcds},
		{"enable_peer_tls", "peer_tls_ca_path", needs, true, tls},
		{"enable_peer_tls", "peer_tls_cert_path", needs, true, tls},
		{"enable_peer_tls", "peer_tls_key_path", needs, true, tls},
		{"webserver_port", "brpc_port", differ, true, onePort},
		{"webserver_port", "s3_port", differ, true, onePort},
		{"brpc_port", "s3_port", differ, true, onePort},
		{"http_port", "rpc_port", differ, true, onePort},
		{"http_port", "query_port", differ, true, onePort},
		{"rpc_port", "query_port", differ, true, onePort},
		{"file_cache_each_block_size", "file_cache_path", blockFits, true, "want a total_size that holds at least one block"},
		{"peer_candidate_cleanup_interval_s", "peer_candidate_expiry_s", func(a, b Value) bool { return a.num <= 10*b.num }, false, "expired candidates stay in memory for many times their life"},
	}
}

func blockFits(a, b Value) bool {
	for _, p := range b.paths {
		if p.TotalBytes < a.num {
			return false
		}
	}
	return true
}

// conflicts checks values against the rules that one of the changed keys is
// part of (all rules when changed is nil): errors refuse, warnings don't. places
// says where values were found; what it lacks is a default, or an update's.
func conflicts(values map[string]Value, changed map[string]bool, places map[string]entry) (refused []error, warnings []string) {
	for _, r := range rules() {
		a, hasA := values[r.a]
		b, hasB := values[r.b]
		if !hasA || !hasB || r.ok(a, b) || (changed != nil && !changed[r.a] && !changed[r.b]) {
			continue
		}
		at, other := places[r.a], ""
		if place := places[r.b].place(); place != "" {
			other = " (" + place + ")"
		}
		e := &Error{
			From: at.from, Line: at.line, Key: r.a, Value: a.Shown(), HasValue: true, Err: ErrConflict,
			Why: fmt.Sprintf("together with %s = %q%s: %s", r.b, b.Shown(), other, r.why),
		}
		if r.refuse {
			refused = append(refused, e)
		} else {
			warnings = append(warnings, e.Error())
		}
	}
	return refused, warnings
}
