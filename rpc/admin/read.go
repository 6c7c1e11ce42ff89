package admin

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/timeline"
)

// read serves GET /read?path=…&tablet_id=…&offset=…&size=…&query_id=…: the bytes
// of a range, streamed. A file that is packed into the object is named by
// packed_offset and packed_size; offset and size are then within it. X-Headstart-Source names the source of the first block.
func (s *BE) read(ctx *fasthttp.RequestCtx) {
	req, err := s.readRequest(ctx.QueryArgs())
	if err != nil {
		wrongArgument(ctx, err)
		return
	}
	if trace := string(ctx.Request.Header.Peek("traceparent")); timeline.ValidTraceparent(trace) {
		req.Trace = trace
	}
	// Each block has its own time limit: fasthttp does not tell a handler that its
	// client has gone before the next write.
	bound, cancel := context.WithTimeout(context.Background(), s.BlockTimeout)
	defer cancel()
	r, err := s.Engine.Open(bound, req)
	if err != nil {
		readFailed(ctx, err)
		return
	}
	first, err := r.Next(bound)
	if err != nil && err != io.EOF {
		r.Close()
		readFailed(ctx, err)
		return
	}
	h := &ctx.Response.Header
	h.SetContentType("application/octet-stream")
	h.Set("X-Headstart-Source", first.Source.String())
	if etag := r.Meta().ETag; etag != "" {
		h.Set("ETag", `"`+etag+`"`)
	}
	ctx.Response.SetBodyStream(&body{
		engine: s.Engine, chunks: &s.chunks, req: *req, reader: r, view: first,
		at: req.Offset, left: r.Len(), limit: s.BlockTimeout, conn: ctx.Conn(),
	}, int(r.Len()))
}

// readArguments are all that /read takes.
const readArguments = "path tablet_id offset size packed_offset packed_size kind query_id"

func (s *BE) readRequest(args *fasthttp.Args) (*block.Read, error) {
	if err := only(args, strings.Fields(readArguments)); err != nil {
		return nil, err
	}
	obj, err := block.ParsePath(string(args.Peek("path")), s.Bucket)
	if err != nil {
		return nil, err
	}
	req := &block.Read{Object: obj, Size: -1, QueryID: string(args.Peek("query_id"))}
	if req.Offset, err = number(args, "offset", 0, 0, math.MaxInt64); err != nil {
		return nil, err
	}
	if req.Size, err = number(args, "size", -1, 0, math.MaxInt64); err != nil {
		return nil, err
	}
	if req.Packed, err = packed(args); err != nil {
		return nil, err
	}
	tablet, err := number(args, "tablet_id", -1, 0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	if tablet >= 0 {
		req.Route, req.Version = block.TabletRoute(tablet), block.Immutable
	} else {
		req.Route = block.ExternalRoute(obj)
	}
	req.Kind, req.Queue, err = kindOf(string(args.Peek("kind")))
	return req, err
}

// packed reads the part of the object that is a file: packed_offset and
// packed_size, or neither.
func packed(args *fasthttp.Args) (*block.Slice, error) {
	offset, err := number(args, "packed_offset", -1, 0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	size, err := number(args, "packed_size", -1, 0, math.MaxInt64)
	switch {
	case err != nil:
		return nil, err
	case offset < 0 && size < 0:
		return nil, nil
	case offset < 0 || size < 0:
		return nil, errors.New("packed_offset and packed_size: want both or neither")
	}
	return &block.Slice{Offset: offset, Size: size}, nil
}

// kindOf maps the kind of a read to the counters and the queue of its blocks.
func kindOf(kind string) (block.Kind, block.Queue, error) {
	switch kind {
	case "", "data":
		return block.KindData, block.QueueNormal, nil
	case "inverted_index":
		return block.KindInvertedIndex, block.QueueIndex, nil
	case "segment_footer":
		return block.KindSegmentFooter, block.QueueIndex, nil
	case "internal_index":
		return block.KindInternalIndex, block.QueueIndex, nil
	}
	return 0, 0, errors.New("kind=" + quote(kind) + ": want data, inverted_index, segment_footer or internal_index")
}

// readFailed answers with what went wrong. No answer of object storage is
// passed on as it is: the client did not ask object storage.
func readFailed(ctx *fasthttp.RequestCtx, err error) {
	switch {
	case errors.Is(err, block.ErrRange):
		fail(ctx, fasthttp.StatusBadRequest, "offset_out_of_range", err.Error())
	case errors.Is(err, block.ErrNotFound):
		fail(ctx, fasthttp.StatusNotFound, "no_such_object", err.Error())
	case errors.Is(err, block.ErrDenied):
		fail(ctx, fasthttp.StatusForbidden, "access_denied", err.Error())
	case errors.Is(err, block.ErrChanged):
		fail(ctx, fasthttp.StatusConflict, "object_changed", err.Error())
	case errors.Is(err, block.ErrThrottled), errors.Is(err, block.ErrBusy):
		ctx.Response.Header.Set("Retry-After", "1")
		fail(ctx, fasthttp.StatusServiceUnavailable, "busy", err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		fail(ctx, fasthttp.StatusGatewayTimeout, "timeout", err.Error())
	default:
		fail(ctx, fasthttp.StatusBadGateway, "object_storage_failed", err.Error())
	}
}

// chunkBytes is how much of a block is copied at a time: small enough to stay in
// a core's cache on its way from the block to the socket.
const chunkBytes = 256 << 10

// body streams a read into a response. fasthttp calls WriteTo, then Close.
//
// It copies. The mapping itself could be written to the socket, but behind the
// end of a file that somebody has cut short its last page reads as zeros, and
// nobody would notice; a copy fails there, and the block is read anew.
type body struct {
	engine *engine.Engine
	chunks *sync.Pool
	req    block.Read
	reader *engine.Reader
	view   block.View
	// at is the first byte of the file that the client has not got yet, left how
	// many there are.
	at, left int64
	// limit bounds the wait for each block, and for the client to take it.
	limit time.Duration
	conn  net.Conn
}

// WriteTo implements io.WriterTo. An error, of the read or of the client, ends
// the connection: the length has been announced.
func (b *body) WriteTo(w io.Writer) (n int64, err error) {
	chunk, ok := b.chunks.Get().(*[chunkBytes]byte)
	if !ok {
		chunk = new([chunkBytes]byte)
	}
	defer b.chunks.Put(chunk)
	lost := int64(-1) // where bytes vanished last
	for b.view.Lease.Valid() {
		if err := b.conn.SetWriteDeadline(time.Now().Add(b.limit)); err != nil {
			return n, err
		}
		sent, intact, err := b.send(w, chunk[:])
		n += sent
		if err != nil {
			return n, err
		}
		if !intact {
			if lost == b.at {
				return n, block.ErrCorrupt
			}
			lost = b.at
			if err := b.again(); err != nil {
				return n, err
			}
		}
		if err := b.next(); err != nil && err != io.EOF {
			return n, err
		}
	}
	return n, nil
}

// send passes the view on. It reports false when the bytes of the block have
// vanished from the disk; the cache has dropped it then.
func (b *body) send(w io.Writer, chunk []byte) (sent int64, intact bool, err error) {
	v := &b.view
	defer v.Lease.Release()
	for v.From < v.To {
		k, err := v.Lease.CopyAt(chunk[:min(len(chunk), v.To-v.From)], v.From)
		if err != nil || k == 0 {
			return sent, false, nil
		}
		k, err = w.Write(chunk[:k])
		v.From, b.at, b.left, sent = v.From+k, b.at+int64(k), b.left-int64(k), sent+int64(k)
		if err != nil {
			return sent, true, err
		}
	}
	return sent, true, nil
}

func (b *body) next() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.limit)
	defer cancel()
	b.view, err = b.reader.Next(ctx)
	return err
}

// again starts anew where the client's bytes have ended; with the same version
// of the object or not at all.
func (b *body) again() error {
	ctx, cancel := context.WithTimeout(context.Background(), b.limit)
	defer cancel()
	version := b.reader.Meta().Version
	b.reader.Close()
	req := b.req
	req.Offset, req.Size = b.at, b.left
	r, err := b.engine.Open(ctx, &req)
	if err != nil {
		return err
	}
	b.reader = r
	if r.Meta().Version != version {
		return block.ErrChanged
	}
	return nil
}

// Read implements io.Reader, which the type of a body stream asks for;
// fasthttp prefers WriteTo.
func (b *body) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Close implements io.Closer.
func (b *body) Close() error {
	b.view.Lease.Release()
	b.reader.Close()
	return nil
}
