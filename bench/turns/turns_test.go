package turns

import (
	"errors"
	"strings"
	"testing"
)

// costs returns a Measure that says what is listed, over and over.
func costs(list ...float64) func() ([]float64, error) {
	n := 0
	return func() ([]float64, error) {
		n++
		v := list[(n-1)%len(list)]
		return []float64{v, 2 * v}, nil
	}
}

func TestLossesDisagreementAndModesAreNamed(t *testing.T) {
	var b strings.Builder
	err := Compare(&b, Plan{Title: "Look-up", Units: []string{"ns", "CPU-ns"}, Rounds: 5, Subjects: []Subject{
		{Name: "ours", Config: "as it comes", Measure: costs(100)},
		{Name: "faster", Why: "it leaves the checksum out", Measure: costs(80, 81, 79)},
		{Name: "slower", Measure: costs(200, 201, 202, 203, 204)},
		{Name: "moody", Measure: costs(150, 300, 151, 301)},
		{Name: "drifts", Measure: costs(110, 110, 110, 110, 110, 150, 150, 150, 150, 150)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for _, want := range []string{
		"ours    100", "0.80x", "LOSS", "Ours loses to faster (it costs 0.80x): it leaves the checksum out",
		"2.02x", "moody is bimodal here: 150 in 5 rounds and 300 in 5.", "drifts: the two runs lie 36 % apart, more than 15 %.", "  ours: as it comes",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Count(out, "LOSS") != 1 || strings.Contains(out, "slower is") || strings.Contains(out, "slower: ") {
		t.Errorf("more is said than there is:\n%s", out)
	}
}

func TestSeveralUnitsAreJudgedEachForItself(t *testing.T) {
	two := func(a, b float64) func() ([]float64, error) {
		return func() ([]float64, error) { return []float64{a, b, 7}, nil }
	}
	n := 0
	var b strings.Builder
	err := Compare(&b, Plan{Title: "Hits", Units: []string{"µs", "CPU-µs", "others"}, Judged: 2, Rounds: 3, Subjects: []Subject{
		{Name: "ours", Measure: two(10, 10)},
		{Name: "cheap", Why: "it sends files", Measure: two(20, 5)},
		{Name: "best", Why: "it does nothing", Measure: two(5, 2)},
		{Name: "slow", Once: true, Measure: func() ([]float64, error) { n++; return []float64{30, 40, 7}, nil }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for _, want := range []string{
		"Ours loses to cheap (it costs 0.50x of CPU-µs): it sends files",
		"Ours loses to best (it costs 0.50x of µs and 0.20x of CPU-µs): it does nothing",
		"3.00x  3.00   3.00", "4.00x  4.00   4.00", "7.00",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Count(out, "LOSS") != 3 || strings.Contains(out, "apart") || n != runs {
		t.Errorf("%d measurements of what is measured once in each of %d runs:\n%s", n, runs, out)
	}
}

// What a subject leaves behind, a warm processor or a busy one, meets the next one.
func TestNobodyAlwaysFollowsTheSame(t *testing.T) {
	var order []string
	var list []Subject
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		list = append(list, Subject{Name: name, Measure: func() ([]float64, error) {
			order = append(order, name)
			return []float64{1}, nil
		}})
	}
	if err := Compare(&strings.Builder{}, Plan{Units: []string{"ns"}, Rounds: 10, Subjects: list}); err != nil {
		t.Fatal(err)
	}
	after := map[string]map[string]int{}
	for i, name := range order[1:] {
		if after[name] == nil {
			after[name] = map[string]int{}
		}
		after[name][order[i]]++
	}
	for name, before := range after {
		for other, n := range before {
			if n > 12 { // of 20 rounds
				t.Errorf("%s comes after %s in %d of 20 rounds", name, other, n)
			}
		}
	}
}

func TestAFailureNamesItsSubject(t *testing.T) {
	bad := Subject{Name: "broken", Measure: func() ([]float64, error) { return nil, errors.New("no") }}
	err := Compare(&strings.Builder{}, Plan{Units: []string{"ns"}, Rounds: 1, Subjects: []Subject{bad, bad}})
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
	if Compare(&strings.Builder{}, Plan{Units: []string{"ns"}, Rounds: 1, Subjects: []Subject{bad}}) == nil {
		t.Error("a comparison of one")
	}
}

func TestModes(t *testing.T) {
	for name, c := range map[string]struct {
		list []float64
		two  bool
	}{
		"one heap":            {[]float64{100, 102, 101, 103, 99, 100}, false},
		"two heaps":           {[]float64{100, 102, 180, 181, 101, 183}, true},
		"one that is astray":  {[]float64{100, 102, 101, 103, 99, 500}, false},
		"spread all over":     {[]float64{100, 150, 200, 250, 300, 350}, false},
		"all the same":        {[]float64{5, 5, 5, 5}, false},
		"two that are nearby": {[]float64{100, 101, 110, 111, 100, 110}, false},
		"nothing":             {nil, false},
	} {
		if _, _, two := Modes(c.list); two != c.two {
			t.Errorf("%s: bimodal %v", name, two)
		}
	}
}
