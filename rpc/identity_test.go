package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
)

func TestS89_OneVersionApartWorksTogether(t *testing.T) {
	us := identity("us", "c1", "secret")
	for version := int32(-2); version <= 5; version++ {
		them := identity("them", "c1", "secret").now.Load().base(request)
		them.Version = version
		raw := make([]byte, them.BLength())
		them.FastWrite(raw)
		node, err := new(acquaintance).meet(us, raw, request, strict)
		if version >= Version-1 && version <= Version+1 {
			if err != nil || node.ID != "them" {
				t.Errorf("version %d beside %d: %v", version, Version, err)
			}
			continue
		}
		if !errors.Is(err, block.ErrRefused) || !strings.Contains(err.Error(), fmt.Sprint("version ", version)) {
			t.Errorf("version %d beside %d: %v", version, Version, err)
		}
	}
}

func TestS89_WhoIsBelieved(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ours, theirs string // cluster ids
		p            policy
		proved       bool
		ok           bool
	}{
		{"a node", "c1", "c1", strict, true, true},
		{"no proof", "c1", "c1", strict, false, false},
		{"other cluster", "c1", "c2", strict, true, false},
		{"they don't know yet", "c1", "", strict, true, false},
		{"we don't know yet", "", "c1", strict, true, false},
		{"they join", "c1", "", joining, true, true},
		{"we join", "", "c1", joining, true, true},
		{"joining elsewhere", "c1", "c2", joining, true, false},
		{"joining without proof", "c1", "", joining, false, false},
		{"a guest", "c1", "", guest, false, true},
		{"a guest that means another cluster", "c1", "c2", guest, false, false},
	} {
		token := "guess"
		if tt.proved {
			token = "secret"
		}
		raw := identity("them", tt.theirs, token).now.Load().request
		var a acquaintance
		for range 2 { // met, and met again
			_, err := a.meet(identity("us", tt.ours, "secret"), raw, request, tt.p)
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, block.ErrRefused) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	}
}

func TestS65_AProofHoldsForOneNodeAndOneDirection(t *testing.T) {
	us := identity("us", "c1", "secret")
	theirs := identity("them", "c1", "secret").now.Load()
	for name, change := range map[string]func(b *headstart.Base){
		"":                   func(*headstart.Base) {},
		"another node":       func(b *headstart.Base) { b.NodeId = "they" },
		"moved border":       func(b *headstart.Base) { b.ClusterId, b.NodeId = "c", "1them" },
		"empty proof":        func(b *headstart.Base) { b.Proof = nil },
		"half a proof":       func(b *headstart.Base) { b.Proof = b.Proof[:16] },
		"other direction":    func(b *headstart.Base) { b.Proof = theirs.base(reply).Proof },
		"an endless name":    func(b *headstart.Base) { b.NodeId = strings.Repeat("n", maxName+1) },
		"an endless place":   func(b *headstart.Base) { b.Location = strings.Repeat("n", maxName+1) },
		"an endless group":   func(b *headstart.Base) { b.ComputeGroupId = strings.Repeat("n", maxName+1) },
		"an endless cluster": func(b *headstart.Base) { b.ClusterId = strings.Repeat("n", maxName+1) },
	} {
		b := theirs.base(request)
		change(b)
		_, err := new(acquaintance).meetBase(us, b, request, strict)
		if (err == nil) != (name == "") || err != nil && !errors.Is(err, block.ErrRefused) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestS65_TheTokenChangesAtRunTime(t *testing.T) {
	server := identity("server", "c1", "old")
	ours := identity("client", "c1", "old")
	reader := whole(testBlock)
	_, addr := startServer(t, ServerOptions{Identity: server}, reader)
	client := startClient(t, ClientOptions{Identity: ours}, &memory{})
	try := func() error {
		s, err := client.FetchFrom(inTime(t), addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
		if err != nil {
			return err
		}
		return drain(s, nil)
	}
	steps := []struct {
		what    string
		change  func()
		welcome bool
	}{
		{"same token", func() {}, true},
		{"the server's changes", func() { server.SetToken("new") }, false},
		{"the client's changes too", func() { ours.SetToken("new") }, true},
		{"the client's goes", func() { ours.SetToken("") }, false},
		{"the server's goes", func() { server.SetToken("") }, true},
		{"the client asks for proof", func() { ours.SetToken("new") }, false},
	}
	for _, s := range steps {
		s.change()
		for range 2 {
			if err := try(); (err == io.EOF) != s.welcome || err != io.EOF && !errors.Is(err, block.ErrRefused) {
				t.Errorf("%s: %v", s.what, err)
			}
		}
		if server.ClusterID() != "c1" || ours.ClusterID() != "c1" {
			t.Errorf("%s: the cluster id is lost", s.what)
		}
	}
	if m := client.Metrics(); m.Dials != 1 {
		t.Errorf("%d connections", m.Dials)
	}
}

func TestS65_LearningTheClusterKeepsTheToken(t *testing.T) {
	late := identity("late", "", "old")
	late.SetToken("secret")
	late.SetClusterID("c1")
	if _, err := new(acquaintance).meet(identity("us", "c1", "secret"), late.now.Load().request, request, strict); err != nil {
		t.Error(err)
	}
}

func TestKitexLogsThroughSlog(t *testing.T) {
	var out bytes.Buffer
	LogKitex(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	klog.Infof("KITEX: server listen at addr=%s", "[::1]:8060")
	klog.Warnf("careful")
	klog.Errorf("broken\nstack=%s", "line")
	want := []string{
		`level=DEBUG msg="KITEX: server listen at addr=[::1]:8060"`,
		`level=WARN msg=careful`,
		`level=ERROR msg="broken\nstack=line"`,
		"",
	}
	for i, line := range strings.Split(out.String(), "\n") {
		if i >= len(want) || !strings.HasSuffix(line, want[i]) {
			t.Errorf("line %d: %q, want %q", i, line, want[min(i, len(want)-1)])
		}
	}
}
