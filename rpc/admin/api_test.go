package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"headstart/engine/block"
)

func TestS74_ShowToTheLetter(t *testing.T) { startBE(t, nil).transcript("S74_show") }

func TestS75_ShowAll(t *testing.T) { startBE(t, nil).transcript("S75_show_all") }

func TestS76_SetRemoveReset(t *testing.T) { startBE(t, nil).transcript("S76_set") }

func TestS77_CircuitBreaker(t *testing.T) {
	n := startBE(t, nil)
	n.transcript("S77_circuit_breaker")
	addr := block.Addr{Host: "10.0.0.2", Port: 8060}
	for range 3 {
		ticket, _ := n.Breakers.Allow(addr)
		ticket.Done(block.OutcomeError)
	}
	if _, body := n.ask("GET", "/api/circuit_breaker", ""); !strings.Contains(body, `"state": "open"`) {
		t.Errorf("after three failures: %s", body)
	}
	if status, body := n.ask("POST", "/api/circuit_breaker?op=reset&address=10.0.0.2:8060", ""); status != 200 {
		t.Errorf("reset: %d %s", status, body)
	}
	if _, body := n.ask("GET", "/api/circuit_breaker", ""); !strings.Contains(body, `"state": "closed"`) {
		t.Errorf("after the reset: %s", body)
	}
}

func TestS61_UpdateConfig(t *testing.T) { startBE(t, nil).transcript("S61_update_config") }

func TestS55_FileCacheVerbs(t *testing.T) {
	n := startBE(t, nil)
	for _, key := range []string{"data/t1/segment.dat", "data/t3/segment.dat"} {
		n.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: key}, make([]byte, 3*testBlock+1))
		if status, body := n.ask("GET", "/read?tablet_id=1&path="+key, ""); status != 200 || len(body) != 3*testBlock+1 {
			t.Fatalf("read of %s: %d, %d bytes", key, status, len(body))
		}
	}
	n.transcript("S55_file_cache")
	if m := n.Cache.Metrics(); m.Blocks != 0 {
		t.Errorf("%d blocks are left", m.Blocks)
	}
}

func TestHT07_NonsenseChangesNothing(t *testing.T) {
	n := startBE(t, nil)
	n.ask("POST", "/api/peer_cache?op=set&tablet_id=1", `{"candidates":[{"host":"10.0.0.2","brpc_port":8060,"compute_group_id":"a"}]}`)
	_, before := n.ask("GET", "/api/peer_cache?op=show_all", "")
	_, config := n.ask("GET", "/api/show_config", "")
	one := func(candidate string) string { return `{"candidates":[` + candidate + `]}` }
	bodies := map[string]string{
		"empty": "", "null": "null", "a list": "[]", "no candidates": "{}", "half": `{"candidates":[`, "two values": one("") + one(""),
		"unknown field":       `{"candidates":[],"x":1}`,
		"unknown field below": one(`{"host":"10.0.0.3","brpc_port":1,"compute_group_id":"a","x":1}`),
		"port 0":              one(`{"host":"10.0.0.3","brpc_port":0,"compute_group_id":"a"}`),
		"port 65536":          one(`{"host":"10.0.0.3","brpc_port":65536,"compute_group_id":"a"}`),
		"port -1":             one(`{"host":"10.0.0.3","brpc_port":-1,"compute_group_id":"a"}`),
		"port 1e3":            one(`{"host":"10.0.0.3","brpc_port":1e3,"compute_group_id":"a"}`),
		"port as text":        one(`{"host":"10.0.0.3","brpc_port":"8060","compute_group_id":"a"}`),
		"empty host":          one(`{"host":"","brpc_port":1,"compute_group_id":"a"}`),
		"IPv6 host":           one(`{"host":"fd00::3","brpc_port":1,"compute_group_id":"a"}`),
		"IPv6 in brackets":    one(`{"host":"[fd00::3]","brpc_port":1,"compute_group_id":"a"}`),
		"host with a port":    one(`{"host":"10.0.0.3:1","brpc_port":1,"compute_group_id":"a"}`),
		"duplicates":          one(`{"host":"be-2.internal","brpc_port":1,"compute_group_id":"a"},{"host":"BE-2.internal","brpc_port":1,"compute_group_id":"b"}`),
		"negative count":      `{"candidates":[],"consecutive_all_miss":-1}`,
		"negative time":       `{"candidates":[],"cooldown_until_ms":-1}`,
		"count as text":       `{"candidates":[],"consecutive_all_miss":"1"}`,
		"too many":            one(strings.TrimSuffix(strings.Repeat(`{"host":"10.0.0.3","brpc_port":1,"compute_group_id":"a"},`, 40), ",")),
		"100,000":             one(strings.TrimSuffix(strings.Repeat(`{"host":"10.0.0.3","brpc_port":1,"compute_group_id":"a"},`, 100_000), ",")),
		"deep":                strings.Repeat(`{"candidates":[`, 2000),
		"deep lists":          strings.Repeat("[", 60_000),
	}
	for name, body := range bodies {
		status, answer := n.ask("POST", "/api/peer_cache?op=set&tablet_id=1", body)
		if status < 400 || status > 499 || !strings.Contains(answer, `"code"`) {
			t.Errorf("body %s: %d %s", name, status, answer)
		}
	}
	for _, target := range []string{
		"/api/peer_cache?op=set", "/api/peer_cache?op=remove", "/api/peer_cache?op=reset_cooldown&tablet_id=",
		"/api/peer_cache?op=remove&tablet_id=-1", "/api/peer_cache?op=remove&tablet_id=9223372036854775808",
		"/api/peer_cache?op=remove&tablet_id=1e3", "/api/peer_cache?op=remove&tablet_id=%2B1", "/api/peer_cache?op=remove&tablet_id=0x1",
		"/api/peer_cache?op=REMOVE&tablet_id=1", "/api/update_config", "/api/update_config?=1", "/api/update_config?x",
	} {
		if status, answer := n.ask("POST", target, "{}"); status < 400 || status > 499 {
			t.Errorf("POST %s: %d %s", target, status, answer)
		}
	}
	for _, target := range []string{
		"/api/peer_cache?op=set&tablet_id=1", "/api/peer_cache?op=remove&tablet_id=1", "/api/peer_cache?op=reset_cooldown&tablet_id=1",
		"/api/update_config?peer_race_hedge_delay_ms=1",
	} {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			resp, _ := n.answer(method, target, "")
			if resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
				t.Errorf("%s %s: %d, Allow: %s", method, target, resp.StatusCode, resp.Header.Get("Allow"))
			}
		}
	}
	if _, after := n.ask("GET", "/api/peer_cache?op=show_all", ""); after != before {
		t.Errorf("the candidates have changed:\n%s\nbefore:\n%s", after, before)
	}
	if _, after := n.ask("GET", "/api/show_config", ""); after != config {
		t.Error("the configuration has changed")
	}
}

func TestSE02_CandidatesLieInTheNetworksAllowed(t *testing.T) {
	set := func(n *nodeUnderTest, host string) (int, string) {
		body := fmt.Sprintf(`{"candidates":[{"host":%q,"brpc_port":8060,"compute_group_id":"a"}]}`, host)
		return n.ask("POST", "/api/peer_cache?op=set&tablet_id=1", body)
	}
	always := []string{
		"169.254.169.254", "169.254.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "10.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.2",
		"fe80::1", "fe80::1%lo", "fd00:ec2::254", "::", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "metadata.internal",
		"file:", "file:///etc/passwd", "http://10.0.0.2", "user@10.0.0.2", "10.0.0.2\n", "10.0.0.2\r\nHost: x", "10.0.0.2/24", " 10.0.0.2", "a b", "-x", "ü.example", "a..b",
	}
	for name, tc := range map[string]struct {
		keys     map[string]string
		yes, not []string
	}{
		"no list":           {nil, []string{"10.0.0.2", "192.0.2.7", "127.0.0.1", "be-2.internal", "not-there.internal"}, []string{"fd00::2"}},
		"no list, own IPv6": {map[string]string{"host": "fd00::1"}, []string{"10.0.0.2", "fd00::2"}, nil},
		"list": {map[string]string{"peer_candidate_allowed_networks": "10.0.0.0/8, 192.0.2.7, fd00::/64"},
			[]string{"10.0.0.2", "10.255.255.255", "192.0.2.7", "fd00::2"},
			[]string{"11.0.0.1", "192.0.2.8", "127.0.0.1", "localhost", "be-2.internal", "fd00:1::2", "::1"}},
		"list of everything": {map[string]string{"peer_candidate_allowed_networks": "0.0.0.0/0, ::/0"}, []string{"127.0.0.1", "::1"}, []string{"be-2.internal"}},
	} {
		n := startBE(t, tc.keys)
		for _, host := range tc.yes {
			if status, body := set(n, host); status != 200 {
				t.Errorf("%s: %q: %d %s", name, host, status, body)
			}
		}
		_, before := n.ask("GET", "/api/peer_cache?op=show&tablet_id=1", "")
		for _, host := range slices.Concat(tc.not, always) {
			if status, body := set(n, host); status != 400 {
				t.Errorf("%s: %q: %d %s", name, host, status, body)
			}
		}
		if _, after := n.ask("GET", "/api/peer_cache?op=show&tablet_id=1", ""); after != before {
			t.Errorf("%s: a refused host has changed the tablet:\n%s", name, after)
		}
		if log := n.log.String(); !strings.Contains(log, "refused candidates set by hand") || strings.Contains(log, "\nHost: x") {
			t.Errorf("%s: the log says nothing, or too much", name)
		}
	}
}

func TestSE02_TheListFollowsItsKey(t *testing.T) {
	n := startBE(t, nil)
	body := `{"candidates":[{"host":"10.0.0.2","brpc_port":8060,"compute_group_id":"a"}]}`
	for _, step := range []struct {
		networks string
		want     int
	}{{"192.0.2.0/24", 400}, {"10.0.0.0/24", 200}, {"", 200}} {
		if status, answer := n.ask("POST", "/api/update_config?peer_candidate_allowed_networks="+step.networks, ""); status != 200 {
			t.Fatalf("update: %d %s", status, answer)
		}
		if status, answer := n.ask("POST", "/api/peer_cache?op=set&tablet_id=1", body); status != step.want {
			t.Errorf("with %q: %d %s", step.networks, status, answer)
		}
	}
}
