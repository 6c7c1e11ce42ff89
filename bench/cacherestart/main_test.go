package main

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestMain lets the test binary be the victim.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-victim" {
		main()
	}
	os.Exit(m.Run())
}

// The same as the command at a sixty-fourth of its size.
func TestS53_RR07_RR10_KilledUnderLoad(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := plan{blocks: 4096, size: 64 << 10, waiting: 64, load: 300 * time.Millisecond}
	dir := t.TempDir()
	r, err := p.run(exec.Command(exe, p.args(dir)...), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	r.complete -= p.waiting // so many may have pushed others out since the victim has counted
	if err := r.verdict(); err != nil || r.complete < p.blocks/2 || r.live > time.Minute {
		t.Errorf("%v: %v", err, r)
	}
}
