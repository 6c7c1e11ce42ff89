package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"headstart/cmd/config"
	"headstart/pools"
)

// inProcess runs a node in this process until the test ends.
func inProcess(t testing.TB, r role, values map[string]string) node {
	t.Helper()
	for key, value := range map[string]string{"host": "127.0.0.1", "heartbeat_interval_ms": "20"} {
		if _, ok := values[key]; !ok {
			values[key] = value
		}
	}
	conf, err := config.FromMap(r.role, values)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	conf.LogTo(log)
	if r.role == config.BE {
		r.start = func(ctx context.Context, conf *config.Set, log *slog.Logger) (node, error) {
			return startPatient(ctx, conf, log)
		}
	}
	n, err := r.start(t.Context(), conf, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.drain(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

func startTestFE(t testing.TB, values map[string]string) (*fe, *sql.DB) {
	t.Helper()
	for _, key := range []string{"http_port", "rpc_port", "query_port"} {
		values[key] = "0"
	}
	values["meta_dir"] = t.TempDir()
	f := inProcess(t, feRole(), values).(*fe)
	return f, openFE(t, f, "root", values["admin_token"])
}

func openFE(t testing.TB, f *fe, user, password string) *sql.DB {
	t.Helper()
	return openPort(t, f.line.QueryPort, user, password)
}

func openPort(t testing.TB, port int, user, password string) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd = "tcp", fmt.Sprintf("127.0.0.1:%d", port), user, password
	connector, err := driver.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func startTestBE(t testing.TB, f *fe, values map[string]string) *be {
	t.Helper()
	if f != nil {
		values["fe_endpoints"] = fmt.Sprintf("127.0.0.1:%d", f.line.RPCPort)
	}
	for key, value := range map[string]string{
		"webserver_port": "0", "brpc_port": "0", "s3_port": "0",
		"s3_endpoint": "http://127.0.0.1:1", "s3_bucket": "b", "s3_access_key": "a", "s3_secret_key": "b",
		"enable_file_cache": "false", "compute_group_id": "cg_write_01", "compute_group_name": "write_group",
	} {
		if _, ok := values[key]; !ok {
			values[key] = value
		}
	}
	return inProcess(t, beRole(), values).(*be)
}

// rows returns all rows of a statement, a line each.
func rows(t testing.TB, db *sql.DB, statement string) []string {
	t.Helper()
	result, err := db.QueryContext(t.Context(), statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer result.Close()
	columns, err := result.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for result.Next() {
		cells, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range cells {
			to[i] = &cells[i]
		}
		if err := result.Scan(to...); err != nil {
			t.Fatal(err)
		}
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = c.String
		}
		lines = append(lines, strings.Join(texts, "|"))
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// until repeats a statement until ok is content with its rows.
func until(t testing.TB, db *sql.DB, statement string, ok func([]string) bool) []string {
	t.Helper()
	var lines []string
	if !poll(func() bool { lines = rows(t, db, statement); return ok(lines) }) {
		t.Fatalf("%s: still %q", statement, lines)
	}
	return lines
}

// TestS63_ConfigurationFromAMySQLClient: what the reference's user types works
// against real nodes, with a token between them.
func TestS63_ConfigurationFromAMySQLClient(t *testing.T) {
	f, db := startTestFE(t, map[string]string{"cluster_token": "secret", "admin_token": "people"})
	b := startTestBE(t, f, map[string]string{"cluster_token": "secret", "admin_token": "people"})
	until(t, db, "SHOW BACKENDS", func(lines []string) bool { return len(lines) == 1 && strings.Contains(lines[0], "|true|") })
	limit, err := pools.MemoryLimit(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%.3f GB", float64(limit.Bytes)/(1<<30))
	if cells := strings.Split(rows(t, db, "SHOW BACKENDS")[0], "|"); cells[25] != want {
		t.Errorf("S82: Memory is %q, this process may use %q", cells[25], want)
	}
	const show = "SHOW BACKEND CONFIG LIKE 'enable_cache_read_from_peer'"
	if got := rows(t, db, show); len(got) != 1 || got[0] != "10001|127.0.0.1|enable_cache_read_from_peer|false|bool|true" {
		t.Errorf("%q", got)
	}
	if got := rows(t, db, "SHOW BACKEND CONFIG LIKE 'cluster_token' FROM 10001"); len(got) != 1 || strings.Contains(got[0], "secret") {
		t.Errorf("a secret is shown: %q", got)
	}
	if _, err := db.Exec("ADMIN SET ALL BACKENDS CONFIG ('enable_cache_read_from_peer' = 'true')"); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, db, show); got[0] != "10001|127.0.0.1|enable_cache_read_from_peer|true|bool|true" || !b.conf.Bool("enable_cache_read_from_peer") {
		t.Errorf("%q", got)
	}
	_, err = db.Exec("ADMIN SET BACKEND 10001 CONFIG ('peer_race_hedge_delay_ms' = '-5', 'enable_peer_s3_race' = 'false')")
	if err == nil || !strings.Contains(err.Error(), "peer_race_hedge_delay_ms") || !b.conf.Bool("enable_peer_s3_race") {
		t.Errorf("a value out of range: %v", err)
	}
	if err := openFE(t, f, "root", "").Ping(); err == nil {
		t.Error("root without the admin_token gets in")
	}
}

// TestS65_ABackendWithoutATokenTakesNoOrdersBehindPeoplesBack: who asks people
// for an admin_token is not changed by just any process.
func TestS65_ABackendWithoutATokenTakesNoOrdersBehindPeoplesBack(t *testing.T) {
	f, db := startTestFE(t, map[string]string{})
	b := startTestBE(t, f, map[string]string{"admin_token": "people"})
	until(t, db, "SHOW BACKENDS", func(lines []string) bool { return len(lines) == 1 })
	_, err := db.Exec("ADMIN SET ALL BACKENDS CONFIG ('enable_cache_read_from_peer' = 'true')")
	if err == nil || !strings.Contains(err.Error(), "admin_token") || b.conf.Bool("enable_cache_read_from_peer") {
		t.Error(err)
	}
}

func TestQueryUsers(t *testing.T) {
	f, _ := startTestFE(t, map[string]string{"query_users": "ann:x, bob:y:read", "admin_token": "z"})
	for _, tt := range []struct {
		user, password string
		in, changes    bool
	}{{"ann", "x", true, true}, {"bob", "y", true, false}, {"root", "z", false, false}} {
		db := openFE(t, f, tt.user, tt.password)
		if err := db.Ping(); (err == nil) != tt.in {
			t.Errorf("%s: %v", tt.user, err)
		}
		if _, err := db.Exec("ADMIN SET FRONTEND CONFIG ('heartbeat_timeout_ms' = '9000')"); (err == nil) != tt.changes {
			t.Errorf("%s: %v", tt.user, err)
		}
	}
	if err := f.conf.Update(map[string]string{"query_users": ""}, false); err != nil {
		t.Fatal(err)
	}
	if err := openFE(t, f, "root", "z").Ping(); err != nil {
		t.Errorf("root with the admin_token: %v", err)
	}
}
