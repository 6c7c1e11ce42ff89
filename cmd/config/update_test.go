package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
)

// update fails the test when the values are refused.
func update(t *testing.T, s *Set, persistent bool, values map[string]string) {
	t.Helper()
	if err := s.Update(values, persistent); err != nil {
		t.Fatal(err)
	}
}

func TestS61_UpdateIsAllOrNothing(t *testing.T) {
	s := load(t, write(t, ""))
	var delay atomic.Int64
	s.BindInt("peer_race_hedge_delay_ms", &delay)
	for name, bad := range map[string]struct {
		key, value string
		kind       error
	}{
		"unknown":      {"no_such_key", "1", ErrUnknownKey},
		"value":        {"max_concurrent_peer_races", "many", ErrValue},
		"out of range": {"max_concurrent_peer_races", "-1", ErrValue},
		"static":       {"webserver_port", "1", ErrStatic},
		"conflict":     {"file_cache_exit_disk_resource_limit_mode_percent", "99", ErrConflict},
	} {
		before := fmt.Sprint(s.Show())
		err := s.Update(map[string]string{"peer_race_hedge_delay_ms": "7", bad.key: bad.value}, true)
		if !errors.Is(err, bad.kind) || !strings.Contains(err.Error(), bad.key) {
			t.Errorf("%s: error %v", name, err)
		}
		if fmt.Sprint(s.Show()) != before || delay.Load() != 20 {
			t.Errorf("%s: something has changed", name)
		}
		if _, err := os.Stat(s.custom); err == nil {
			t.Errorf("%s: something was persisted", name)
		}
	}
}

func TestS61_PersistKeepsTheRestOfTheFile(t *testing.T) {
	path := write(t, "peer_race_hedge_delay_ms = 1\n")
	custom := customPath(path)
	before := "# kept\nlocation = z1\nmax_concurrent_peer_races = 1\n\nmax_concurrent_peer_races = 2\n# kept too"
	if err := os.WriteFile(custom, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	s := load(t, path)
	update(t, s, true, map[string]string{"max_concurrent_peer_races": "3", "peer_race_hedge_delay_ms": "30", "cluster_token": `"" odd "`})
	got, err := os.ReadFile(custom)
	want := "# kept\nlocation = z1\n\nmax_concurrent_peer_races = 3\n# kept too\ncluster_token = \"\" odd \"\npeer_race_hedge_delay_ms = 30\n"
	if err != nil || string(got) != want {
		t.Errorf("file is\n%s%v\nwant\n%s", got, err, want)
	}
	if info, err := os.Stat(custom); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v, want 0640", info.Mode(), err)
	}
	if again := load(t, path); again.String("cluster_token") != `" odd ` || again.Int("peer_race_hedge_delay_ms") != 30 {
		t.Errorf("loaded again: %q, %d", again.String("cluster_token"), again.Int("peer_race_hedge_delay_ms"))
	}
}

func TestS61_PersistThroughALink(t *testing.T) {
	path := write(t, "")
	target := filepath.Join(t.TempDir(), "mounted")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink(target, customPath(path))); err != nil {
		t.Fatal(err)
	}
	update(t, load(t, path), true, map[string]string{"log_level": "warn"})
	if info, err := os.Lstat(customPath(path)); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	if got := load(t, path).String("log_level"); got != "warn" {
		t.Errorf("log_level = %q", got)
	}
}

// Each step of writing the file is made to fail in turn; nothing may change.
func TestS61_PersistThatFailsChangesNothing(t *testing.T) {
	for name, breakIt := range map[string]func(custom string) error{
		"no directory":      func(custom string) error { return os.RemoveAll(filepath.Dir(custom)) },
		"file can't be":     func(custom string) error { return os.Mkdir(custom, 0o700) },
		"temporary can't":   func(custom string) error { return os.Mkdir(custom+".tmp", 0o700) },
		"broken by hand":    func(custom string) error { return os.WriteFile(custom, []byte("half a li"), 0o600) },
		"disk full":         func(custom string) error { return os.Symlink("/dev/full", custom+".tmp") },
		"grown out of hand": func(custom string) error { return os.WriteFile(custom, make([]byte, maxFileBytes+1), 0o600) },
	} {
		s := load(t, write(t, ""))
		if err := breakIt(s.custom); err != nil {
			t.Fatal(err)
		}
		err := s.Update(map[string]string{"peer_race_hedge_delay_ms": "7"}, true)
		if err == nil || errors.Is(err, ErrValue) || s.Int("peer_race_hedge_delay_ms") != 20 {
			t.Errorf("%s: error %v, value %d", name, err, s.Int("peer_race_hedge_delay_ms"))
		}
	}
	if err := defaults(t, BE).Update(map[string]string{"log_level": "warn"}, true); err == nil {
		t.Error("persisted without a file")
	}
}

func TestCF01_OnlyWhatIsPersistedOutlivesARestart(t *testing.T) {
	path := write(t, "peer_race_hedge_delay_ms = 1\nmax_concurrent_peer_races = 1\n")
	base, _ := os.ReadFile(path)
	s := load(t, path)
	update(t, s, true, map[string]string{"peer_race_hedge_delay_ms": "2"})
	update(t, s, false, map[string]string{"max_concurrent_peer_races": "2"})
	// A crash while the file is written leaves half a temporary one behind.
	if err := os.WriteFile(s.custom+".tmp", []byte("peer_race_hedge_del"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = load(t, path)
	if a, b := s.Int("peer_race_hedge_delay_ms"), s.Int("max_concurrent_peer_races"); a != 2 || b != 1 {
		t.Errorf("after a restart %d and %d, want 2 and 1", a, b)
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(now, base) {
		t.Error("the base file was touched")
	}
	update(t, s, true, map[string]string{"max_concurrent_peer_races": "3"})
	if _, err := os.Stat(s.custom + ".tmp"); err == nil {
		t.Error("the temporary file is still there")
	}
	// A later edit of the base file does not change a persisted key.
	if err := os.WriteFile(path, []byte("peer_race_hedge_delay_ms = 9\nmax_concurrent_peer_races = 9\nlog_level = warn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = load(t, path)
	if a, b, c := s.Int("peer_race_hedge_delay_ms"), s.Int("max_concurrent_peer_races"), s.String("log_level"); a != 2 || b != 3 || c != "warn" {
		t.Errorf("after an edit %d, %d and %q, want 2, 3 and warn", a, b, c)
	}
}

// takes tells which nonsense is fine for a key: a rule of its own, apart from
// what Parse goes by.
func takes(k Key, text string) bool {
	const names = "abc 1e99 9223372036854775807 9223372036854775808 true TRUE 1 1.5 0x10 1_000 NaN"
	fine := map[string]string{
		formReachable: names, formListen: names, formID: names + " -1", formIDs: names + " -1",
		"a directory": names + " -1 ün \u2603 a_b +5", formPatterns: names + " -1 ün \u2603 a_b +5", formHosts: names,
	}
	inRange := func(n int64) bool { return n >= k.Min && n <= k.Max && (k.Step == 0 || n%k.Step == 0) }
	switch {
	case strings.ContainsAny(text, "\x00\n") || !utf8.ValidString(text):
		return false
	case k.Kind == Bool:
		return text == "true" || text == "TRUE"
	case k.Kind == Paths:
		return false
	case k.Kind == Int && text == "1":
		return inRange(1)
	case k.Kind == Int && text == "-1":
		return inRange(-1) || k.Auto || k.Clamp
	case k.Kind == Int:
		return k.Clamp && text == "9223372036854775807"
	case k.Form == "":
		return true
	case text == "":
		return strings.HasSuffix(k.Form, "or nothing")
	}
	return slices.Contains(strings.Fields(fine[k.Form]), strings.ReplaceAll(text, " ", "_"))
}

func TestCF02_NonsenseIsRefused(t *testing.T) {
	nonsense := []string{"", "abc", "-1", "1e99", "9223372036854775807", "9223372036854775808", "true", "TRUE", "1", "ün", "\u2603", "a b",
		"+5", "1.5", "0x10", "1_000", "NaN", "\x00", "a\nlog_level = debug", "\xff"}
	for _, role := range []Role{BE, FE} {
		for _, k := range Keys(role) {
			for _, text := range nonsense {
				checkNonsense(t, role, k, text)
			}
		}
	}
}

// Names that travel are no longer than what other nodes take.
func TestCF02_FreeTextIsBounded(t *testing.T) {
	long := strings.Repeat("n", 1024)
	for _, key := range []string{"compute_group_name", "cloud_unique_id", "cluster_id", "s3_bucket"} {
		if _, err := FromMap(BE, map[string]string{key: long}); err != nil {
			t.Errorf("%s of 1024 bytes: %v", key, err)
		}
		if _, err := FromMap(BE, map[string]string{key: long + "n"}); !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), "at most 1024 bytes") {
			t.Errorf("%s of 1025 bytes: %v", key, err)
		}
	}
	if _, err := FromMap(BE, map[string]string{"s3_session_token": long + long}); err != nil {
		t.Errorf("a session token of 2048 bytes: %v", err)
	}
}

// checkNonsense gives a key a text at the start and at run time.
func checkNonsense(t *testing.T, role Role, k Key, text string) {
	t.Helper()
	want := ErrValue
	if takes(k, text) {
		want = nil
	}
	// A value may be fine and still contradict another key's default.
	matches := func(err error) bool {
		return errors.Is(err, want) || (want == nil && errors.Is(err, ErrConflict))
	}
	if _, err := FromMap(role, map[string]string{k.Name: text}); !matches(err) {
		t.Errorf("%s = %q at the start: error %v, want %v", k.Name, text, err, want)
	}
	if k.Static {
		want = ErrStatic
	}
	s := defaults(t, role)
	before := fmt.Sprint(s.Show())
	err := s.Update(map[string]string{k.Name: text}, false)
	if !matches(err) {
		t.Errorf("%s = %q: error %v, want %v", k.Name, text, err, want)
	}
	if want == ErrValue && (!strings.Contains(err.Error(), k.Name) || !strings.Contains(err.Error(), k.Want())) {
		t.Errorf("%s = %q: error %v does not name the key and %q", k.Name, text, err, k.Want())
	}
	if err != nil && fmt.Sprint(s.Show()) != before {
		t.Errorf("%s = %q: refused, yet something has changed", k.Name, text)
	}
}

func TestCF03_FollowersSeeWhatIsShown(t *testing.T) {
	s := defaults(t, BE)
	followed := make(map[string]string)
	for _, k := range Keys(BE) {
		s.Bind(k.Name, func(v Value) { followed[k.Name] = v.Shown() })
	}
	if un := s.Unbound(); len(un) != 0 {
		t.Errorf("unbound: %v", un)
	}
	other := map[Kind]string{Bool: "true", Int: "3", String: "x"}
	for _, k := range Keys(BE) {
		for _, text := range []string{other[k.Kind], "false", "-7", "\x00", k.Default} {
			_ = s.Update(map[string]string{k.Name: text}, false)
			if item, err := s.ShowKey(k.Name); err != nil || followed[k.Name] != item.Value {
				t.Errorf("%s = %q: %q is shown, %q is followed", k.Name, text, item.Value, followed[k.Name])
			}
		}
	}
}

func TestS27_OutOfRangeIsClamped(t *testing.T) {
	s := defaults(t, BE)
	var threshold, open atomic.Int64
	s.BindInt("cache_peer_read_failure_threshold", &threshold)
	s.BindDuration("cache_peer_read_circuit_open_seconds", &open)
	if open.Load() != int64(30*time.Second) {
		t.Errorf("open for %v", time.Duration(open.Load()))
	}
	update(t, s, false, map[string]string{"cache_peer_read_failure_threshold": "0", "cache_peer_read_circuit_open_seconds": "-5"})
	if threshold.Load() != 1 || open.Load() != 0 {
		t.Errorf("threshold %d, open for %v, want 1 and 0", threshold.Load(), time.Duration(open.Load()))
	}
}

func TestCF05_RulesBetweenKeys(t *testing.T) {
	for _, c := range []struct {
		role   Role
		values map[string]string
		want   string
		refuse bool
	}{
		{BE, map[string]string{"min_peer_race_s3_thread_num": "33"}, "max_peer_race_s3_thread_num", true},
		{BE, map[string]string{"peer_candidate_cleanup_interval_s": "0"}, "peer_candidate_cleanup_interval_s", true},
		{BE, map[string]string{"peer_candidate_expiry_s": "299"}, "peer_candidate_expiry_s", false},
		{BE, map[string]string{"peer_fetch_queue_timeout_ms": "6001"}, "peer_server_cache_fill_timeout_ms", false},
		{BE, map[string]string{"peer_race_hedge_delay_ms": "1000"}, "peer_read_rpc_timeout_ms", false},
		{BE, map[string]string{"file_cache_exit_disk_resource_limit_mode_percent": "90"}, "file_cache_enter_disk_resource_limit_mode_percent", true},
		{BE, map[string]string{"file_cache_enter_need_evict_cache_in_advance_percent": "85"}, "file_cache_exit_need_evict_cache_in_advance_percent", true},
		{BE, map[string]string{"file_cache_enter_need_evict_cache_in_advance_percent": "95"}, "file_cache_enter_disk_resource_limit_mode_percent", false},
		{BE, map[string]string{"s3_access_key": "a"}, "s3_secret_key", true},
		{BE, map[string]string{"enable_peer_tls": "true"}, "peer_tls_ca_path", true},
		{BE, map[string]string{"brpc_port": "8040"}, "webserver_port", true},
		{BE, map[string]string{"brpc_port": "0", "webserver_port": "0"}, "", false},
		{BE, map[string]string{"file_cache_each_block_size": "67108864", "file_cache_path": `[{"path":"a","total_size":1048576}]`}, "file_cache_path", true},
		{FE, map[string]string{"heartbeat_timeout_ms": "3000"}, "heartbeat_interval_ms", true},
	} {
		s, err := FromMap(c.role, c.values)
		switch {
		case c.refuse && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: error %v, want one about %s", c.values, err, c.want)
		case !c.refuse && err != nil:
			t.Errorf("%v: error %v, want a warning at most", c.values, err)
		case !c.refuse && strings.Contains(strings.Join(s.Warnings(), "\n"), c.want) != (c.want != "" || len(s.Warnings()) == 0):
			t.Errorf("%v: warnings %q, want one about %q", c.values, s.Warnings(), c.want)
		}
	}
}

func TestChangesAreLoggedWithoutSecrets(t *testing.T) {
	var b bytes.Buffer
	s := defaults(t, BE)
	s.LogTo(slog.New(slog.NewTextHandler(&b, nil)))
	update(t, s, false, map[string]string{"peer_race_hedge_delay_ms": "2000", "admin_token": "hush"})
	update(t, s, false, map[string]string{"peer_race_hedge_delay_ms": "2000", "admin_token": "hush hush"})
	for _, want := range []string{"key=peer_race_hedge_delay_ms old=20 new=2000", `key=admin_token old="" new=******`, "unwise", "key=admin_token old=****** new=******"} {
		if strings.Count(b.String(), want) == 0 {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "hush") || strings.Count(b.String(), "key=peer_race") != 1 {
		t.Errorf("log is\n%s", b.String())
	}
}

func TestUpdatesAndReadersTogether(t *testing.T) {
	s := load(t, write(t, ""))
	var delay atomic.Int64
	var group atomic.Pointer[string]
	s.BindInt("peer_race_hedge_delay_ms", &delay)
	s.BindString("peer_cache_fill_compute_group_id", &group)
	var wg sync.WaitGroup
	for writer := range 4 {
		wg.Go(func() {
			for i := range 25 {
				n := fmt.Sprint(writer*25 + i)
				if err := s.Update(map[string]string{"peer_race_hedge_delay_ms": n, "peer_cache_fill_compute_group_id": n}, i%5 == 0); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 100 {
				s.Show()
				s.Int("peer_race_hedge_delay_ms")
			}
		})
	}
	wg.Wait()
	// The last update is the one that every follower holds.
	if got := fmt.Sprint(s.Int("peer_race_hedge_delay_ms")); got != fmt.Sprint(delay.Load()) || got != *group.Load() {
		t.Errorf("%s is shown, %d and %s are followed", got, delay.Load(), *group.Load())
	}
}

func TestGettersRefuseNamesThatAreNoKeys(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	defaults(t, BE).Bool("peer_race_hedge_delay_ms")
}
