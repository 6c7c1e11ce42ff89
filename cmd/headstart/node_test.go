package main

import (
	"bytes"
	"log/slog"
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
