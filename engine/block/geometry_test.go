package block

import (
	"bytes"
	"math"
	"testing"
)

func TestS11_Geometry(t *testing.T) {
	const b = DefaultSize
	for _, c := range []struct {
		size   int64
		blocks uint64
		last   int
	}{
		{SizeUnknown, 0, 0}, {0, 0, 0}, {1, 1, 1}, {b - 1, 1, b - 1}, {b, 1, b}, {b + 1, 2, 1}, {3 * b, 3, b},
		{5<<30 + 1, 5<<10 + 1, 1}, {5 << 40, 5 << 20, b}, {math.MaxInt64, 1 << 43, b - 1},
	} {
		g := Geometry(b)
		if n := g.Blocks(c.size); n != c.blocks {
			t.Errorf("%d bytes are %d blocks, want %d", c.size, n, c.blocks)
			continue
		}
		if c.blocks > 0 {
			if n := g.Len(c.blocks-1, c.size); n != c.last {
				t.Errorf("the last block of %d bytes has %d, want %d", c.size, n, c.last)
			}
			if last := g.Index(c.size - 1); last != c.blocks-1 || g.Offset(last)+int64(c.last) != c.size {
				t.Errorf("the last byte of %d is in block %d at %d", c.size, last, g.Offset(last))
			}
		}
		if c.blocks > 1 && g.Len(0, c.size) != b {
			t.Errorf("the first of %d blocks has %d bytes", c.blocks, g.Len(0, c.size))
		}
	}
	if n := Geometry(3).Blocks(7); n != 3 {
		t.Errorf("7 bytes in blocks of 3 are %d blocks", n)
	}
}

// TestLC29_DistantBlocksAreNotAliased: an index that a stranger sends must not
// wrap into a block of the object.
func TestLC29_DistantBlocksAreNotAliased(t *testing.T) {
	g := Geometry(DefaultSize)
	for _, index := range []uint64{3, 1 << 31, 1 << 32, 1<<32 + 1, 1 << 43, 1<<44 + 1, 1 << 63, math.MaxUint64} {
		if n := g.Len(index, 3*DefaultSize); n != 0 {
			t.Errorf("block %d of an object of three has %d bytes", index, n)
		}
	}
	const huge = 5 << 42 // bytes: more than 2^32 blocks of 4 KiB
	small := Geometry(4096)
	for _, index := range []uint64{1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 1} {
		if small.Index(small.Offset(index)) != index || small.Index(small.Offset(index)+4095) != index {
			t.Errorf("block %d does not hold its own bytes", index)
		}
		if n := small.Len(index, huge); n != 4096 {
			t.Errorf("block %d has %d bytes", index, n)
		}
	}
}

func TestRunMembers(t *testing.T) {
	for _, first := range []uint64{0, 1, 1 << 31, 1 << 32, math.MaxUint64 - MaxRun + 1} {
		for count := 1; count <= MaxRun; count++ {
			r := NewRun(first, count)
			if r.Count() != count || !r.Has(first) || !r.Has(first+uint64(count)-1) || r.Has(first-1) {
				t.Errorf("%v: wrong members", r)
			}
			if count < MaxRun && r.Has(first+uint64(count)) || r.Has(first+MaxRun) {
				t.Errorf("%v reaches too far", r)
			}
			if less := r.Without(first); less.Count() != count-1 || less.Has(first) || less.First != first {
				t.Errorf("%v without its first block is %v", r, less)
			}
			if r.Without(first-1) != r || r.Without(first+1<<40) != r {
				t.Errorf("%v lost a block that it does not have", r)
			}
		}
	}
}

// TestRunSpans walks all 65536 sets.
func TestRunSpans(t *testing.T) {
	for want := range 1 << MaxRun {
		whole := Run{First: 1 << 33, Want: uint16(want)}
		var seen uint16
		rest := whole
		for rest.Want != 0 {
			var span Run
			span, rest = rest.Span()
			shift := span.First - whole.First
			bits := span.Want << shift
			if span != NewRun(span.First, span.Count()) || bits>>shift != span.Want || seen&bits != 0 || bits < seen {
				t.Fatalf("%v: span %v is not the next group", whole, span)
			}
			if rest.Has(span.First+uint64(span.Count())) || rest.First != whole.First {
				t.Fatalf("%v: span %v ends too early, %v is left", whole, span, rest)
			}
			seen |= bits
		}
		if seen != whole.Want {
			t.Fatalf("%v: the spans hold %016b", whole, seen)
		}
		if span, left := rest.Span(); span != rest || left != rest {
			t.Fatalf("%v: a span of nothing is %v", whole, span)
		}
	}
}

// TestS13_ChecksumVectors are those of RFC 3720, appendix B.4.
func TestS13_ChecksumVectors(t *testing.T) {
	rising := make([]byte, 32)
	for i := range rising {
		rising[i] = byte(i)
	}
	for _, c := range []struct {
		data []byte
		want uint32
	}{
		{nil, 0},
		{make([]byte, 32), 0x8a9136aa},
		{bytes.Repeat([]byte{0xff}, 32), 0x62a8ab43},
		{rising, 0x46dd794e},
	} {
		if got := Checksum(c.data); got != c.want {
			t.Errorf("Checksum(% x) = %08x, want %08x", c.data, got, c.want)
		}
	}
}
