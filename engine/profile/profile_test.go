package profile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"headstart/bench/latency"
	"headstart/engine/block"
)

// busy returns a query with another value in each counter.
func busy(p *Profiles) *Query {
	q := p.Get("q1")
	a, b := block.Addr{Host: "10.0.0.2", Port: 8060}, block.Addr{Host: "fd00::1", Port: 8060}
	for range 5 {
		q.AddLocal(block.KindData, 1, 1<<20)
	}
	q.AddLocal(block.KindInvertedIndex, 1, 100)
	q.AddLocal(block.KindSegmentFooter, 1, 20)
	q.AddLocal(block.KindInternalIndex, 1, 3)
	q.AddPeer(block.KindData, true, b, 1<<20, 2*time.Millisecond)
	q.AddPeer(block.KindInvertedIndex, true, a, 1<<19, 500*time.Microsecond)
	q.AddPeer(block.KindSegmentFooter, false, a, 16<<10, 10*time.Millisecond)
	q.AddPeer(block.KindInternalIndex, false, b, 0, 3*time.Microsecond) // joined another flight
	q.AddPeer(block.KindInternalIndex, false, b, 512, 40*time.Nanosecond)
	q.AddStore(block.KindData, 3<<30, 1500*time.Millisecond)
	q.AddStore(block.KindInvertedIndex, 7, time.Millisecond)
	q.AddStore(block.KindInternalIndex, 0, time.Millisecond)
	for i := range 9 {
		q.AddRace(i < 7)
	}
	for range 11 {
		q.AddLazyFetch()
	}
	q.AddLazyFetchTime(12500 * time.Microsecond)
	return q
}

func TestS73_TextHasTheReferencesNames(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "query.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got := busy(New(1)).Text(); got != string(golden) {
		t.Errorf("got\n%s\nwant\n%s", got, golden)
	}
}

func TestS73_JSONHasTheReferencesNames(t *testing.T) {
	got, err := json.Marshal(busy(New(1)))
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		ID       string         `json:"query_id"`
		Counters map[string]any `json:"SegmentIterator"`
	}
	if err := json.Unmarshal(got, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.ID != "q1" {
		t.Errorf("query_id %q", answer.ID)
	}
	// S73 word by word.
	for name, want := range map[string]float64{
		"NumPeerIOTotal": 5, "PeerIOUseTimer": 12503040,
		"SameCGPeerIOTotal": 2, "SameCGPeerBytesRead": 1<<20 + 1<<19, "SameCGPeerIOTime": 2500000,
		"CrossCGPeerIOTotal": 3, "CrossCGPeerBytesRead": 16<<10 + 512, "CrossCGPeerIOTime": 10003040,
		"PeerRaceWin": 7, "S3RaceWin": 2, "PeerLazyFetch": 11, "PeerLazyFetchTime": 12500000,
		"InvertedIndexNumPeerIOTotal": 1, "InvertedIndexPeerIOUseTimer": 500000,
		"SegmentFooterIndexNumPeerIOTotal": 3, "SegmentFooterIndexPeerIOUseTimer": 10003040,
		"NumLocalIOTotal": 8, "NumRemoteIOTotal": 3, "BytesScannedFromCache": 5<<20 + 123,
		"BytesScannedFromRemote": 3<<30 + 7, "BytesScannedFromPeer": 1<<20 + 1<<19 + 16<<10 + 512,
	} {
		if answer.Counters[name] != want {
			t.Errorf("%s is %v, want %v", name, answer.Counters[name], want)
		}
	}
	nodes := fmt.Sprint(answer.Counters["PeerCacheNodes"])
	if nodes != "[10.0.0.2:8060 [fd00::1]:8060]" {
		t.Errorf("PeerCacheNodes %s", nodes)
	}
}

func TestS73_ReadsWithoutQueryIDCountNowhere(t *testing.T) {
	p := New(1)
	q := p.Get("")
	if q != nil || p.Get(strings.Repeat("x", MaxIDBytes+1)) != nil || p.Len() != 0 {
		t.Fatal("a profile without a proper id is kept")
	}
	got := testing.AllocsPerRun(100, func() {
		q.AddLocal(block.KindData, 1, 1)
		q.AddPeer(block.KindData, true, block.Addr{}, 1, 1)
		q.AddStore(block.KindData, 1, 1)
		q.AddRace(true)
		q.AddLazyFetch()
		q.AddLazyFetchTime(1)
	})
	if got != 0 {
		t.Errorf("%.0f allocations", got)
	}
	if text := q.Text(); !strings.Contains(text, "NumLocalIOTotal: 0\n") {
		t.Errorf("the empty profile prints as %s", text)
	}
}

func TestAddingAllocatesNothing(t *testing.T) {
	p := New(4)
	addr := block.Addr{Host: "10.0.0.2", Port: 8060}
	p.Get("q").AddPeer(block.KindData, true, addr, 1, 1) // the first one lists the peer
	got := testing.AllocsPerRun(100, func() {
		q := p.Get("q")
		q.AddLocal(block.KindData, 1, 1)
		q.AddPeer(block.KindInternalIndex, false, addr, 1, 1)
		q.AddStore(block.KindInvertedIndex, 1, 1)
		q.AddRace(false)
	})
	if got != 0 {
		t.Errorf("%.0f allocations", got)
	}
}

func TestOnlyQueriesInUseAreKept(t *testing.T) {
	p := New(3)
	for i := range 100 {
		p.Get("in use").AddLocal(block.KindData, 1, 1)
		p.Get(fmt.Sprintf("query %d", i)).AddLocal(block.KindData, 1, 1)
		if p.Len() > 3 {
			t.Fatalf("%d queries are kept", p.Len())
		}
	}
	if got := p.Find("in use").Counters().NumLocalIOTotal; got != 100 {
		t.Errorf("the query that is in use has %d reads, want 100", got)
	}
	if p.Find("query 99") == nil || p.Find("query 50") != nil {
		t.Error("the last query is gone, or an old one is not")
	}
	if New(0).Get("x") == nil {
		t.Error("a bound of 0 keeps nothing")
	}
}

func TestAllReadersCount(t *testing.T) {
	p := New(64)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 1000 {
				q := p.Get("shared")
				q.AddPeer(block.KindData, i%2 == 0, block.Addr{Host: "be", Port: 1 + (g+i)%50}, 1, 1)
				p.Get(fmt.Sprint(g, i)).AddLocal(block.KindData, 1, 1)
			}
		})
	}
	all.Wait()
	c := p.Get("shared").Counters()
	if c.NumPeerIOTotal != 8000 || c.SameCGPeerIOTotal != 4000 || c.BytesScannedFromPeer != 8000 {
		t.Errorf("%+v", c)
	}
	if len(c.PeerCacheNodes) != 50 || len(slices.Compact(c.PeerCacheNodes)) != 50 {
		t.Errorf("%d nodes: %q", len(c.PeerCacheNodes), c.PeerCacheNodes)
	}
	if p.Len() != 64 {
		t.Errorf("%d queries are kept, want 64", p.Len())
	}
}

func TestFiguresAreReadable(t *testing.T) {
	for want, got := range map[string]string{
		"0 ns": readable(0), "999 ns": readable(999), "1.50 us": readable(1500), "12.50 ms": readable(12500000),
		"75.25 s": readable(75250 * time.Millisecond),
		"0 B":     Bytes(0).String(), "1023 B": Bytes(1023).String(), "1.00 KiB": Bytes(1024).String(),
		"1.50 MiB": Bytes(3 << 19).String(), "2.00 GiB": Bytes(2 << 30).String(), "2048.00 TiB": Bytes(2 << 50).String(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func BenchmarkAddLocal(b *testing.B) {
	q := New(1).Get("q")
	b.ReportAllocs()
	for b.Loop() {
		q.AddLocal(block.KindData, 1, 1)
	}
	latency.ReportEach(b, func() { q.AddLocal(block.KindData, 1, 1) })
}
