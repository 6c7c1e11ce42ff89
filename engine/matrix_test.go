package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// TestPR10_Matrix plays testdata/matrix.txt: in each stanza a read with three
// candidates of which one gives the answer named and the others lack the block,
// and what it moves. On a difference it leaves what it got beside the other
// artifacts of the test.
func TestPR10_Matrix(t *testing.T) {
	file := filepath.Join("testdata", "matrix.txt")
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, stanzas, _ := strings.Cut(string(want), "\n\n")
	var got strings.Builder
	got.WriteString(head + "\n")
	for stanza := range strings.SplitSeq(strings.TrimSpace(stanzas), "\n\n") {
		command, _, _ := strings.Cut(stanza, "\n")
		var mode, answer, place string
		if n, err := fmt.Sscan(command, &mode, &answer, &place); n != 3 {
			t.Fatalf("%q: %v", command, err)
		}
		fmt.Fprintf(&got, "\n%s\n----\n", command)
		inWorld(t, func(w *world) { got.WriteString(w.play(mode, answer, place)) })
	}
	if got.String() == string(want) {
		return
	}
	out := filepath.Join(t.ArtifactDir(), "matrix.txt")
	if err := os.WriteFile(out, []byte(got.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got.String(), "\n") {
		if i >= len(lines) || line != lines[i] {
			t.Errorf("%s:%d: got %q", file, i+1, line)
		}
	}
	t.Errorf("all of it: %s", out)
}

// play reads a block as the command says and tells what has become of it.
func (w *world) play(mode, answer, place string) string {
	w.e.Settings.EnablePeerS3Race.Store(mode == "race")
	w.know(tablet(), candidate(1, "cg_1"), candidate(2, "cg_2"), candidate(3, "cg_3"))
	lack(w, 3)
	n := 1 + slices.Index([]string{"first", "middle", "last"}, place)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch answer {
	case "hit":
		w.peer(n, serves(time.Millisecond))
	case "miss":
	case "busy":
		w.peer(n, always(reply{after: time.Millisecond, all: true, status: block.StatusQueueTimeout}))
	case "time-out":
		w.peer(n, always(reply{silent: true}))
	case "error":
		w.peer(n, always(reply{after: time.Millisecond, err: errReset}))
	case "corrupt":
		w.peer(n, always(reply{after: time.Millisecond, corrupt: true}))
	case "cancelled":
		w.peer(n, always(reply{silent: true}))
		time.AfterFunc(10*time.Millisecond, cancel)
	case "open":
		for range 3 {
			ticket, _ := w.e.Breakers.Allow(peerAddr(n))
			ticket.Done(block.OutcomeError)
		}
	default:
		return "no such answer\n"
	}
	// The count starts at 1, so that a reset shows.
	view, _ := w.e.Table.Show(tablet())
	view.AllMiss = 1
	if err := w.e.Table.Set(tablet(), view); err != nil {
		w.t.Error(err)
	}
	begin := w.since()
	req := &block.Read{Object: testObject(), Version: block.Immutable, Route: tablet()}
	src, err := w.readAs(ctx, req, 10)
	took := w.since() - begin
	synctest.Wait()
	return w.tell(src, err, took)
}

func (w *world) tell(src block.Source, err error, took time.Duration) string {
	var b strings.Builder
	ints := func(n ...int) string { return strings.Trim(fmt.Sprint(n), "[]") }
	if err != nil {
		fmt.Fprintf(&b, "%v after %v", err, took)
	} else {
		fmt.Fprintf(&b, "from %s in %v", src, took)
	}
	m := w.e.Metrics()
	fmt.Fprintf(&b, "; asked %s; GETs %d\n", ints(w.askedPeers(0)...), len(w.gets()))
	fmt.Fprintf(&b, "peer reads %d, s3 reads %d; same group %d, cross group %d; corrupt %d\n",
		m.PeerReads, m.StoreReads, m.SameGroupReads, m.CrossGroupReads, m.PeerCorrupt)
	fmt.Fprintf(&b, "races: peer won %d, s3 won %d, both failed %d, given up %d; sequences %d; hedges %d\n",
		m.RacePeerWin, m.RaceStoreWin, m.RaceBothFail, m.RaceAbandoned, m.RaceSequential, m.Hedges)
	view, _ := w.e.Table.Show(tablet())
	failures, circuits := make([]int, 3), make([]int, 3)
	for i := range 3 {
		for _, c := range view.Candidates {
			if c.Host == peerAddr(i+1).Host {
				failures[i] = c.Failures
			}
		}
		circuits[i] = w.circuit(i + 1).Failures
	}
	last := view.LastGroupID
	if last == "" {
		last = "none"
	}
	fmt.Fprintf(&b, "list %s; all-miss %d; last group %s; RPC failures %s; circuit %s\n",
		ints(w.candidates()...), view.AllMiss, last, ints(failures...), ints(circuits...))
	return b.String()
}
