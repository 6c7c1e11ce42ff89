package plan

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"headstart/engine/block"
)

const b = block.DefaultSize

// TestOS04_Clamp: sizes of objects times reads; every byte asked for that
// exists is in exactly one of the blocks, and every block has one.
func TestOS04_Clamp(t *testing.T) {
	for _, object := range []int64{0, 1, b - 1, b, b + 1, 3 * b, 5<<30 + 1, math.MaxInt64} {
		last := max(object-1, 0)
		for _, c := range []struct {
			name         string
			offset, size int64
			want         int64 // bytes; -1: past the end
		}{
			{"first byte", 0, 1, min(object, 1)},
			{"last byte", last, 1, min(object, 1)},
			{"nothing", last, 0, 0},
			{"at the end", object, 1, 0},
			{"across the end", last, b, min(object, 1)},
			{"far across the end", last, math.MaxInt64, min(object, 1)},
			{"all", 0, object, object},
			{"more than all", 0, math.MaxInt64, object},
			{"to the end", 0, -1, object},
			{"the rest", last, -1, object - last},
			{"before the start", -1, 1, -1},
			{"far before the start", math.MinInt64, -1, -1},
		} {
			t.Run(fmt.Sprintf("%d/%s", object, c.name), func(t *testing.T) {
				check(t, c.offset, c.size, object, c.want)
			})
		}
		if object < math.MaxInt64 {
			check(t, object+1, 1, object, -1)
			check(t, math.MaxInt64, -1, object, -1)
		}
	}
}

func check(t *testing.T, offset, size, object, want int64) {
	t.Helper()
	r, ok := Clamp(b, offset, size, object)
	if ok != (want >= 0) {
		t.Fatalf("Clamp(%d, %d) of %d bytes: %v", offset, size, object, ok)
	}
	if !ok {
		return
	}
	if r.Offset != offset || r.End-r.Offset != want {
		t.Fatalf("bytes %d to %d, want %d from %d on", r.Offset, r.End, want, offset)
	}
	if want == 0 {
		if r.Count != 0 {
			t.Fatalf("%d blocks for no byte", r.Count)
		}
		return
	}
	start, behind := int64(r.First)*b, r.First+r.Count
	if start > r.Offset || r.Offset-start >= b {
		t.Errorf("the first block begins at %d, the read at %d", start, r.Offset)
	}
	if lastStart := int64(behind-1) * b; lastStart >= r.End || r.End-lastStart > b {
		t.Errorf("the last block begins at %d, the read ends at %d", lastStart, r.End)
	}
}

func TestOS04_ClampOfAnUnknownSize(t *testing.T) {
	if _, ok := Clamp(b, 0, 1, block.SizeUnknown); ok {
		t.Error("a read was cut to an object of unknown size")
	}
}

func TestS14_LearnAsksForTheFirstRunOfARead(t *testing.T) {
	const far = math.MaxInt64 / b
	for _, c := range []struct {
		offset, size int64
		most         int
		first        uint64
		count        int
	}{
		{0, 1, 16, 0, 1},
		{0, 0, 16, 0, 1},
		{0, b, 16, 0, 1},
		{0, b + 1, 16, 0, 2},
		{b - 1, 2, 16, 0, 2},
		{b, b, 16, 1, 1},
		{5*b - 1, 3*b + 1, 16, 4, 4},
		{5*b - 1, 3*b + 2, 16, 4, 5},
		{7, -1, 16, 0, 16},
		{7, 100 * b, 4, 0, 4},
		{7, math.MaxInt64, 16, 0, 16},
		{math.MaxInt64, math.MaxInt64, 16, far, 16},
		{math.MaxInt64, 1, 16, far, 1},
		{0, -1, 0, 0, 1},
		{0, -1, 99, 0, block.MaxRun},
	} {
		if run := Learn(b, c.offset, c.size, c.most); run != block.NewRun(c.first, c.count) {
			t.Errorf("Learn(%d, %d, %d) = %v, want %d blocks from %d on", c.offset, c.size, c.most, run, c.count, c.first)
		}
	}
}

// members lists the blocks of runs, in order.
func members(runs []block.Run) []uint64 {
	var all []uint64
	for _, r := range runs {
		for i := range uint64(block.MaxRun) {
			if r.Has(r.First + i) {
				all = append(all, r.First+i)
			}
		}
	}
	return all
}

// FuzzS08_Runs: the runs hold the blocks, in order, once; no run is longer than
// it may be or ends before it must.
func FuzzS08_Runs(f *testing.F) {
	f.Add([]byte{}, uint64(0), 16)
	f.Add([]byte{0, 1, 1, 1}, uint64(5), 16)
	f.Add([]byte{0, 15, 1, 16, 17, 1, 200}, uint64(1<<43), 3)
	f.Add(make([]byte, 40), uint64(0), 0)
	f.Add([]byte{3, 3, 3, 3, 3, 3, 3}, uint64(9), -4)
	f.Fuzz(func(t *testing.T, gaps []byte, first uint64, most int) {
		blocks := make([]uint64, 0, len(gaps))
		next := first % (1 << 44)
		for _, gap := range gaps {
			next += uint64(gap) + 1
			blocks = append(blocks, next)
		}
		runs := Runs(blocks, most)
		if got := members(runs); !slices.Equal(got, blocks) {
			t.Fatalf("Runs(%v, %d) = %v", blocks, most, runs)
		}
		limit := min(max(most, 1), block.MaxRun)
		for i, r := range runs {
			if n := r.Count(); n == 0 || n > limit || !r.Has(r.First) {
				t.Errorf("run %v has %d blocks, at most %d", r, n, limit)
			}
			if i+1 < len(runs) && r.Count() < limit && runs[i+1].First-r.First < block.MaxRun {
				t.Errorf("runs %v and %v should be one", r, runs[i+1])
			}
		}
	})
}

// FuzzSpans: the spans hold the run's blocks, in order, once, each without
// a hole; two neighbours are two spans only if one would be too long.
func FuzzSpans(f *testing.F) {
	for _, want := range []uint16{0, 1, 0x8000, 0xffff, 0b1011, 0xf00f, 0x5555} {
		f.Add(uint64(3), want, 16)
		f.Add(uint64(1<<43), want, 3)
		f.Add(uint64(0), want, 0)
	}
	f.Fuzz(func(t *testing.T, first uint64, want uint16, most int) {
		run := block.Run{First: first % (1 << 44), Want: want}
		spans := Spans(run, most)
		if got := members(spans); !slices.Equal(got, members([]block.Run{run})) {
			t.Fatalf("Spans(%v, %d) = %v", run, most, spans)
		}
		limit := min(max(most, 1), block.MaxRun)
		for i, s := range spans {
			n := s.Count()
			if n == 0 || n > limit || s != block.NewRun(s.First, n) {
				t.Errorf("span %v of at most %d blocks", s, limit)
			}
			if i+1 < len(spans) && n < limit && spans[i+1].First == s.First+uint64(n) {
				t.Errorf("spans %v and %v should be one", s, spans[i+1])
			}
		}
	})
}
