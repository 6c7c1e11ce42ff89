// Package shards decides which peers a read asks, and which it must not: the
// candidates of each tablet, in the order of trial (Table), and the circuit
// breakers, race records and latencies of addresses (Breakers). It is policy
// alone: it does no I/O, starts no goroutine and never waits for anything but
// a map's bucket.
//
// A tablet's state is an immutable value that a writer replaces, so a reader
// may keep the Snapshot it got for as long as it likes and owes nothing for
// it. Readers take no lock; writers lock one bucket of the map.
package shards

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"headstart/engine/block"
)

// Candidate is a BE that may have the blocks of a tablet.
type Candidate struct {
	Addr block.Addr
	// GroupID is the compute_group_id, Location the location of the BE.
	GroupID, Location string
	// LastAccessMS and Failures are for show: when the candidate was last asked,
	// in Unix milliseconds, and how many RPCs in a row have failed.
	LastAccessMS int64
	Failures     int
}

// Result is what became of one candidate in a peer leg.
type Result struct {
	Addr    block.Addr
	Outcome block.Outcome
}

// Table keeps the candidates of every tablet that has been read. A tablet with
// three candidates takes about 225 bytes, the map included (TestBytesPerTablet).
type Table struct {
	options  Options
	settings *Settings
	breakers *Breakers
	clock    clock
	tablets  tablets
	// size counts the entries of tablets. It may lag behind those under way, so
	// it is exact only when nobody writes.
	size atomic.Int64
	// versions numbers the values of all tablets together, so that a tablet that
	// was removed and came back is newer than what was known of it before.
	versions atomic.Uint64
	// trimming is held by the one writer who makes room.
	trimming sync.Mutex
	counters counters
}

// tablets is a map for each kind of routes. Without the kind a key and its slot
// take 24 bytes, not 32: that, and the smaller key's hash, is a fifth of a look-up
// among a million.
type tablets struct{ tablets, externals *xsync.MapOf[uint64, slot] }

func newTablets() tablets {
	return tablets{xsync.NewMapOfWithHasher[uint64, slot](hashID), xsync.NewMapOfWithHasher[uint64, slot](hashID)}
}

// of returns the map of r's kind.
func (m *tablets) of(r block.Route) *xsync.MapOf[uint64, slot] {
	if r.Kind == block.RouteTablet {
		return m.tablets
	}
	return m.externals
}

// each calls f with all routes, as xsync does, until f returns false.
func (m *tablets) each(f func(r block.Route, s slot) bool) {
	more := true
	of := func(k block.RouteKind) func(uint64, slot) bool {
		return func(id uint64, s slot) bool {
			more = f(block.Route{Kind: k, ID: id}, s)
			return more
		}
	}
	if m.tablets.Range(of(block.RouteTablet)); more {
		m.externals.Range(of(block.RouteExternal))
	}
}

// slot is a value of the map. It lies beside its key, so that the common
// answer of Candidates costs no further cache line.
type slot struct {
	tablet *tablet
	// oldestMS is when the candidate that has waited longest was last asked, 0
	// when the tablet needs a closer look: in cooldown, or without candidates.
	oldestMS int64
}

// NewTable returns an empty table. s and b are shared with their other users.
func NewTable(o Options, s *Settings, b *Breakers) *Table {
	return &Table{
		options:  o,
		settings: s,
		breakers: b,
		clock:    newClock(),
		tablets:  newTablets(),
	}
}

// hashID spreads ids for xsync, which takes the bucket from the upper
// and the tag from the lower bits. Both rounds are needed: tablet ids are
// often consecutive, or multiples of a power of two.
func hashID(id, seed uint64) uint64 {
	h := (id ^ seed) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return h ^ h>>32
}

// Candidates returns whom a read of r may ask now. It takes no lock and does
// not allocate.
func (t *Table) Candidates(r block.Route) Snapshot {
	s, ok := t.tablets.of(r).Load(r.ID)
	if !ok {
		return Snapshot{how: how(Empty)}
	}
	var now int64
	if t.options.CoarseMS != nil { // a reading of the system's clock would cost more than all the rest
		now = t.options.CoarseMS.Load()
	} else {
		now = t.clock.nowMS()
	}
	if now-s.oldestMS < t.settings.expiryMS() && now >= t.breakers.slowUntil.Load() {
		return Snapshot{tablet: s.tablet, how: t.settings.how(Ready)}
	}
	return t.examine(s.tablet, now)
}

// examine is Candidates for a tablet of which something is to be left out.
func (t *Table) examine(tb *tablet, now int64) Snapshot {
	s := Snapshot{tablet: tb}
	expiry := t.settings.expiryMS()
	ejecting := t.settings.SlowPeerEjection.Load() && now < t.breakers.slowUntil.Load()
	for i := range tb.cands {
		c := &tb.cands[i]
		switch {
		case now-c.seenMS.Load() >= expiry:
			s.gone |= 1 << i
		case ejecting && t.breakers.slow(c.peer.Value().addr, now):
			s.slow |= 1 << i
		}
	}
	state := Ready
	switch all := tb.all(); {
	case tb.cooldownUntilMS > now:
		state = Cooldown
	case s.gone == all:
		return Snapshot{how: how(Empty)}
	case s.gone|s.slow == all:
		state = Slow
	}
	s.how = t.settings.how(state)
	return s
}

// Note records how a peer leg went: asked is the snapshot it worked on,
// results the candidates it tried. What has been learned by a later read, or
// set by hand, is not changed by an earlier one that ends after it.
func (t *Table) Note(r block.Route, asked Snapshot, results []Result) {
	s, ok := t.tablets.of(r).Load(r.ID)
	if !ok || asked.tablet == nil {
		return
	}
	now := t.clock.nowMS()
	if s.tablet.markOnly(results, now) && !t.lagging(s, now) {
		return
	}
	var done noted
	t.update(r, func(old *tablet) *tablet {
		done = noted{}
		if old == nil {
			return nil
		}
		d := old.thaw()
		done = d.note(asked, results, t.rulesAt(now))
		return t.freeze(&d)
	})
	for _, a := range done.evicted {
		t.breakers.markEvicted(a)
	}
	t.counters.evicted.Add(int64(len(done.evicted)))
	if done.cooldown {
		t.counters.cooldowns.Add(1)
	}
}

// lagging reports whether a slot's oldestMS has fallen far enough behind the
// marks of its candidates to be worth a new slot.
func (t *Table) lagging(s slot, now int64) bool {
	if len(s.tablet.cands) == 0 {
		return false
	}
	step := t.settings.expiryMS() / 8
	return now-s.oldestMS > step && s.tablet.oldestMS()-s.oldestMS > step
}

// PutSource records the BE that served r before a rebalance: the first to try
// (S20, S84).
func (t *Table) PutSource(r block.Route, c Candidate) {
	if !t.usable(c) {
		return
	}
	now := t.clock.nowMS()
	t.makeRoom()
	t.update(r, func(old *tablet) *tablet {
		d := old.thaw()
		d.dropExpired(now, t.settings.expiryMS())
		d.putFirst(c, now, t.versions.Add(1))
		return t.freeze(&d)
	})
}

// usable reports whether c may become a candidate: it is somebody else, can
// be called, and has not been evicted by a circuit that is still open.
func (t *Table) usable(c Candidate) bool {
	return validAddr(c.Addr) && !t.isSelf(c.Addr) && !t.breakers.barred(c.Addr)
}

func (t *Table) isSelf(a block.Addr) bool {
	return slices.Contains(t.options.Self, a)
}

// update replaces the value of r by what change makes of it; change gets nil
// for a tablet that is not known and returns nil for one not to be kept. It
// runs under the bucket's lock and must not touch the map. A new tablet that
// does not fit is dropped and counted; update reports whether the value that
// change returned is in force.
func (t *Table) update(r block.Route, change func(old *tablet) *tablet) bool {
	stored := true
	t.tablets.of(r).Compute(r.ID, func(old slot, known bool) (slot, bool) {
		next := change(old.tablet)
		switch {
		case next == nil:
			if known {
				t.size.Add(-1)
			}
			return slot{}, true
		case next == old.tablet:
			return old, false
		case !known && t.size.Load() >= t.settings.MaxTablets.Load():
			t.counters.dropped.Add(1)
			stored = false
			return slot{}, true
		case !known:
			t.size.Add(1)
		}
		return next.slot(), false
	})
	return stored
}

// freeze makes a draft the next value of its tablet.
func (t *Table) freeze(d *draft) *tablet {
	return d.freeze(t.versions.Add(1), t.options.Location)
}

// clock gives Unix milliseconds that never go back: the wall clock at its
// start, moved on by the monotonic one.
type clock struct {
	start   time.Time
	startMS int64
}

func newClock() clock {
	now := time.Now()
	return clock{start: now, startMS: now.UnixMilli()}
}

func (c clock) nowMS() int64 { return c.startMS + time.Since(c.start).Milliseconds() }
