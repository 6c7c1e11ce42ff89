package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// list splits a list of names.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// megabytes is the speed of a round in 10^6 bytes a second.
func (s *series) megabytes(r round) float64 {
	return float64(r.Calls) * float64(s.Size) / 1e6 / r.Elapsed.Seconds()
}

func calls(r round) float64 { return float64(r.Calls) / r.Elapsed.Seconds() }

// median of what of says of each round, with the least and the most.
func (s *series) median(of func(round) float64) (least, mid, most float64) {
	var all []float64
	for _, r := range s.Rounds {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all[0], all[len(all)/2], all[len(all)-1]
}

// report prints a table for people.
func report(w io.Writer, p plan, all []*series) {
	fmt.Fprintf(w, "%d processors, %s, %d in flight, medians of %d rounds of %v (least to most)\n\n",
		runtime.NumCPU(), runtime.Version(), p.InFlight, p.Rounds, p.Time)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "block\tway\tMB/s\t\tcalls/s\tof tcp\tcpu-s/GB\tgarbage/call\tp50\tp99\t")
	for _, s := range all {
		least, mid, most := s.median(s.megabytes)
		_, rate, _ := s.median(calls)
		_, cpu, _ := s.median(func(r round) float64 { return r.CPU.Seconds() / (float64(r.Calls) * float64(s.Size) / 1e9) })
		_, garbage, _ := s.median(func(r round) float64 { return float64(r.Garbage) / float64(r.Calls) })
		_, p50, _ := s.median(func(r round) float64 { return float64(r.P50) })
		_, p99, _ := s.median(func(r round) float64 { return float64(r.P99) })
		fmt.Fprintf(t, "%d\t%s\t%.0f\t(%.0f-%.0f)\t%.0f\t%s\t%.2f\t%.0f\t%v\t%v\t\n", s.Size, s.Way, mid, least, most, rate,
			ratio(s, all), cpu, garbage, time.Duration(p50).Round(time.Microsecond), time.Duration(p99).Round(time.Microsecond))
	}
	t.Flush()
}

// ratio compares a series with plain TCP, round by round: what is noise to one
// is noise to its neighbour.
func ratio(s *series, all []*series) string {
	for _, o := range all {
		if o.Way != "tcp" || o.Size != s.Size || len(o.Rounds) != len(s.Rounds) {
			continue
		}
		var each []float64
		for i := range s.Rounds {
			each = append(each, calls(s.Rounds[i])/calls(o.Rounds[i]))
		}
		slices.Sort(each)
		return fmt.Sprintf("%.2fx", each[len(each)/2])
	}
	return ""
}
