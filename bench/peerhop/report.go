package main

import (
	"cmp"
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

// cpu is the processor time of both processes in seconds per 10^9 bytes.
func (s *series) cpu(r round) float64 {
	return r.CPU.Seconds() / (float64(r.Calls) * float64(s.Size) / 1e9)
}

// garbage is what a call leaves to the collectors of both processes, in bytes.
func (s *series) garbage(r round) float64 { return float64(r.Garbage) / float64(r.Calls) }

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
		_, cpu, _ := s.median(s.cpu)
		_, garbage, _ := s.median(s.garbage)
		_, p50, _ := s.median(func(r round) float64 { return float64(r.P50) })
		_, p99, _ := s.median(func(r round) float64 { return float64(r.P99) })
		fmt.Fprintf(t, "%d\t%s\t%.0f\t(%.0f-%.0f)\t%.0f\t%s\t%.2f\t%.0f\t%v\t%v\t\n", s.Size, s.Way, mid, least, most, rate,
			ratio(s, all), cpu, garbage, time.Duration(p50).Round(time.Microsecond), time.Duration(p99).Round(time.Microsecond))
	}
	t.Flush()
	fmt.Fprintln(w)
	judge(w, all)
}

// ratio compares a series with plain TCP.
func ratio(s *series, all []*series) string {
	if _, r, _, ok := against(s, find(all, "tcp", s.Size)); ok {
		return fmt.Sprintf("%.2fx", r)
	}
	return ""
}

func find(all []*series, way string, size int) *series {
	for _, s := range all {
		if s.Way == way && s.Size == size {
			return s
		}
	}
	return nil
}

// against compares two series round by round, because what is noise to one is
// noise to its neighbour: the least, the median and the most of the ratios.
func against(s, o *series) (least, mid, most float64, ok bool) {
	if s == nil || o == nil || len(s.Rounds) != len(o.Rounds) {
		return 0, 0, 0, false
	}
	var each []float64
	for i := range s.Rounds {
		each = append(each, calls(s.Rounds[i])/calls(o.Rounds[i]))
	}
	slices.Sort(each)
	return each[0], each[len(each)/2], each[len(each)-1], true
}

// goal is what the hop is meant to reach for one size of blocks; 0 is nothing.
type goal struct {
	size                               int
	stock, tcp, garbage, cpu, overBare float64
}

func goals() []goal {
	return []goal{
		{size: 4 << 10, stock: 1, garbage: 2048},
		{size: 64 << 10, stock: 2, tcp: 0.60, garbage: 2048, overBare: 0.8},
		{size: 1 << 20, stock: 2, tcp: 0.75, garbage: 2048, cpu: 0.8, overBare: 0.8},
	}
}

// steady is what no round may fall short of, as a part of the median.
const steady = 0.7

// judge compares what was measured with the goals.
func judge(w io.Writer, all []*series) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "block\twhat\tmedian\tleast to most\tgoal\t\t")
	line := func(size int, what, format string, got, from, to, goal float64, atMost bool) {
		if goal == 0 {
			return
		}
		sign, verdict := "at least", "reached"
		if atMost {
			sign = "at most"
		}
		if atMost && got > goal || !atMost && got < goal {
			verdict = "MISSED"
		}
		fmt.Fprintf(t, "%d\t%s\t"+format+"\t"+format+" to "+format+"\t%s "+format+"\t%s\t\n", size, what, got, from, to, sign, goal, verdict)
	}
	for _, g := range goals() {
		hop := find(all, "hop", g.size)
		if hop == nil {
			continue
		}
		stock := better(find(all, "kitex-netpoll", g.size), find(all, "kitex-gonet", g.size))
		if least, r, most, ok := against(hop, stock); ok {
			line(g.size, "hop : "+stock.Way, "%.2f", r, least, most, g.stock, false)
		}
		if least, r, most, ok := against(hop, find(all, "tcp", g.size)); ok {
			line(g.size, "hop : tcp", "%.2f", r, least, most, g.tcp, false)
		}
		if least, r, most, ok := against(find(all, "hop-tls", g.size), find(all, "tls", g.size)); ok {
			line(g.size, "hop-tls : tls", "%.2f", r, least, most, g.overBare, false)
		}
		least, bytes, most := hop.median(hop.garbage)
		line(g.size, "hop: garbage a call, bytes", "%.0f", bytes, least, most, g.garbage, true)
		least, cpu, most := hop.median(hop.cpu)
		line(g.size, "hop: core-seconds per GB", "%.2f", cpu, least, most, g.cpu, true)
		least, rate, most := hop.median(hop.megabytes)
		line(g.size, "hop: worst round : median", "%.2f", least/rate, least/rate, most/rate, steady, false)
	}
	t.Flush()
}

// better returns the faster of two ways of which one may be missing.
func better(a, b *series) *series {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	_, fast, _ := a.median(calls)
	if _, other, _ := b.median(calls); other > fast {
		return b
	}
	return a
}
