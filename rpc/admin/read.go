package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
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
	ctx.Response.SetBodyStream(&body{reader: r, view: first, limit: s.BlockTimeout, conn: ctx.Conn()}, int(r.Len()))
}

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

// number reads a decimal argument of at least least; missing means def.
func number(args *fasthttp.Args, name string, def, least int64) (int64, error) {
	if !args.Has(name) {
		return def, nil
	}
	text := string(args.Peek(name))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || text[0] == '+' {
		return 0, errors.New(name + "=" + strconv.Quote(text) + ": want a whole number from " +
			strconv.FormatInt(least, 10) + " to 9223372036854775807")
	}
	return n, nil
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
	return 0, 0, errors.New("kind=" + strconv.Quote(kind) + ": want data, inverted_index, segment_footer or internal_index")
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
	reader *engine.Reader
	view   block.View
	// limit bounds the wait for each block, and for the client to take it.
	limit time.Duration
	conn  net.Conn
}

// WriteTo implements io.WriterTo. An error, of the read or of the client, ends
// the connection: the length has been announced.
func (b *body) WriteTo(w io.Writer) (n int64, err error) {
	for b.view.Lease.Valid() {
		if err := b.conn.SetWriteDeadline(time.Now().Add(b.limit)); err != nil {
			return n, err
		}
		k, err := writeView(w, &b.view)
		b.view.Lease.Release()
		n += int64(k)
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

// writeView writes a view's bytes. Large ones go from the mapping to the socket
// without passing through Go code, which must not touch pages that may be gone:
// bufio hands a slice on as it is when its buffer is empty and too small.
func writeView(w io.Writer, v *block.View) (int, error) {
	if bw, ok := w.(*bufio.Writer); ok && v.To-v.From > bw.Size() {
		if err := bw.Flush(); err != nil {
			return 0, err
		}
		return bw.Write(v.Lease.Raw()[v.From:v.To])
	}
	small := make([]byte, v.To-v.From)
	k, err := v.Lease.CopyAt(small, v.From)
	if err != nil {
		return 0, err
	}
	return w.Write(small[:k])
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
