package s3

import (
	"sync/atomic"

	"headstart/engine/block"
)

type counters struct {
	requests, errors, denied, passed, changed atomic.Int64
	abandoned, cut, bytes, streams, short     atomic.Int64
	sources                                   [block.SourceStore + 1]atomic.Int64
}

// Metrics is the front's books at one moment. All but gauges only grow.
type Metrics struct {
	// Requests were made, Errors of them answered with an error of the front's own,
	// Denied of those because of who asked. Passed went on to object storage,
	// Changed of those changed objects.
	Requests, Errors, Denied, Passed, Changed int64
	// Abandoned are reads whose client left before the first byte, Cut answers that
	// ended before their last.
	Abandoned, Cut int64
	// Bytes of objects were sent, Streams answers are under way.
	Bytes, Streams int64
	// Short answers were given where their request was read.
	Short int64
	// Local, Peer and Store count answers by where their first byte came from.
	Local, Peer, Store int64
}

// Metrics returns a snapshot.
func (f *Front) Metrics() Metrics {
	c := &f.count
	return Metrics{
		Requests: c.requests.Load(), Errors: c.errors.Load(), Denied: c.denied.Load(),
		Passed: c.passed.Load(), Changed: c.changed.Load(),
		Abandoned: c.abandoned.Load(), Cut: c.cut.Load(),
		Bytes: c.bytes.Load(), Streams: c.streams.Load(), Short: c.short.Load(),
		Local: c.sources[block.SourceLocal].Load(), Peer: c.sources[block.SourcePeer].Load(),
		Store: c.sources[block.SourceStore].Load(),
	}
}
