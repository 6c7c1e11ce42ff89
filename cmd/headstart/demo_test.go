package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"headstart/bench/tpch"
)

// TestMain lets the test binary be the demo's nodes: the demo starts its own
// executable as "fe" and "be".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "fe" || os.Args[1] == "be") {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// smallDemo replays a trace of 2 queries with 16 reads each on real nodes.
func smallDemo(t *testing.T, o demoOptions) *demo {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	trace := &tpch.Trace{Objects: []tpch.Object{{Key: "a/1", Size: 200_000}, {Key: "a/2", Size: 100_000}, {Key: "b", Size: 1000}}}
	for q := range 2 {
		query := tpch.Query{Name: fmt.Sprintf("q%d", q+1)}
		for i := range 16 {
			o := i % 3
			length := trace.Objects[o].Size / 8
			query.Reads = append(query.Reads, tpch.Read{Object: o, Offset: int64(i%8) * length, Length: length})
		}
		trace.Queries = append(trace.Queries, query)
	}
	return &demo{demoOptions: o, exe: exe, trace: trace}
}

// lockedBuffer is written by the demo and read by the test at the same time.
type lockedBuffer struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
	// wake gets a value for each write that finds room.
	wake chan struct{}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return b.mu.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.String()
}

// wantGone fails if a process that the output names still runs, or if the
// demo's folder is left.
func wantGone(t *testing.T, output string) {
	t.Helper()
	pids := 0
	for line := range strings.Lines(output) {
		_, after, found := strings.Cut(line, "  pid ")
		if !found {
			continue
		}
		pid, err := strconv.Atoi(strings.Fields(after)[0])
		if err != nil {
			t.Fatal(err)
		}
		pids++
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("pid %d is still there (%v)", pid, err)
		}
	}
	if pids != 5 {
		t.Errorf("%d pids printed, want 5", pids)
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDemoRunsAllPhases(t *testing.T) {
	var out bytes.Buffer
	d := smallDemo(t, demoOptions{seed: 1, stdout: &out, stderr: io.Discard})
	if err := d.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"s3_only", "peer_warm", "fill", "it holds 3 of 3 blocks",
		"s3_only   100 % of 32 reads", "wall time", "1.00x", "bytes wrong", "Real: ", "injected: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	wantGone(t, out.String())
	if t.Failed() {
		t.Log(out.String())
	}
}

// TestDemoJSON checks the fields, all of them and no others, and that a peer
// killed half-way costs neither errors nor bytes.
func TestDemoJSON(t *testing.T) {
	var out, progress bytes.Buffer
	d := smallDemo(t, demoOptions{seed: 2, json: true, killPercent: 50, stdout: &out, stderr: &progress})
	if err := d.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress.String(), "kill -9 ") {
		t.Errorf("nobody was killed: %s", progress.String())
	}
	wantGone(t, progress.String())
	var got map[string][]map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 1 || len(got["phases"]) != 3 {
		t.Fatalf("%v: %s", err, out.String())
	}
	fields := strings.Fields("name wall_s p50_ms p95_ms p99_ms reads bytes local peer s3 s3_gets peer_wins s3_wins " +
		"speedup checked_bytes wrong_bytes errors")
	for i, p := range got["phases"] {
		if name := []string{"s3_only", "peer_warm", "fill"}[i]; p["name"] != name {
			t.Errorf("phase %d is %v, want %s", i, p["name"], name)
		}
		if len(p) != len(fields) {
			t.Errorf("%d fields, want %d: %v", len(p), len(fields), p)
		}
		for _, f := range fields {
			if _, ok := p[f]; !ok {
				t.Errorf("no field %s", f)
			}
		}
		var bytesOfQueries float64
		for _, r := range d.trace.Queries[0].Reads {
			bytesOfQueries += 2 * float64(r.Length)
		}
		if p["reads"] != 32.0 || p["bytes"] != bytesOfQueries || p["checked_bytes"] != bytesOfQueries ||
			p["wrong_bytes"] != 0.0 || p["errors"] != 0.0 {
			t.Errorf("%v", p)
		}
		// Each object is one block, so each read is one; each query starts with an
		// empty cache and needs all three.
		if p["local"].(float64)+p["peer"].(float64)+p["s3"].(float64) != 32 {
			t.Errorf("%v local, %v peer, %v s3: want 32 blocks", p["local"], p["peer"], p["s3"])
		}
		if gets := p["s3_gets"].(float64); i == 0 && gets != 6 || gets > 12 {
			t.Errorf("phase %d: %v GETs, want 6 without peers and never more than two a block", i, gets)
		}
		if i == 0 && p["peer"] != 0.0 {
			t.Errorf("%v blocks from peers with peer read off", p["peer"])
		}
	}
}

// TestDemoStays until it is interrupted, and tells what can be tried.
func TestDemoStays(t *testing.T) {
	out := &lockedBuffer{wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	d := smallDemo(t, demoOptions{stay: true, stdout: out, stderr: io.Discard})
	ended := make(chan error)
	go func() { ended <- d.run(ctx) }() // ends with ctx
	for !strings.Contains(out.String(), "curl ") {
		select {
		case <-out.wake:
		case err := <-ended:
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wantGone(t, out.String())
}

// TestDemoEndsWhenANodeDies: an end that nobody asked for is the cause that is
// reported, with the node's last words.
func TestDemoEndsWhenANodeDies(t *testing.T) {
	died := make(chan error, 1)
	n := &demoCluster{dir: t.TempDir(), died: func(err error) { died <- err }}
	n.exe, _ = os.Executable()
	node, err := n.node("fe", "fe", "", [][2]string{{"listen_host", demoHost}, {"no_such_key", "1"}})
	if err != nil {
		t.Fatal(err)
	}
	err = <-died
	if !errors.Is(err, errNodeDied) || !strings.Contains(err.Error(), "no_such_key") {
		t.Errorf("%v", err)
	}
	<-node.exited
}

// TestDemoInterrupted in the middle of a phase leaves nothing behind.
func TestDemoInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &lockedBuffer{wake: make(chan struct{}, 1)}
	d := smallDemo(t, demoOptions{stdout: out, stderr: io.Discard})
	ended := make(chan error)
	go func() { ended <- d.run(ctx) }() // ends with ctx
	for !strings.Contains(out.String(), "s3_only") {
		select {
		case <-out.wake:
		case err := <-ended:
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	wantGone(t, out.String())
}

// TestDemoCold: each way reads everything, and only the direct one has a GET for
// each read.
func TestDemoCold(t *testing.T) {
	var out, progress bytes.Buffer
	d := smallDemo(t, demoOptions{seed: 1, stdout: &out, stderr: &progress, cold: demoColdOptions{on: true, bes: []int{2}, rounds: 1}})
	if err := d.do(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, way := range []string{"direct", "no peers", "peers", "peers that fill"} {
		_, row, found := strings.Cut(out.String(), "\n    2"+fmt.Sprintf("%*s", len("  peers that fill"), way))
		fields := strings.Fields(strings.ReplaceAll(row, "(", " "))
		if !found || len(fields) < 7 {
			t.Fatalf("no row %q in\n%s", way, out.String())
		}
		gets, err := strconv.Atoi(fields[5])
		if err != nil || way == "direct" && gets != 32 || way != "direct" && (gets < 3 || gets > 12) {
			t.Errorf("%s: %d GETs (%v) in\n%s", way, gets, err, out.String())
		}
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDemoFlags(t *testing.T) {
	for args, code := range map[string]int{
		"-h": 0, "-nonsense": 2, "extra": 2, "-kill-peer-at 100": 2, "-kill-peer-at -1": 2, "-seed x": 2,
		"-cold -bes 0": 2, "-cold -bes 3,x": 2, "-cold -rounds 0": 2, "-cold -json": 2, "-cold -stay": 2,
	} {
		var stderr bytes.Buffer
		if got := runDemo(strings.Fields(args), io.Discard, &stderr); got != code || stderr.Len() == 0 {
			t.Errorf("%s: exit code %d, want %d; %q", args, got, code, stderr.String())
		}
	}
}

func TestDemoVerdict(t *testing.T) {
	for _, c := range []struct {
		p    demoResult
		says string
	}{
		{demoResult{Name: "fill"}, ""},
		{demoResult{Name: "fill", WrongBytes: 3}, "fill: 3 bytes were wrong"},
		{demoResult{Name: "fill", Errors: 2, firstError: io.EOF}, "fill: 2 reads failed, the first: EOF"},
	} {
		r := demoReport{Phases: []demoResult{{Name: "s3_only"}, c.p}}
		if err := r.verdict(); (err == nil) != (c.says == "") || err != nil && err.Error() != c.says {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}

func TestParseCounts(t *testing.T) {
	const good = `# HELP x
headstart_read_blocks_total{source="local"} 1
headstart_read_blocks_total{source="peer"} 2
headstart_read_blocks_total{source="s3"} 3e3
headstart_read_bytes_total{source="local"} 4
headstart_read_bytes_total{source="peer"} 5
headstart_read_bytes_total{source="s3"} 6
peer_race_peer_win 7
peer_race_peer_win_other 70
peer_race_s3_win 8
headstart_peer_cross_location_bytes_total 9
`
	got, err := parseCounts([]byte(good))
	want := demoCounts{blocks: [3]int64{1, 2, 3000}, bytes: [3]int64{4, 5, 6}, peerWins: 7, s3Wins: 8, farBytes: 9}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", strings.Replace(good, "win 7", "win x", 1), strings.Replace(good, "peer_race_s3_win", "gone", 1)} {
		if _, err := parseCounts([]byte(bad)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// TestDemoBar draws on a terminal and gets out of the way of lines.
func TestDemoBar(t *testing.T) {
	out := &lockedBuffer{}
	o := newDemoOutput(out)
	o.terminal = true
	var ended atomic.Int64
	ended.Store(50)
	stop := o.follow("fill", 100, &ended)
	o.line("news")
	stop()
	got := out.String()
	if !strings.Contains(got, "fill      [####################....................]  50 %") ||
		!strings.Contains(got, "news\n") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("%q", got)
	}
}
