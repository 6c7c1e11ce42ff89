package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine"
	"headstart/engine/block"
)

// read serves GET /read?path=…&tablet_id=…&offset=…&size=…&query_id=…: the bytes
// of a range, streamed. X-Headstart-Source names the source of the first block.
func (s *BE) read(ctx *fasthttp.RequestCtx) {
	req, err := s.readRequest(ctx.QueryArgs())
	if err != nil {
		fail(ctx, fasthttp.StatusBadRequest, "bad_argument", err.Error())
		return
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
	b := &body{
		engine: s.Engine, req: *req, reader: r, view: first, at: req.Offset, left: r.Len(),
		limit: s.BlockTimeout, conn: ctx.Conn(), direct: r.Len() > maxCopied,
	}
	// The header leaves before a body that goes to the socket past fasthttp.
	ctx.Response.ImmediateHeaderFlush = b.direct
	ctx.Response.SetBodyStream(b, int(r.Len()))
}

// maxCopied is the longest read that is copied: into one packet with its header,
// which is cheaper than a second system call.
const maxCopied = 32 << 10

func (s *BE) readRequest(args *fasthttp.Args) (*block.Read, error) {
	obj, err := block.ParsePath(string(args.Peek("path")), s.Bucket)
	if err != nil {
		return nil, err
	}
	req := &block.Read{Object: obj, Size: -1, QueryID: string(args.Peek("query_id"))}
	if req.Offset, err = number(args, "offset", 0, 0); err != nil {
		return nil, err
	}
	if req.Size, err = number(args, "size", -1, 0); err != nil {
		return nil, err
	}
	tablet, err := number(args, "tablet_id", -1, 0)
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

// body streams a read into a response. fasthttp calls WriteTo, then Close.
type body struct {
	engine *engine.Engine
	req    block.Read
	reader *engine.Reader
	view   block.View
	// at is the first byte of the object that the client has not got yet, left how
	// many there are.
	at, left int64
	// limit bounds the wait for each block, and for the client to take it.
	limit time.Duration
	conn  net.Conn
	// direct: bytes go from the mapping to the socket without passing through Go
	// code, which must not touch pages that may be gone.
	direct bool
}

// WriteTo implements io.WriterTo. An error, of the read or of the client, ends
// the connection: the length has been announced.
func (b *body) WriteTo(w io.Writer) (n int64, err error) {
	for b.view.Lease.Valid() {
		if err := b.conn.SetWriteDeadline(time.Now().Add(b.limit)); err != nil {
			return n, err
		}
		k, err := b.write(w)
		b.view.Lease.Release()
		n, b.at, b.left = n+int64(k), b.at+int64(k), b.left-int64(k)
		if errors.Is(err, syscall.EFAULT) {
			err = b.again()
		}
		if err != nil {
			return n, err
		}
		if err := b.next(); err != nil && err != io.EOF {
			return n, err
		}
	}
	return n, nil
}

func (b *body) next() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.limit)
	defer cancel()
	b.view, err = b.reader.Next(ctx)
	return err
}

func (b *body) write(w io.Writer) (int, error) {
	v := &b.view
	if !b.direct {
		small := make([]byte, v.To-v.From)
		k, err := v.Lease.CopyAt(small, v.From)
		if err != nil {
			return k, err
		}
		return w.Write(small[:k])
	}
	k, err := b.conn.Write(v.Lease.Raw()[v.From:v.To])
	if errors.Is(err, syscall.EFAULT) {
		// The kernel found no page behind the mapping. To copy is to make the cache
		// notice: it drops the block.
		var one [1]byte
		_, _ = v.Lease.CopyAt(one[:], v.From+k)
	}
	return k, err
}

// again starts anew where the client's bytes have ended, for the block whose
// bytes were lost under us; of the same version or not at all.
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
