package timeline

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

func testRead() *block.Read {
	return &block.Read{
		Object: block.Object{Store: "s3", Bucket: "b", Key: "k"}, Version: block.Immutable,
		Route: block.TabletRoute(7), Size: 4096, QueryID: "q1",
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
	}
}

func keepAll() *Log {
	l := New(4)
	l.ThresholdMS.Store(0)
	return l
}

// TestWaterfall is a race whose peer keeps the call in its queue for longer than
// the head start, as a person sees it.
func TestWaterfall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := keepAll()
		r := l.Begin(testRead(), 2)
		at := r.Now()
		run, addr := block.NewRun(2, 2), block.Addr{Host: "10.0.0.2", Port: 8060}
		r.Mark(Candidates, block.Run{}, 1, "ready")
		peer := r.Start(Peer, addr, run)
		time.Sleep(20 * time.Millisecond)
		r.Mark(Hedge, run, 0, "")
		store := r.Start(Store, block.Addr{}, run)
		time.Sleep(10 * time.Millisecond)
		r.Got(peer, 1<<20)
		r.Mark(Winner, run, 0, "peer")
		r.End(store, "cancelled", 0)
		time.Sleep(10 * time.Millisecond)
		r.Got(peer, 1<<20)
		r.End(peer, "hit", 25*time.Millisecond)
		r.End(peer, "error", 0) // the first word counts
		r.Waited(at, 2, false)
		l.End(r, nil)
		v := l.Show(10)[0]
		v.SpanID = strings.Repeat("5", 16) // drawn
		got := v.Waterfall()
		path := filepath.Join("testdata", "waterfall.txt")
		if os.Getenv("HEADSTART_WRITE_TESTDATA") != "" {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || got != string(want) {
			t.Errorf("%v\n%s", err, got)
		}
	})
}

func TestSlowOnesAreKeptAndOthersDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(2)
		if l.Begin(testRead(), 0) != nil {
			t.Error("a log that keeps nothing begins timelines")
		}
		l.ThresholdMS.Store(10)
		read := func(key string, waits time.Duration, trace string) {
			req := testRead()
			req.Object.Key, req.Trace = key, trace
			r := l.Begin(req, 0)
			at := r.Now()
			time.Sleep(waits)
			r.Waited(at, 0, false)
			time.Sleep(time.Minute) // the reader's own time is not what makes a read slow
			l.End(r, errors.New("why"))
		}
		for _, key := range []string{"s1", "s2", "s3"} {
			read(key, 10*time.Millisecond, "")
		}
		read("fast", 9*time.Millisecond, "")
		read("traced", 0, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		l.SamplePerMillion.Store(1_000_000)
		read("drawn", 0, "")
		var got []string
		for _, v := range l.Show(100) {
			got = append(got, v.Why+" "+strings.TrimPrefix(v.Object, "s3://b/"))
		}
		if s := strings.Join(got, ", "); s != "sample drawn, sample traced, slow s3, slow s2" {
			t.Errorf("kept: %s", s)
		}
		if m := l.Metrics(); m != (Metrics{Slow: 3, Samples: 2}) {
			t.Errorf("%+v", m)
		}
		if n := len(l.Show(1)); n != 2 {
			t.Errorf("one of each kind are %d", n)
		}
	})
}

func TestNothingGrowsWithoutBound(t *testing.T) {
	l := keepAll()
	r := l.Begin(testRead(), 0)
	for range 3 * MaxSteps {
		id := r.Start(Store, block.Addr{}, block.NewRun(0, 1))
		r.Got(id, 1)
		r.End(id, strings.Repeat("x", 10_000), 0)
	}
	l.End(r, errors.New(strings.Repeat("x", 10_000)))
	v := l.Show(1)[0]
	if len(v.Steps) != MaxSteps || v.StepsDropped != 2*MaxSteps+1 {
		t.Errorf("%d steps, %d dropped", len(v.Steps), v.StepsDropped)
	}
	if n := len(v.Waterfall()); n > 32<<10 {
		t.Errorf("%d bytes", n)
	}
	for range 100 {
		l.End(l.Begin(testRead(), 0), nil)
	}
	if n := len(l.Show(1000)); n != 4 {
		t.Errorf("%d reads are kept, want 4", n)
	}
}

func TestSharedNeighboursAreOneStep(t *testing.T) {
	l := keepAll()
	r := l.Begin(testRead(), 0)
	for i := range uint64(20) {
		r.Waited(r.Now(), 5+i, true)
	}
	r.Waited(r.Now(), 40, true)
	l.End(r, nil)
	var got []int
	for _, s := range l.Show(1)[0].Steps[1:] {
		got = append(got, int(s.FirstBlock), s.Blocks)
	}
	if want := []int{5, 16, 21, 4, 40, 1}; len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[3] != want[3] || got[4] != want[4] {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestNilTakesEverything(t *testing.T) {
	var l *Log
	r := l.Begin(testRead(), 0)
	id := r.Start(Peer, block.Addr{}, block.Run{})
	r.Got(id, 1)
	r.End(id, "", 0)
	r.Mark(Hedge, block.Run{}, 0, "")
	r.Waited(r.Now(), 0, true)
	l.End(r, nil)
	if r != nil || len(l.Show(5)) != 0 || l.Metrics() != (Metrics{}) || r.Traceparent("as given") != "as given" {
		t.Error("nothing has become something")
	}
}

func TestLoserMayEndAfterTheRead(t *testing.T) {
	l := keepAll()
	r := l.Begin(testRead(), 0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { // ends by itself
			id := r.Start(Store, block.Addr{}, block.NewRun(0, 1))
			r.Got(id, 1)
			r.End(id, "late", 0)
		})
	}
	l.End(r, nil)
	wg.Wait()
	for _, s := range l.Show(1)[0].Steps[1:] {
		if s.Outcome != "late" {
			t.Errorf("%+v", s)
		}
	}
}

func TestTraceparentsAreFollowedOrIgnored(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	l := keepAll()
	for text, flags := range map[string]string{
		"00-" + id + "-" + span + "-01":                             "01",
		"00-" + id + "-" + span + "-00":                             "00",
		"00-" + id + "-" + span + "-02":                             "00",
		"00-" + id + "-" + span + "-0b":                             "01",
		"cc-" + id + "-" + span + "-01-later":                       "01",
		"":                                                          "",
		"00-" + id + "-" + span + "-01-later":                       "",
		"cc-" + id + "-" + span + "-01x":                            "",
		"ff-" + id + "-" + span + "-01":                             "",
		"00-" + id + "-" + span + "-0":                              "",
		"00-" + id + "-" + span + "-0g":                             "",
		"00_" + id + "-" + span + "-01":                             "",
		"00-" + strings.ToUpper(id) + "-" + span + "-01":            "",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01":        "",
		"00-" + id + "-" + strings.Repeat("0", 16) + "-01":          "",
		"cc-" + id + "-" + span + "-01-" + strings.Repeat("x", 100): "",
	} {
		req := testRead()
		req.Trace = text
		got := l.Begin(req, 0).Traceparent(text)
		if flags == "" {
			if got != "" || ValidTraceparent(text) {
				t.Errorf("%q is followed: %q", text, got)
			}
			continue
		}
		if !ValidTraceparent(got) || got[idAt:spanAt-1] != id || got[spanAt:flagsAt-1] == span || got[flagsAt:] != flags {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func FuzzTraceparent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x")
	f.Fuzz(func(t *testing.T, text string) {
		r := &Read{trace: follow(text)}
		if got := r.Traceparent(""); ValidTraceparent(text) != (got != "") || got != "" && (len(got) != parentLen || !ValidTraceparent(got)) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}
