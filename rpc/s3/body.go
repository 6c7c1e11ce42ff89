package s3

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine"
	"headstart/engine/block"
)

const (
	// chunkBytes is how much of a block is copied at a time: small enough to stay in
	// a core's cache on its way from the block to the socket.
	chunkBytes = 256 << 10
	// smallBytes: a body up to here fits behind its header into the buffer that the
	// server writes out of.
	smallBytes = 3 << 10
	// copyBytes: a body up to here is copied on its way, which costs less than a
	// second system call: 7 % less of an answer of 64 KiB, as much as it at 96 KiB.
	copyBytes = 80 << 10
	// tailBytes is how much of a body stays back until it is known that what was
	// sent out of a mapping was there.
	tailBytes = 4 << 10
	// busyPause is how long an answer under way waits for memory before it asks
	// again.
	busyPause = 20 * time.Millisecond
	// busyPatience is how long one does that has not begun.
	busyPatience = 2 * time.Second
)

// errCut ends an answer, and its connection with it: the client sees that bytes
// are missing.
var errCut = errors.New("the answer can't be finished")

// stream is the rest of a read that goes on behind its first view.
type stream struct {
	reader *engine.Reader
	watch  watch
	// views are at hand, before those that the reader has still to give.
	views []block.View
}

// close gives up what has not been sent.
func (s *stream) close() {
	release(s.views)
	s.views = nil
	if s.reader != nil {
		s.reader.Close()
		s.reader = nil
	}
}

// send answers with the bytes of a read, whose first view is at hand. rest is nil
// when that is all. It reports false when the bytes have vanished from the disk,
// and the cache has dropped the block, before any of them was sent.
func (f *Front) send(ctx *fasthttp.RequestCtx, a *answer, read *block.Read, rest *stream, first block.View) bool {
	n := a.to - a.from
	if rest == nil && n <= smallBytes {
		if !f.copyAll(ctx, first, int(n)) {
			return false
		}
		f.count.sources[a.source].Add(1)
		return true
	}
	c, _ := ctx.Conn().(*conn)
	if c != nil {
		c.holdHeader()
		ctx.Response.ImmediateHeaderFlush = true
	}
	ctx.Response.SetBodyStream(f.body(c, a, read, rest, first), int(n))
	return true
}

// body makes an answer's body, and counts it; Close ends it.
func (f *Front) body(c *conn, a *answer, read *block.Read, rest *stream, first block.View) *body {
	f.count.sources[a.source].Add(1)
	f.count.streams.Add(1)
	b, ok := f.bodies.Get().(*body)
	if !ok {
		b = &body{}
	}
	*b = body{f: f, conn: c, read: *read, rest: rest, view: first, at: a.from, left: a.to - a.from, version: a.meta.Version}
	return b
}

// copyAll copies a small body into the response.
func (f *Front) copyAll(ctx *fasthttp.RequestCtx, v block.View, n int) bool {
	defer v.Lease.Release()
	chunk := f.chunk()
	defer f.chunks.Put(chunk)
	k, err := v.Lease.CopyAt(chunk[:n], v.From)
	if err != nil || k != n {
		return false
	}
	ctx.Response.SetBody(chunk[:n])
	f.count.bytes.Add(int64(n))
	return true
}

func (f *Front) chunk() *[chunkBytes]byte {
	if c, ok := f.chunks.Get().(*[chunkBytes]byte); ok {
		return c
	}
	return new([chunkBytes]byte)
}

// window is how many blocks the next answer may have under way: its share of
// what all may, for slow clients hold what they don't take.
func (f *Front) window() int {
	share := int64(f.MaxStreamBlocks) / (f.count.streams.Load() + 1)
	return int(max(1, min(f.Settings.ReadaheadBlocks.Load(), share)))
}

// body streams a read into a response. fasthttp calls WriteTo, then Close.
type body struct {
	f    *Front
	conn *conn
	read block.Read
	rest *stream
	view block.View
	// at is the first byte of the object that the client has not got yet, left how
	// many there are.
	at, left int64
	version  block.Version
	scratch  *[chunkBytes]byte
}

// WriteTo implements io.WriterTo. An error, of the read or of the client, ends
// the connection: the length has been announced.
func (b *body) WriteTo(w io.Writer) (n int64, err error) {
	defer func() {
		b.f.count.bytes.Add(n)
		if err != nil {
			b.f.count.cut.Add(1)
		}
		if b.scratch != nil {
			b.f.chunks.Put(b.scratch)
		}
	}()
	lost := int64(-1) // where bytes vanished last
	for b.left > 0 {
		if b.view.Lease.Valid() {
			sent, intact, err := b.sendView(w)
			n += sent
			if err != nil {
				return n, err
			}
			if !intact {
				if lost == b.at {
					return n, block.ErrCorrupt
				}
				lost = b.at
				b.again()
			}
		}
		if b.left == 0 {
			break
		}
		if err := b.next(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// sendView passes the view on. It reports false when the bytes of the block have
// vanished from the disk, which the cache knows then.
func (b *body) sendView(w io.Writer) (sent int64, intact bool, err error) {
	v := &b.view
	defer v.Lease.Release()
	if b.conn != nil && v.To-v.From > copyBytes && v.Lease.Resident() && b.there(v.To-1) {
		n, err := b.sendMapped()
		sent += n
		if err != nil {
			return sent, true, err
		}
	}
	if b.scratch == nil {
		b.scratch = b.f.chunk()
	}
	for v.From < v.To {
		k, err := v.Lease.CopyAt(b.scratch[:min(chunkBytes, v.To-v.From)], v.From)
		if err != nil || k == 0 {
			if sent > tailBytes { // some of it went out unseen, out of the mapping
				return sent, true, errCut
			}
			return sent, false, nil
		}
		k, err = b.write(w, b.scratch[:k])
		b.took(k)
		sent += int64(k)
		if err != nil {
			return sent, true, err
		}
	}
	return sent, true, nil
}

// sendMapped writes the view to the socket out of the memory that it lies in,
// but for the end of it: that is copied, and a copy tells whether the file under
// the mapping still is as long as it was. If it is not, bytes that went out may
// have been zeros, and the answer is cut short of its end.
func (b *body) sendMapped() (int64, error) {
	v := &b.view
	raw := v.Lease.Raw()[v.From : v.To-tailBytes]
	if err := b.hurry(); err != nil {
		return 0, err
	}
	n, err := b.conn.writeBody(raw, true)
	b.took(n)
	if err != nil {
		b.there(v.To - 1) // a fault of the memory is the cache's to know
		return int64(n), err
	}
	return int64(n), nil
}

// there reports whether a byte of the view can be copied, which fails when its
// file was cut short.
func (b *body) there(at int) bool {
	if b.scratch == nil {
		b.scratch = b.f.chunk()
	}
	k, err := b.view.Lease.CopyAt(b.scratch[:1], at)
	return err == nil && k == 1
}

// write sends bytes of ours.
func (b *body) write(w io.Writer, p []byte) (int, error) {
	if err := b.hurry(); err != nil {
		return 0, err
	}
	if b.conn == nil {
		return w.Write(p)
	}
	return b.conn.writeBody(p, false)
}

// hurry gives the client its time for the next bytes. For the first ones it has
// it from the server.
func (b *body) hurry() error {
	if b.conn == nil || b.conn.hold {
		return nil
	}
	return b.conn.SetWriteDeadline(time.Now().Add(b.f.BlockTimeout))
}

func (b *body) took(n int) {
	b.view.From += n
	b.at, b.left = b.at+int64(n), b.left-int64(n)
}

// next waits for the next view, as long as the client is there.
func (b *body) next() error {
	if b.rest == nil {
		return errCut
	}
	if len(b.rest.views) > 0 {
		b.view, b.rest.views = b.rest.views[0], b.rest.views[1:]
		return nil
	}
	ctx, cancel := context.WithTimeout(b.rest.watch.ctx, b.f.BlockTimeout)
	defer cancel()
	for {
		err := b.receive(ctx)
		if !noMemory(err) {
			return err
		}
		// Slow clients hold it. Ours waits, as they do, and holds nothing meanwhile.
		b.rest.close()
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return err
		}
	}
}

// receive takes the next view from the reader, or from a new one.
func (b *body) receive(ctx context.Context) (err error) {
	if b.rest.reader == nil {
		if err := b.open(ctx); err != nil {
			return err
		}
	}
	b.view, err = b.rest.reader.Next(ctx)
	return err
}

// again lets next start anew where the client's bytes have ended; with the same
// version of the object or not at all.
func (b *body) again() {
	if b.rest == nil {
		b.rest = &stream{watch: unwatched()}
	}
	b.rest.close()
}

func (b *body) open(ctx context.Context) error {
	b.rest.close()
	req := b.read
	req.Object.Bucket, req.Object.Key = strings.Clone(req.Object.Bucket), strings.Clone(req.Object.Key) // a hit's are borrowed
	req.Route = block.ExternalRoute(req.Object)                                                         // and it has none
	req.Offset, req.Size, req.Window = b.at, b.left, b.f.window()
	r, err := b.f.Engine.Open(ctx, &req)
	if err != nil {
		return err
	}
	b.rest.reader = r
	if r.Meta().Version != b.version {
		return block.ErrChanged
	}
	return nil
}

// Read implements io.Reader, which the type of a body stream asks for; fasthttp
// prefers WriteTo.
func (b *body) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Close implements io.Closer.
func (b *body) Close() error {
	b.view.Lease.Release()
	if b.rest != nil {
		b.rest.close()
		b.rest.watch.stop()
	}
	f := b.f
	f.count.streams.Add(-1)
	*b = body{}
	f.bodies.Put(b)
	return nil
}
