// Package placement is what the FE knows: which BEs there are, which of them
// are alive, and which BE of each compute group serves a tablet.
//
// Directory is the FE's service: it alone reads the clock, locks, and has a
// Store. Everything below it is pure: it takes the time as an argument and
// does no I/O. Nothing here connects to a BE: package conduct does what a round
// of balance or a warm-up job needs, by the methods of Directory.
package placement

import (
	"context"
	"time"

	"headstart/engine/block"
)

// Heartbeat is what a BE says of itself, at registration and ever after.
type Heartbeat struct {
	// NodeID is chosen by the process at its start.
	NodeID string
	// Host is the address that others reach the BE at.
	Host string
	// The ports, by the names of SHOW BACKENDS; 0 means that it has none.
	HeartbeatPort, BePort, HTTPPort, BrpcPort, ArrowFlightSQLPort int
	GroupID, GroupName, CloudUniqueID, Location                   string
	// Version is the program's, Started the process's start.
	Version string
	Started time.Time
	// CPUCores, MemoryBytes, CacheCapacityBytes and CacheUsedBytes are for show.
	CPUCores                                        int
	MemoryBytes, CacheCapacityBytes, CacheUsedBytes int64
	// Leaving is set while the BE drains: it is not handed out any more.
	Leaving bool
}

// HeartbeatReply is the FE's answer.
type HeartbeatReply struct {
	// BackendID is the BE's number, kept over restarts of both.
	BackendID int64
	// ClusterID is the id of the FE's cluster.
	ClusterID string
	// Interval is when the FE wants to hear of the BE again.
	Interval time.Duration
}

// Holder is a BE that serves a tablet for its compute group.
type Holder struct {
	Addr     block.Addr
	GroupID  string
	Location string
}

// WarmBatch is work for one BE: to copy into its File Cache what sources have
// of tablets, and whole objects.
type WarmBatch struct {
	// ID is never used again.
	ID string
	// Balance is set when the tablets are moving to the BE: it makes the sources
	// the first candidates of their tablets, before it answers (S84).
	Balance bool
	Groups  []WarmGroup
	Objects []WarmObject
}

// WarmGroup is tablets that have the same sources.
type WarmGroup struct {
	// Sources are the BEs that know what is hot, best first. Without any the BE
	// goes by what it knows itself.
	Sources []Holder
	Tablets []uint64
}

// WarmObject is an object outside tablets.
type WarmObject struct {
	Object block.Object
	Meta   block.Meta
}

// BlockRange is Count blocks from First on.
type BlockRange struct {
	First uint64
	Count int
}

// HotObject is what a BE has cached of one object of a tablet.
type HotObject struct {
	Tablet uint64
	WarmObject
	Blocks []BlockRange
}

// HotReply is a BE's word on what it has cached of some tablets.
type HotReply struct {
	// BlockSize is what its blocks are counted in, in bytes.
	BlockSize int64
	Objects   []HotObject
}

// WarmState is how far a BE is with a batch.
type WarmState uint8

// The states of a batch. A BE that was restarted, or that has been told to
// drop the batch, does not know it.
const (
	WarmUnknown WarmState = iota
	WarmQueued
	WarmRunning
	WarmDone
	WarmFailed
)

// WarmProgress is a BE's word on one batch.
type WarmProgress struct {
	ID    string
	State WarmState
	// Blocks and Bytes have been copied so far; what was there already is not
	// copied.
	Blocks, Bytes int64
	// Err is why blocks could not be copied.
	Err string
}

// WarmCall is what the FE has to say to a BE about warming up. Any of its parts
// may be empty; to say it twice does no harm.
type WarmCall struct {
	Start []WarmBatch
	// Ask and Drop are ids of batches: to report on, and to give up.
	Ask, Drop []string
}

// ListCall asks a BE for objects below a prefix, in the order of their keys.
type ListCall struct {
	Prefix block.Object
	// After is the last key that is not wanted.
	After string
	Max   int
}

// ListReply is the BE's answer. More is set when there are objects behind.
type ListReply struct {
	Objects []WarmObject
	More    bool
}

// ConfigItem is one key of a BE's configuration.
type ConfigItem struct {
	Key, Value, Type string
	Mutable          bool
}

// Backends is how the FE calls its BEs.
type Backends interface {
	// Warm returns the progress of all batches that the call starts or asks about.
	Warm(ctx context.Context, to block.Addr, c WarmCall) ([]WarmProgress, error)
	// List lists objects of the object store.
	List(ctx context.Context, to block.Addr, c ListCall) (ListReply, error)
	// ShowConfig returns all keys of the BE.
	ShowConfig(ctx context.Context, to block.Addr) ([]ConfigItem, error)
	// SetConfig changes keys of the BE: all or, with an error, none.
	SetConfig(ctx context.Context, to block.Addr, values map[string]string, persist bool) error
}
