package shards

import "sync/atomic"

// circuit is the state of the breaker of one address (S27), in one word:
//
//	state (2 bits) | failures in a row (14) | since when, Unix ms (48)
//
//	            failures reach the threshold
//	   closed ------------------------------> open <-------+
//	     ^  ^                                  |           |
//	     |  |                        period over, a caller |
//	     |  |                                  v           |
//	     |  +------ probe succeeds -------- probing -------+ probe fails
//	     |                                   |   ^
//	     |                      probe neutral|   | a caller, or the probe
//	     |                                   v   | has been out too long
//	     +---- by hand, from anywhere ---- half-open
//
// Each edge is one compare-and-swap; "since" tells one closed or probing spell
// from the next, so that a call that ends late changes nothing.
type circuit struct{ word atomic.Uint64 }

// circuitState names the states; the zero value is a closed circuit.
type circuitState uint8

const (
	closed circuitState = iota
	open
	halfOpen
	probing
)

// minProbeMS is how long a probe keeps others away even if the open period is
// shorter: as long as a call may take.
const minProbeMS = 1000

// circuitWord is a value of the word.
type circuitWord uint64

const (
	sinceBits       = 48
	sinceMask       = 1<<sinceBits - 1
	maxCircuitFails = 1<<14 - 1
)

func newCircuitWord(s circuitState, fails, sinceMS int64) circuitWord {
	return circuitWord(uint64(s)<<62 | uint64(min(fails, maxCircuitFails))<<sinceBits | uint64(sinceMS)&sinceMask)
}

func (w circuitWord) state() circuitState { return circuitState(w >> 62) }
func (w circuitWord) fails() int64        { return int64(w>>sinceBits) & maxCircuitFails }
func (w circuitWord) sinceMS() int64      { return int64(w & sinceMask) }

// String is the state as it is shown.
func (w circuitWord) String() string {
	switch w.state() {
	case closed:
		return "closed"
	case open:
		return "open"
	}
	return "half_open"
}

func (c *circuit) load() circuitWord { return circuitWord(c.word.Load()) }

func (c *circuit) swap(from, to circuitWord) bool {
	return c.word.CompareAndSwap(uint64(from), uint64(to))
}

// admit asks for a call at now. The word it returns is what the call belongs
// to; probe tells that the call is the one probe.
func (c *circuit) admit(now, openMS int64) (w circuitWord, probe, ok bool) {
	for {
		w := c.load()
		if w.state() == closed || w.refuses(now, openMS) {
			return w, false, w.state() == closed
		}
		next := newCircuitWord(probing, w.fails(), now)
		if c.swap(w, next) {
			return next, true, true
		}
	}
}

// refuses reports whether the circuit lets nobody through: the open period is
// running, or a probe is out that may still end.
func (w circuitWord) refuses(now, openMS int64) bool {
	return w.isOpen(now, openMS) || w.state() == probing && now-w.sinceMS() < max(openMS, minProbeMS)
}

// succeed ends a call of w well and reports whether the circuit is closed for
// it: a call from an earlier spell does not count.
func (c *circuit) succeed(w circuitWord, now int64) bool {
	if w.state() == probing {
		return c.swap(w, newCircuitWord(closed, 0, now))
	}
	for {
		cur := c.load()
		if !sameSpell(cur, w) {
			return false
		}
		if cur.fails() == 0 || c.swap(cur, newCircuitWord(closed, 0, cur.sinceMS())) {
			return true
		}
	}
}

// fail ends a call of w badly and reports whether that opens the circuit.
func (c *circuit) fail(w circuitWord, now, threshold int64) bool {
	if w.state() == probing {
		return c.swap(w, newCircuitWord(open, w.fails()+1, now))
	}
	for {
		cur := c.load()
		if !sameSpell(cur, w) {
			return false
		}
		next := newCircuitWord(closed, cur.fails()+1, cur.sinceMS())
		if cur.fails()+1 >= threshold {
			next = newCircuitWord(open, cur.fails()+1, now)
		}
		if c.swap(cur, next) {
			return next.state() == open
		}
	}
}

// abstain ends a call of w that says nothing about the address: a probe makes
// room for the next one.
func (c *circuit) abstain(w circuitWord, now int64) {
	if w.state() == probing {
		c.swap(w, newCircuitWord(halfOpen, w.fails(), now))
	}
}

// reset closes the circuit whatever its state.
func (c *circuit) reset(now int64) {
	c.word.Store(uint64(newCircuitWord(closed, 0, now)))
}

// isOpen reports whether the open period is running.
func (w circuitWord) isOpen(now, openMS int64) bool {
	return w.state() == open && now-w.sinceMS() < openMS
}

// sameSpell reports whether both words are of one closed spell.
func sameSpell(a, b circuitWord) bool {
	return a.state() == closed && b.state() == closed && a.sinceMS() == b.sinceMS()
}
