package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchfmt"
)

// row is one benchmark: all rounds of each of its units.
type row struct {
	name   string
	units  []string // in the order in which they are printed
	values map[string][]float64
}

// rowsOf reads what benchmarks have printed.
func rowsOf(out []byte) ([]*row, error) {
	var rows []*row
	byName := make(map[string]*row)
	for r := benchfmt.NewReader(bytes.NewReader(out), "rounds"); r.Scan(); {
		result, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue // the unit's description, or a line that is none of a benchmark
		}
		name, procs := result.Name.Parts()
		var text strings.Builder
		text.WriteString(strings.TrimPrefix(result.GetConfig("pkg"), "headstart/") + " " + string(name))
		for _, p := range procs {
			if !bytes.HasPrefix(p, []byte("-")) {
				text.Write(p)
			}
		}
		full := text.String()
		one := byName[full]
		if one == nil {
			one = &row{name: full, values: make(map[string][]float64)}
			byName[full], rows = one, append(rows, one)
		}
		for _, v := range result.Values {
			unit, value := cmp.Or(v.OrigUnit, v.Unit), v.OrigValue
			if v.OrigUnit == "" {
				value = v.Value
			}
			if one.values[unit] == nil {
				one.units = append(one.units, unit)
			}
			one.values[unit] = append(one.values[unit], value)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no benchmark has printed a line:\n%.500s", out)
	}
	return rows, nil
}

// report prints a line for each benchmark: medians, and of the time also the
// best round and the worst. Metrics in -ns are times.
func report(w io.Writer, o options, out []byte) error {
	rows, err := rowsOf(out)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Medians of %d rounds of %v each (best to worst), GOMAXPROCS %d. On a busy machine the best is nearer to the truth.\n\n",
		o.rounds, o.each, runtime.GOMAXPROCS(0))
	columns := []string{"ns/op", "p50-ns", "p99-ns", "MB/s", "B/op", "allocs/op"}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "benchmark\tone operation\t\tp50\tp99\tMB/s\tB/op\tallocs/op\talso")
	for _, r := range rows {
		time, spread := "", ""
		if ns := r.values["ns/op"]; len(ns) > 0 && slices.Max(ns) > 0 {
			time = nanos(median(ns))
			spread = fmt.Sprintf("(%s to %s)", nanos(slices.Min(ns)), nanos(slices.Max(ns)))
		}
		var also []string
		for _, unit := range r.units {
			switch what, time := strings.CutSuffix(unit, "-ns"); {
			case slices.Contains(columns, unit):
			case time:
				also = append(also, what+" "+nanos(median(r.values[unit])))
			default:
				also = append(also, number(median(r.values[unit]))+" "+unit)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.name, time, spread,
			r.time("p50-ns"), r.time("p99-ns"), r.cell("MB/s"), r.cell("B/op"), r.cell("allocs/op"), strings.Join(also, ", "))
	}
	return t.Flush()
}

// time is the median of a metric in nanoseconds, if the benchmark has it.
func (r *row) time(unit string) string {
	if len(r.values[unit]) == 0 {
		return ""
	}
	return nanos(median(r.values[unit]))
}

// nanos is a time in a unit that leaves one to three digits before the point.
func nanos(v float64) string {
	for _, unit := range []string{"ns", "µs", "ms"} {
		if math.Abs(v) < 999.5 {
			return number(v) + " " + unit
		}
		v /= 1000
	}
	return number(v) + " s"
}

// cell is the median of one unit, if the benchmark has it.
func (r *row) cell(unit string) string {
	if len(r.values[unit]) == 0 {
		return ""
	}
	return number(median(r.values[unit]))
}

// median of an even number of values is the mean of the two in the middle.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// number has three digits, and no exponent.
func number(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
