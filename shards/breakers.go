package shards

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"headstart/engine/block"
)

// Breakers keeps what is known of addresses, whatever the tablet: the circuit
// breaker, the silence that S28 speaks of, races won and lost, latencies. An
// address takes about 450 bytes (TestBytesPerAddress).
type Breakers struct {
	settings *Settings
	clock    clock
	nodes    *xsync.MapOf[block.Addr, *node]
	// slowUntil is the end of the last ejection that is running, in Unix ms: a
	// reader before it has to look at each candidate.
	slowUntil atomic.Int64
	// size counts the entries of nodes.
	size     atomic.Int64
	trimming sync.Mutex

	opened, probes, leftRunning, ejected, untracked atomic.Int64
}

// node is one address.
type node struct {
	circuit circuit
	quiet   quiet
	races   races
	// usedMS is when a call was last asked for.
	usedMS atomic.Int64
	// evicted is set while the circuit has not closed since a tablet evicted the
	// address (S20).
	evicted atomic.Bool
	// vouched is set once the address has answered a greeting.
	vouched atomic.Bool
	// latency is nil until the address has answered.
	latency atomic.Pointer[Latency]
}

// NewBreakers returns closed breakers for every address there is.
func NewBreakers(s *Settings) *Breakers {
	seed := maphash.MakeSeed()
	hash := func(a block.Addr, salt uint64) uint64 {
		return (maphash.String(seed, a.Host) ^ uint64(a.Port) ^ salt) * 0x9e3779b97f4a7c15
	}
	return &Breakers{
		settings: s,
		clock:    newClock(),
		nodes:    xsync.NewMapOfWithHasher[block.Addr, *node](hash),
	}
}

// Ticket is one call to one address. Its holder calls Done once the call has
// ended, in a defer: a probe that nobody ends keeps others away for one open
// period.
type Ticket struct {
	breakers *Breakers
	node     *node
	word     circuitWord
}

// Allow reports whether a may be called now. It is false while its circuit is
// open, and while another call is the one probe of an open circuit.
func (b *Breakers) Allow(a block.Addr) (Ticket, bool) {
	now := b.clock.nowMS()
	n := b.node(a, now)
	if n == nil {
		return Ticket{}, true
	}
	n.usedMS.Store(now)
	w, probe, ok := n.circuit.admit(now, b.settings.openMS())
	if !ok {
		return Ticket{}, false
	}
	if probe {
		b.probes.Add(1)
	}
	return Ticket{breakers: b, node: n, word: w}, true
}

// Refuses reports whether Allow would turn a call to a away at this moment. It
// changes nothing.
func (b *Breakers) Refuses(a block.Addr) bool {
	n, ok := b.nodes.Load(a)
	return ok && n.circuit.load().refuses(b.clock.nowMS(), b.settings.openMS())
}

// Done tells how the call has ended. A second Done does nothing.
func (t *Ticket) Done(o block.Outcome) {
	n, b := t.node, t.breakers
	if n == nil {
		return
	}
	t.node = nil
	now := b.clock.nowMS()
	switch {
	case o == block.OutcomeCancelled, o == block.OutcomeTimeout, o == block.OutcomeError:
		n.quiet.unanswered(now)
	case o != block.OutcomeCircuitOpen:
		n.quiet.answered()
	}
	switch {
	case o == block.OutcomeHit, o == block.OutcomeMiss:
		if n.circuit.succeed(t.word, now) && n.evicted.Load() {
			n.evicted.Store(false)
		}
	case o.Failed():
		if n.circuit.fail(t.word, now, b.settings.failureThreshold()) {
			b.opened.Add(1)
		}
	default:
		n.circuit.abstain(t.word, now)
	}
}

// Silent reports whether a call to a that has lost its race is to be left
// running to its own deadline, because the address has given no answer for
// peer_silence_probe_ms (S28). It says so to as many callers at a time as it
// takes to open the circuit, and a few at most.
func (b *Breakers) Silent(a block.Addr) bool {
	n, ok := b.nodes.Load(a)
	if !ok {
		return false
	}
	missing := b.settings.failureThreshold() - n.circuit.load().fails()
	if !n.quiet.claim(b.clock.nowMS(), b.settings.SilenceProbeMS.Load(), missing) {
		return false
	}
	b.leftRunning.Add(1)
	return true
}

// Quiet reports whether a call to a was given up, that long ago or longer, and the
// address has answered none since.
func (b *Breakers) Quiet(a block.Addr, lasting time.Duration) bool {
	n, ok := b.nodes.Load(a)
	if !ok {
		return false
	}
	since := n.quiet.sinceMS()
	return since != 0 && b.clock.nowMS()-since >= lasting.Milliseconds()
}

// Vouch notes that a has just answered a call that asked for no block: reads may
// expect an answer of it, though they have not asked it yet.
func (b *Breakers) Vouch(a block.Addr) {
	if n := b.node(a, b.clock.nowMS()); n != nil {
		n.vouched.Store(true)
		n.quiet.answered()
	}
}

// Vouched reports whether a has been vouched for.
func (b *Breakers) Vouched(a block.Addr) bool {
	n, ok := b.nodes.Load(a)
	return ok && n.vouched.Load()
}

// NoteRace tells whether the call to a won its race against object storage.
// Races that a lost for another reason than its pace, by a miss or by being
// busy, are not for NoteRace.
func (b *Breakers) NoteRace(a block.Addr, won bool) {
	now := b.clock.nowMS()
	n := b.node(a, now)
	if n == nil {
		return
	}
	until := n.races.note(won, now)
	if until == 0 {
		return
	}
	b.ejected.Add(1)
	for {
		cur := b.slowUntil.Load()
		if cur >= until || b.slowUntil.CompareAndSwap(cur, until) {
			return
		}
	}
}

// slow reports whether a is ejected at now.
func (b *Breakers) slow(a block.Addr, now int64) bool {
	n, ok := b.nodes.Load(a)
	return ok && n.races.ejectedUntilMS(now) != 0
}

// Observe adds the latency of one call to a: of any answer, and of calls that
// were given up the time they had been given, or else the slow ones would be
// missing.
func (b *Breakers) Observe(a block.Addr, d time.Duration) {
	n := b.node(a, b.clock.nowMS())
	if n == nil {
		return
	}
	l := n.latency.Load()
	if l == nil {
		n.latency.CompareAndSwap(nil, new(Latency))
		l = n.latency.Load()
	}
	l.Observe(d)
}

// Quantile returns the latency that the share q of the last calls to a stayed
// below; false when too few are known.
func (b *Breakers) Quantile(a block.Addr, q float64) (time.Duration, bool) {
	n, ok := b.nodes.Load(a)
	if !ok {
		return 0, false
	}
	l := n.latency.Load()
	if l == nil {
		return 0, false
	}
	return l.Quantile(q)
}

// barred reports whether a has been evicted and its circuit is still open.
func (b *Breakers) barred(a block.Addr) bool {
	n, ok := b.nodes.Load(a)
	return ok && n.evicted.Load() && n.circuit.load().isOpen(b.clock.nowMS(), b.settings.openMS())
}

func (b *Breakers) markEvicted(a block.Addr) {
	if n, ok := b.nodes.Load(a); ok {
		n.evicted.Store(true)
	}
}

// node finds or makes the record of a; nil when there is no room.
func (b *Breakers) node(a block.Addr, now int64) *node {
	if n, ok := b.nodes.Load(a); ok {
		return n
	}
	b.makeRoom()
	if b.size.Load() >= b.settings.MaxAddresses.Load() {
		b.untracked.Add(1)
		return nil
	}
	n, known := b.nodes.LoadOrCompute(a, func() *node {
		n := new(node)
		n.usedMS.Store(now)
		return n
	})
	if !known {
		b.size.Add(1)
	}
	return n
}

// makeRoom drops the least recently used eighth when the table is nearly full.
func (b *Breakers) makeRoom() {
	limit := b.settings.MaxAddresses.Load()
	if b.size.Load() < limit-limit/16 || !b.trimming.TryLock() {
		return
	}
	defer b.trimming.Unlock()
	b.size.Add(-trim(limit-limit/8, func(n *node) int64 { return n.usedMS.Load() }, b.nodes))
}

// sweep drops the addresses that nobody has called for that long.
func (b *Breakers) sweep(now, expiry int64) {
	b.nodes.Range(func(a block.Addr, n *node) bool {
		if now-n.usedMS.Load() < expiry {
			return true
		}
		if _, known := b.nodes.LoadAndDelete(a); known {
			b.size.Add(-1)
		}
		return true
	})
}

// BreakerView is an address as /api/circuit_breaker shows it. Times are Unix
// milliseconds, 0 for none.
type BreakerView struct {
	Address string `json:"address"`
	// State is closed, open or half_open.
	State    string `json:"state"`
	Failures int    `json:"consecutive_failures"`
	// OpenUntilMS is when a probe may be let through.
	OpenUntilMS int64 `json:"open_until_ms"`
	// SilentSinceMS is since when calls have had no answer of any kind.
	SilentSinceMS int64 `json:"silent_since_ms"`
	// SlowUntilMS is how long the address is tried after all others.
	SlowUntilMS int64 `json:"slow_until_ms"`
	// LatencyP95US is the head start it has earned, in microseconds.
	LatencyP95US int64 `json:"latency_p95_us"`
}

// Show returns every address known, in the order of their text.
func (b *Breakers) Show() []BreakerView {
	now, openMS := b.clock.nowMS(), b.settings.openMS()
	views := []BreakerView{}
	b.nodes.Range(func(a block.Addr, n *node) bool {
		w := n.circuit.load()
		v := BreakerView{
			Address: a.String(), State: w.String(), Failures: int(w.fails()),
			SilentSinceMS: n.quiet.sinceMS(), SlowUntilMS: n.races.ejectedUntilMS(now),
		}
		if w.state() == open {
			v.OpenUntilMS = w.sinceMS() + openMS
		}
		if p95, ok := b.Quantile(a, 0.95); ok {
			v.LatencyP95US = p95.Microseconds()
		}
		views = append(views, v)
		return true
	})
	slices.SortFunc(views, func(a, b BreakerView) int { return cmp.Compare(a.Address, b.Address) })
	return views
}

// Reset closes the circuit of a and forgets its silence and its lost races. It
// reports whether a is known.
func (b *Breakers) Reset(a block.Addr) bool {
	n, ok := b.nodes.Load(a)
	if !ok {
		return false
	}
	n.circuit.reset(b.clock.nowMS())
	n.quiet.answered()
	n.races.forget()
	n.evicted.Store(false)
	return true
}
