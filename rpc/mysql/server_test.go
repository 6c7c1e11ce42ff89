package mysql

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"vitess.io/vitess/go/mysql"

	"headstart/engine/block"
)

func TestS82_ShowBackends(t *testing.T) {
	f := newFE(t, nil)
	f.beat("10.0.0.1", "cg_write_01")
	db := f.open("root", "", "")
	prepared, err := db.Prepare("SHOW BACKENDS")
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Close()
	for protocol, got := range map[string]string{"text": query(db, "SHOW BACKENDS"), "binary": lines(prepared.Query())} {
		lines := strings.Split(strings.TrimSpace(got), "\n")
		if len(lines) != 2 {
			t.Fatalf("%s: %s", protocol, got)
		}
		const columns = "BackendId|Host|HeartbeatPort|BePort|HttpPort|BrpcPort|ArrowFlightSqlPort|LastStartTime|LastHeartbeat|Alive|" +
			"SystemDecommissioned|TabletNum|DataUsedCapacity|TrashUsedCapacity|AvailCapacity|TotalCapacity|UsedPct|MaxDiskUsedPct|" +
			"RemoteUsedCapacity|Tag|ErrMsg|Version|Status|HeartbeatFailureCounter|CpuCores|Memory|LiveSince|RunningTasks|NodeRole"
		if lines[0] != columns {
			t.Errorf("columns\n%s, want\n%s", lines[0], columns)
		}
		cells := strings.Split(lines[1], "|")
		for _, at := range []int{8, 26} {
			if _, err := time.Parse(time.DateTime, cells[at]); err != nil {
				t.Errorf("column %d: %v", at, err)
			}
			cells[at] = "TIME"
		}
		const want = `10001|10.0.0.1|9050|9060|8040|8060|0|2026-11-30 01:02:03|TIME|true|false|0|25.000 GB|0.000 B|75.000 GB|100.000 GB|25.00 %|25.00 %|` +
			`0.000 B|{"cloud_unique_id" : "1:xxx:yyy", "compute_group_id" : "cg_write_01", "compute_group_name" : "group_write_01", "compute_group_status" : "NORMAL", "location" : "default"}` +
			`||headstart 1|{"isLeaving" : false, "isDecommissioned" : false}|0|8|16.000 GB|TIME|0|computation`
		if got := strings.Join(cells, "|"); got != want {
			t.Errorf("row\n%s, want\n%s", got, want)
		}
	}
}

func TestS83_BalanceTypeOfAGroup(t *testing.T) {
	f := newFE(t, nil)
	f.beat("10.0.0.1", "cg_a")
	db := f.open("root", "", "")
	show := func() string {
		lines := strings.Split(query(db, "SHOW COMPUTE GROUPS"), "\n")
		return strings.Split(lines[1], "|")[4]
	}
	if got := show(); got != "{balance_type=async_warmup, balance_warm_up_task_timeout=300}" {
		t.Error(got)
	}
	if got := query(db, "ALTER COMPUTE GROUP group_a PROPERTIES ('balance_type'='peer_read_async_warmup')"); got != "" {
		t.Error(got)
	}
	if got := query(db, "ALTER COMPUTE GROUP cg_a PROPERTIES ('balance_warm_up_task_timeout'='60')"); got != "" {
		t.Error(got)
	}
	if got := show(); got != "{balance_type=peer_read_async_warmup, balance_warm_up_task_timeout=60}" {
		t.Error(got)
	}
	for _, bad := range []string{"'balance_type'='fast'", "'balance_warm_up_task_timeout'='-1'", "'balance_warm_up_task_timeout'='soon'"} {
		if got := query(db, "ALTER COMPUTE GROUP cg_a PROPERTIES ("+bad+")"); !strings.HasPrefix(got, "error: Error 1105") {
			t.Errorf("%s: %s", bad, got)
		}
	}
	if got := show(); got != "{balance_type=peer_read_async_warmup, balance_warm_up_task_timeout=60}" {
		t.Errorf("a refused change has had an effect: %s", got)
	}
	if len(f.changes) != 2 {
		t.Errorf("told of %d changes, want 2", len(f.changes))
	}
}

func TestS85_JobsAreMadeShownAndCancelled(t *testing.T) {
	f := newFE(t, nil)
	f.beat("10.0.0.1", "cg_a")
	f.beat("10.0.0.2", "cg_b")
	db := f.open("root", "", "")
	const warm = `WARM UP COMPUTE GROUP group_b WITH COMPUTE GROUP group_a PROPERTIES("sync_mode"="periodic", "sync_interval_sec"="600")`
	if got := query(db, warm); got != "JobId\n10003\n" {
		t.Fatal(got)
	}
	if got := query(db, warm); !strings.Contains(got, "job 10003 does the same") {
		t.Error(got)
	}
	if got := query(db, "WARM UP COMPUTE GROUP cg_b WITH PREFIX 's3://warehouse/hot/'"); got != "JobId\n10004\n" {
		t.Error(got)
	}
	got := query(db, "SHOW WARM UP JOB WHERE id = ?", 10003)
	lines := strings.Split(got, "\n")
	const columns = "JobId|SrcComputeGroup|DstComputeGroup|Status|Type|SyncMode|CreateTime|StartTime|FinishBatch|AllBatch|FinishTime|ErrMsg|Tables|ETASeconds|Blocks|Bytes|FailedParts|Warning"
	if lines[0] != columns {
		t.Errorf("columns %s", lines[0])
	}
	if !strings.HasPrefix(lines[1], "10003|group_a|group_b|PENDING|CLUSTER|PERIODIC (600s)|") || len(lines) != 3 {
		t.Error(got)
	}
	if got := query(db, "SHOW WARM UP JOB"); strings.Count(got, "\n") != 3 || !strings.Contains(got, "s3://warehouse/hot/") {
		t.Error(got)
	}
	if got := query(db, "CANCEL WARM UP JOB WHERE id = 10003"); got != "" {
		t.Error(got)
	}
	if got := query(db, "SHOW WARM UP JOB WHERE id = 10003"); !strings.Contains(got, "|CANCELLED|") {
		t.Error(got)
	}
	for _, bad := range []string{
		"CANCEL WARM UP JOB WHERE id = 10003", "CANCEL WARM UP JOB WHERE id = 5", "SHOW WARM UP JOB WHERE id = 5",
		"WARM UP COMPUTE GROUP nobody WITH COMPUTE GROUP cg_a", "WARM UP COMPUTE GROUP cg_a WITH COMPUTE GROUP cg_a",
	} {
		if got := query(db, bad); !strings.HasPrefix(got, "error: Error 1105") {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

func TestS63_ShowAndSetBackendConfig(t *testing.T) {
	f := newFE(t, nil)
	f.beat("10.0.0.1", "cg_a")
	f.beat("10.0.0.2", "cg_a")
	db := f.open("root", "", "")
	if got := query(db, "SHOW BACKEND CONFIG LIKE 'enable_cache_read_from_peer'"); got != `BackendId|Host|Key|Value|Type|IsMutable
10001|10.0.0.1|enable_cache_read_from_peer|false|string|true
10002|10.0.0.2|enable_cache_read_from_peer|true|string|true
` {
		t.Error(got)
	}
	if got := query(db, "SHOW BACKEND CONFIG LIKE 'peer%' FROM 10002"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "10002|") {
		t.Error(got)
	}
	if got := query(db, "ADMIN SET ALL BACKENDS CONFIG ('peer_race_hedge_delay_ms' = '30', 'persist' = 'true')"); got != "" {
		t.Error(got)
	}
	if got := query(db, "SHOW BACKEND CONFIG LIKE 'peer%'"); strings.Count(got, "|30|") != 2 || len(f.nodes.mu.persist) != 2 {
		t.Error(got)
	}
	if got := query(db, "ADMIN SET BACKEND 10001 CONFIG ('no_such_key' = '30')"); !strings.Contains(got, "backend 10001: no_such_key: no such key") {
		t.Error(got)
	}
	if got := query(db, "ADMIN SET FRONTEND CONFIG ('balance_type' = 'sync_warmup')"); got != "" {
		t.Error(got)
	}
	if got := query(db, "SHOW FRONTEND CONFIG"); !strings.Contains(got, "balance_type|sync_warmup|") {
		t.Error(got)
	}
}

func TestS63_ABackendThatDoesNotAnswerHidesNoOther(t *testing.T) {
	f := newFE(t, nil)
	f.beat("10.0.0.1", "cg_a")
	silent := f.beat("10.0.0.9", "cg_a")
	db := f.open("root", "", "")
	if got := query(db, "SHOW BACKEND CONFIG LIKE 'enable%'"); !strings.Contains(got, "10001|10.0.0.1|") {
		t.Error(got)
	}
	if got := query(db, "SHOW BACKEND CONFIG FROM ?", silent); !strings.Contains(got, "backend 10002: connection refused") {
		t.Error(got)
	}
	if got := query(db, "SHOW BACKEND CONFIG FROM 7"); !strings.Contains(got, "unknown backend 7") {
		t.Error(got)
	}
}

func TestBackendsComeAndGo(t *testing.T) {
	f := newFE(t, nil)
	f.beat("10.0.0.1", "cg_a")
	f.beat("10.0.0.2", "cg_a")
	db := f.open("root", "", "")
	decommissioned := func() string {
		return strings.Split(strings.Split(query(db, "SHOW BACKENDS"), "\n")[1], "|")[10]
	}
	for _, step := range []struct{ statement, want, decommissioned string }{
		{"ALTER SYSTEM ADD BACKEND '10.0.0.3:9050'", "starting it with fe_endpoints", "false"},
		{"ALTER SYSTEM ADD BACKEND '10.0.0.1:9050'", "there already, its id is 10001", "false"},
		{"ALTER SYSTEM DECOMMISSION BACKEND '10.0.0.1:9050', '10.0.0.7:9050'", `unknown backend "10.0.0.7:9050"`, "false"},
		{"ALTER SYSTEM DECOMMISSION BACKEND '10.0.0.1:9050'", "", "true"},
		{"ALTER SYSTEM ADD BACKEND '10.0.0.1:9050'", "", "false"},
		{"ALTER SYSTEM DECOMMISSION BACKEND 10001", "", "true"},
		{"CANCEL DECOMMISSION BACKEND '10.0.0.1:8060'", "", "false"},
		{"ALTER SYSTEM DROP BACKEND '10.0.0.1:9050'", "is alive", "false"},
		{"ALTER SYSTEM DROP BACKEND 'nonsense'", "want its id or", "false"},
	} {
		got := query(db, step.statement)
		if step.want == "" && got != "" || !strings.Contains(got, step.want) || decommissioned() != step.decommissioned {
			t.Errorf("%s: %q, decommissioned %s", step.statement, got, decommissioned())
		}
	}
}

func TestShowTablets(t *testing.T) {
	f := newFE(t, nil)
	f.beat("10.0.0.1", "cg_a")
	for id := range int64(5) {
		if _, err := f.directory.Lookup(t.Context(), []block.Route{block.TabletRoute(100 + id)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := query(f.open("root", "", ""), "SHOW TABLETS FROM 10001 LIMIT 2"); got != "TabletId|BackendId\n100|10001\n101|10001\n" {
		t.Error(got)
	}
}

func TestUsersAndPasswords(t *testing.T) {
	f := newFE(t, nil)
	for _, tt := range []struct{ user, password, says string }{
		{"root", "", ""}, {"root", "x", "Access denied"}, {"admin", "se,cr:et", ""}, {"admin", "", "Access denied"},
		{"admin", "secret", "Access denied"}, {"nobody", "", "Access denied"}, {"", "", "Access denied"}, {"viewer", "v", ""},
	} {
		err := f.open(tt.user, tt.password, "").Ping()
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s with password %q: %v", tt.user, tt.password, err)
		}
	}
	viewer := f.open("viewer", "v", "")
	if got := query(viewer, "SHOW BACKENDS"); !strings.HasPrefix(got, "BackendId|") {
		t.Error(got)
	}
	if got := query(viewer, "ADMIN SET FRONTEND CONFIG ('balance_type' = 'x')"); !strings.Contains(got, "Error 1227") {
		t.Error(got)
	}
	f.users.Set([]User{{Name: "root", Password: "new"}})
	if err := f.open("root", "", "").Ping(); err == nil {
		t.Error("the old password still holds")
	}
	if err := f.open("root", "new", "").Ping(); err != nil {
		t.Error(err)
	}
}

// TestTLS: with TLS a client may take either way to prove its password.
func TestTLS(t *testing.T) {
	f := newFE(t, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}})
	db := f.open("admin", "se,cr:et", "?tls=skip-verify")
	if got := query(db, "SELECT 1"); got != "1\n1\n" {
		t.Error(got)
	}
	if err := f.open("admin", "wrong", "?tls=skip-verify").Ping(); err == nil {
		t.Error("a wrong password got in")
	}
	if got := query(f.open("root", "", ""), "SELECT 1"); got != "1\n1\n" {
		t.Errorf("without TLS: %s", got)
	}
}

func TestProofs(t *testing.T) {
	u := NewUsers()
	u.Set([]User{{Name: "admin", Password: "secret"}, {Name: "root"}})
	salt := []byte("twenty bytes of salt")
	from := &net.TCPAddr{}
	for _, tt := range []struct {
		user         string
		native, sha2 []byte
		right        bool
	}{
		{"admin", mysql.ScrambleMysqlNativePassword(salt, []byte("secret")), mysql.ScrambleCachingSha2Password(salt, []byte("secret")), true},
		{"admin", mysql.ScrambleMysqlNativePassword(salt, []byte("Secret")), mysql.ScrambleCachingSha2Password(salt, []byte("Secret")), false},
		{"admin", nil, []byte{0}, false},
		{"root", nil, []byte{0}, true},
		{"root", nil, nil, true},
		{"root", mysql.ScrambleMysqlNativePassword(salt, []byte("x")), mysql.ScrambleCachingSha2Password(salt, []byte("x")), false},
		{"nobody", nil, nil, false},
	} {
		if _, err := (*nativeProof)(u).UserEntryWithHash(nil, salt, tt.user, tt.native, from); (err == nil) != tt.right {
			t.Errorf("%s: native proof %x: %v", tt.user, tt.native, err)
		}
		if _, state, err := (*sha2Proof)(u).UserEntryWithCacheHash(nil, salt, tt.user, tt.sha2, from); (err == nil) != tt.right || (state == mysql.AuthAccepted) != tt.right {
			t.Errorf("%s: sha2 proof %x: %v", tt.user, tt.sha2, err)
		}
	}
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

func TestWhatClientsAskByThemselves(t *testing.T) {
	f := newFE(t, nil)
	db := f.open("root", "", "headstart?charset=utf8mb4&maxAllowedPacket=0")
	for statement, want := range map[string]string{
		"SELECT 1":                            "1\n1\n",
		"select @@version_comment limit 1":    "@@version_comment\nHeadstart FE\n",
		"SELECT DATABASE(), USER()":           "DATABASE()|USER()\nheadstart|root@%\n",
		"SELECT @@autocommit AS a, NULL":      "a|NULL\n1|NULL\n",
		"SHOW VARIABLES LIKE 'version_com%'":  "Variable_name|Value\nversion_comment|Headstart FE\nversion_compile_machine|amd64\nversion_compile_os|Linux\n",
		"SHOW DATABASES":                      "Database\nheadstart\ninformation_schema\n",
		"SHOW WARNINGS":                       "Level|Code|Message\n",
		"SET NAMES utf8mb4":                   "",
		"SELECT ?":                            "error: Error 1064 (42000): question marks are for prepared statements only\n",
		"SELECT 'it''s', \"a\\\"b\" AS `b c`": "it's|b c\nit's|a\"b\n",
	} {
		if got := query(db, statement); got != want {
			t.Errorf("%s: %q, want %q", statement, got, want)
		}
	}
	for _, statement := range []string{"SELECT NOW()", "select current_timestamp() AS t LIMIT 1"} {
		_, text, _ := strings.Cut(query(db, statement), "\n")
		at, err := time.Parse(time.DateTime, strings.TrimSpace(text))
		if age := time.Since(at); err != nil || age < -time.Minute || age > time.Hour {
			t.Errorf("%s: %q (%v)", statement, text, err)
		}
	}
	if got := query(db, "SELECT ?", "größer\x00"); got != "\ngrößer\x00\n" && got != "größer\x00\ngrößer\x00\n" {
		t.Errorf("%q", got)
	}
	if err := f.open("root", "", "elsewhere").Ping(); err == nil || !strings.Contains(err.Error(), "Unknown database") {
		t.Errorf("a database that there isn't: %v", err)
	}
	if got := query(db, "DROP TABLE t"); !strings.Contains(got, "Error 1064") || !strings.Contains(got, "SHOW BACKENDS; SHOW FRONTENDS; ") {
		t.Error(got)
	}
}

// greeted connects and reads the greeting.
func greeted(t *testing.T, f *fe) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.LittleEndian.Uint32(head)&0xffffff)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhoHasNotLoggedInSendsLittle(t *testing.T) {
	f := newFE(t, nil)
	for name, sent := range map[string][]byte{
		"a login of 16 MB":   append([]byte{0xfe, 0xff, 0xff, 1}, make([]byte, 1<<20)...),
		"HTTP":               []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"a login of 2 bytes": {2, 0, 0, 1, 0x85, 0xa6},
		"an empty login":     {0, 0, 0, 1},
		"a short proof":      shortProof(),
	} {
		c := greeted(t, f)
		c.Write(sent)
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: the connection stays: %v", name, err)
		}
	}
	if err := f.open("root", "", "").Ping(); err != nil {
		t.Errorf("after that nobody gets in: %v", err)
	}
}

// shortProof is the login of user admin with a proof of three bytes.
func shortProof() []byte {
	body := binary.LittleEndian.AppendUint32(nil, 0x00088200) // protocol 4.1, native passwords, plugins
	body = append(body, make([]byte, 28)...)
	body = append(body, "admin\x00\x03abcmysql_native_password\x00"...)
	return append([]byte{byte(len(body)), 0, 0, 1}, body...)
}

func TestConnectionsAreBounded(t *testing.T) {
	f := newFE(t, nil)
	for range 20 {
		greeted(t, f)
	}
	if err := f.open("root", "", "").Ping(); err == nil || !strings.Contains(err.Error(), "Too many connections") {
		t.Errorf("connection 21: %v", err)
	}
	if n := f.Conns(); n != 20 {
		t.Errorf("%d connections", n)
	}
}

func TestShutdownEndsIdleSessions(t *testing.T) {
	f := newFE(t, nil)
	db := f.open("root", "", "")
	if err := db.Ping(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if got := query(db, "SHOW BACKENDS"); !strings.HasPrefix(got, "error: ") {
		t.Error(got)
	}
}

// TestMariaDBClient runs the reference's lines with Debian's client.
func TestMariaDBClient(t *testing.T) {
	client, err := exec.LookPath("mariadb")
	if err != nil {
		t.Skip("there is no mariadb client here (Debian: mariadb-client)")
	}
	f := newFE(t, nil)
	f.beat("10.0.0.1", "cg_write_01")
	host, port, _ := net.SplitHostPort(f.addr)
	run := func(statement string) string {
		out, err := exec.CommandContext(t.Context(), client, "--no-defaults", "-h", host, "-P", port, "-u", "admin", "-pse,cr:et", "-e", statement).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", statement, err)
		}
		return string(out)
	}
	out := run(`SHOW BACKENDS\G`)
	for _, want := range []string{
		"*************************** 1. row ***************************\n",
		"              BackendId: 10001\n",
		"                   Host: 10.0.0.1\n",
		`                    Tag: {"cloud_unique_id" : "1:xxx:yyy", "compute_group_id" : "cg_write_01", "compute_group_name" : "group_write_01", "compute_group_status" : "NORMAL", "location" : "default"}` + "\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("SHOW BACKENDS\\G lacks %q:\n%s", want, out)
		}
	}
	if out := run("SHOW BACKEND CONFIG LIKE 'enable_cache_read_from_peer';"); out != "BackendId\tHost\tKey\tValue\tType\tIsMutable\n10001\t10.0.0.1\tenable_cache_read_from_peer\tfalse\tstring\ttrue\n" {
		t.Error(out)
	}
}
