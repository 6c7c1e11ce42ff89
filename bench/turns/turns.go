// Package turns compares subjects that do the same work: they take turns, one
// after the other in each round, so that a busy minute of the machine falls on all
// of them, and what is judged is the ratio within a round. All rounds are played
// twice, and both runs are shown: ratios that do not come out alike are marked, and
// so are subjects that have two speeds.
//
// The first subject is ours. A row in which it loses has to say why.
package turns

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Subject is one of those compared.
type Subject struct {
	Name string
	// Config is how it is set up, for the reader of the table.
	Config string
	// Why says what the subject does better, or leaves out, where ours loses to it.
	Why string
	// Once is for what takes long and hardly varies: it is measured in the first
	// round of each run only.
	Once bool
	// Measure does the work for a while and returns what it cost: a value for each
	// of Plan.Units, less is better.
	Measure func() ([]float64, error)
}

// Plan is a comparison.
type Plan struct {
	Title string
	// Units are what Measure returns; the first Judged of them are judged, one if
	// that is 0.
	Units  []string
	Judged int
	// Rounds are played twice.
	Rounds int
	// Subjects has ours first.
	Subjects []Subject
}

const (
	// agree is how far the ratios of both runs may lie apart.
	agree = 0.15
	runs  = 2
)

// Compare plays all rounds and prints the table.
func Compare(w io.Writer, p Plan) error {
	p.Judged = max(p.Judged, 1)
	if len(p.Subjects) < 2 || p.Rounds < 1 || len(p.Units) < p.Judged {
		return errors.New("turns: a comparison needs two subjects, a round and a unit for each that is judged")
	}
	seen := make([][][]float64, len(p.Subjects)) // by subject, round and unit; nil where it was left out
	for round := range runs * p.Rounds {
		for i := range p.Subjects {
			at := (i + round) % len(p.Subjects)
			if round%2 == 1 { // nobody always follows the same one
				at = len(p.Subjects) - 1 - at
			}
			if p.Subjects[at].Once && round%p.Rounds > 0 {
				seen[at] = append(seen[at], nil)
				continue
			}
			cost, err := p.Subjects[at].Measure()
			if err != nil {
				return fmt.Errorf("%s: %w", p.Subjects[at].Name, err)
			}
			if len(cost) != len(p.Units) {
				return fmt.Errorf("turns: %s has measured %d values for %d units", p.Subjects[at].Name, len(cost), len(p.Units))
			}
			seen[at] = append(seen[at], cost)
		}
	}
	return p.print(w, seen)
}

func (p Plan) print(w io.Writer, seen [][][]float64) error {
	fmt.Fprintf(w, "%s: medians of %d runs of %d rounds in turns (least to most); \"costs\" is what the rival costs, ours being 1,\n"+
		"round by round, in the first and in the second run.\n\n", p.Title, runs, p.Rounds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, unit := range p.Units[:p.Judged] {
		fmt.Fprintf(t, "\t%s\t\tcosts\trun 1\trun 2\t", unit)
	}
	fmt.Fprintf(t, "\t%s\n", strings.Join(p.Units[p.Judged:], "\t"))
	var losses, notes []string
	for i, s := range p.Subjects {
		fmt.Fprint(t, s.Name)
		var lost []string
		for unit := range p.Judged {
			lost = append(lost, p.judge(t, seen, i, unit, &notes)...)
		}
		for unit := p.Judged; unit < len(p.Units); unit++ {
			fmt.Fprintf(t, "\t%s", digits(Median(column(seen[i], unit))))
		}
		fmt.Fprintln(t)
		if len(lost) > 0 {
			losses = append(losses, fmt.Sprintf("Ours loses to %s (it costs %s): %s", s.Name, strings.Join(lost, " and "), s.Why))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, line := range slices.Concat(losses, notes) {
		fmt.Fprintln(w, line)
	}
	for _, s := range p.Subjects {
		if s.Config != "" {
			fmt.Fprintf(w, "  %s: %s\n", s.Name, s.Config)
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// judge prints what subject i costs in one unit, and says whether ours loses.
func (p Plan) judge(t io.Writer, seen [][][]float64, i, unit int, notes *[]string) (lost []string) {
	// A table of one judged unit does not name it again and again.
	name, of := p.Subjects[i].Name, ""
	if p.Judged > 1 {
		name, of = name+", "+p.Units[unit], " of "+p.Units[unit]
	}
	costs := column(seen[i], unit)
	fmt.Fprintf(t, "\t%s\t(%s to %s)", digits(Median(costs)), digits(slices.Min(costs)), digits(slices.Max(costs)))
	if i == 0 {
		fmt.Fprint(t, "\t\t\t\t")
	} else {
		one, two := ratios(seen[i][:p.Rounds], seen[0], unit), ratios(seen[i][p.Rounds:], seen[0][p.Rounds:], unit)
		all, first, second := Median(slices.Concat(one, two)), Median(one), Median(two)
		mark := ""
		if all < 1 {
			mark, lost = "LOSS", append(lost, fmt.Sprintf("%.2fx%s", all, of))
		}
		fmt.Fprintf(t, "\t%.2fx\t%.2f\t%.2f\t%s", all, first, second, mark)
		if apart := math.Abs(first-second) / math.Min(first, second); apart > agree {
			*notes = append(*notes, fmt.Sprintf("%s: the two runs lie %.0f %% apart, more than %.0f %%.", name, 100*apart, 100*agree))
		}
	}
	if low, high, two := Modes(costs); two {
		*notes = append(*notes, fmt.Sprintf("%s is bimodal here: %s in %d rounds and %s in %d.", name, digits(Median(low)), len(low), digits(Median(high)), len(high)))
	}
	return lost
}

// column is one unit of the rounds that there were.
func column(rounds [][]float64, unit int) []float64 {
	var list []float64
	for _, r := range rounds {
		if r != nil {
			list = append(list, r[unit])
		}
	}
	return list
}

// ratios are of rounds that both have played.
func ratios(rounds, of [][]float64, unit int) []float64 {
	var list []float64
	for i, r := range rounds {
		if r != nil && of[i] != nil {
			list = append(list, r[unit]/of[i][unit])
		}
	}
	return list
}

// Median is the mean of the two in the middle of an even number; of none it is
// not a number.
func Median(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(list))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Modes tells whether the values lie in two heaps: a gap of a quarter of the
// median between neighbours, that is wider than either heap, with a fifth of the
// values on each side.
func Modes(list []float64) (low, high []float64, two bool) {
	v := slices.Sorted(slices.Values(list))
	at, gap := 0, 0.0
	for i := 1; i < len(v); i++ {
		if v[i]-v[i-1] > gap {
			at, gap = i, v[i]-v[i-1]
		}
	}
	if at == 0 {
		return v, nil, false
	}
	low, high = v[:at], v[at:]
	wide := func(heap []float64) bool { return heap[len(heap)-1]-heap[0] >= gap }
	few := max(2, (len(v)+4)/5)
	return low, high, gap > Median(v)/4 && len(low) >= few && len(high) >= few && !wide(low) && !wide(high)
}

// digits are three.
func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
