package shards

import "sync/atomic"

// quiet finds out the peers that never answer though every call to them is
// cancelled before it fails (S28). One word:
//
//	calls left running (16 bits) | no answer since, Unix ms (48); 0: it answers
//
// The first call that ends without an answer starts the silence, any answer
// ends it. In a silence that has lasted, claim lets a few losing calls run on,
// each time anew when as much time has gone by again: nobody has to give a
// claim back, so none can be lost.
type quiet struct{ word atomic.Uint64 }

// maxRunOn bounds the calls to one address that are left running at a time.
const maxRunOn = 4

func (q *quiet) answered() {
	if q.word.Load() != 0 {
		q.word.Store(0)
	}
}

func (q *quiet) unanswered(now int64) {
	if q.word.Load() == 0 {
		q.word.CompareAndSwap(0, uint64(now)&sinceMask)
	}
}

func (q *quiet) sinceMS() int64 { return int64(q.word.Load() & sinceMask) }

// claim reports whether one more losing call is to run on. missing is how many
// failures it takes to open the circuit.
func (q *quiet) claim(now, silenceMS, missing int64) bool {
	limit := min(max(1, missing), maxRunOn)
	for {
		w := q.word.Load()
		since, running := int64(w&sinceMask), int64(w>>sinceBits)
		switch {
		case w == 0 || now-since < silenceMS:
			return false
		case now-since >= 2*silenceMS:
			since, running = now-silenceMS, 0
		case running >= limit:
			return false
		}
		if q.word.CompareAndSwap(w, uint64(running+1)<<sinceBits|uint64(since)&sinceMask) {
			return true
		}
	}
}
