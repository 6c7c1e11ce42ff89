// Package placement is what the FE knows: which BEs there are, which of them
// are alive, and which BE of each compute group serves a tablet. Its functions
// are pure: they take the time as an argument and do no I/O.
package placement

import (
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
