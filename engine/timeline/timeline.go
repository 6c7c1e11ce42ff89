// Package timeline says why a read was slow: what it waited for, from when to
// when, and who brought what.
//
// A read that meets a miss gets a Read, which its fetches write to; a hit has
// none, and a nil *Read takes everything and keeps nothing. When the read has
// ended, a Log keeps it if it was slow or was drawn as a sample, and forgets it
// otherwise. Nothing here is unbounded: a Read has at most MaxSteps steps, a Log
// at most as many reads as it was made for.
package timeline

import (
	"sync"
	"time"

	"headstart/engine/block"
)

// MaxSteps bounds the steps of one read; what comes later is counted.
const MaxSteps = 48

// What says what a step was.
type What uint8

// The steps of a read. Local, Candidates, Hedge and Winner are moments, the
// others last from At to Until.
const (
	// Local: the look into the own File Cache; Count blocks were there before the
	// first one that was not.
	Local What = iota
	// Candidates: what the node knew of peers; Count of them.
	Candidates
	// Peer is a call to a peer, Store a GET, Check a look at an object's headers.
	Peer
	Store
	Check
	// Hedge: the head start is over, and object storage is read beside the peer.
	Hedge
	// Winner: the first block of a fetch has come.
	Winner
	// Shared: waiting for blocks that another read fetches.
	Shared
)

// String is the step's name in JSON and in the waterfall.
func (w What) String() string {
	return [...]string{"local", "candidates", "peer", "s3", "s3 head", "hedge", "winner", "shared"}[w]
}

// step is one step. All times count from the beginning of the read.
type step struct {
	what   What
	addr   block.Addr
	blocks block.Run
	at     time.Duration
	// first and until are 0 as long as no byte has come, or the step goes on.
	first, until time.Duration
	queued       time.Duration
	bytes        int64
	count        int
	outcome      string
}

// ID names a step of its read; the zero ID is none.
type ID int

// Read is the timeline of one read. All methods may be called at the same time,
// on nil, and after the read has ended: the loser of a race ends late.
type Read struct {
	req   block.Read
	trace trace
	began time.Time
	mu    struct {
		sync.Mutex
		steps   []step
		dropped int
		// waited is how long the reader has waited for blocks, took how long the read
		// lasted: its reader's own time included.
		waited, took time.Duration
		why          string
		err          string
	}
}

// now returns the time since the read began.
func (r *Read) now() time.Duration { return time.Since(r.began) }

// addLocked adds a step.
func (r *Read) addLocked(s step) ID {
	if len(r.mu.steps) == MaxSteps {
		r.mu.dropped++
		return 0
	}
	r.mu.steps = append(r.mu.steps, s)
	return ID(len(r.mu.steps))
}

// Mark adds a moment. outcome is a constant or otherwise short.
func (r *Read) Mark(w What, blocks block.Run, count int, outcome string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(step{what: w, blocks: blocks, at: r.now(), count: count, outcome: outcome})
}

// Start adds a step that lasts until End. addr is a peer's.
func (r *Read) Start(w What, addr block.Addr, blocks block.Run) ID {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addLocked(step{what: w, addr: addr, blocks: blocks, at: r.now()})
}

// Got notes that a block of n bytes has come.
func (r *Read) Got(id ID, n int) {
	if r == nil || id == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.mu.steps[id-1]
	if s.bytes += int64(n); s.first == 0 {
		s.first = max(r.now(), 1)
	}
}

// End ends a step, once: later calls change nothing. queued is how long a peer
// has kept the call waiting.
func (r *Read) End(id ID, outcome string, queued time.Duration) {
	if r == nil || id == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := &r.mu.steps[id-1]; s.until == 0 {
		s.until, s.outcome, s.queued = max(r.now(), 1), short(outcome), queued
	}
}

// Now returns the time since the read began, for Waited.
func (r *Read) Now() time.Duration {
	if r == nil {
		return 0
	}
	return r.now()
}

// Waited notes that the reader has waited for a block since at. Of blocks that
// another read fetches it makes steps, one for neighbours.
func (r *Read) Waited(at time.Duration, index uint64, shared bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.mu.waited += now - at
	if !shared {
		return
	}
	if n := len(r.mu.steps); n > 0 {
		last := &r.mu.steps[n-1]
		if i := index - last.blocks.First; last.what == Shared && i == uint64(last.blocks.Count()) && i < block.MaxRun {
			last.blocks.Want |= 1 << i
			last.until = now
			return
		}
	}
	r.addLocked(step{what: Shared, blocks: block.NewRun(index, 1), at: at, until: now})
}

// maxOutcome bounds the words on how a step ended.
const maxOutcome = 160

func short(s string) string {
	if len(s) > maxOutcome {
		return s[:maxOutcome] + "…"
	}
	return s
}
