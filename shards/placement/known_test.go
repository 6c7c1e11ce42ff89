package placement

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"headstart/engine/block"
)

func newKnown(maxTablets int64, ids ...uint64) *known {
	k := &known{max: maxTablets}
	for _, id := range ids {
		k.see(id, 100)
	}
	return k
}

func (k *known) see(id uint64, today uint16) {
	k.note(id, keyOf(block.Route{Kind: block.RouteTablet, ID: id}), today)
}

// all returns the tablets known, sorted.
func (k *known) all() []uint64 {
	ids := []uint64{}
	for i := range BucketCount {
		ids = k.appendIDs(ids, i)
	}
	slices.Sort(ids)
	return ids
}

func TestS86_KnownTabletsComeBackFromTheStore(t *testing.T) {
	ids := []uint64{0, 1, 2, 1 << 20, 1 << 62, math.MaxInt64, math.MaxUint64}
	k := newKnown(1000, ids...)
	k.see(2, 100) // nothing new
	saved := k.unsaved()
	if again := k.unsaved(); len(saved) != len(ids) || len(again) != 0 {
		t.Fatalf("%d buckets to save, then %d; want %d, then none", len(saved), len(again), len(ids))
	}
	k.saveAgain(saved[:2])
	if again := k.unsaved(); len(again) != 2 {
		t.Errorf("after a failed save %d buckets are to be saved, want 2", len(again))
	}
	back := newKnown(1000)
	for _, tb := range saved {
		if err := back.merge(tb); err != nil {
			t.Fatal(err)
		}
	}
	if got := back.all(); !slices.Equal(got, ids) {
		t.Errorf("came back: %v, want %v", got, ids)
	}
	if len(back.unsaved()) != 0 {
		t.Error("what has been loaded is saved again")
	}
	k.see(2, 101)
	if len(k.unsaved()) != 1 {
		t.Error("that a tablet was asked for on another day is not saved")
	}
}

// Two FEs that save the same bucket at the same time end up with all tablets.
func TestS86_FEsThatLearnApartKnowTheSameInTheEnd(t *testing.T) {
	var one, two uint64 // two tablets of one bucket
	bucket := bucketOf(keyOf(block.Route{Kind: block.RouteTablet, ID: one}))
	for two = 1; bucketOf(keyOf(block.Route{Kind: block.RouteTablet, ID: two})) != bucket; two++ {
	}
	a, b := newKnown(10, one), newKnown(10, two)
	a.unsaved()
	stored := b.unsaved() // wipes out what a has stored
	for range 2 {
		for _, k := range []*known{a, b} {
			for _, tb := range stored {
				if err := k.merge(tb); err != nil {
					t.Fatal(err)
				}
			}
			if news := k.unsaved(); len(news) > 0 {
				stored = news
			}
		}
	}
	for _, k := range []*known{a, b} {
		if got := k.all(); !slices.Equal(got, []uint64{one, two}) {
			t.Errorf("an FE knows %v, want %d and %d", got, one, two)
		}
	}
}

func TestKnownTabletsAreBoundedAndExpire(t *testing.T) {
	k := newKnown(3, 1, 2, 3, 4, 5, 1)
	if got := k.all(); !slices.Equal(got, []uint64{1, 2, 3}) || k.size.Load() != 3 || k.refused.Load() != 2 {
		t.Fatalf("known %v, size %d, refused %d", got, k.size.Load(), k.refused.Load())
	}
	k.see(2, 107)
	k.unsaved()
	k.expire(101)
	if got := k.all(); !slices.Equal(got, []uint64{2}) || k.size.Load() != 1 || len(k.unsaved()) != 2 {
		t.Errorf("known %v, size %d", got, k.size.Load())
	}
	k.see(4, 107)
	if got := k.all(); len(got) != 2 {
		t.Errorf("there is room, but known are %v", got)
	}
}

func TestStoredTabletsThatMakeNoSenseAreRefused(t *testing.T) {
	good := newKnown(10, 5).unsaved()[0]
	for name, tb := range map[string]TabletBucket{
		"index":        {Index: BucketCount, Data: good.Data},
		"other bucket": {Index: (good.Index + 1) % BucketCount, Data: good.Data},
		"cut":          {Index: good.Index, Data: good.Data[:1]},
		"not a number": {Index: good.Index, Data: []byte{0xff}},
		"day":          {Index: good.Index, Data: []byte{5, 0xff, 0xff, 0xff, 0x7f}},
	} {
		k := newKnown(10)
		if err := k.merge(tb); err == nil || !strings.Contains(err.Error(), "tablets of bucket") {
			t.Errorf("%s: error %v", name, err)
		}
		if len(k.all()) != 0 {
			t.Errorf("%s: tablets were taken", name)
		}
	}
}

// What one million tablets cost, stated in docs/FE.md.
func TestMillionTabletsTakeTwentyMegabytes(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	k := newKnown(1 << 30)
	for id := range uint64(1_000_000) {
		k.see(id*977, 100)
	}
	bytes := heap() - before
	if bytes > 20<<20 {
		t.Errorf("a million tablets take %.1f MB, want at most 20", float64(bytes)/(1<<20))
	}
	stored := 0
	for _, tb := range k.unsaved() {
		stored += len(tb.Data)
	}
	t.Logf("%.1f MB of memory, %.1f MB stored", float64(bytes)/(1<<20), float64(stored)/(1<<20))
	runtime.KeepAlive(k)
}

func TestSetsOfBucketsAreTextAndBack(t *testing.T) {
	var b Buckets
	for _, i := range []int{0, 63, 64, 4095} {
		b.Add(i)
	}
	text, err := b.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var back Buckets
	if err := back.UnmarshalText(text); err != nil || back != b || back.Len() != 4 || !back.Has(63) || back.Has(62) {
		t.Errorf("%d buckets came back as %d (%v)", b.Len(), back.Len(), err)
	}
	if text, _ := (Buckets{}).MarshalText(); len(text) != 0 || back.UnmarshalText(text) != nil || back.Len() != 0 {
		t.Errorf("the empty set is %q and %d come back", text, back.Len())
	}
	for _, bad := range []string{"AAAA", "???"} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if got := bucketOf(keyOf(block.TabletRoute(10086))); got != 1738 {
		t.Errorf("tablet 10086 is in bucket %d: stored tablets and rounds would mean others", got)
	}
}
