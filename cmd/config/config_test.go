package config

import (
	"bytes"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// write puts a configuration file into a new directory and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "be.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load fails the test when the file can't be loaded.
func load(t *testing.T, path string) *Set {
	t.Helper()
	s, err := Load(BE, path)
	if err != nil {
		t.Fatal(err)
	}
	s.LogTo(slog.New(slog.DiscardHandler))
	return s
}

// defaults returns a Set without a file.
func defaults(t *testing.T, role Role) *Set {
	t.Helper()
	s, err := FromMap(role, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.LogTo(slog.New(slog.DiscardHandler))
	return s
}

func TestDefaultsAreValuesAndKeysAreComplete(t *testing.T) {
	seen := make(map[string]bool)
	for _, section := range Sections() {
		for _, k := range section.Keys {
			if seen[k.Name] {
				t.Errorf("%s is in the registry twice", k.Name)
			}
			seen[k.Name] = true
			v, err := k.Parse(k.Default)
			if err != nil {
				t.Error(err)
			}
			if v.Text() != k.Default {
				t.Errorf("%s: default %q is not in its normal form %q", k.Name, k.Default, v.Text())
			}
			if !strings.HasSuffix(k.Help, ".") || strings.Count(k.Help, ". ") > 0 {
				t.Errorf("%s: help is not one sentence: %q", k.Name, k.Help)
			}
			if (k.check == nil) != (k.Form == "") {
				t.Errorf("%s: a form and its check go together", k.Name)
			}
			if k.Kind == Int && k.Max == 0 {
				t.Errorf("%s: no upper bound", k.Name)
			}
		}
	}
	for _, role := range []Role{BE, FE} {
		if w := defaults(t, role).Warnings(); len(w) != 0 {
			t.Errorf("%s: the defaults give warnings: %q", role, w)
		}
	}
}

func TestS60_FileForms(t *testing.T) {
	path := write(t, "\ufeff# a comment\n\n  brpc_port=18060\r\nwebserver_port   =  18040\n"+
		"\tcluster_token = \"a b#c=d\"\n  # indented comment\nenable_cache_read_from_peer = TRUE")
	s := load(t, path)
	for name, want := range map[string]int64{"brpc_port": 18060, "webserver_port": 18040, "be_port": 9060} {
		if got := s.Int(name); got != want {
			t.Errorf("%s = %d, want %d", name, got, want)
		}
	}
	if got := s.String("cluster_token"); got != "a b#c=d" {
		t.Errorf("cluster_token = %q", got)
	}
	if !s.Bool("enable_cache_read_from_peer") {
		t.Error("enable_cache_read_from_peer = false")
	}
}

func TestS60_CustomFileOverridesTheOther(t *testing.T) {
	path := write(t, "max_concurrent_peer_races = 10\npeer_race_hedge_delay_ms = 10\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "be_custom.conf"), []byte("peer_race_hedge_delay_ms = 11\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := load(t, path)
	if a, b := s.Int("max_concurrent_peer_races"), s.Int("peer_race_hedge_delay_ms"); a != 10 || b != 11 {
		t.Errorf("got %d and %d, want 10 and 11", a, b)
	}
}

func TestLayersOverrideFilesInOrder(t *testing.T) {
	path := write(t, "brpc_port = 1\nwebserver_port = 2\nlocation = file\n")
	fs := flag.NewFlagSet("be", flag.ContinueOnError)
	flags := Flags(fs, BE)
	if err := fs.Parse([]string{"-brpc_port", "5", "-enable_file_cache=false", "-enable_cache_read_from_peer"}); err != nil {
		t.Fatal(err)
	}
	env := Environ([]string{"HEADSTART_BRPC_PORT=3", "HEADSTART_WEBSERVER_PORT=4", "HEADSTART_SERVICE_HOST=10.0.0.1", "HOME=x"})
	s, err := Load(BE, path, env, flags)
	if err != nil {
		t.Fatal(err)
	}
	if a, b, c := s.Int("brpc_port"), s.Int("webserver_port"), s.String("location"); a != 5 || b != 4 || c != "file" {
		t.Errorf("got %d, %d and %q, want 5, 4 and file", a, b, c)
	}
	if s.Bool("enable_file_cache") || !s.Bool("enable_cache_read_from_peer") {
		t.Error("the switches of the command line don't hold")
	}
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "service_host") {
		t.Errorf("warnings %q, want one about service_host", w)
	}
	_, err = Load(BE, "", Environ([]string{"HEADSTART_BRPC_PORT=tcp://10.0.0.1:8060"}))
	if err == nil || !strings.Contains(err.Error(), `environment: brpc_port = "tcp://10.0.0.1:8060": want a whole number from 0 to 65535`) {
		t.Errorf("error %v", err)
	}
}

func TestErrorsNamePlaceKeyValueAndWhatIsRight(t *testing.T) {
	path := write(t, strings.Join([]string{
		"webserver_port = 80a40",
		"enable_cache_read_from_per = true",
		"http_port = 8030",
		"just words",
		"cluster_token = \x01secret",
		"file_cache_path = [{\"path\":\"a\",\"total_size\":\"many\"}]",
		"file_cache_each_block_size = 5000",
		"fe_endpoints = 10.0.0.1",
		"host = 0.0.0.0",
	}, "\n"))
	_, err := Load(BE, path)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		path + `:1: webserver_port = "80a40": want a whole number from 0 to 65535`,
		path + `:2: enable_cache_read_from_per: no such key of be.conf; did you mean enable_cache_read_from_peer?`,
		path + `:3: http_port: no such key of be.conf, only of the other role`,
		path + `:4: want key = value`,
		path + `:5: cluster_token = "******": want text of one line`,
		path + `:6: file_cache_path = `,
		path + `:7: file_cache_each_block_size = "5000": want a whole number from 4096 to 67108864 (bytes), a multiple of 4096`,
		path + `:8: fe_endpoints = "10.0.0.1": want host:port, several separated by commas, or nothing`,
		path + `:9: host = "0.0.0.0": want a host name or IP address that others can reach, without a port`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no line %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("a secret is quoted in\n%v", err)
	}
	for _, kind := range []error{ErrValue, ErrUnknownKey, ErrSyntax} {
		if !errors.Is(err, kind) {
			t.Errorf("error is not also %q", kind)
		}
	}
}

// TestConflictsNamePlaceKeyValueAndWhatIsRight: each rule between two keys is
// broken from two files, and the error still says where to look.
func TestConflictsNamePlaceKeyValueAndWhatIsRight(t *testing.T) {
	path := write(t, strings.Join([]string{
		"file_cache_enter_disk_resource_limit_mode_percent = 50",
		"s3_secret_key = hidden",
		"min_peer_race_s3_thread_num = 64",
		"max_peer_race_s3_thread_num = 32",
		"enable_peer_tls = true",
	}, "\n"))
	custom := customPath(path)
	if err := os.WriteFile(custom, []byte("\nfile_cache_exit_disk_resource_limit_mode_percent = 80\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(BE, path, Environ([]string{"HEADSTART_WEBSERVER_PORT=7", "HEADSTART_BRPC_PORT=7"}))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		custom + `:2: file_cache_exit_disk_resource_limit_mode_percent = "80": together with ` +
			`file_cache_enter_disk_resource_limit_mode_percent = "50" (` + path + `:1): want the first to be below the second`,
		`s3_access_key = "": together with s3_secret_key = "******" (` + path + `:2): want both or neither`,
		path + `:3: min_peer_race_s3_thread_num = "64": together with max_peer_race_s3_thread_num = "32" (` + path + `:4): want`,
		path + `:5: enable_peer_tls = "true": together with peer_tls_ca_path = "": `,
		`environment: webserver_port = "7": together with brpc_port = "7" (environment): want different ports`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no line %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hidden") {
		t.Errorf("a secret is quoted in\n%v", err)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for name, path := range map[string]string{
		"missing":   filepath.Join(t.TempDir(), "be.conf"),
		"directory": t.TempDir(),
		"too large": write(t, "#"+strings.Repeat("x", maxFileBytes)),
		"binary":    write(t, "host = \xff\xfe"),
	} {
		if _, err := Load(BE, path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one that names %s", name, err, path)
		}
	}
}

func TestTwiceTheSameKeyIsWarnedOf(t *testing.T) {
	s := load(t, write(t, "brpc_port = 1\nbrpc_port = 2\n"))
	if got := s.Int("brpc_port"); got != 2 {
		t.Errorf("brpc_port = %d, want the last line's 2", got)
	}
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "be.conf:2: brpc_port is given a second time (first on line 1)") {
		t.Errorf("warnings %q", w)
	}
}

func TestS50_CachePaths(t *testing.T) {
	k := defaults(t, BE).keys["file_cache_path"]
	v, err := k.Parse(`[{"path":"/a","total_size":67108864},{"path":"/b","total_size":1073741824,` +
		`"normal_percent":100,"ttl_percent":0,"index_percent":0,"disposable_percent":0}]`)
	want := []CachePath{{"/a", 64 << 20, 40, 50, 5, 5}, {"/b", 1 << 30, 100, 0, 0, 0}}
	if err != nil || !reflect.DeepEqual(v.paths, want) {
		t.Errorf("got %v, %v, want %v", v.paths, err, want)
	}
	for text, why := range map[string]string{
		`[]`: "at least one directory",
		`[{"path":"/a","total_size":67108864}] x`:                                              "nothing behind it",
		`{"path":"/a","total_size":67108864}`:                                                  "a JSON list",
		`[{"path":"","total_size":67108864}]`:                                                  "lacks its path",
		`[{"path":"/a"}]`:                                                                      "total_size 0",
		`[{"path":"/a","total_size":-5}]`:                                                      "total_size -5",
		`[{"path":"/a","total_size":67108864,"query_limit":3}]`:                                "query_limit",
		`[{"path":"/a","total_size":67108864},{"path":"/a/","total_size":67108864}]`:           "twice",
		`[{"path":"/a","total_size":67108864,"normal_percent":50}]`:                            "add up to 50 %",
		`[{"path":"/a","total_size":67108864,"normal_percent":-10,"ttl_percent":110}]`:         "share of -10 %",
		`[{"path":"/a","total_size":67108864,"normal_percent":9000000000000000000}]`:           "share of",
		"[{\"path\":\"/a\",\n\"total_size\":67108864}]":                                        "on one line",
		`[{"path":"/a","total_size":67108864,"normal_percent":99999999999999999999999999999}]`: "a JSON list",
	} {
		if _, err := k.Parse(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: error %v, want one with %q", text, err, why)
		}
	}
}

func TestS64_DefaultsAndWhatIsStatic(t *testing.T) {
	static := []string{"brpc_peer_fetch_pool_threads", "brpc_peer_fetch_pool_max_queue_size", "min_peer_race_s3_thread_num",
		"max_peer_race_s3_thread_num", "enable_file_cache", "file_cache_path", "file_cache_each_block_size", "webserver_port", "brpc_port", "host"}
	s := defaults(t, BE)
	for name, want := range map[string]string{
		"enable_cache_read_from_peer": "false", "enable_peer_s3_race": "true", "peer_race_hedge_delay_ms": "20", "max_concurrent_peer_races": "64",
		"peer_read_rpc_timeout_ms": "1000", "enable_same_compute_group_peer_read": "true", "enable_cross_compute_group_peer_read": "true",
		"enable_external_peer_read": "true", "enable_peer_location_preference": "true", "peer_cross_location_read_bytes_per_second": "0",
		"peer_cache_fill_compute_group_id": "", "enable_peer_server_cache_fill": "true", "peer_server_cache_fill_timeout_ms": "6000",
		"max_concurrent_peer_server_fills": "32", "peer_rpc_failure_eviction_threshold": "3", "peer_all_miss_cooldown_threshold": "5",
		"peer_all_miss_cooldown_duration_s": "300", "peer_candidate_expiry_s": "3600", "peer_candidate_cleanup_interval_s": "3600",
		"cache_peer_read_failure_threshold": "3", "cache_peer_read_circuit_open_seconds": "30", "peer_silence_probe_ms": "1000",
		"peer_fetch_queue_timeout_ms": "100", "brpc_peer_fetch_pool_threads": "-1", "brpc_peer_fetch_pool_max_queue_size": "-1",
		"min_peer_race_s3_thread_num": "0", "max_peer_race_s3_thread_num": "32", "enable_file_cache": "true",
		"file_cache_each_block_size": "1048576", "enable_adaptive_peer_race_hedge": "true", "peer_race_hedge_budget_percent": "5",
		"enable_slow_peer_ejection": "true", "object_storage_get_max_blocks": "16", "warm_up_from_peer": "false", "enable_peer_tls": "false",
		"file_cache_enter_disk_resource_limit_mode_percent": "90", "file_cache_exit_disk_resource_limit_mode_percent": "88",
		"file_cache_enter_need_evict_cache_in_advance_percent": "88", "file_cache_exit_need_evict_cache_in_advance_percent": "85",
		"webserver_port": "8040", "brpc_port": "8060", "cluster_token": "", "admin_token": "", "read_token": "",
	} {
		item, err := s.ShowKey(name)
		if err != nil || item.Value != want {
			t.Errorf("%s = %q, %v, want %q", name, item.Value, err, want)
		}
		if item.Mutable == slices.Contains(static, name) {
			t.Errorf("%s: mutable is %v", name, item.Mutable)
		}
	}
}

func TestS62_ShowIsInNameOrderAndKeepsSecrets(t *testing.T) {
	s, err := FromMap(BE, map[string]string{"cluster_token": "hush"})
	if err != nil {
		t.Fatal(err)
	}
	items := s.Show()
	if len(items) != len(Keys(BE)) || !slices.IsSortedFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d items, want %d in name order", len(items), len(Keys(BE)))
	}
	i := slices.IndexFunc(items, func(i Item) bool { return i.Name == "cluster_token" })
	if want := (Item{"cluster_token", "string", Mask, true}); items[i] != want {
		t.Errorf("got %v, want %v", items[i], want)
	}
	if _, err := s.ShowKey("enable_peer_s3_rac"); !errors.Is(err, ErrUnknownKey) || !strings.Contains(err.Error(), "enable_peer_s3_race") {
		t.Errorf("error %v", err)
	}
}

func TestPrintLoadsAgain(t *testing.T) {
	values := map[string]string{"cluster_token": "hush", "peer_cache_fill_compute_group_id": "cg_write_01", "webserver_port": "0", "compute_group_name": `" spaced "`}
	s, err := FromMap(BE, values)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := s.Print(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "hush") {
		t.Error("a secret is printed")
	}
	again := load(t, write(t, b.String()))
	for _, k := range Keys(BE) {
		if got, want := again.value(k.Name, k.Kind).Text(), s.value(k.Name, k.Kind).Text(); got != want && !k.Secret {
			t.Errorf("%s = %q, want %q", k.Name, got, want)
		}
	}
}

func TestDocumentIsUpToDate(t *testing.T) {
	var b bytes.Buffer
	if err := WriteDoc(&b); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("../../docs/CONFIG.md")
	if err != nil || !bytes.Equal(file, b.Bytes()) {
		t.Errorf("docs/CONFIG.md is not what the registry says (%v): run make gen", err)
	}
}
