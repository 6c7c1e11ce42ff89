// Package rpc is the only door between nodes: the Thrift services of
// rpc/idl, spoken with Kitex. Client reads blocks from the File Cache of other
// BEs and Server serves them; DirectoryClient and DirectoryServer are the BE's
// and the FE's side of registration and look-up.
//
// A block's bytes go from a lease straight to the socket and from the socket
// straight into a buffer of the receiver; a lease is held until its bytes are
// out. A length that another node declares never decides how much is
// allocated, and no node is believed that has not proved the cluster's token.
package rpc

import (
	"time"

	"headstart/engine/block"
)

// Version is the version of the protocol. Nodes one version apart work
// together.
const Version = 1

// The names of the methods, as the IDL has them.
const (
	methodFetch     = "FetchBlocks"
	methodCancel    = "Cancel"
	methodStat      = "Stat"
	methodRead      = "Read"
	methodHeartbeat = "Heartbeat"
	methodLookup    = "Lookup"

	methodWarm       = "Warm"
	methodList       = "List"
	methodHot        = "Hot"
	methodForget     = "Forget"
	methodShowConfig = "ShowConfig"
	methodSetConfig  = "SetConfig"
)

// The bounds of what is read from another node before it is looked at.
const (
	// maxRequest bounds a request, its frame included.
	maxRequest = 64 << 10
	// maxHead bounds a reply without its payload.
	maxHead = 64 << 10
	// maxName bounds ids, versions, ETags and content types in bytes; keys may
	// be as long as S3 allows, which is 1024, and a little.
	maxName = 1 << 10
	maxKey  = 4 << 10
	// MaxBlockSize is the largest block that can be asked for, in bytes. It
	// keeps the largest reply, MaxRun blocks, below what a Thrift length holds.
	MaxBlockSize = 64 << 20
)

// The times that clients and servers agree on by default.
const (
	connectTimeout = 200 * time.Millisecond
	// clientIdle is how long a client keeps a connection that has nothing to
	// do. A server waits longer, so that it is the client who closes it.
	clientIdle = 30 * time.Second
	serverIdle = 2 * time.Minute
)

// peerError is what leaves this package when a call to a node at addr fails.
func peerError(op string, o block.Object, addr block.Addr, err error) error {
	return &block.Error{Op: op, Object: o, Source: block.SourcePeer, Addr: addr.String(), Err: err}
}
