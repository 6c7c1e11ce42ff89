package load

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a door whose reads take a while of virtual time.
type slow struct {
	takes func(n int) time.Duration
	calls atomic.Int64
	err   error
}

func (s *slow) Read(ctx context.Context, _ *Object, r Read, _ []byte) (int, string, error) {
	n := int(s.calls.Add(1))
	select {
	case <-ctx.Done():
		return 0, "", ctx.Err()
	case <-time.After(s.takes(n)):
		return int(r.Length), "local", s.err
	}
}

func (s *slow) Close() {}

func onePlan() Plan {
	return Plan{
		Work: Scan([]Object{{Key: "k", Size: 1000, Tablet: 1}}, 100), Rate: 100, Even: true,
		Time: 10 * time.Second, InFlight: 1, Timeout: time.Minute,
	}
}

func played(t *testing.T, d Door, p Plan) (r Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = Run(t.Context(), d, p, nil); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// A server that stands still for two seconds is charged for the two hundred reads
// that came due meanwhile, although only one of them was under way.
func TestAStallIsChargedToAllWhoWait(t *testing.T) {
	door := &slow{takes: func(n int) time.Duration {
		if n == 300 {
			return 2 * time.Second
		}
		return time.Millisecond
	}}
	r := played(t, door, onePlan())
	if r.Reads != 999 || r.Errors != 0 || r.Late != 0 || r.From["local"] != 999 || r.Bytes != 99_900 {
		t.Fatalf("%+v", r)
	}
	// The backlog of 200 is worked off at 900 a second: the k-th of them waits for
	// 2 s - 9 ms*k, and half of the reads that came due in these 2.2 s for more than 1 s.
	slower := 0
	for q := 0.0; q < 1; q += 0.001 {
		if r.Latency.At(q) > time.Second {
			slower++
		}
	}
	if slower < 105 || slower > 117 || r.Latency.Max() < 1990*time.Millisecond {
		t.Errorf("%d of 1000 reads took more than a second, the longest %v; want 111, and two seconds", slower, r.Latency.Max())
	}
	if r.Latency.At(0.5) > 2*time.Millisecond {
		t.Errorf("the median is %v", r.Latency.At(0.5))
	}
}

func TestReadsThatNeverBeganCount(t *testing.T) {
	r := played(t, &slow{takes: func(int) time.Duration { return 20 * time.Millisecond }}, onePlan())
	if r.Reads != 999 || r.Served != 500 || r.Late != 499 {
		t.Fatalf("%d reads, %d served, %d not ended", r.Reads, r.Served, r.Late)
	}
	if r.at(0.9) == short(r.Latency.At(0.9)) || r.bounded(0.4) {
		t.Errorf("the 90th percentile is given as %s, as if all reads had ended", r.at(0.9))
	}
}

// TestWhatIsDueIsBookedHoweverARunEnds: by its end, by an interruption, by one while
// all doors hang; with room for many reads at once and for one; and what was served
// has the time that it took.
func TestWhatIsDueIsBookedHoweverARunEnds(t *testing.T) {
	for name, one := range map[string]struct {
		takes, interrupt time.Duration
		reads, served    int64
		took             time.Duration
	}{
		"it keeps up":                   {time.Millisecond, time.Hour, 9_999, 9_999, 10 * time.Second},
		"too slow":                      {time.Second, time.Hour, 9_999, 40, 10 * time.Second},
		"too slow and interrupted":      {time.Second, 5500 * time.Millisecond, 5_499, 20, 5500 * time.Millisecond},
		"hangs until it is interrupted": {time.Hour, 5500 * time.Millisecond, 5_499, 0, 5500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), one.interrupt)
			defer cancel()
			p := onePlan()
			p.Rate, p.InFlight, p.Timeout = 1000, 4, 2*time.Hour
			if one.takes < time.Second {
				p.InFlight = 64
			}
			r, err := Run(ctx, &slow{takes: func(int) time.Duration { return one.takes }}, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			// What is due at the very moment of the end may be on either side of it.
			if r.Reads < one.reads-1 || r.Reads > one.reads+1 || r.Latency.Count() != r.Reads || r.Served < one.served || r.Served > one.served+4 ||
				r.Late != r.Reads-r.Served || r.Took < one.took || r.Took > one.took+time.Second {
				t.Errorf("%s: %d reads, %d served, %d not ended in %v, %d latencies", name, r.Reads, r.Served, r.Late, r.Took, r.Latency.Count())
			}
			if r.Late > 0 && (!r.bounded(0.5) || r.Latency.At(0.5) < one.took/3) {
				t.Errorf("%s: the median is given as %s", name, r.at(0.5))
			}
		})
	}
}

// TestWhatIsServedCounts: at a rate far above what is possible, all that is served
// was due while the run warmed up.
func TestWhatIsServedCounts(t *testing.T) {
	p := onePlan()
	p.Rate, p.Warm = 1000, 5*time.Second
	r := played(t, &slow{takes: func(int) time.Duration { return 10 * time.Millisecond }}, p)
	if r.Served < 999 || r.Served > 1001 || r.Late != r.Reads || r.Bytes != 100*r.Served {
		t.Errorf("%d reads, %d served, %d bytes, %d not ended", r.Reads, r.Served, r.Bytes, r.Late)
	}
}

// TestWhatFailsIsNotFast: a node that is gone refuses at once.
func TestWhatFailsIsNotFast(t *testing.T) {
	r := played(t, &slow{takes: func(int) time.Duration { return time.Millisecond }, err: io.EOF}, onePlan())
	if r.Latency.At(0.01) < time.Minute*99/100 || !r.bounded(0.5) {
		t.Errorf("the median of reads that failed is %s", r.at(0.5))
	}
}

func TestErrorsAndTheWarmUpAreApart(t *testing.T) {
	p := onePlan()
	p.Warm = 5 * time.Second
	r := played(t, &slow{takes: func(int) time.Duration { return time.Millisecond }, err: io.ErrUnexpectedEOF}, p)
	if r.Reads != 1000 || r.Errors != 1000 || r.Served != 0 || !errors.Is(r.FirstError, io.ErrUnexpectedEOF) {
		t.Errorf("%+v", r)
	}
	short := &slow{takes: func(int) time.Duration { return time.Millisecond }}
	p.Timeout = time.Microsecond
	if r := played(t, short, p); r.Errors != r.Reads || !errors.Is(r.FirstError, context.DeadlineExceeded) {
		t.Errorf("a read that takes too long: %+v", r)
	}
}

func TestRandomArrivalsHaveTheRate(t *testing.T) {
	p := onePlan()
	p.Even, p.Rate, p.InFlight = false, 1000, 16
	r := played(t, &slow{takes: func(int) time.Duration { return 0 }}, p)
	if math.Abs(float64(r.Reads)-10_000) > 400 { // four standard deviations
		t.Errorf("%d reads came due in 10 s at 1000 a second", r.Reads)
	}
}

// TestAnyRateThatIsAllowedIsKept: reads that are due in a thousand years are not due
// now.
func TestAnyRateThatIsAllowedIsKept(t *testing.T) {
	for _, even := range []bool{false, true} {
		for _, rate := range []float64{math.SmallestNonzeroFloat64, 1e-300, 1e-12, 1e-9} {
			p := onePlan()
			p.Even, p.Rate = even, rate
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				door := &slow{takes: func(int) time.Duration {
					cancel() // or the run might never end
					return 0
				}}
				if r, err := Run(ctx, door, p, nil); err != nil || r.Reads != 0 || door.calls.Load() != 0 {
					t.Errorf("rate %v, even %v: %d reads, %v", rate, even, door.calls.Load(), err)
				}
			})
		}
	}
}

func TestProgressAndInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		var seen []Progress
		door := &slow{takes: func(int) time.Duration { return time.Millisecond }}
		r, err := Run(ctx, door, onePlan(), func(p Progress) { seen = append(seen, p) })
		if err != nil || r.Reads < 440 || r.Reads > 450 {
			t.Errorf("%d reads (%v)", r.Reads, err)
		}
		if len(seen) != 4 || seen[1].Elapsed != 2*time.Second || seen[1].Reads < 99 || seen[1].Reads > 101 {
			t.Errorf("%+v", seen)
		}
	})
}

func TestPlansAreChecked(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"no work": func(p *Plan) { p.Work = nil }, "no rate": func(p *Plan) { p.Rate = 0 }, "NaN": func(p *Plan) { p.Rate = math.NaN() },
		"more than fits": func(p *Plan) { p.Work, p.InFlight = Scan([]Object{{Key: "k", Size: 1 << 30}}, 1<<30), 64 },
		"no time":        func(p *Plan) { p.Time = 0 }, "nobody": func(p *Plan) { p.InFlight = 0 }, "no limit": func(p *Plan) { p.Timeout = 0 },
	} {
		p := onePlan()
		change(&p)
		if _, err := Run(t.Context(), &slow{}, p, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	few := played(t, &slow{takes: func(int) time.Duration { return time.Millisecond }}, onePlan())
	many := played(t, &slow{takes: func(int) time.Duration { return 20 * time.Millisecond }}, onePlan())
	many.Rate = 5000
	var b strings.Builder
	if err := Plot(&b, `<"&>`, []Result{many, {Rate: 7}, few}); err != nil {
		t.Fatal(err)
	}
	circles, texts := 0, ""
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Local == "circle" {
				circles++
			}
		case xml.CharData:
			texts += string(e) + "|"
		}
	}
	if circles != 6 || !strings.Contains(texts, `<"&>|`) || !strings.Contains(texts, "p99.9|") || !strings.Contains(texts, "1000|") {
		t.Errorf("%d circles, texts %q", circles, texts)
	}
	if err := Plot(&b, "", nil); err == nil {
		t.Error("a picture of nothing")
	}
}
