package shards

import (
	"math"
	"slices"
	"sync/atomic"
	"unique"

	"headstart/engine/block"
)

// MaxCandidates is the most candidates that a tablet can have: one for each
// compute group, and a few sources. Snapshot has a bit for each.
const MaxCandidates = 32

// peer is who a candidate is. The tablets of a BE share one copy.
type peer struct {
	addr            block.Addr
	group, location string
}

func (c Candidate) peer() unique.Handle[peer] {
	return unique.Make(peer{addr: c.Addr, group: c.GroupID, location: c.Location})
}

func validAddr(a block.Addr) bool { return a.Host != "" && a.Port > 0 && a.Port < 1<<16 }

// cand is a candidate in a list that has been published.
type cand struct {
	peer unique.Handle[peer]
	// seenMS is when the candidate was last asked. It is the one thing in a
	// tablet that changes: whoever asked stores the time. A store that meets a
	// writer may be lost, which makes the candidate look a moment older.
	seenMS atomic.Int64
	// mark is stamp<<fails bits | failures in a row.
	mark mark
}

// mark packs what a candidate's last change left behind: how many of its RPCs
// have failed in a row, and a stamp: the version of the tablet that the read
// which made the change had started from. An older read changes nothing.
type mark uint64

const (
	failBits = 16
	maxFails = 1<<failBits - 1
)

func newMark(stamp uint64, fails int) mark {
	return mark(stamp<<failBits | uint64(min(fails, maxFails)))
}

func (m mark) fails() int    { return int(m & maxFails) }
func (m mark) stamp() uint64 { return uint64(m >> failBits) }

// state is the part of a tablet that is not its list.
type state struct {
	// version is this value's own number, stamp the version that the read had
	// started from which last changed lastGroup or allMiss.
	version, stamp uint64
	// lastGroup is the compute group that last served the tablet, "" for none.
	lastGroup string
	// cooldownUntilMS is 0 when there is no cooldown.
	cooldownUntilMS int64
	// lookupAtMS is the earliest time of the next look-up at the FE; while one
	// is under way, when it may be taken for lost.
	lookupAtMS int64
	// allMiss counts reads in a row that every candidate answered with "not
	// found".
	allMiss uint16
	// behind is how many candidates at the end of the list have missed since
	// the others were last tried, or joined after such.
	behind uint8
	// idleLookups counts look-ups in a row that brought nothing.
	idleLookups uint8
	fetching    bool
}

// tablet is the state of one tablet: immutable but for the marks of its
// candidates, replaced as a whole.
type tablet struct {
	state
	// near has a bit for each candidate that is not known to be in another
	// location, last for each of lastGroup.
	near, last uint32
	// cands is the list, in its own order.
	cands []cand
}

func (c *cand) candidate() Candidate {
	p := c.peer.Value()
	return Candidate{
		Addr: p.addr, GroupID: p.group, Location: p.location,
		LastAccessMS: c.seenMS.Load(), Failures: c.mark.fails(),
	}
}

// all has a bit for each candidate.
func (t *tablet) all() uint32 { return uint32(1<<len(t.cands) - 1) }

// missed has a bit for each candidate that is behind.
func (t *tablet) missed() uint32 {
	return t.all() &^ uint32(1<<(len(t.cands)-int(t.behind))-1)
}

func (t *tablet) find(a block.Addr) int {
	for i := range t.cands {
		if t.cands[i].peer.Value().addr == a {
			return i
		}
	}
	return -1
}

// oldestMS returns when the candidate was last asked that has waited longest.
func (t *tablet) oldestMS() int64 {
	oldest := int64(math.MaxInt64)
	for i := range t.cands {
		oldest = min(oldest, t.cands[i].seenMS.Load())
	}
	return oldest
}

func (t *tablet) slot() slot {
	if len(t.cands) == 0 || t.cooldownUntilMS != 0 {
		return slot{tablet: t}
	}
	return slot{tablet: t, oldestMS: t.oldestMS()}
}

// live returns how many candidates have not expired.
func (t *tablet) live(now, expiry int64) int {
	n := 0
	for i := range t.cands {
		if now-t.cands[i].seenMS.Load() < expiry {
			n++
		}
	}
	return n
}

// markOnly deals with the results that leave the tablet as it is: it marks
// the candidates as used and reports true. Other results it leaves to note.
func (t *tablet) markOnly(results []Result, now int64) bool {
	if t.allMiss != 0 {
		return false
	}
	for _, r := range results {
		i := t.find(r.Addr)
		if i < 0 {
			continue
		}
		switch served := t.last&(1<<i) != 0; {
		case r.Outcome.Failed(), r.Outcome == block.OutcomeMiss:
			return false
		case r.Outcome == block.OutcomeHit && (!served || t.cands[i].mark.fails() != 0):
			return false
		case r.Outcome != block.OutcomeCircuitOpen:
			t.cands[i].seenMS.Store(now)
		}
	}
	return true
}

// entry is a candidate in a draft.
type entry struct {
	peer   unique.Handle[peer]
	seenMS int64
	fails  int
	stamp  uint64
}

// draft is a tablet while it is being changed, by one goroutine.
type draft struct {
	state
	list []entry
}

// thaw starts a change. The tablet may be nil: nothing is known yet.
func (t *tablet) thaw() draft {
	if t == nil {
		return draft{}
	}
	d := draft{state: t.state, list: make([]entry, len(t.cands), len(t.cands)+1)}
	for i := range t.cands {
		c := &t.cands[i]
		d.list[i] = entry{
			peer: c.peer, seenMS: c.seenMS.Load(),
			fails: c.mark.fails(), stamp: c.mark.stamp(),
		}
	}
	return d
}

// freeze ends a change. location is the node's own.
func (d *draft) freeze(version uint64, location string) *tablet {
	t := &tablet{state: d.state, cands: make([]cand, len(d.list))}
	t.version = version
	for i, e := range d.list {
		c := &t.cands[i]
		c.peer, c.mark = e.peer, newMark(e.stamp, e.fails)
		c.seenMS.Store(e.seenMS)
		p := e.peer.Value()
		if p.location == location || p.location == "" {
			t.near |= 1 << i
		}
		if d.lastGroup != "" && p.group == d.lastGroup {
			t.last |= 1 << i
		}
	}
	return t
}

func (d *draft) find(a block.Addr) int {
	return slices.IndexFunc(d.list, func(e entry) bool { return e.peer.Value().addr == a })
}

// remove takes candidate i out of the list.
func (d *draft) remove(i int) {
	if i >= len(d.list)-int(d.behind) {
		d.behind--
	}
	d.list = slices.Delete(d.list, i, i+1)
	d.newRound()
}

// toEnd moves candidate i behind all others.
func (d *draft) toEnd(i int) {
	e := d.list[i]
	if i < len(d.list)-int(d.behind) {
		d.behind++
	}
	d.list = append(slices.Delete(d.list, i, i+1), e)
	d.newRound()
}

// newRound lets all candidates but the one that missed last start afresh when
// every one of them has missed.
func (d *draft) newRound() {
	if n := len(d.list); int(d.behind) >= n {
		d.behind = uint8(min(1, max(0, n-1)))
	}
}

// putFirst puts c at the front; when it was in the list already, its failures
// still count.
func (d *draft) putFirst(c Candidate, now int64, version uint64) {
	e := entry{seenMS: now, stamp: version}
	if i := d.find(c.Addr); i >= 0 {
		e = d.list[i]
		d.remove(i)
	} else if len(d.list) == MaxCandidates {
		d.remove(len(d.list) - 1)
	}
	e.peer = c.peer()
	e.seenMS = now
	d.list = slices.Insert(d.list, 0, e)
}

// join appends c, or learns its group and location when it is there already.
func (d *draft) join(c Candidate, now int64, version uint64) {
	if i := d.find(c.Addr); i >= 0 {
		d.list[i].peer = c.peer()
		return
	}
	if len(d.list) == MaxCandidates {
		return
	}
	d.list = append(d.list, entry{peer: c.peer(), seenMS: now, stamp: version})
	if d.behind > 0 {
		d.behind++
	}
}

// dropExpired takes out the candidates that nobody has asked for too long and
// returns how many there were.
func (d *draft) dropExpired(now, expiry int64) int {
	n := 0
	for i := len(d.list) - 1; i >= 0; i-- {
		if now-d.list[i].seenMS >= expiry {
			d.remove(i)
			n++
		}
	}
	return n
}
