package object

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
)

func named(i int) block.Object {
	return block.Object{Store: block.DefaultStore, Bucket: "data", Key: fmt.Sprintf("part-%06d", i)}
}

func meta(v block.Version) block.Meta { return block.Meta{Size: 100, Version: v} }

func TestS14_LearnAndGet(t *testing.T) {
	table, now := NewTable(0), time.Unix(1000, 0)
	key := KeyOf(named(1), "etag-1")
	if table.Get(key) != nil {
		t.Fatal("an empty table knows an object")
	}
	first := table.Learn(key, meta("etag-1"), now)
	if got := table.Get(key); got != first || got.Meta != meta("etag-1") || !got.Learned.Equal(now) {
		t.Errorf("got %+v", got)
	}
	if first.Base != block.BaseID(named(1), "etag-1") {
		t.Error("the base id is not that of the version")
	}
	second := table.Learn(key, meta("etag-2"), now)
	if table.Get(key) != second || second.Base == first.Base {
		t.Error("news must replace what was known, with another base id")
	}
}

func TestS14_TabletFilesAndExternalObjectsAreApart(t *testing.T) {
	table := NewTable(0)
	o := named(1)
	immutable := table.Learn(KeyOf(o, block.Immutable), meta(block.Immutable), time.Now())
	external := table.Learn(KeyOf(o, "etag-1"), meta("etag-1"), time.Now())
	if table.Get(KeyOf(o, block.Immutable)) != immutable || table.Get(KeyOf(o, "")) != external {
		t.Error("one object read in two ways is known in one way")
	}
	if immutable.Base == external.Base {
		t.Error("two versions share their ids")
	}
	for _, other := range []block.Object{
		{Store: "s4", Bucket: o.Bucket, Key: o.Key},
		{Store: o.Store, Bucket: "other", Key: o.Key},
		{Store: o.Bucket, Bucket: o.Store, Key: o.Key},
		{Store: o.Store, Bucket: o.Key, Key: o.Bucket},
	} {
		if table.Get(KeyOf(other, "")) != nil {
			t.Errorf("%v is taken for %v", other, o)
		}
	}
}

func TestForgetKeepsLaterNews(t *testing.T) {
	table, key := NewTable(0), KeyOf(named(1), "")
	old := table.Learn(key, meta("etag-1"), time.Now())
	now := table.Learn(key, meta("etag-2"), time.Now())
	table.Forget(key, old)
	if table.Get(key) != now {
		t.Error("forgetting an old version dropped the new one")
	}
	table.Forget(key, now)
	table.Forget(key, now)
	if table.Get(key) != nil || table.Len() != 0 {
		t.Error("a version that was forgotten is still known")
	}
}

func TestTableIsBounded(t *testing.T) {
	for _, limit := range []int{1, 2, 16, 1000} {
		table := NewTable(limit)
		for i := range 4 * limit {
			k := KeyOf(named(i), "")
			if known := table.Learn(k, meta("v"), time.Now()); table.Get(k) != known {
				t.Fatalf("limit %d: object %d was dropped as soon as it was learned", limit, i)
			}
			if n := table.Len(); n > limit {
				t.Fatalf("%d objects, the limit is %d", n, limit)
			}
		}
		if n := table.Len(); n < limit-limit/16-1 || n == 0 {
			t.Errorf("limit %d: only %d objects are left", limit, n)
		}
	}
}

func TestWhatIsReadStays(t *testing.T) {
	const limit = 1600
	table := NewTable(limit)
	for i := range limit {
		table.Learn(KeyOf(named(i), ""), meta("v"), time.Now())
	}
	hot := limit / 4
	for i := limit; i < 2*limit; i++ {
		if i%50 == 0 { // read now and then, between two sweeps
			for j := range hot {
				table.Get(KeyOf(named(j), ""))
			}
		}
		table.Learn(KeyOf(named(i), ""), meta("v"), time.Now())
	}
	kept := 0
	for j := range hot {
		if table.Get(KeyOf(named(j), "")) != nil {
			kept++
		}
	}
	if kept != hot {
		t.Errorf("%d of %d objects that were read all the time are left", kept, hot)
	}
}

func TestRoomIsMadeThoughAllIsRead(t *testing.T) {
	const limit = 32
	for range 200 { // walks begin at random
		table := NewTable(limit)
		for i := range limit + 1 {
			k := KeyOf(named(i), "")
			table.Learn(k, meta("v"), time.Now())
			table.Get(k)
		}
		if n := table.Len(); n != limit-limit/16 {
			t.Fatalf("%d objects are left, want %d", n, limit-limit/16)
		}
	}
}

func TestWhatIsOldGoes(t *testing.T) {
	const limit = 200
	for _, read := range []bool{false, true} {
		table := NewTable(limit)
		for i := range 40 * limit {
			k := KeyOf(named(i), "")
			table.Learn(k, meta("v"), time.Now())
			if read {
				table.Get(k) // once, which does not keep it for ever
			}
		}
		recent := 0
		for i := 30 * limit; i < 40*limit; i++ {
			if table.Get(KeyOf(named(i), "")) != nil {
				recent++
			}
		}
		if n := table.Len(); recent < n*9/10 {
			t.Errorf("read %v: of %d objects only %d are of the last quarter", read, n, recent)
		}
	}
}

func TestBoundHoldsForManyAtOnce(t *testing.T) {
	const limit, writers = 256, 8
	table := NewTable(limit)
	var done sync.WaitGroup
	for w := range writers {
		done.Go(func() {
			for i := range 4 * limit {
				k := KeyOf(named(i*writers+w), "")
				known := table.Learn(k, meta("v"), time.Now())
				table.Get(KeyOf(named(i), ""))
				if i%3 == 0 {
					table.Forget(k, known)
				}
				if n := table.Len(); n > limit+writers {
					t.Errorf("%d objects, the limit is %d", n, limit)
				}
			}
		})
	}
	done.Wait()
	table.Learn(KeyOf(named(0), ""), meta("v"), time.Now())
	if n := table.Len(); n > limit {
		t.Errorf("%d objects at rest, the limit is %d", n, limit)
	}
}

func TestGetAllocatesNothing(t *testing.T) {
	table, o := NewTable(0), named(1)
	table.Learn(KeyOf(o, ""), meta("v"), time.Now())
	if n := testing.AllocsPerRun(100, func() {
		if table.Get(KeyOf(o, "")) == nil || table.Get(KeyOf(o, block.Immutable)) != nil {
			t.Fatal("wrong answer")
		}
	}); n != 0 {
		t.Errorf("Get allocates %v times", n)
	}
}

func TestHashSpreads(t *testing.T) {
	const keys, buckets = 1 << 14, 1 << 10
	for name, key := range map[string]func(i int) Key{
		"keys":     func(i int) Key { return KeyOf(named(i), "") },
		"both":     func(i int) Key { return Key{Object: named(i / 2), Immutable: i%2 == 0} },
		"buckets":  func(i int) Key { return Key{Object: block.Object{Store: "s3", Bucket: fmt.Sprint(i), Key: "k"}} },
		"the same": func(i int) Key { s := fmt.Sprint(i); return Key{Object: block.Object{Store: s, Bucket: s, Key: s}} },
	} {
		var load [buckets]int
		for i := range keys {
			load[hash(key(i), 99)>>7%buckets]++ // the map keeps 7 bits beside the bucket
		}
		worst := 0
		for _, n := range load {
			worst = max(worst, n)
		}
		if worst > 4*keys/buckets {
			t.Errorf("%s: %d of %d keys in one of %d buckets", name, worst, keys, buckets)
		}
	}
}

// TestS14_YoungerNewsStay: an answer does not replace one to a younger question,
// nor the word that somebody has changed the object since.
func TestS14_YoungerNewsStay(t *testing.T) {
	table, key, now := NewTable(0), KeyOf(named(1), ""), time.Unix(1000, 0)
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	first := table.LearnAsked(key, meta("v2"), at(5), at(6))
	if late := table.LearnAsked(key, meta("v1"), at(4), at(9)); late.Meta.Version != "v1" || table.Get(key) != first {
		t.Error("an older answer that came later has replaced a younger one")
	}
	if old := table.Change(key, at(10)); old != first || table.Get(key) != nil || !table.Changed(key) {
		t.Error("what somebody has changed is still known")
	}
	for _, asked := range []time.Time{at(9), at(10), {}} {
		if table.LearnAsked(key, meta("v2"), asked, at(20)); table.Get(key) != nil {
			t.Errorf("an answer to a question of %v was taken after a change at %v", asked, at(10))
		}
	}
	third := table.LearnAsked(key, meta("v3"), at(11), at(12))
	if table.Get(key) != third || table.Changed(key) {
		t.Error("a younger answer was not taken")
	}
	if table.Change(KeyOf(named(2), ""), at(1)) != nil || table.Len() != 2 {
		t.Error("a change of what nobody knew")
	}
}
