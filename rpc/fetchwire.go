package rpc

import (
	"math"
	"time"

	"github.com/cloudwego/gopkg/protocol/thrift"

	"headstart/engine/block"
)

// The codec of FetchBlocks, both messages without their payload. The structs
// and field numbers are those of the IDL, and code generated from it
// understands what is written here; only the payload is not copied.

// The fields of FetchRequest.
const (
	reqBase = iota + 1
	reqObject
	reqVersion
	reqSize
	reqETag
	reqBlockSize
	reqRanges
	reqRoute
	reqKind
	reqQueue
	reqQueryID
	reqFill
	reqWait
	reqCallID
	reqDeadline
	reqTrace
)

// The fields of FetchReply, and of every other reply as far as it has them.
const (
	repBase    = 1
	repFailure = 2
	repMeta    = 3
	repBlocks  = 4
	repWaited  = 5
	repPayload = 100
)

// fetchRequest is one FetchRequest as a server has read it. It is read into
// again and again, so that strings that stay the same are kept.
type fetchRequest struct {
	base  []byte
	fetch block.Fetch
	// callID is what a Cancel names, wait how long the caller waits; 0: neither.
	callID uint64
	wait   time.Duration
}

// appendFetch writes the arguments of a FetchBlocks call.
func appendFetch(b, base []byte, f *block.Fetch, callID uint64, wait time.Duration) []byte {
	b = appendField(b, thrift.STRUCT, 1)
	b = append(appendField(b, thrift.STRUCT, reqBase), base...)
	b = appendField(b, thrift.STRUCT, reqObject)
	b = appendString(b, 1, f.Object.Store)
	b = appendString(b, 2, f.Object.Bucket)
	b = appendStop(appendString(b, 3, f.Object.Key))
	b = appendString(b, reqVersion, f.Meta.Version)
	b = appendI64(b, reqSize, f.Meta.Size)
	b = appendString(b, reqETag, f.Meta.ETag)
	b = appendI64(b, reqBlockSize, f.BlockSize)
	b = appendRun(b, f.Run)
	b = appendField(b, thrift.STRUCT, reqRoute)
	b = appendI32(b, 1, int32(f.Route.Kind))
	b = appendStop(appendI64(b, 2, int64(f.Route.ID)))
	b = appendI32(b, reqKind, int32(f.Kind))
	b = appendI32(b, reqQueue, int32(f.Queue))
	b = appendString(b, reqQueryID, f.QueryID)
	b = appendBool(b, reqFill, f.Fill)
	b = appendBool(b, reqWait, f.Wait)
	b = appendI64(b, reqCallID, int64(callID))
	b = appendI64(b, reqDeadline, milliseconds(wait))
	if f.Trace != "" {
		b = appendString(b, reqTrace, f.Trace)
	}
	return appendStop(appendStop(b))
}

// milliseconds rounds up: what is left of a deadline is never nothing.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// duration takes ms from another node for what it can mean.
func duration(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

func appendRun(b []byte, run block.Run) []byte {
	var spans [block.MaxRun]block.Run
	n := 0
	for rest := run; rest.Want != 0; n++ {
		spans[n], rest = rest.Span()
	}
	b = appendList(b, reqRanges, thrift.STRUCT, n)
	for _, span := range spans[:n] {
		b = appendI64(b, 1, int64(span.First))
		b = appendStop(appendI32(b, 2, int32(span.Count())))
	}
	return b
}

// arguments reads the struct around the one argument or result of a method,
// whose field id is given, and calls body in it.
func (c *cursor) arguments(want int16, body func(c *cursor)) error {
	found := false
	for t, id, ok := c.field(); ok; t, id, ok = c.field() {
		if id == want && t == thrift.STRUCT && !found {
			found = true
			body(c)
			continue
		}
		c.skip(t, maxDepth)
	}
	if !found || c.left != 0 {
		c.fail(errWire)
	}
	c.settle()
	return c.err
}

// read reads the arguments of a FetchBlocks call.
func (r *fetchRequest) read(c *cursor) error {
	old := r.fetch
	r.fetch = block.Fetch{Meta: block.UnknownMeta("")}
	r.base, r.callID, r.wait = r.base[:0], 0, 0
	return c.arguments(1, func(c *cursor) {
		for t, id, ok := c.field(); ok; t, id, ok = c.field() {
			r.readField(c, t, id, &old)
		}
	})
}

// wireType is the type that the IDL gives each field of FetchRequest.
func wireType(field int16) thrift.TType {
	switch field {
	case reqBase, reqObject, reqRoute:
		return thrift.STRUCT
	case reqVersion, reqETag, reqQueryID, reqTrace:
		return thrift.STRING
	case reqSize, reqBlockSize, reqCallID, reqDeadline:
		return thrift.I64
	case reqKind, reqQueue:
		return thrift.I32
	case reqFill, reqWait:
		return thrift.BOOL
	case reqRanges:
		return thrift.LIST
	}
	return thrift.STOP
}

func (r *fetchRequest) readField(c *cursor, t thrift.TType, id int16, old *block.Fetch) {
	want := wireType(id)
	if want == thrift.STOP {
		c.skip(t, maxDepth)
		return
	}
	if !c.is(t, want) {
		return
	}
	f := &r.fetch
	switch id {
	case reqBase:
		r.base = append(r.base[:0], c.record()...)
	case reqObject:
		f.Object = c.object(old.Object)
	case reqVersion:
		f.Meta.Version = block.Version(c.str(maxName, string(old.Meta.Version)))
	case reqSize:
		f.Meta.Size = c.i64()
	case reqETag:
		f.Meta.ETag = c.str(maxName, old.Meta.ETag)
	case reqBlockSize:
		f.BlockSize = c.i64()
	case reqRanges:
		f.Run = c.ranges()
	case reqRoute:
		f.Route = c.route()
	case reqKind:
		f.Kind = block.Kind(c.small())
	case reqQueue:
		f.Queue = block.Queue(c.small())
	case reqQueryID:
		f.QueryID = c.str(maxName, old.QueryID)
	case reqFill: // 1 is true and all else false, as generated code has it
		f.Fill = c.u8() == 1
	case reqWait:
		f.Wait = c.u8() == 1
	case reqCallID:
		r.callID = uint64(c.i64())
	case reqDeadline:
		r.wait = duration(c.i64())
	case reqTrace:
		f.Trace = c.str(maxName, old.Trace)
	}
}

func (c *cursor) object(old block.Object) (o block.Object) {
	for t, id, ok := c.field(); ok; t, id, ok = c.field() {
		switch {
		case id == 1 && c.is(t, thrift.STRING):
			o.Store = c.str(maxName, old.Store)
		case id == 2 && c.is(t, thrift.STRING):
			o.Bucket = c.str(maxName, old.Bucket)
		case id == 3 && c.is(t, thrift.STRING):
			o.Key = c.str(maxKey, old.Key)
		default:
			c.skip(t, maxDepth)
		}
	}
	return o
}

func (c *cursor) route() (r block.Route) {
	for t, id, ok := c.field(); ok; t, id, ok = c.field() {
		switch {
		case id == 1 && c.is(t, thrift.I32):
			r.Kind = block.RouteKind(c.small())
		case id == 2 && c.is(t, thrift.I64):
			r.ID = uint64(c.i64())
		default:
			c.skip(t, maxDepth)
		}
	}
	return r
}

// ranges reads a list of block ranges, which must fit into one Run.
func (c *cursor) ranges() block.Run {
	var spans [block.MaxRun]struct{ first, count int64 }
	n := c.list(block.MaxRun)
	lowest := int64(math.MaxInt64)
	for i := range n {
		for t, id, ok := c.field(); ok; t, id, ok = c.field() {
			switch {
			case id == 1 && c.is(t, thrift.I64):
				spans[i].first = c.i64()
			case id == 2 && c.is(t, thrift.I32):
				spans[i].count = int64(c.i32())
			default:
				c.skip(t, maxDepth)
			}
		}
		lowest = min(lowest, spans[i].first)
	}
	run := block.Run{First: uint64(lowest)}
	for _, s := range spans[:n] {
		skip := s.first - lowest
		if s.first < 0 || s.count < 1 || skip < 0 || skip >= block.MaxRun || skip+s.count > block.MaxRun {
			c.fail(errWire)
			return block.Run{}
		}
		run.Want |= uint16(1<<s.count-1) << skip
	}
	return run
}

func appendMeta(b []byte, id uint16, m *block.Meta) []byte {
	b = appendField(b, thrift.STRUCT, id)
	b = appendI64(b, 1, m.Size)
	b = appendString(b, 2, m.Version)
	b = appendString(b, 3, m.ETag)
	b = appendI64(b, 4, unixNano(m.Modified))
	return appendStop(appendString(b, 5, m.ContentType))
}

// meta reads a Meta; strings that are those of old cost no memory.
func (c *cursor) meta(old *block.Meta) block.Meta {
	m := block.UnknownMeta("")
	for t, id, ok := c.field(); ok; t, id, ok = c.field() {
		switch {
		case id == 1 && c.is(t, thrift.I64):
			m.Size = max(c.i64(), block.SizeUnknown)
		case id == 2 && c.is(t, thrift.STRING):
			m.Version = block.Version(c.str(maxName, string(old.Version)))
		case id == 3 && c.is(t, thrift.STRING):
			m.ETag = c.str(maxName, old.ETag)
		case id == 4 && c.is(t, thrift.I64):
			m.Modified = timeOf(c.i64())
		case id == 5 && c.is(t, thrift.STRING):
			m.ContentType = c.str(maxName, old.ContentType)
		default:
			c.skip(t, maxDepth)
		}
	}
	return m
}
