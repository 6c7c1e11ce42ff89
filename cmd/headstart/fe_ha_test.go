package main

import (
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"headstart/cmd/config"
	"headstart/engine/block"
	"headstart/shards/placement/store/etcdtest"
)

// feProcess is an FE that can be killed.
type feProcess struct {
	*demoNode
	db *sql.DB
}

func startFEProcess(t *testing.T, etcd string, n int) *feProcess {
	t.Helper()
	dir := filepath.Join(t.TempDir(), fmt.Sprint("fe", n))
	conf := fmt.Sprintf("host = 127.0.0.1\nhttp_port = 0\nrpc_port = 0\nquery_port = 0\nheartbeat_interval_ms = 50\nheartbeat_timeout_ms = 60000\nfe_store = etcd://%s/test\n", etcd)
	exe, err := os.Executable()
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "fe.conf"), []byte(conf), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	node, err := startNode(exe, "fe", filepath.Base(dir), "", dir, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !node.gone() {
			node.terminate()
		}
		node.reap()
	})
	if err := node.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &feProcess{node, openPort(t, node.ports.QueryPort, "root", "")}
}

// leaderOf waits until one of the FEs that live leads, and returns it and another.
func leaderOf(t *testing.T, fes []*feProcess) (leader, other *feProcess) {
	t.Helper()
	var living []*feProcess
	for _, f := range fes {
		if !f.gone() {
			living = append(living, f)
		}
	}
	until(t, living[0].db, "SHOW FRONTENDS", func(lines []string) bool {
		leader = nil
		for _, f := range living {
			if len(lines) > 0 && strings.Split(lines[0], "|")[3] == strconv.Itoa(f.ports.QueryPort) {
				leader = f
			}
		}
		return leader != nil
	})
	for _, f := range living {
		if f != leader {
			other = f
		}
	}
	return leader, other
}

// TestS86_TheLeaderIsKilledInTheMiddle: three FEs share an etcd. The one that
// leads is killed (kill -9) while a warm-up job runs, and the next one while
// tablets move; job and move end correctly under the third.
func TestS86_TheLeaderIsKilledInTheMiddle(t *testing.T) {
	if testing.Short() {
		t.Skip("three FEs, an etcd and two deadlines of leases take half a minute")
	}
	const files = 24
	s3, etcd, fes, endpoints := warehouse(t, files), etcdtest.Start(t), []*feProcess(nil), []string(nil)
	for i := range 3 {
		fes = append(fes, startFEProcess(t, etcd, i))
		endpoints = append(endpoints, fmt.Sprintf("127.0.0.1:%d", fes[i].ports.RPCPort))
	}
	newBE := func(group string, rate int) *be {
		return patientBE(t, nil, s3, map[string]string{
			"fe_endpoints": strings.Join(endpoints, ","), "compute_group_id": group, "warm_up_from_peer": "true",
			"file_cache_warmup_download_rate_limit_bytes_per_second": strconv.Itoa(rate),
		})
	}
	writer, reader := newBE("cg_w", 0), newBE("cg_r", 10*mib)
	for _, f := range fes {
		until(t, f.db, "SHOW BACKENDS", alive(2)) // every FE answers
	}
	for i := range files {
		cacheFile(t, writer, i)
	}
	writer.reporter.stop()
	writer.reporter.report(t.Context(), time.Now())

	leader, other := leaderOf(t, fes)
	for _, f := range fes { // what one of them has been told of, all know a moment later
		until(t, f.db, "SHOW TABLETS FROM "+backendID(t, f.db, writer), func(lines []string) bool { return len(lines) == files })
	}
	if _, err := other.db.Exec("ALTER COMPUTE GROUP cg_r PROPERTIES ('balance_type' = 'sync_warmup')"); err != nil {
		t.Fatal(err)
	}
	job := rows(t, other.db, "WARM UP COMPUTE GROUP cg_r WITH COMPUTE GROUP cg_w")[0]
	show := "SHOW WARM UP JOB WHERE id = " + job
	until(t, other.db, show, func(lines []string) bool { return strings.Contains(lines[0], "|RUNNING|") })
	leader.kill()
	killed := time.Now()
	until(t, other.db, show, func(lines []string) bool { return strings.Contains(lines[0], "|FINISHED|") })
	t.Logf("the job ended %.1f s after its leader was killed: %q", time.Since(killed).Seconds(), rows(t, other.db, show))
	for i := range files {
		if src := readFile(t, reader, i); src != block.SourceLocal {
			t.Errorf("tablet %d of the job comes from %v", i, src)
		}
	}

	leader, other = leaderOf(t, fes)
	second := newBE("cg_r", 4*mib)
	until(t, other.db, "SHOW COMPUTE GROUPS", func(lines []string) bool { return strings.Contains(lines[0], "|RUNNING|") })
	leader.kill()
	killed = time.Now()
	groups := until(t, other.db, "SHOW COMPUTE GROUPS", func(lines []string) bool { return strings.Contains(lines[0], "|FINISHED|") })
	t.Logf("the balance ended %.1f s after its leader was killed", time.Since(killed).Seconds())
	cells := strings.Split(groups[0], "|")
	moved := rows(t, other.db, "SHOW TABLETS FROM "+backendID(t, other.db, second))
	if cells[9] != strconv.Itoa(len(moved)) || cells[10] != cells[9] || len(moved) == 0 {
		t.Errorf("%s of %s tablets were moved, %d are there: one twice or not at all", cells[9], cells[10], len(moved))
	}
	for _, line := range moved {
		id, _, _ := strings.Cut(line, "|")
		tablet, _ := strconv.Atoi(id)
		if src := readFile(t, second, tablet); src != block.SourceLocal {
			t.Errorf("tablet %d, which was moved, comes from %v", tablet, src)
		}
	}
}

// backendID returns the number of a BE.
func backendID(t *testing.T, db *sql.DB, b *be) string {
	t.Helper()
	for _, line := range rows(t, db, "SHOW BACKENDS") {
		if cells := strings.Split(line, "|"); cells[5] == strconv.Itoa(b.line.BrpcPort) {
			return cells[0]
		}
	}
	t.Fatal("the BE is not registered")
	return ""
}

// TestS86_EtcdOverTLS: an FE shows etcd its certificate and believes only etcd's
// own authority.
func TestS86_EtcdOverTLS(t *testing.T) {
	files := certificate(t, t.TempDir())
	ca, cert, key := files["peer_tls_ca_path"], files["peer_tls_cert_path"], files["peer_tls_key_path"]
	at := etcdtest.StartTLS(t, ca, cert, key)
	values := map[string]string{
		"fe_store": "etcds://" + at + "/test", "fe_store_tls_ca_path": ca, "fe_store_tls_cert_path": cert, "fe_store_tls_key_path": key,
	}
	_, db := startTestFE(t, maps.Clone(values))
	if got := until(t, db, "SHOW FRONTENDS", func(lines []string) bool { return len(lines) == 1 }); !strings.HasPrefix(got[0], "127.0.0.1:") {
		t.Errorf("%q", got)
	}
	for key, value := range map[string]string{"fe_store": "etcd://" + at, "fe_store_tls_key_path": "", "fe_store_user": "root"} {
		wrong := maps.Clone(values)
		wrong[key] = value
		if _, err := config.FromMap(config.FE, wrong); err == nil || !strings.Contains(err.Error(), "fe_store") {
			t.Errorf("%s = %q: %v", key, value, err)
		}
	}
	values["fe_store_tls_ca_path"] = key // no certificate in it
	conf, err := config.FromMap(config.FE, values)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&fe{conf: conf}).etcdTLS(); err == nil || !strings.Contains(err.Error(), "fe_store_tls_ca_path") {
		t.Errorf("%v", err)
	}
}
