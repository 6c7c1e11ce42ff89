package objstore

import (
	"sync/atomic"
	"time"
)

type counters struct {
	gets, heads, retries, bytes, discarded, aborted, dials, forwards atomic.Uint64
	errors                                                           [Reasons]atomic.Uint64
}

// Metrics is a snapshot of a Store.
type Metrics struct {
	// Gets and Heads are requests sent, Retries those among them that followed a
	// failed one.
	Gets, Heads, Retries uint64
	// Bytes are those of blocks handed out, Discarded those that were read in
	// vain.
	Bytes, Discarded uint64
	// Errors counts failed attempts by Reason, also when the next one succeeded.
	Errors [Reasons]uint64
	// InFlight requests are under way. Waiting wait for a place now, Waits had to
	// wait, Waited is the sum of their waits.
	InFlight, Waiting int
	Waits             uint64
	Waited            time.Duration
	// Dials are connections opened, Aborted replies that were given up at the
	// price of their connection.
	Dials, Aborted uint64
	// Forwards are requests that were sent on for others.
	Forwards uint64
}

// Metrics returns a snapshot.
func (s *Store) Metrics() Metrics {
	c, g := &s.count, &s.gate
	m := Metrics{
		Gets: c.gets.Load(), Heads: c.heads.Load(), Retries: c.retries.Load(),
		Bytes: c.bytes.Load(), Discarded: c.discarded.Load(),
		InFlight: len(g.slots), Waiting: int(g.waiting.Load()),
		Waits: g.waits.Load(), Waited: time.Duration(g.waited.Load()),
		Dials: c.dials.Load(), Aborted: c.aborted.Load(), Forwards: c.forwards.Load(),
	}
	for r := range c.errors {
		m.Errors[r] = c.errors[r].Load()
	}
	return m
}
