package tpch

import (
	"bytes"
	"testing"
)

func TestContentsAreSeeded(t *testing.T) {
	objects := []Object{{"a", 1 << 16}, {"b", 1 << 16}, {"c", 1001}}
	one, again, other := Generate(objects, 1), Generate(objects, 1), Generate(objects, 2)
	for i, o := range objects {
		if int64(len(one.Object(i))) != o.Size || !bytes.Equal(one.Object(i), again.Object(i)) {
			t.Errorf("object %d differs between two runs of one seed", i)
		}
		if bytes.Equal(one.Object(i), other.Object(i)) {
			t.Errorf("object %d is the same for two seeds", i)
		}
	}
}

// TestContentsAreUnique looks for any word of eight bytes that comes up twice.
func TestContentsAreUnique(t *testing.T) {
	objects := []Object{{"a", 4 << 20}, {"b", 4 << 20}}
	c := Generate(objects, 1)
	seen := make(map[[8]byte]bool, 1<<20)
	for i := range objects {
		data := c.Object(i)
		for off := 0; off < len(data); off += 8 {
			word := [8]byte(data[off:])
			if seen[word] {
				t.Fatalf("the word at %d of object %d has come up before", off, i)
			}
			seen[word] = true
		}
	}
}

func TestContentsWrong(t *testing.T) {
	c := Generate([]Object{{"a", 100}}, 1)
	good := c.Object(0)[10:30]
	r := Read{Offset: 10, Length: 20}
	flipped := bytes.Clone(good)
	flipped[3] ^= 1
	flipped[19] ^= 1
	for _, tc := range []struct {
		name string
		got  []byte
		want int64
	}{
		{"right", good, 0},
		{"two bytes flipped", flipped, 2},
		{"short", good[:15], 5},
		{"long", c.Object(0)[10:33], 3},
		{"nothing", nil, 20},
	} {
		if got := c.Wrong(r, tc.got); got != tc.want {
			t.Errorf("%s: %d wrong, want %d", tc.name, got, tc.want)
		}
	}
}

// BenchmarkGenerate makes the whole data set: it must stay well below 1 s.
func BenchmarkGenerate(b *testing.B) {
	objects := load(b).Objects
	for b.Loop() {
		Generate(objects, 1)
	}
}
