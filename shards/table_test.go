package shards

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"headstart/engine/block"
)

func TestS18_KindsOfRoutesShareNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		w.route = block.Route{Kind: block.RouteTablet, ID: 7}
		w.learn("a")
		w.route = block.Route{Kind: block.RouteExternal, ID: 7}
		w.wantState(Empty)
		w.learn("b")
		w.wantOrder("b")
		w.Remove(w.route)
		w.route.Kind = block.RouteTablet
		w.wantOrder("a")
	})
}

func TestS26_EachCandidateExpiresByItsOwnLastAccess(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b c")
		time.Sleep(20 * time.Minute)
		w.read("a=miss b=busy")
		time.Sleep(40*time.Minute - time.Millisecond)
		w.wantOrder("b c a")
		time.Sleep(time.Millisecond)
		w.wantOrder("b a")
		w.read("b=open a=cancelled")
		time.Sleep(20 * time.Minute)
		w.wantOrder("a")
		w.set.ExpirySeconds.Store(60)
		w.wantState(Empty)
		w.set.ExpirySeconds.Store(2 * 3600)
		w.wantState(Ready)
	})
}

func TestS26_OpenCircuitIsNoUse(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		time.Sleep(30 * time.Minute)
		w.read("a=miss b=open")
		time.Sleep(30 * time.Minute)
		w.wantView("a")
	})
}

func TestS26_SourceIsUsedAgainOrStartsAfresh(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.read("a=error")
		time.Sleep(50 * time.Minute)
		w.PutSource(w.route, cands("a")[0])
		time.Sleep(50 * time.Minute)
		w.wantView("a!1")
		time.Sleep(10 * time.Minute)
		w.wantView("")
		w.PutSource(w.route, cands("a")[0])
		w.wantView("a")
	})
}

// TestS26_ListInUseKeepsItsFastAnswer looks inside: a tablet that is read all
// the time must not end up on the path that looks at each candidate.
func TestS26_ListInUseKeepsItsFastAnswer(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a")
		w.read("a=hit")
		for range 30 {
			time.Sleep(10 * time.Minute)
			w.read("a=hit")
			s, _ := w.tablets.of(w.route).Load(w.route.ID)
			if age := time.Now().UnixMilli() - s.oldestMS; age > w.set.expiryMS()/2 {
				t.Fatalf("the slot lags by %d ms", age)
			}
		}
		w.wantOrder("a")
	})
}

func TestS26_SweepDropsWhatHasExpired(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		for i := range 100 {
			w.PutSource(block.TabletRoute(int64(i)), cands("s")[0])
		}
		w.call("a", block.OutcomeHit)
		time.Sleep(30 * time.Minute)
		w.read("a=hit")
		w.call("b", block.OutcomeHit)
		time.Sleep(30*time.Minute - time.Millisecond)
		if n := w.Sweep(); n != 0 {
			t.Fatalf("%d dropped too early", n)
		}
		time.Sleep(time.Millisecond)
		if n := w.Sweep(); n != 101 {
			t.Fatalf("%d dropped, want 101", n)
		}
		w.wantView("a last=cg_a")
		if m := w.Metrics(); m.Tablets != 1 || m.Expired != 101 {
			t.Fatalf("after the sweep: %+v", m)
		}
		if v := w.peers.Show(); len(v) != 1 || v[0].Address != "b:8060" {
			t.Fatalf("addresses after the sweep: %v", v)
		}
		time.Sleep(time.Hour)
		w.Sweep()
		if m, p := w.Metrics(), w.peers.Metrics(); m.Tablets != 0 || p.Addresses != 0 {
			t.Fatalf("left for ever: %+v %+v", m, p)
		}
	})
}

func TestS26_SweepKeepsCooldownsAndLookups(t *testing.T) {
	inBubble(t, func(w *world) {
		until := time.Now().Add(3 * time.Hour).UnixMilli()
		if err := w.Set(w.route, View{AllMiss: 5, CooldownUntilMS: until}); err != nil {
			t.Fatal(err)
		}
		other := block.TabletRoute(2)
		time.Sleep(2 * time.Hour)
		w.BeginLookup(other)
		w.Sweep()
		w.wantState(Cooldown)
		w.EndLookup(other, cands("a"), nil)
		if got := names(w.Candidates(other)); got != "a" {
			t.Fatalf("the look-up brought %q", got)
		}
	})
}

func TestS29_TabletsAreBounded(t *testing.T) {
	inBubble(t, func(w *world) {
		const bound = 1600
		w.set.MaxTablets.Store(bound)
		slow := block.TabletRoute(1 << 40)
		w.BeginLookup(slow)
		defer func() {
			w.EndLookup(slow, cands("late"), nil)
			if got := names(w.Candidates(slow)); got != "late" {
				t.Fatalf("a look-up that was under way brought %q", got)
			}
		}()
		for i := range 10 * bound {
			r := block.TabletRoute(int64(i))
			if w.Candidates(r).State() == Empty && w.BeginLookup(r) {
				w.EndLookup(r, cands("a b"), nil)
			}
			w.Note(w.route, w.Candidates(w.route), results("a=hit"))
			if i == 0 {
				w.learn("a b")
			}
			if n := w.Metrics().Tablets; n > bound {
				t.Fatalf("%d tablets", n)
			}
			time.Sleep(time.Millisecond)
		}
		last := block.TabletRoute(10*bound - 1)
		if got := names(w.Candidates(last)); got != "a b" {
			t.Fatalf("the newest tablet has candidates %q", got)
		}
		w.wantOrder("a b")
		if m := w.Metrics(); m.Tablets < bound*3/4 || m.Dropped != 0 || m.Trimmed == 0 {
			t.Fatalf("%+v", m)
		}
	})
}

func TestS29_TabletsOfOneMomentAreNotAllDropped(t *testing.T) {
	inBubble(t, func(w *world) {
		const bound = 800
		w.set.MaxTablets.Store(bound)
		for i := range 2 * bound {
			w.PutSource(block.TabletRoute(int64(i)), cands("s")[0])
		}
		if m := w.Metrics(); m.Tablets < bound*3/4 || m.Tablets > bound {
			t.Fatalf("%+v", m)
		}
	})
}

func TestS29_WhatIsUsedWhileRoomIsMadeStays(t *testing.T) {
	m := xsync.NewMapOf[int, *atomic.Int64]()
	for i := range 100 {
		m.Store(i, new(atomic.Int64))
	}
	looks := 0
	n := trim(10, func(used *atomic.Int64) int64 {
		if looks++; looks > 100 {
			defer used.Store(1) // a reader comes between the look and the drop
		}
		return used.Load()
	}, m)
	if n != 0 || m.Size() != 100 {
		t.Fatalf("%d dropped, %d left", n, m.Size())
	}
}

// TestS29_RoomIsMadeOfAllKinds: what was used least recently goes, a tablet or an
// object outside tablets, and a hot one of either kind stays.
func TestS29_RoomIsMadeOfAllKinds(t *testing.T) {
	old, young := xsync.NewMapOf[int, int64](), xsync.NewMapOf[int, int64]()
	for i := range 100 {
		old.Store(i, int64(i))
		young.Store(i, int64(50+i))
	}
	for _, keep := range []int64{120, 40, 0} {
		before := int64(old.Size() + young.Size())
		n := trim(keep, func(used int64) int64 { return used }, young, old)
		if left := int64(old.Size() + young.Size()); left < keep-3 || left > keep+3 || n != before-left {
			t.Errorf("%d of %d dropped, %d left, want about %d", n, before, left, keep)
		}
		if keep == 120 && (old.Size() > 36 || young.Size() < 84) {
			t.Errorf("%d that were used long ago are left, and %d that were used lately", old.Size(), young.Size())
		}
	}
}

// TestKindsOfRoutesShareNoNumber: a tablet and an object of one number are two
// entries, to each way of looking at them.
func TestKindsOfRoutesShareNoNumber(t *testing.T) {
	set := NewSettings()
	table := NewTable(Options{}, set, NewBreakers(set))
	tablet, external := block.Route{Kind: block.RouteTablet, ID: 7}, block.Route{Kind: block.RouteExternal, ID: 7}
	table.PutSource(tablet, cands("a:g1")[0])
	if table.Candidates(external).State() != Empty {
		t.Error("an object has the candidates of a tablet")
	}
	table.PutSource(external, cands("b:g1")[0])
	for r, name := range map[block.Route]string{tablet: "a", external: "b"} {
		if s := table.Candidates(r); s.Len() != 1 || s.At(0).Addr != addr(name) {
			t.Errorf("%v: %+v", r, s)
		}
		if v, ok := table.Show(r); !ok || len(v.Candidates) != 1 {
			t.Errorf("%v: %+v", r, v)
		}
	}
	if got := table.Metrics().Tablets; got != 2 {
		t.Errorf("%d entries", got)
	}
	seen := make(map[block.Route]bool)
	for stop := 1; stop <= 3; stop++ {
		clear(seen)
		table.tablets.each(func(r block.Route, _ slot) bool {
			seen[r] = true
			return len(seen) < stop
		})
		if len(seen) != min(stop, 2) {
			t.Errorf("%v were seen, and %d were asked for", seen, stop)
		}
	}
	if !seen[tablet] || !seen[external] {
		t.Errorf("%v", seen)
	}
}

func TestS29_FullTableDropsAndCounts(t *testing.T) {
	inBubble(t, func(w *world) {
		w.set.MaxTablets.Store(2)
		for i := range 3 {
			r := block.TabletRoute(int64(i))
			if got, want := w.BeginLookup(r), i < 2; got != want {
				t.Fatalf("look-up %d: %v", i, got)
			}
		}
		if m := w.Metrics(); m.Tablets != 2 || m.Dropped != 1 {
			t.Fatalf("%+v", m)
		}
		err := w.Set(w.route, View{})
		if err == nil || !strings.Contains(err.Error(), "full") {
			t.Fatalf("op=set of a full table: %v", err)
		}
	})
}

func TestS29_AddressesAreBounded(t *testing.T) {
	inBubble(t, func(w *world) {
		const bound = 800
		w.set.MaxAddresses.Store(bound)
		w.open("a")
		for i := range 10 * bound {
			w.call(fmt.Sprint("host", i), block.OutcomeHit)
			if i%100 == 0 && w.call("a", block.OutcomeHit) {
				t.Fatal("an open circuit in use was forgotten")
			}
			if n := w.peers.Metrics().Addresses; n > bound {
				t.Fatalf("%d addresses", n)
			}
			time.Sleep(time.Millisecond)
		}
		if m := w.peers.Metrics(); m.Untracked != 0 || m.Addresses < bound*3/4 {
			t.Fatalf("%+v", m)
		}
		w.set.MaxAddresses.Store(0)
		if !w.call("new", block.OutcomeError) {
			t.Fatal("an address without room for a breaker is refused")
		}
		if m := w.peers.Metrics(); m.Untracked != 1 {
			t.Fatalf("%+v", m)
		}
	})
}

// TestDS01_NothingIsLostWhileTheTableGrowsAndShrinks compares with a plain
// map at the end.
func TestDS01_NothingIsLostWhileTheTableGrowsAndShrinks(t *testing.T) {
	tablets := 1_000_000
	if testing.Short() {
		tablets = 50_000
	}
	const writers = 16
	s := NewSettings()
	s.MaxTablets.Store(int64(2 * tablets))
	table := NewTable(Options{}, s, NewBreakers(s))
	source := cands("a")[0]
	var plain struct {
		sync.Mutex
		has map[int64]bool
	}
	plain.has = make(map[int64]bool)
	var all sync.WaitGroup
	for g := range writers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			kept := make([]int64, 0, tablets/writers)
			for i := g; i < tablets; i += writers {
				table.PutSource(block.TabletRoute(int64(i)), source)
				kept = append(kept, int64(i))
			}
			r.Shuffle(len(kept), func(i, j int) { kept[i], kept[j] = kept[j], kept[i] })
			for _, id := range kept[len(kept)/10:] {
				if !table.Remove(block.TabletRoute(id)) {
					t.Errorf("tablet %d was lost", id)
				}
			}
			plain.Lock()
			defer plain.Unlock()
			for _, id := range kept[:len(kept)/10] {
				plain.has[id] = true
			}
		})
	}
	all.Wait()
	for i := range tablets {
		r := block.TabletRoute(int64(i))
		if got := table.Candidates(r).State() == Ready; got != plain.has[int64(i)] {
			t.Fatalf("tablet %d: known %v, want %v", i, got, !got)
		}
	}
	if n := table.Metrics().Tablets; n != int64(len(plain.has)) {
		t.Fatalf("%d tablets counted, want %d", n, len(plain.has))
	}
}

// TestDS02_MapsAreHeldByPointer keeps the maps from being copied with the
// struct that holds them.
func TestDS02_MapsAreHeldByPointer(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[tablets](), reflect.TypeFor[Breakers]()} {
		maps := 0
		for f := range typ.Fields() {
			if strings.Contains(f.Type.String(), "xsync.") {
				maps++
				if f.Type.Kind() != reflect.Pointer {
					t.Errorf("%s.%s is a map by value", typ, f.Name)
				}
			}
		}
		if maps == 0 {
			t.Errorf("no map found in %s", typ)
		}
	}
}

// TestDS03_NothingLocksUp lets every writer at few tablets at once. A callback
// that came back into the map would lock its bucket twice.
func TestDS03_NothingLocksUp(t *testing.T) {
	s := NewSettings()
	s.MaxTablets.Store(64)
	s.MaxAddresses.Store(16)
	table := NewTable(Options{}, s, NewBreakers(s))
	var steps atomic.Int64
	done := make(chan struct{})
	go func() { // ends with its writers
		defer close(done)
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 2))
				for range 4000 {
					anyStep(table, r)
					steps.Add(1)
				}
			})
		}
		all.Wait()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("locked up after %d steps", steps.Load())
	}
	table.tablets.each(func(r block.Route, s slot) bool {
		checkTablet(t, r, s)
		return true
	})
	if n := table.Metrics().Tablets; n > 64 || n != int64(table.tablets.tablets.Size()+table.tablets.externals.Size()) {
		t.Fatalf("%d tablets counted, %d and %d there", n, table.tablets.tablets.Size(), table.tablets.externals.Size())
	}
}

// anyStep does one thing that a node may do at any time.
func anyStep(table *Table, r *rand.Rand) {
	route := block.TabletRoute(r.Int64N(128))
	name := fmt.Sprint("p", r.IntN(32))
	asked := table.Candidates(route)
	switch r.IntN(12) {
	case 0:
		table.PutSource(route, cands(name)[0])
	case 1:
		table.Remove(route)
	case 2:
		_ = table.Set(route, View{Candidates: []CandidateView{{Host: name, Port: 8060}}})
	case 3:
		table.ResetCooldown(route)
	case 4:
		if table.BeginLookup(route) {
			table.EndLookup(route, cands(name+" x y"), nil)
		}
	case 5:
		if r.IntN(100) == 0 {
			table.Sweep()
			table.ShowAll(10)
			table.DueForRefresh(10)
			table.breakers.Show()
		}
	default:
		var done []Result
		for i := range asked.Len() {
			a := asked.At(i).Addr
			ticket, ok := table.breakers.Allow(a)
			o := block.OutcomeCircuitOpen
			if ok {
				o = block.Outcome(1 + r.IntN(int(block.OutcomeUnsupported)))
			}
			ticket.Done(o)
			table.breakers.NoteRace(a, o == block.OutcomeHit)
			table.breakers.Observe(a, time.Millisecond)
			done = append(done, Result{a, o})
		}
		table.Note(route, asked, done)
	}
}

// checkTablet is what must hold of every tablet at any time.
func checkTablet(t *testing.T, r block.Route, s slot) {
	t.Helper()
	seen := map[block.Addr]bool{}
	for i := range s.tablet.cands {
		c := s.tablet.cands[i].candidate()
		switch {
		case seen[c.Addr]:
			t.Errorf("%s: %s is there twice", r, c.Addr)
		case s.tablet.last&(1<<i) != 0 != (c.GroupID == s.tablet.lastGroup && c.GroupID != ""):
			t.Errorf("%s: %s of %q is taken for one of the last group %q, or not", r, c.Addr, c.GroupID, s.tablet.lastGroup)
		case c.LastAccessMS < s.oldestMS:
			t.Errorf("%s: %s is older than the oldest", r, c.Addr)
		}
		seen[c.Addr] = true
	}
	if n, behind := len(s.tablet.cands), int(s.tablet.behind); n > MaxCandidates || behind != 0 && behind >= n {
		t.Errorf("%s: %d candidates, %d of them behind", r, n, behind)
	}
	if (s.tablet.last|s.tablet.near|s.tablet.missed())&^s.tablet.all() != 0 {
		t.Errorf("%s: marks of candidates that are not there", r)
	}
}
