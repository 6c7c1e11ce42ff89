package placement_test

import (
	"errors"
	"strings"
	"testing"

	"headstart/shards/placement"
)

func TestS80_UnusableHeartbeatIsRefusedAndSaysWhy(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*placement.Heartbeat)
	}{
		{`host ""`, func(h *placement.Heartbeat) { h.Host = "" }},
		{`host "0.0.0.0"`, func(h *placement.Heartbeat) { h.Host = "0.0.0.0" }},
		{`host "::"`, func(h *placement.Heartbeat) { h.Host = "::" }},
		{`host "224.0.0.1"`, func(h *placement.Heartbeat) { h.Host = "224.0.0.1" }},
		{`metadata service`, func(h *placement.Heartbeat) { h.Host = "169.254.169.254" }},
		{`metadata service`, func(h *placement.Heartbeat) { h.Host = "::ffff:169.254.169.254" }},
		{`host "10.0.0.300"`, func(h *placement.Heartbeat) { h.Host = "10.0.0.300" }},
		{`without port`, func(h *placement.Heartbeat) { h.Host = "be1:8060" }},
		{`without port, brackets`, func(h *placement.Heartbeat) { h.Host = "[::1]" }},
		{`scheme`, func(h *placement.Heartbeat) { h.Host = "file:///etc" }},
		{`want a host name`, func(h *placement.Heartbeat) { h.Host = "user@be1" }},
		{`want a host name`, func(h *placement.Heartbeat) { h.Host = "be1\nbe2" }},
		{`want a host name`, func(h *placement.Heartbeat) { h.Host = "-be1" }},
		{`want a host name`, func(h *placement.Heartbeat) { h.Host = strings.Repeat("a", 64) }},
		{`longer than 253`, func(h *placement.Heartbeat) { h.Host = strings.Repeat("a.", 200) + "b" }},
		{`brpc_port 0`, func(h *placement.Heartbeat) { h.BrpcPort = 0 }},
		{`brpc_port 65536`, func(h *placement.Heartbeat) { h.BrpcPort = 65536 }},
		{`webserver_port -1`, func(h *placement.Heartbeat) { h.HTTPPort = -1 }},
		{`be_port 70000`, func(h *placement.Heartbeat) { h.BePort = 70000 }},
		{`heartbeat_service_port 70000`, func(h *placement.Heartbeat) { h.HeartbeatPort = 70000 }},
		{`arrow_flight_sql_port 70000`, func(h *placement.Heartbeat) { h.ArrowFlightSQLPort = 70000 }},
		{`compute_group_id ""`, func(h *placement.Heartbeat) { h.GroupID = "" }},
		{`compute_group_id "a b"`, func(h *placement.Heartbeat) { h.GroupID = "a b" }},
		{`compute_group_id`, func(h *placement.Heartbeat) { h.GroupID = strings.Repeat("g", 257) }},
		{`compute_group_name`, func(h *placement.Heartbeat) { h.GroupName = "a\x00" }},
		{`cloud_unique_id`, func(h *placement.Heartbeat) { h.CloudUniqueID = "\xff" }},
		{`location`, func(h *placement.Heartbeat) { h.Location = strings.Repeat("l", 257) }},
		{`version`, func(h *placement.Heartbeat) { h.Version = "1\t2" }},
		{`node id is empty`, func(h *placement.Heartbeat) { h.NodeID = "" }},
		{`negative`, func(h *placement.Heartbeat) { h.CacheCapacityBytes = -1 }},
	} {
		h := beat("be1", "cg1")
		c.change(&h)
		err := h.Validate()
		if !errors.Is(err, placement.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want an ErrInvalid that names %q", err, c.want)
		}
	}
	for _, host := range []string{"be1", "BE-1.example.com", "10.0.0.1", "::1", "fd00::1", "127.0.0.1", "a_b.svc"} {
		h := beat(host, "cg1")
		if err := h.Validate(); err != nil {
			t.Errorf("host %q: %v", host, err)
		}
	}
}
