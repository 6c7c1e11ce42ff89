package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCtlVerbs(t *testing.T) {
	c := startCluster(t, map[string]string{"slow_read_threshold_ms": "0"}, readers, writers)
	c.read(0, 3)
	be := "-be=" + c.web(0)
	for _, step := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"set", "10086", "10.0.0.2:8060@cg_write_01", "10.0.0.3:8060@cg_read_01", "-misses", "2", "-last-group", "cg_write_01"}, 0, []string{"OK\n"}},
		{[]string{"show", "10086"}, 0, []string{"tablet 10086: last group cg_write_01, all missed 2 times in a row, cooldown until -", "10.0.0.2:8060  cg_write_01"}},
		{[]string{"show", "10086", "-json"}, 0, []string{`"tablet_id": 10086`, `"brpc_port": 8060`}},
		{[]string{"show"}, 0, []string{"TABLET  CANDIDATES  LAST GROUP", "10086   2           cg_write_01"}},
		{[]string{"reset", "10086"}, 0, []string{"OK\n"}},
		{[]string{"remove", "10086"}, 0, []string{"OK\n"}},
		{[]string{"remove", "10086"}, 1, []string{"tablet 10086 has no candidates here (404 unknown_tablet)"}},
		{[]string{"set", "10086", "10.0.0.2"}, 2, []string{"want HOST:PORT@GROUP"}},
		{[]string{"show", "x"}, 1, []string{"bad_argument"}},
		{[]string{"config", "set", "peer_race_hedge_delay_ms=30", "-persist"}, 0, []string{"OK\n"}},
		{[]string{"config", "get", "peer_race_hedge_delay_ms"}, 0, []string{"KEY", "peer_race_hedge_delay_ms  int   30     true"}},
		{[]string{"config", "get", "-json", "peer_race_hedge_delay_ms"}, 0, []string{`"30"`}},
		{[]string{"config", "get"}, 0, []string{"enable_cache_read_from_peer", "webserver_port"}},
		{[]string{"config", "set", "peer_race_hedge_delay_ms=x"}, 1, []string{"peer_race_hedge_delay_ms", "bad_config"}},
		{[]string{"config", "set"}, 2, []string{"want get [KEY], or set KEY=VALUE…"}},
		{[]string{"cache", "list", "-value", "data/3"}, 0, nil},
		{[]string{"cache", "hash", "-value", "data/3"}, 0, []string{"hash: "}},
		{[]string{"cache", "dump"}, 0, []string{"status: OK"}},
		{[]string{"cache", "clear", "-sync"}, 0, []string{"status: OK"}},
		{[]string{"cache", "release", "-json"}, 0, []string{`"released_elements": 0`}},
		{[]string{"cache", "burn"}, 2, []string{"want release, clear, reset, hash, list or dump"}},
		{[]string{"breaker"}, 0, []string{"ADDRESS  STATE"}},
		{[]string{"breaker", "reset", "10.0.0.9:8060"}, 1, []string{"unknown_address"}},
		{[]string{"profile", "nobody"}, 1, []string{"no_such_query"}},
		{[]string{"slow", "-limit", "1"}, 0, []string{"s3://bucket/data/3", "local", "checksum made"}},
		{[]string{"slow", "-json"}, 0, []string{`"why": "slow"`}},
		{[]string{"vars", "peer_race_*_win"}, 0, []string{"peer_race_peer_win : ", "peer_race_s3_win : "}},
		{[]string{"vars", "-json", "peer_race_s3_win"}, 0, []string{`"peer_race_s3_win": `}},
		{[]string{"show", "1", "2"}, 2, []string{"want show [TABLET]"}},
		{[]string{"show", "-be", "http://127.0.0.1:8040"}, 2, []string{`address "http://127.0.0.1:8040": want host:port`}},
		{[]string{"show", "-be", "a:1,b:1"}, 2, []string{`address "a:1,b:1": want host:port`}},
		{[]string{"doctor", "-be", "a:1,"}, 2, []string{`address "": want host:port`}},
		{[]string{"doctor", "-over", "-5s"}, 2, []string{"-over -5s: want a time from 0 on"}},
		{[]string{"show", "-sync"}, 2, []string{"flag provided but not defined: -sync"}},
	} {
		out, code := c.ctl(append([]string{step.args[0], be}, step.args[1:]...)...)
		if code != step.code {
			t.Errorf("%q: exit code %d, want %d\n%s", step.args, code, step.code, out)
		}
		for _, want := range step.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: want %q in\n%s", step.args, want, out)
			}
		}
		if strings.Contains(strings.Join(step.args, " "), "-json") && code == 0 && !json.Valid([]byte(out)) {
			t.Errorf("%q is no JSON:\n%s", step.args, out)
		}
	}
}

func TestCtlPresentsTheAdminsToken(t *testing.T) {
	c := startCluster(t, map[string]string{"admin_token": "s3cr3t"}, readers)
	args := []string{"config", "set", "peer_race_hedge_delay_ms=30", "-be", c.web(0)}
	if out, code := c.ctl(args...); code != 1 || !strings.Contains(out, "401 unauthorized") {
		t.Errorf("without: exit code %d\n%s", code, out)
	}
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := c.ctl(append(args, "-token-file", path)...); code != 0 {
		t.Errorf("from a file: exit code %d\n%s", code, out)
	}
	t.Setenv("HEADSTART_ADMIN_TOKEN", "s3cr3t")
	var out strings.Builder
	if code := run(append([]string{"ctl"}, args...), &out, &out); code != 0 || out.String() != "OK\n" {
		t.Errorf("from the environment: exit code %d\n%s", code, out.String())
	}
}

func TestCtlUsage(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "usage: headstart ctl COMMAND"},
		{[]string{"help"}, 0, "doctor"},
		{[]string{"doctr"}, 2, `unknown command "doctr"`},
		{[]string{"slow", "-h"}, 0, "-limit"},
		{[]string{"completion", "fish"}, 2, "bash only"},
	} {
		var out strings.Builder
		if code := run(append([]string{"ctl"}, tc.args...), &out, &out); code != tc.code || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%q: exit code %d\n%s", tc.args, code, out.String())
		}
	}
}

func TestCtlCompletesInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash: the script is for it alone")
	}
	var script strings.Builder
	if code := run([]string{"ctl", "completion", "bash"}, &script, &script); code != 0 {
		t.Fatal(script.String())
	}
	for line, want := range map[string]string{
		"headstart c":                          "ctl",
		"headstart ctl doc":                    "doctor",
		"headstart ctl cache di":               "",
		"headstart ctl cache du":               "dump",
		"headstart ctl slow -li":               "-limit",
		"headstart ctl config set peer_race_h": "peer_race_hedge_budget_percent peer_race_hedge_delay_ms",
	} {
		asks := script.String() + "\nCOMP_WORDS=(" + line + "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _headstart; echo \"${COMPREPLY[@]}\""
		out, err := exec.Command(bash, "--norc", "-c", asks).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%q: %q (%v), want %q", line, out, err, want)
		}
	}
}
