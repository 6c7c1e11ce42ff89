package block

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// RouteKind separates the number spaces of routing keys.
type RouteKind uint8

const (
	// RouteTablet keys are tablet ids.
	RouteTablet RouteKind = iota + 1
	// RouteExternal keys are hashes of object names.
	RouteExternal
)

// Route is what placement and candidates are kept by: a tablet, or an object
// outside tablets. Two kinds never share a number.
type Route struct {
	Kind RouteKind
	ID   uint64
}

// String is for logs and errors.
func (r Route) String() string {
	if r.Kind == RouteTablet {
		return "tablet " + strconv.FormatUint(r.ID, 10)
	}
	return fmt.Sprintf("external %016x", r.ID)
}

// TabletRoute returns the routing key of a tablet; id is not negative.
func TabletRoute(id int64) Route { return Route{Kind: RouteTablet, ID: uint64(id)} }

// ExternalRoute returns the routing key of an object outside tablets.
func ExternalRoute(o Object) Route {
	o.Store = DefaultStore + "\x00" + o.Store
	return Route{Kind: RouteExternal, ID: BaseID(o, "").Hi}
}

// Addr is the address of a node's brpc_port.
type Addr struct {
	Host string
	Port int
}

// ParseAddr reads what Addr.String writes.
func ParseAddr(text string) (Addr, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return Addr{}, fmt.Errorf("address %q: want host:port", text)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return Addr{}, fmt.Errorf("address %q: want host:port with a port from 1 to 65535", text)
	}
	return Addr{Host: host, Port: int(n)}, nil
}

// String joins host and port as net.Dial takes them.
func (a Addr) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

// Kind says what a reader reads: it decides the counters of the query
// profile.
type Kind uint8

// The kinds of data of a read.
const (
	KindData Kind = iota
	KindInvertedIndex
	KindSegmentFooter
	KindInternalIndex
)

// Queue is the part of the File Cache that a block goes to.
type Queue uint8

// The four queues of the File Cache, in the order of file_cache_path's shares.
const (
	QueueNormal Queue = iota
	QueueTTL
	QueueIndex
	QueueDisposable
)

// Slice is a file that the merging of small files has put into a larger object,
// Size bytes from Offset on (S17).
type Slice struct {
	Offset, Size int64
}

// Read is one read of one object, as a reader asks for it.
type Read struct {
	Object Object
	// Version is Immutable for tablet files and "" for whatever is current.
	Version Version
	Route   Route
	// Packed names the part of Object that the reader takes for a file, nil for
	// all of it. Nobody changes it.
	Packed *Slice
	// Offset and Size are in bytes of the file; a negative Size means up to the
	// end. A range that goes past the end is clamped.
	Offset, Size int64
	Kind         Kind
	Queue        Queue
	// QueryID names the query profile that the read counts in, "" for none.
	QueryID string
	// NoPeer keeps the read away from peers: warm-up jobs and fills.
	NoPeer bool
	// MaxAge is how long what is known of an object that may change holds for this
	// read: 0 follows external_revalidate_ms, a negative value means for ever.
	MaxAge time.Duration
	// Owner is the node that is to hold the object, if it is another one: where that
	// lacks a block it reads it from object storage for us, and we don't.
	Owner Addr
	// Window is how many blocks the read may have under way or in hand, 0 means as
	// many as the engine's others.
	Window int
	// Trace is the W3C traceparent that the read belongs to, "" for none.
	Trace string
	// ForPeer: another node asked for the blocks. What is fetched counts against
	// the cache's quota of fills (S35), and what is there is not used (S43).
	ForPeer bool
}

// Fetch asks a Source for the blocks of one run. A Source does not keep or
// change it.
type Fetch struct {
	Object Object
	// Meta is what the requester knows. An unknown size or version is learned
	// from the reply; a known version is a condition on it.
	Meta      Meta
	BlockSize int64
	Run       Run
	Route     Route
	Kind      Kind
	Queue     Queue
	QueryID   string
	// ForPeer is the read's; it does not travel.
	ForPeer bool
	// Fill asks a peer that lacks a block to read it from object storage.
	Fill bool
	// Wait asks a peer to answer only when the fill of a block has ended.
	Wait bool
	// Trace is a W3C traceparent, "" for none.
	Trace string
}

// Status is a peer's answer for one block. A requester takes a status that it
// does not know for an error, never for a miss.
type Status uint8

// What a peer can say of a block.
const (
	// StatusData: the block's bytes are in the reply.
	StatusData Status = iota + 1
	// StatusNotFound: the peer does not have the block.
	StatusNotFound
	// StatusFilling: the peer is reading the block from object storage.
	StatusFilling
	// StatusQueueTimeout, StatusQueueFull and StatusFillRejected are the three
	// ways of being busy.
	StatusQueueTimeout
	StatusQueueFull
	StatusFillRejected
	// StatusFillTimeout: the fill took longer than it may.
	StatusFillTimeout
	// StatusCancelled: the requester has cancelled the call.
	StatusCancelled
	// StatusGoingAway: the node is stopping.
	StatusGoingAway
	// StatusUnsupported: the node can't serve this kind of request.
	StatusUnsupported
	// StatusFailed: the peer tried and met an error of its own.
	StatusFailed
)

// Piece is one block of a reply.
type Piece struct {
	Index uint64
	// Status is StatusData for bytes in hand.
	Status Status
	// Buf is set with StatusData, verified; the receiver owns the reference.
	Buf *Buf
	// Shared: others have got the same bytes, so it is no waste not to need them.
	Shared bool
}

// Stream is a reply that arrives block by block. It is used by one goroutine,
// but Close may be called by another one at any time.
type Stream interface {
	// Next waits for the next piece. It answers io.EOF when all that was asked
	// for has come. Pieces without data come before those with data.
	Next() (Piece, error)
	// Meta returns what the reply has told of the object. It is valid as soon as
	// Next has returned a piece or io.EOF: a reply without a piece may still tell
	// that the object ends before them.
	Meta() Meta
	// Close gives up what has not come: on the wire too. It does not wait.
	Close()
}

// Queued is a Stream that can tell how long the request has waited in the
// peer's queue; valid when Next has answered io.EOF.
type Queued interface {
	Waited() time.Duration
}

// Store reads blocks from object storage. ctx bounds the whole stream; it is
// the store's own error that Fetch or Next returns, wrapped in *Error.
type Store interface {
	Fetch(ctx context.Context, f *Fetch) (Stream, error)
}

// Peers reads blocks from the File Cache of the node at addr.
type Peers interface {
	FetchFrom(ctx context.Context, addr Addr, f *Fetch) (Stream, error)
}

// Outcome is what became of one call to one peer: the word that candidates
// and circuit breakers are moved by.
type Outcome uint8

// The outcomes of a peer call.
const (
	// OutcomeHit: the peer gave at least one block.
	OutcomeHit Outcome = iota + 1
	// OutcomeMiss: the peer answered that it has none of the blocks.
	OutcomeMiss
	// OutcomeBusy: a full queue, a queue time-out, full fill slots, a node that
	// is going away: neutral.
	OutcomeBusy
	// OutcomeTimeout and OutcomeError: no answer in time, connection or RPC
	// failure: these count against the peer.
	OutcomeTimeout
	OutcomeError
	// OutcomeCorrupt: the bytes did not match their checksum. Counts as a failure.
	OutcomeCorrupt
	// OutcomeCircuitOpen: the call was not made.
	OutcomeCircuitOpen
	// OutcomeCancelled: we gave up: neutral.
	OutcomeCancelled
	// OutcomeUnsupported: the peer can't serve such a request: neutral.
	OutcomeUnsupported
)

// String is for people.
func (o Outcome) String() string {
	names := [...]string{"none", "hit", "miss", "busy", "timeout", "error", "checksum mismatch", "circuit open", "cancelled", "unsupported"}
	return names[min(int(o), len(names)-1)]
}

// Failed reports whether the outcome is a failure of the peer.
func (o Outcome) Failed() bool {
	return o == OutcomeTimeout || o == OutcomeError || o == OutcomeCorrupt
}

// Outcome returns what a whole reply with this status for all its blocks means
// for the peer that gave it.
func (s Status) Outcome() Outcome {
	switch s {
	case StatusData:
		return OutcomeHit
	case StatusNotFound:
		return OutcomeMiss
	case StatusFilling, StatusQueueTimeout, StatusQueueFull, StatusFillRejected,
		StatusFillTimeout, StatusGoingAway:
		return OutcomeBusy
	case StatusCancelled:
		return OutcomeCancelled
	case StatusUnsupported:
		return OutcomeUnsupported
	}
	return OutcomeError
}
