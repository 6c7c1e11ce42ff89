package placement

import (
	"context"
	"errors"

	"headstart/engine/block"
)

// The errors that callers tell apart.
var (
	// ErrInvalid: what was said can't be true; the message tells what is wrong.
	ErrInvalid = errors.New("invalid")
	// ErrStale: the address belongs to another, newer process.
	ErrStale = errors.New("stale process")
	// ErrFull: a bound of Options is reached.
	ErrFull = errors.New("full")
	// ErrUnknown: there is no such backend, group or job.
	ErrUnknown = errors.New("unknown")
	// ErrOver: what was to be changed has ended, or another has taken its place.
	ErrOver = errors.New("over")
	// ErrConflict: another FE has changed the state in the meantime.
	ErrConflict = errors.New("changed by another FE")
)

// Record is a backend as the store keeps it. It is written when it differs
// from what was written last, not with each heartbeat.
type Record struct {
	ID int64
	// Heartbeat is the last one that told something new; what is for show only
	// may have moved since.
	Heartbeat Heartbeat
	// Decommissioned is set by an operator and outlives the process: the next
	// round of balance takes the backend's tablets away.
	Decommissioned bool
	Membership     Membership `json:",omitempty"`
}

// Group is a compute group as the store keeps it.
type Group struct {
	ID, Name string
	// Suspended keeps all its backends from being handed out.
	Suspended bool
	// BalanceType is "" for the FE's own setting, WarmUpTimeoutS 0 for
	// DefaultWarmUpTimeoutS.
	BalanceType    BalanceType `json:",omitempty"`
	WarmUpTimeoutS int         `json:",omitempty"`
}

// Assignment names the backend that serves a route for a group, whatever the
// rank says. In a Change, backend 0 takes the assignment away.
type Assignment struct {
	Route     block.Route
	GroupID   string
	BackendID int64
}

// State is everything that is kept.
type State struct {
	ClusterID string
	// LastID is the highest number that was ever given to a backend or a job, so
	// that none is given twice.
	LastID      int64
	Backends    []Record
	Groups      []Group
	Assignments []Assignment
	Rounds      []Round
	Jobs        []Job
	Tablets     []TabletBucket
}

// Change is what one step alters: records to put, and numbers of backends and
// jobs to drop.
type Change struct {
	Backends    []Record
	Dropped     []int64
	Groups      []Group
	Assignments []Assignment
	Rounds      []Round
	Jobs        []Job
	DroppedJobs []int64
	// Tablets stand alone: a change that has any has nothing else.
	Tablets []TabletBucket
}

// Store keeps the state over restarts.
type Store interface {
	// Load returns what is kept. A store without a cluster becomes that of
	// clusterID, in the same step.
	Load(ctx context.Context, clusterID string) (State, error)
	// Save makes a change durable before it returns: all of it or nothing. With
	// ErrConflict it is to be planned anew, when what others have changed has been
	// applied.
	Save(ctx context.Context, c Change) error
}
