package placement

import (
	"fmt"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"headstart/engine/block"
)

// usurpAfter is how long a process must have been silent before one that says
// it started earlier may take over its address: longer than any late heartbeat
// can be under way, and a way out when a host's clock was set back.
const usurpAfter = time.Minute

// registry is who the FE knows. It is not safe for concurrent use; Directory
// guards it. Its methods are told the time.
type registry struct {
	settings *Settings
	known    *known
	// started is when this FE began to listen.
	started time.Time
	lastID  int64
	byID    map[int64]*backend
	byAddr  map[block.Addr]*backend
	groups  map[string]*group
	jobs    map[int64]*Job
	// assigned counts the assignments of all groups.
	assigned int
}

// backend is a Record and what is not worth keeping.
type backend struct {
	Record
	// unsaved is set while the store lacks the record as it is here.
	unsaved bool
	// heard is the last heartbeat, zero when this FE has heard none.
	heard time.Time
	// liveSince is the first heartbeat since the backend was last not alive, zero
	// once it has been found silent.
	liveSince time.Time
	// assigned counts the routes assigned to the backend.
	assigned int
	// notBefore is when a backend that a round has sent back may join again.
	notBefore time.Time
}

// group is a Group, its last round, and the routes that are assigned in it.
// Lookups read the map while Directory writes it: xsync's readers never block,
// its writers lock a bucket.
type group struct {
	Group
	round    Round
	assigned *xsync.MapOf[block.Route, int64]
}

// limits is what liveness is judged by, read from Settings once a judgement.
type limits struct{ interval, timeout time.Duration }

func newRegistry(s State, settings *Settings, tablets *known, now time.Time) (*registry, error) {
	r := &registry{
		settings: settings,
		known:    tablets,
		started:  now,
		lastID:   s.LastID,
		byID:     make(map[int64]*backend, len(s.Backends)),
		byAddr:   make(map[block.Addr]*backend, len(s.Backends)),
		groups:   make(map[string]*group),
		jobs:     make(map[int64]*Job),
	}
	r.apply(Change{Groups: s.Groups, Backends: s.Backends, Jobs: s.Jobs})
	for _, b := range r.byID {
		if r.groups[b.Heartbeat.GroupID] == nil {
			return nil, fmt.Errorf("the store has backend %d but not its group %q", b.ID, b.Heartbeat.GroupID)
		}
	}
	for _, a := range s.Assignments {
		if r.groups[a.GroupID] == nil || r.byID[a.BackendID] == nil {
			return nil, fmt.Errorf("the store assigns %s in group %q to backend %d, but lacks the group or the backend",
				a.Route, a.GroupID, a.BackendID)
		}
	}
	for _, round := range s.Rounds {
		if r.groups[round.GroupID] == nil {
			return nil, fmt.Errorf("the store has a round of balance of group %q but not the group", round.GroupID)
		}
	}
	r.apply(Change{Assignments: s.Assignments, Rounds: s.Rounds})
	for _, tb := range s.Tablets {
		if err := tablets.merge(tb); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// find returns the backend that a heartbeat is about, nil when it is new. An
// error refuses the heartbeat. Leaving is for good: find sets it in a late
// heartbeat of a process that has said it before.
func (r *registry) find(h *Heartbeat, now time.Time) (*backend, error) {
	b := r.byAddr[h.Addr()]
	if b == nil {
		return nil, nil
	}
	known := &b.Heartbeat
	if h.NodeID == known.NodeID {
		if h.GroupID != known.GroupID {
			return nil, fmt.Errorf("%w heartbeat of %s: the process was of compute group %q and now says %q; restart it to move it",
				ErrInvalid, h.Addr(), known.GroupID, h.GroupID)
		}
		h.Leaving = h.Leaving || known.Leaving
		return b, nil
	}
	word := b.heard
	if word.IsZero() {
		word = r.started
	}
	if !h.Started.After(known.Started) && now.Sub(word) < usurpAfter {
		return nil, fmt.Errorf("%w: %s belongs to node %q of group %q, started %s; node %q of group %q started %s",
			ErrStale, h.Addr(), known.NodeID, known.GroupID, known.Started.Format(time.RFC3339Nano),
			h.NodeID, h.GroupID, h.Started.Format(time.RFC3339Nano))
	}
	return b, nil
}

// plan returns the change that a heartbeat makes, which has one backend: b
// with its new record, or a new one of number id when b is nil.
func (r *registry) plan(b *backend, h Heartbeat, id int64, now time.Time) Change {
	rec := Record{ID: id}
	if b != nil {
		rec = b.Record
	}
	var c Change
	if b != nil && rec.Heartbeat.GroupID != h.GroupID {
		c.Assignments = r.assignmentsOf(b, 0)
	}
	if b == nil || rec.Heartbeat.GroupID != h.GroupID {
		rec.Membership = r.entry(h.GroupID, rec.ID, now)
	}
	rec.Heartbeat = h
	c.Backends = []Record{rec}
	g := Group{ID: h.GroupID}
	if known := r.groups[h.GroupID]; known != nil {
		g = known.Group
	}
	if g.Name != h.GroupName || b != nil && b.unsaved {
		g.Name = h.GroupName
		c.Groups = []Group{g}
	}
	return c
}

// hear notes that a backend has just given a sign of life. It reports whether
// that made it alive.
func (r *registry) hear(b *backend, h *Heartbeat, now time.Time, l limits) bool {
	revived := !b.alive(now, l)
	if revived {
		b.liveSince = now
	}
	b.heard, b.Heartbeat = now, *h
	return revived
}

// fallenSilent returns the backends that are no longer alive, each once.
func (r *registry) fallenSilent(now time.Time, l limits) []*backend {
	var silent []*backend
	for _, b := range r.byID {
		if !b.liveSince.IsZero() && !b.alive(now, l) {
			b.liveSince = time.Time{}
			silent = append(silent, b)
		}
	}
	return silent
}

// apply makes a change that plan or Directory has made up.
func (r *registry) apply(c Change) {
	for _, g := range c.Groups {
		if known := r.groups[g.ID]; known != nil {
			known.Group = g
			continue
		}
		r.groups[g.ID] = &group{Group: g, assigned: xsync.NewMapOfWithHasher[block.Route, int64](hashRoute)}
	}
	for _, round := range c.Rounds {
		r.groups[round.GroupID].round = round
	}
	for _, j := range c.Jobs {
		r.lastID = max(r.lastID, j.ID)
		r.jobs[j.ID] = &j
	}
	for _, id := range c.DroppedJobs {
		delete(r.jobs, id)
	}
	for _, a := range c.Assignments {
		r.assign(a)
	}
	for _, rec := range c.Backends {
		r.lastID = max(r.lastID, rec.ID)
		b := r.byID[rec.ID]
		if b == nil {
			b = &backend{}
			r.byID[rec.ID], r.byAddr[rec.Heartbeat.Addr()] = b, b
		}
		if b.Heartbeat.NodeID != rec.Heartbeat.NodeID {
			b.heard, b.liveSince = time.Time{}, time.Time{} // another process: it has yet to be heard
		}
		b.Record = rec
	}
	for _, id := range c.Dropped {
		if b := r.byID[id]; b != nil {
			delete(r.byID, id)
			delete(r.byAddr, b.Heartbeat.Addr())
		}
	}
}

func (r *registry) assign(a Assignment) {
	assigned := r.groups[a.GroupID].assigned
	var old int64
	var had bool
	if a.BackendID == 0 {
		old, had = assigned.LoadAndDelete(a.Route)
	} else {
		// One step, so that no lookup meets the route without an assignment.
		old, had = assigned.LoadAndStore(a.Route, a.BackendID)
		r.byID[a.BackendID].assigned++
		r.assigned++
	}
	if had {
		r.byID[old].assigned--
		r.assigned--
	}
}

// assignmentsOf returns the assignments to b, each now to backend `to`.
func (r *registry) assignmentsOf(b *backend, to int64) []Assignment {
	all := make([]Assignment, 0, b.assigned)
	id := b.Heartbeat.GroupID
	r.groups[id].assigned.Range(func(route block.Route, backend int64) bool {
		if backend == b.ID {
			all = append(all, Assignment{Route: route, GroupID: id, BackendID: to})
		}
		return true
	})
	return all
}

// alive reports whether the backend was heard lately.
func (b *backend) alive(now time.Time, l limits) bool {
	return !b.heard.IsZero() && now.Sub(b.heard) < l.timeout
}

// goodUntil returns until when the backend may be handed out if it is not
// heard again; the zero time when it may not. After a start of the FE the
// backends that it knows have time for a first heartbeat: were they left out
// at once, every tablet would seem to move to whoever was heard first.
func (r *registry) goodUntil(b *backend, l limits) time.Time {
	if b.Heartbeat.Leaving || b.Membership == Waiting || b.Membership == Out || r.groups[b.Heartbeat.GroupID].Suspended {
		return time.Time{}
	}
	if b.heard.IsZero() {
		return r.started.Add(2 * l.interval)
	}
	return b.heard.Add(l.timeout)
}

// hashRoute is for maps: the default hash of a struct costs three times as much.
func hashRoute(r block.Route, seed uint64) uint64 { return mix(keyOf(r) ^ seed) }
