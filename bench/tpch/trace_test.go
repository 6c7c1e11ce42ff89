package tpch

import (
	"fmt"
	"testing"
)

// TestTraceIsTheRecordedOne compares with what the recording says of itself.
func TestTraceIsTheRecordedOne(t *testing.T) {
	trace := load(t)
	if len(trace.Objects) != 29 || len(trace.Queries) != 22 || trace.Reads() != 5190 {
		t.Fatalf("%d objects, %d queries, %d reads", len(trace.Objects), len(trace.Queries), trace.Reads())
	}
	type at struct {
		object int
		block  int64
	}
	var total, largest int64
	cold, ever := 0, make(map[at]bool)
	for i, q := range trace.Queries {
		if want := fmt.Sprintf("q%d", i+1); q.Name != want {
			t.Errorf("query %d is %s, want %s", i, q.Name, want)
		}
		once := make(map[at]bool)
		for _, r := range q.Reads {
			total, largest = total+r.Length, max(largest, r.Length)
			for b := r.Offset >> 20; b <= (r.Offset+r.Length-1)>>20; b++ {
				once[at{r.Object, b}], ever[at{r.Object, b}] = true, true
			}
		}
		cold += len(once)
	}
	if total != 888_842_094 || largest != 1_641_230 {
		t.Errorf("%d bytes, the largest read has %d", total, largest)
	}
	if cold != 2640 || len(ever) != 207 {
		t.Errorf("%d blocks by query, %d in all; want 2640 and 207", cold, len(ever))
	}
}

func TestEveryBlock(t *testing.T) {
	trace := &Trace{Objects: []Object{{"a", 10}, {"b", 0}, {"c", 8}}}
	got := fmt.Sprint(trace.EveryBlock(4))
	if want := "[{0 0 4} {0 4 4} {0 8 2} {2 0 4} {2 4 4}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestTraceRefusesBadRows(t *testing.T) {
	for _, row := range [][]string{
		{"1", "0", "0", "x"},
		{"1", "1", "0", "1"},
		{"1", "-1", "0", "1"},
		{"1", "0", "-1", "1"},
		{"1", "0", "0", "0"},
		{"1", "0", "9", "2"},
	} {
		trace := &Trace{Objects: []Object{{"a", 10}}}
		if trace.add(row) == nil {
			t.Errorf("%q is taken", row)
		}
	}
}

func load(t testing.TB) *Trace {
	t.Helper()
	trace, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return trace
}
