package load

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Report prints a table with a line for each run.
func Report(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "due/s\tserved/s\tMB/s\tp50\tp90\tp99\tp99.9\tlongest\tsent p99\terrors\tnot ended\tlocal\tpeer\ts3\t")
	for i := range results {
		r := &results[i]
		fmt.Fprintf(t, "%.6g\t%.6g\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t\n",
			r.Rate, round(float64(r.Served)/r.Took.Seconds()), float64(r.Bytes)/1e6/r.Took.Seconds(),
			r.at(0.5), r.at(0.9), r.at(0.99), r.at(0.999), r.at(1), short(r.Began.At(0.99)), r.Errors, r.Late,
			r.share("local"), r.share("peer"), r.share("s3"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range results {
		if r := &results[i]; r.FirstError != nil {
			if _, err := fmt.Fprintf(w, "at %.6g/s: %d errors, the first: %v\n", r.Rate, r.Errors, r.FirstError); err != nil {
				return err
			}
		}
	}
	return nil
}

// at is a quantile of the latency; reads that were not answered make it a lower
// bound.
func (r *Result) at(q float64) string {
	text := short(r.Latency.At(q))
	if r.bounded(q) {
		return ">" + text
	}
	return text
}

// bounded: reads that were not answered reach up to the quantile, so that it is no
// more than a lower bound.
func (r *Result) bounded(q float64) bool { return float64(r.Late+r.Errors) > (1-q)*float64(r.Reads) }

// share is the part of the served reads that came from a source.
func (r *Result) share(source string) string {
	if r.Served == 0 || r.From[""] == r.Served {
		return "-" // the door does not say
	}
	return fmt.Sprintf("%.1f%%", 100*float64(r.From[source])/float64(r.Served))
}

// round cuts digits that say nothing.
func round(v float64) float64 {
	if v >= 100 {
		return float64(int64(v + 0.5))
	}
	return float64(int64(v*10+0.5)) / 10
}

// short is a duration to three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// MarshalJSON writes times in milliseconds.
func (r Result) MarshalJSON() ([]byte, error) {
	ms := func(q float64) float64 { return float64(r.Latency.At(q).Microseconds()) / 1e3 }
	first := ""
	if r.FirstError != nil {
		first = r.FirstError.Error()
	}
	return json.Marshal(map[string]any{
		"rate": r.Rate, "reads": r.Reads, "served": r.Served, "errors": r.Errors, "not_ended": r.Late, "bytes": r.Bytes,
		"seconds": r.Took.Seconds(), "from": r.From, "p50_ms": ms(0.5), "p90_ms": ms(0.9), "p99_ms": ms(0.99), "p999_ms": ms(0.999),
		"longest_ms": ms(1), "sent_p99_ms": float64(r.Began.At(0.99).Microseconds()) / 1e3, "first_error": first,
	})
}
