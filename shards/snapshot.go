package shards

import "math/bits"

// State says what a read is to do about peers.
type State uint8

// The states of a tablet as a read meets them.
const (
	// Ready: ask the candidates.
	Ready State = iota + 1
	// Empty: there are no candidates; a look-up is due.
	Empty
	// Cooldown: all candidates have missed for some time; object storage only.
	Cooldown
	// Slow: every candidate has lost most of its races lately. Object storage
	// first; the candidates are there for when that fails.
	Slow
)

// Snapshot is whom a read may ask, in the order of trial. It is a value: it
// does not change, and may be kept.
type Snapshot struct {
	tablet *tablet
	// gone has a bit for each candidate that has expired, slow for each that is
	// to be tried after all others.
	gone, slow uint32
	how        how
}

// how is a State, and near if candidates of the own location come first among
// equals. It is one field because Go keeps values of up to four fields in registers,
// and larger ones in memory.
type how uint8

const near how = 1 << 7

func (h how) state() State { return State(h &^ near) }

func (s *Settings) how(st State) how {
	if s.LocationPreference.Load() {
		return how(st) | near
	}
	return how(st)
}

// State returns what to do.
func (s Snapshot) State() State { return s.how.state() }

// Len returns the number of candidates; it is not 0 for Ready and Slow, and
// may be anything in Cooldown.
func (s Snapshot) Len() int {
	if s.tablet == nil {
		return 0
	}
	return len(s.tablet.cands) - bits.OnesCount32(s.gone)
}

// At returns candidate i of Len. The first to try is 0.
func (s Snapshot) At(i int) Candidate { return s.tablet.cands[s.index(i)].candidate() }

// index finds the place in the list of the candidate that is tried as number
// i: each class of the order of trial is a set of bits. From the strongest
// to the weakest: not ejected (S37), of the group that served last (S22), not
// yet in the part of the list that has missed this round (S23), of the own
// location (S19), first in the list (S20).
func (s Snapshot) index(i int) int {
	t := s.tablet
	live := t.all() &^ s.gone
	nearby := ^uint32(0)
	if s.how&near != 0 {
		nearby = t.near
	}
	for class := range 16 {
		set := live
		set &= side(s.slow, class&8 != 0)
		set &= side(^t.last, class&4 != 0)
		set &= side(t.missed(), class&2 != 0)
		set &= side(^nearby, class&1 != 0)
		n := bits.OnesCount32(set)
		if i < n {
			return nthBit(set, i)
		}
		i -= n
	}
	panic("shards: At of a candidate that the snapshot does not have")
}

// side returns the bits of set, or those not in it.
func side(set uint32, in bool) uint32 {
	if in {
		return set
	}
	return ^set
}

// nthBit returns the position of the n-th bit that is set.
func nthBit(set uint32, n int) int {
	for range n {
		set &= set - 1
	}
	return bits.TrailingZeros32(set)
}
