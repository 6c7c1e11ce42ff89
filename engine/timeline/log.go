package timeline

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// Settings are the keys that a Log looks at for each read that misses.
type Settings struct {
	// ThresholdMS is how long a read must have waited to be kept as a slow one;
	// negative keeps none as such.
	ThresholdMS atomic.Int64
	// SamplePerMillion is how many of a million other reads are kept.
	SamplePerMillion atomic.Int64
}

// The reasons to keep a read.
const (
	whySlow   = "slow"
	whySample = "sample"
)

// Log keeps the timelines of the last reads that were slow, and of the last
// samples. It may be used by many at the same time, and be nil: then there are
// no timelines.
type Log struct {
	Settings
	slow, samples ring
}

// New returns a Log of the last each reads of both kinds.
func New(each int) *Log {
	l := &Log{}
	l.slow.limit, l.samples.limit = max(each, 1), max(each, 1)
	l.ThresholdMS.Store(-1)
	return l
}

// ring has the last reads of one kind.
type ring struct {
	limit int
	count atomic.Int64
	mu    struct {
		sync.Mutex
		reads []*Read
		next  int
	}
}

func (g *ring) add(r *Read) {
	g.count.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.mu.reads) < g.limit {
		g.mu.reads = append(g.mu.reads, r)
		return
	}
	g.mu.reads[g.mu.next] = r
	g.mu.next = (g.mu.next + 1) % g.limit
}

// newest appends what the ring has, the newest first.
func (g *ring) newest(list []*Read) []*Read {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.mu.reads)
	for i := range n {
		list = append(list, g.mu.reads[(g.mu.next+2*n-1-i)%n])
	}
	return list
}

// Begin returns the timeline of a read that has just met its first miss, behind
// hits blocks from the own File Cache. It is nil while nothing would be kept.
func (l *Log) Begin(req *block.Read, hits int) *Read {
	if l == nil || l.ThresholdMS.Load() < 0 && l.SamplePerMillion.Load() <= 0 {
		return nil
	}
	r := &Read{req: *req, trace: follow(req.Trace), began: time.Now()}
	r.mu.steps = make([]step, 1, 8)
	r.mu.steps[0] = step{what: Local, count: hits, outcome: "missed"}
	return r
}

// End notes that a read has ended, and keeps it or not. It is called once.
func (l *Log) End(r *Read, err error) {
	if l == nil || r == nil {
		return
	}
	r.mu.Lock()
	r.mu.took = r.now()
	if err != nil {
		r.mu.err = short(err.Error())
	}
	ms := l.ThresholdMS.Load()
	switch {
	case ms >= 0 && r.mu.waited >= time.Duration(ms)*time.Millisecond:
		r.mu.why = whySlow
	case r.trace.sampled || rand.Int64N(1_000_000) < l.SamplePerMillion.Load():
		r.mu.why = whySample
	}
	why := r.mu.why
	r.mu.Unlock()
	switch why {
	case whySlow:
		l.slow.add(r)
	case whySample:
		l.samples.add(r)
	}
}

// Metrics is what a Log has kept so far, forgotten ones included.
type Metrics struct{ Slow, Samples int64 }

// Metrics returns a snapshot.
func (l *Log) Metrics() Metrics {
	if l == nil {
		return Metrics{}
	}
	return Metrics{l.slow.count.Load(), l.samples.count.Load()}
}
