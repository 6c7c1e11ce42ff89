package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"headstart/engine/block"
	"headstart/engine/timeline"
)

func TestSlowReadsOverHTTP(t *testing.T) {
	n := startBE(t, map[string]string{"slow_read_threshold_ms": "0"})
	n.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: "k"}, make([]byte, 3*testBlock))
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for range 2 { // the second one hits
		n.ask("GET", "/read?path=k&tablet_id=7&query_id=q1&offset=10&size=100", "", "Traceparent: 00-"+id+"-"+parent+"-00")
	}
	n.ask("GET", "/read?path=missing", "", "Traceparent: nonsense")
	var got struct {
		Reads []timeline.View `json:"slow_reads"`
	}
	status, body := n.ask("GET", "/api/slow_reads", "")
	must(t, json.Unmarshal([]byte(body), &got))
	if status != 200 || len(got.Reads) != 2 {
		t.Fatalf("%d %s", status, body)
	}
	failed, slow := got.Reads[0], got.Reads[1]
	if failed.Error == "" || failed.TraceID != "" {
		t.Errorf("%+v", failed)
	}
	if slow.TraceID != id || slow.ParentID != parent || len(slow.SpanID) != 16 || slow.QueryID != "q1" ||
		slow.Object != "s3://bucket/k" || slow.Route != "tablet 7" || slow.Offset != 10 || slow.Size != 100 {
		t.Errorf("%+v", slow)
	}
	_, text := n.ask("GET", "/api/slow_reads?format=text&limit=1", "")
	if !strings.Contains(text, "s3://bucket/missing") {
		t.Errorf("%s", text)
	}
	if _, text = n.ask("GET", "/api/slow_reads?format=text", ""); !strings.Contains(text, "trace "+id) || !strings.Contains(text, "checksum made") {
		t.Errorf("%s", text)
	}
	for _, target := range []string{"?format=xml", "?limit=0", "?limit=1001", "?limit=x"} {
		if status, _ := n.ask("GET", "/api/slow_reads"+target, ""); status != 400 {
			t.Errorf("%s: %d", target, status)
		}
	}
	if _, text := n.ask("GET", "/metrics", ""); !strings.Contains(text, `headstart_reads_kept_total{why="slow"} 2`) {
		t.Error("the kept reads are not counted")
	}
	n.ask("POST", "/api/update_config?slow_read_threshold_ms=-1&slow_read_sample_per_million=0", "")
	n.ask("GET", "/read?path=k2", "")
	if _, now := n.ask("GET", "/api/slow_reads", ""); now != body {
		t.Errorf("a read was kept though none should be:\n%s", now)
	}
}
