package load

import (
	"slices"
	"strings"
	"testing"
)

func TestScanReadsEverythingOnce(t *testing.T) {
	w := Scan([]Object{{Key: "a", Size: 250}, {Key: "b", Size: 100}}, 100)
	want := []Read{{0, 0, 100}, {0, 100, 100}, {0, 200, 50}, {1, 0, 100}}
	if w.Len() != int64(len(want)) || w.longest() != 100 {
		t.Errorf("%d reads, the longest %d bytes", w.Len(), w.longest())
	}
	for n := range 2 * w.Len() {
		if got := w.At(n); got != want[n%w.Len()] {
			t.Errorf("read %d: %v", n, got)
		}
	}
}

// TestWorkTakesNoRoom: objects may be cut into any number of places, and these are
// never listed.
func TestWorkTakesNoRoom(t *testing.T) {
	objects := []Object{{Key: "a", Size: 1 << 50}, {Key: "b", Size: 1 << 50}}
	w := Scan(objects, 1)
	if last := w.At(w.Len() - 1); w.Len() != 1<<51 || last != (Read{1, 1<<50 - 1, 1}) {
		t.Errorf("%d reads, the last %v", w.Len(), last)
	}
	z, seen := Zipf(objects, 1, 1.1, 1), [2]int{}
	for n := range z.Len() {
		r := z.At(n)
		if seen[r.Object]++; r.Length != 1 || r.Offset < 0 || r.Offset >= 1<<50 {
			t.Fatalf("%v", r)
		}
	}
	if z.Len() != draws || seen[0] == 0 || seen[1] == 0 {
		t.Errorf("%v of %d reads are of each object", seen, z.Len())
	}
}

// The most popular of 1000 places is drawn as often as the law says: 1/k^1.1 over
// their sum, which is 5.57.
func TestZipfFollowsItsLaw(t *testing.T) {
	w := Zipf([]Object{{Key: "a", Size: 1000 << 10}}, 1<<10, 1.1, 1)
	seen := make(map[Read]int)
	for _, r := range w.Reads {
		seen[r]++
	}
	most := 0
	for _, n := range seen {
		most = max(most, n)
	}
	if want := draws / 5.57; float64(most) < 0.95*want || float64(most) > 1.05*want || len(seen) < 500 {
		t.Errorf("%d places, the first %d times, want %.0f", len(seen), most, want)
	}
}

// TestZipfKnowsEachPlace: the k-th most popular place is another one for each k.
func TestZipfKnowsEachPlace(t *testing.T) {
	for size := range int64(64) {
		seen := make(map[Read]bool)
		z := Zipf([]Object{{Key: "a", Size: size + 1}}, 1, 1.0001, uint64(size))
		for _, r := range z.Reads {
			seen[r] = true
		}
		if len(seen) != int(size+1) {
			t.Errorf("%d of %d places are read", len(seen), size+1)
		}
	}
}

func TestRecordedReadsLieInTheirObjects(t *testing.T) {
	w, err := Recorded()
	if err != nil || len(w.Reads) < 1000 {
		t.Fatalf("%v", err)
	}
	for _, r := range w.Reads {
		if o := w.Objects[r.Object]; r.Offset < 0 || r.Length < 1 || r.Offset+r.Length > o.Size || o.Tablet < 1 {
			t.Fatalf("%+v of %+v", r, o)
		}
	}
}

func TestListsAreParsed(t *testing.T) {
	objects, err := ParseObjects(strings.NewReader("a/b,100\n\"c,d\",200,7\n"))
	if err != nil || !slices.Equal(objects, []Object{{"a/b", 100, External}, {"c,d", 200, 7}}) {
		t.Fatalf("%+v (%v)", objects, err)
	}
	w, err := ParseTrace(strings.NewReader("\"c,d\",10,190\na/b,0,1\n"), objects)
	if err != nil || !slices.Equal(w.Reads, []Read{{1, 10, 190}, {0, 0, 1}}) {
		t.Fatalf("%+v (%v)", w, err)
	}
	for text, names := range map[string]string{
		"": "no object", "a": "line 1", "a,0": "size", "a,x": "size", "ok,1\na,1,x": "line 2", "a,1,-1": "tablet", ",1": "line 1", "a,1,2,3": "line 1", `"`: "",
	} {
		if _, err := ParseObjects(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("objects %q: %v, want %q in it", text, err, names)
		}
	}
	for text, names := range map[string]string{
		"": "no read", "z,0,1": "none of", "a/b,0": "", "a/b,x,1": "line 1", "a/b,100,1": "within", "a/b,0,101": "within", "a/b,-1,5": "within",
		"a/b,9223372036854775807,9223372036854775807": "within", "a/b,0,0": "within",
	} {
		if _, err := ParseTrace(strings.NewReader(text), objects); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("trace %q: %v, want %q in it", text, err, names)
		}
	}
}

func TestNodesAreChecked(t *testing.T) {
	for _, nodes := range [][]string{nil, {""}, {"host"}, {"host:"}, {"a:1", "b:0"}} {
		if err := (&Options{Nodes: nodes}).Validate(); err == nil {
			t.Errorf("%q: no error", nodes)
		}
	}
}
