package tpch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// ReaderCount is how many readers replay a query: the recorded engine had up
// to 8 reads in flight.
const ReaderCount = 8

// ReplayOptions are what a Replay needs.
type ReplayOptions struct {
	Trace    *Trace
	Contents *Contents
	Bucket   string
	// Nodes has the host:port that each object is read from.
	Nodes []string
	// AfterRead is called by the readers with the number of reads that have
	// ended, each number once. It may be nil.
	AfterRead func(ended int64)
}

// Validate says what is wrong with the options.
func (o ReplayOptions) Validate() error {
	switch {
	case o.Trace == nil || o.Contents == nil:
		return errors.New("tpch: a replay needs a trace and its contents")
	case o.Bucket == "":
		return errors.New("tpch: a replay needs a bucket")
	case len(o.Nodes) != len(o.Trace.Objects):
		return fmt.Errorf("tpch: %d nodes for %d objects", len(o.Nodes), len(o.Trace.Objects))
	}
	return nil
}

// Replay reads as the recorded engine did: closed loop, ReaderCount readers
// take the reads of a query in order, each waits for its answer. One goroutine
// uses it at a time.
type Replay struct {
	o       ReplayOptions
	targets []string
	readers [ReaderCount]*reader
	ended   atomic.Int64
}

// NewReplay returns a Replay that has not yet connected anywhere.
func NewReplay(o ReplayOptions) (*Replay, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &Replay{o: o, targets: make([]string, len(o.Trace.Objects))}
	for i, obj := range o.Trace.Objects {
		r.targets[i] = "/read?path=" + url.QueryEscape("s3://"+o.Bucket+"/"+obj.Key) +
			"&tablet_id=" + strconv.FormatInt(TabletID(i), 10)
	}
	for i := range r.readers {
		r.readers[i] = &reader{replay: r, conns: make(map[string]*conn)}
	}
	return r, nil
}

// TabletID returns the tablet of an object: one object is one tablet.
func TabletID(object int) int64 { return int64(object) + 1 }

// Run replays reads under a query id and returns the time that they took. A
// failed read is counted and the next one goes on; only the end of ctx ends
// Run early. It also cuts the connections that this Run has made.
func (r *Replay) Run(ctx context.Context, queryID string, reads []Read) time.Duration {
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for _, one := range r.readers {
		all.Go(func() { // ends with the reads, or with ctx
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(reads) {
					return
				}
				one.read(ctx, queryID, reads[i])
				if ended := r.ended.Add(1); r.o.AfterRead != nil {
					r.o.AfterRead(ended)
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// Stats is what a replay has seen.
type Stats struct {
	// Reads counts all reads, Errors those that failed.
	Reads, Errors int64
	// Bytes were received, CheckedBytes compared, WrongBytes found to differ.
	Bytes, CheckedBytes, WrongBytes int64
	// Local, Peer and Store count reads by the source of their first block.
	Local, Peer, Store int64
	// Latencies are those of all reads that did not fail, in rising order.
	Latencies []time.Duration
	// FirstError is an example of the errors.
	FirstError error
}

// Quantile returns the exact quantile q of the latencies, by nearest rank.
func (s *Stats) Quantile(q float64) time.Duration {
	if len(s.Latencies) == 0 {
		return 0
	}
	// Products like 0.95*200 come out a hair above the whole number.
	rank := int(math.Ceil(q*float64(len(s.Latencies)) - 1e-9))
	return s.Latencies[min(max(rank, 1), len(s.Latencies))-1]
}

// Stats adds up what all Runs have seen. It is not called during one.
func (r *Replay) Stats() Stats {
	var sum Stats
	for _, one := range r.readers {
		s := &one.stats
		sum.Reads += s.Reads
		sum.Errors += s.Errors
		sum.Bytes += s.Bytes
		sum.CheckedBytes += s.CheckedBytes
		sum.WrongBytes += s.WrongBytes
		sum.Local += s.Local
		sum.Peer += s.Peer
		sum.Store += s.Store
		sum.Latencies = append(sum.Latencies, s.Latencies...)
		if sum.FirstError == nil {
			sum.FirstError = s.FirstError
		}
	}
	slices.Sort(sum.Latencies)
	return sum
}

// Close closes the connections.
func (r *Replay) Close() {
	for _, one := range r.readers {
		for _, c := range one.conns {
			c.close()
		}
		clear(one.conns)
	}
}
