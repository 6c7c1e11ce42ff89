// Package profile counts what each query has read, and from where.
//
// A reader gets its query's *Query once and adds to it; adding takes no lock
// and allocates nothing. A nil *Query, as reads without a query id have, takes
// everything and keeps nothing. Profiles keeps a bounded number of queries and
// forgets those that were not used lately; whoever still holds one may go on
// adding. Nothing here reads the clock.
package profile

import (
	"sync"

	"github.com/puzpuzpuz/xsync/v3"
)

// MaxIDBytes is the longest query id; reads with a longer one have no profile.
const MaxIDBytes = 256

// Profiles are the queries of one node. It is safe for concurrent use.
type Profiles struct {
	// queries is read without a lock. It is written under mu, and holds what ring
	// holds.
	queries *xsync.MapOf[string, *Query]
	mu      struct {
		sync.Mutex
		// ring has a place for each query; hand goes round to find one that was not
		// used since it came by last.
		ring []*Query
		hand int
	}
}

// New returns an empty set that keeps up to limit queries, at least one.
func New(limit int) *Profiles {
	p := &Profiles{queries: xsync.NewMapOf[string, *Query]()}
	p.mu.ring = make([]*Query, 0, max(limit, 1))
	return p
}

// Get returns the query with this id, a new one when there is none. It returns
// nil, which is fine to add to, when id is empty or longer than MaxIDBytes.
func (p *Profiles) Get(id string) *Query {
	if id == "" || len(id) > MaxIDBytes {
		return nil
	}
	if q := p.Find(id); q != nil {
		return q
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if q, ok := p.queries.Load(id); ok {
		return q
	}
	q := &Query{id: id}
	p.keepLocked(q)
	p.queries.Store(id, q)
	return q
}

// Find returns the query with this id, nil when none is kept.
func (p *Profiles) Find(id string) *Query {
	q, ok := p.queries.Load(id)
	if !ok {
		return nil
	}
	// Loaded first, so that readers of a busy query share its cache line.
	if !q.used.Load() {
		q.used.Store(true)
	}
	return q
}

// Len returns how many queries are kept.
func (p *Profiles) Len() int { return p.queries.Size() }

// keepLocked finds a place for q: a free one, else that of the first query
// that was not used since the hand came by last. Two rounds find one at the
// latest, or else the readers are faster than the hand and any will do.
func (p *Profiles) keepLocked(q *Query) {
	ring := p.mu.ring
	if len(ring) < cap(ring) {
		p.mu.ring = append(ring, q)
		return
	}
	for range 2 * len(ring) {
		if !ring[p.mu.hand].used.Swap(false) {
			break
		}
		p.mu.hand = (p.mu.hand + 1) % len(ring)
	}
	p.queries.Delete(ring[p.mu.hand].id)
	ring[p.mu.hand] = q
	p.mu.hand = (p.mu.hand + 1) % len(ring)
}
