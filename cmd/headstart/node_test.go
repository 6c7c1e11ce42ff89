package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headstart/cmd/config"
)

// TestCF03_KeyThatNothingFollowsIsSaid: a change that is accepted and does
// nothing must not pass in silence.
func TestCF03_KeyThatNothingFollowsIsSaid(t *testing.T) {
	conf, err := config.FromMap(config.BE, map[string]string{"warm_up_from_peer": "true"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	warnUnused(conf, slog.New(slog.NewTextHandler(&out, nil)))
	if !strings.Contains(out.String(), "key=warm_up_from_peer value=true") {
		t.Errorf("at start: %q", out.String())
	}
	if strings.Contains(out.String(), "key=drain_timeout_ms") || strings.Contains(out.String(), "key=enable_peer_tls") {
		t.Errorf("defaults are complained of: %q", out.String())
	}
	out.Reset()
	if err := conf.Update(map[string]string{"enable_peer_tls": "false", "warm_up_from_peer": "false"}, false); err != nil {
		t.Fatal(err)
	}
	if out.Len() != 0 {
		t.Errorf("back to the default: %q", out.String())
	}
}

// Files, environment and command line share the names of keys, and the last one
// counts.
func TestCommandLineOverridesEnvironmentAndFile(t *testing.T) {
	for _, r := range []role{beRole(), feRole()} {
		path := filepath.Join(t.TempDir(), r.name+".conf")
		if err := os.WriteFile(path, []byte("log_level = warn\nhost = 10.0.0.1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("HEADSTART_LOG_LEVEL", "error")
		t.Setenv("HEADSTART_HOST", "10.0.0.2")
		var out, complaint bytes.Buffer
		if conf, code := loadConfig(r, []string{"-conf", path, "-log_level=debug", "-print-config"}, &out, &complaint); conf != nil || code != exitOK {
			t.Fatalf("%s: code %d, %s", r.name, code, &complaint)
		}
		for _, want := range []string{"log_level = debug\n", "host = 10.0.0.2\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", r.name, want, &out)
			}
		}
		if _, code := loadConfig(r, []string{"-log_level", "loud"}, &out, &complaint); code != exitUsage || !strings.Contains(complaint.String(), "command line: log_level") {
			t.Errorf("%s: a bad value: code %d, %q", r.name, code, &complaint)
		}
	}
}
