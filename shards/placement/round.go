package placement

import (
	"fmt"
	"time"
)

// Membership says what part a backend has in its group. A round of balance
// moves tablets from the members and those who leave to the members and those
// who join:
//
//	         nothing to move
//	   ┌───────────────────────────────────────────────────┐
//	   │         round starts              round ends      ▼
//	waiting ─────────────────► joining ──────────────► member
//	  ▲  ▲                        │ fails                  │ decommissioned,
//	  │  └────────────────────────┘                        │ round starts
//	  │ wanted again            round ends                 ▼
//	  └───────────── out ◄────────────────────────────── leaving
//
// Edges are changes that are saved before they hold, so that they survive the
// FE and happen once.
type Membership string

// The memberships. That of a backend that nothing is said of is Member.
const (
	Member  Membership = ""
	Waiting Membership = "waiting"
	Joining Membership = "joining"
	Leaving Membership = "leaving"
	Out     Membership = "out"
)

// String is for people.
func (m Membership) String() string {
	if m == Member {
		return "member"
	}
	return string(m)
}

// BalanceType says how the tablets of a group move.
type BalanceType string

// The balance types of the reference.
const (
	// WithoutWarmup switches at once and tells the backends nothing.
	WithoutWarmup BalanceType = "without_warmup"
	// AsyncWarmup switches a batch when it is warm, or after a time limit.
	AsyncWarmup BalanceType = "async_warmup"
	// SyncWarmup switches a batch when it is warm.
	SyncWarmup BalanceType = "sync_warmup"
	// PeerReadAsyncWarmup switches a batch as soon as its new backends know where
	// it comes from; they warm it up behind.
	PeerReadAsyncWarmup BalanceType = "peer_read_async_warmup"
)

// DefaultWarmUpTimeoutS is the default of balance_warm_up_task_timeout.
const DefaultWarmUpTimeoutS = 300

// ParseBalanceType reads a balance type by its name.
func ParseBalanceType(name string) (BalanceType, error) {
	switch t := BalanceType(name); t {
	case WithoutWarmup, AsyncWarmup, SyncWarmup, PeerReadAsyncWarmup:
		return t, nil
	}
	return "", fmt.Errorf("%w balance_type %q: want without_warmup, async_warmup, sync_warmup or peer_read_async_warmup",
		ErrInvalid, name)
}

// Round is one round of balance of a group: the last one of each is kept. Who
// joins and leaves in it is said by their Membership.
type Round struct {
	GroupID string
	Type    BalanceType
	// Started names the round. Ended is zero while it is under way.
	Started time.Time
	Ended   time.Time
	// Switched are the buckets whose tablets are where they are going to.
	Switched Buckets
	// Moves counts the tablets that were to move when the round started. Counted is
	// set once they are: an FE that takes a round over counts them if it has to.
	Moves   int
	Counted bool `json:",omitempty"`
	RoundCounts
}

// RoundCounts counts tablets of a round: Moved are those switched; of them or
// of those still to be switched, Warm have been warmed up, and for TimedOut and
// Failed nobody waits any more.
type RoundCounts struct {
	Moved, Warm, TimedOut, Failed int
}

// Add adds other's counts.
func (c *RoundCounts) Add(other RoundCounts) {
	c.Moved += other.Moved
	c.Warm += other.Warm
	c.TimedOut += other.TimedOut
	c.Failed += other.Failed
}

func (r *Round) active() bool { return r != nil && !r.Started.IsZero() && r.Ended.IsZero() }

// balanceType returns how the group's tablets move.
func (g *Group) balanceType(s *Settings) BalanceType {
	if g.BalanceType != "" {
		return g.BalanceType
	}
	return s.balanceType()
}

// warmUpTimeout returns how long a batch may take with AsyncWarmup.
func (g *Group) warmUpTimeout() time.Duration {
	if g.WarmUpTimeoutS > 0 {
		return time.Duration(g.WarmUpTimeoutS) * time.Second
	}
	return DefaultWarmUpTimeoutS * time.Second
}
