package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"headstart/bench/s3law"
	"headstart/engine/block"
)

const mib = 1 << 20

// warehouse is object storage with files of two blocks.
func warehouse(t *testing.T, files int) *s3law.Server {
	t.Helper()
	var objects []s3law.Object
	for i := range files {
		data := make([]byte, 2*mib)
		for j := range data {
			data[j] = byte(i + j/mib)
		}
		objects = append(objects, s3law.Object{Key: fmt.Sprintf("hot/%03d.dat", i), Data: data})
	}
	s, err := s3law.Start(s3law.Options{Bucket: "b", Objects: objects})
	if err != nil {
		t.Fatal(err)
	}
	s.Enable(false) // no latency
	t.Cleanup(func() { s.Close() })
	return s
}

// cachingBE starts a BE with a File Cache of its own.
func cachingBE(t testing.TB, f *fe, s *s3law.Server, values map[string]string) *be {
	t.Helper()
	values["s3_endpoint"] = s.URL()
	values["enable_file_cache"] = "true"
	values["file_cache_path"] = fmt.Sprintf(`[{"path":%q,"total_size":%d}]`, t.TempDir(), 256*mib)
	return startTestBE(t, f, values)
}

// patientBE is a cachingBE that a busy machine does not drive away from its peers.
func patientBE(t *testing.T, f *fe, s *s3law.Server, values map[string]string) *be {
	t.Helper()
	all := patient()
	maps.Copy(all, values)
	return cachingBE(t, f, s, all)
}

// readFile reads the file of a tablet and checks it.
func readFile(t *testing.T, b *be, tablet int) block.Source {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dst := make([]byte, 2*mib)
	n, src, err := b.engine.Read(ctx, &block.Read{
		Object: block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprintf("hot/%03d.dat", tablet)}, Version: block.Immutable, Route: block.TabletRoute(int64(tablet)),
	}, dst)
	if err != nil || n != len(dst) || dst[0] != byte(tablet) || dst[n-1] != byte(tablet+1) {
		t.Fatalf("tablet %d: %d bytes, %v", tablet, n, err)
	}
	return src
}

// cacheFile reads a file until it comes from the cache: a busy disk may refuse a
// block.
func cacheFile(t *testing.T, b *be, tablet int) {
	t.Helper()
	for readFile(t, b, tablet) != block.SourceLocal {
		if err := b.cache.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// webText returns what a BE answers at its webserver_port.
func webText(t *testing.T, b *be, path string) string {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", b.line.WebserverPort, path))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func alive(n int) func([]string) bool {
	return func(lines []string) bool {
		up := 0
		for _, l := range lines {
			if strings.Split(l, "|")[9] == "true" {
				up++
			}
		}
		return up == n
	}
}

// TestS85_WarmUpFromAMySQLClient: one group is warmed up with what another has,
// by a statement, and then by a prefix.
func TestS85_WarmUpFromAMySQLClient(t *testing.T) {
	const files = 20
	s3 := warehouse(t, files)
	f, db := startTestFE(t, map[string]string{})
	writer := patientBE(t, f, s3, map[string]string{"compute_group_id": "cg_w", "compute_group_name": "writers"})
	reader := patientBE(t, f, s3, map[string]string{"compute_group_id": "cg_r", "compute_group_name": "readers", "warm_up_from_peer": "true"})
	until(t, db, "SHOW BACKENDS", alive(2))
	for i := range files {
		cacheFile(t, writer, i)
	}
	writer.reporter.stop()
	writer.reporter.report(t.Context(), time.Now()) // what it does every ten seconds
	gets := s3.Metrics().GETs
	job := rows(t, db, "WARM UP COMPUTE GROUP readers WITH COMPUTE GROUP writers")[0]
	done := until(t, db, "SHOW WARM UP JOB WHERE id = "+job, func(lines []string) bool { return strings.Contains(lines[0], "|FINISHED|") })
	if cells := strings.Split(done[0], "|"); cells[8] != cells[9] || cells[14] != "40" || cells[15] != "40.000 MB" || cells[11] != "" {
		t.Errorf("%q", done)
	}
	if now := s3.Metrics().GETs; now != gets {
		t.Errorf("%d requests to object storage for what a BE has", now-gets)
	}
	for i := range files {
		if src := readFile(t, reader, i); src != block.SourceLocal {
			t.Errorf("tablet %d comes from %v", i, src)
		}
	}
	if text := webText(t, reader, "/metrics"); !strings.Contains(text, "\nheadstart_warm_up_blocks_total{source=\"peer\"} 40\n") ||
		!strings.Contains(text, "\nheadstart_warm_up_bytes_total{source=\"peer\"} 41943040\n") || !strings.Contains(text, "\nheadstart_warm_up_batches_failed_total 0\n") {
		t.Errorf("the metrics of the BE that was warmed up:\n%s", text)
	}
	job = rows(t, db, "WARM UP COMPUTE GROUP readers WITH PREFIX 's3://b/hot/00'")[0]
	done = until(t, db, "SHOW WARM UP JOB WHERE id = "+job, func(lines []string) bool { return strings.Contains(lines[0], "|FINISHED|") })
	if cells := strings.Split(done[0], "|"); cells[14] != "20" || cells[11] != "" {
		t.Errorf("ten objects outside tablets: %q", done)
	}
}

// TestS83_ScaleOutWarmsTheNewBackend: a second BE joins a group; its share of the
// tablets comes from the first one's cache, before it is handed out.
func TestS83_ScaleOutWarmsTheNewBackend(t *testing.T) {
	const files = 30
	s3 := warehouse(t, files)
	f, db := startTestFE(t, map[string]string{"balance_type": "sync_warmup"})
	first := patientBE(t, f, s3, map[string]string{"enable_cache_read_from_peer": "true"})
	until(t, db, "SHOW BACKENDS", alive(1))
	for i := range files {
		cacheFile(t, first, i)
	}
	until(t, db, "SHOW TABLETS FROM 10001", func(lines []string) bool { return len(lines) == files })
	gets := s3.Metrics().GETs
	second := patientBE(t, f, s3, map[string]string{"warm_up_from_peer": "true"})
	until(t, db, "SHOW COMPUTE GROUPS", func(lines []string) bool { return strings.Contains(lines[0], "|FINISHED|") })
	moved := rows(t, db, "SHOW TABLETS FROM 10002")
	if len(moved) < files/6 || len(moved) > files*5/6 {
		t.Errorf("%d of %d tablets have moved", len(moved), files)
	}
	if now := s3.Metrics().GETs; now != gets {
		t.Errorf("%d requests to object storage", now-gets)
	}
	for _, line := range moved {
		var tablet, id int
		fmt.Sscanf(line, "%d|%d", &tablet, &id)
		if src := readFile(t, second, tablet); src != block.SourceLocal {
			t.Errorf("tablet %d comes from %v", tablet, src)
		}
		if view, ok := second.table.Show(block.TabletRoute(int64(tablet))); !ok || view.Candidates[0].Port != first.line.BrpcPort {
			t.Errorf("S84: the source of tablet %d is not its first candidate: %+v", tablet, view)
		}
	}
	// And back: the second one is taken out of the group.
	if _, err := db.Exec("ALTER SYSTEM DECOMMISSION BACKEND 10002"); err != nil {
		t.Fatal(err)
	}
	until(t, db, "SHOW TABLETS FROM 10001", func(lines []string) bool { return len(lines) == files })
	until(t, db, "SHOW COMPUTE GROUPS", func(lines []string) bool { return strings.Contains(lines[0], "|FINISHED|") })
}
