package s3

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/object"
)

// maxAgain bounds how often a request begins anew because its object has changed
// before its answer began.
const maxAgain = 3

// readObject answers GET and HEAD of the current version of an object.
func (f *Front) readObject(ctx *fasthttp.RequestCtx, r *request) {
	for range maxAgain {
		if f.tryRead(ctx, r) {
			return
		}
		ctx.Response.Reset()
	}
	f.fail(ctx, r, &Error{Code: codeBusy, Message: "The object keeps changing while it is read. Please try again."})
}

// tryRead reports false when the object has become another one meanwhile, and
// nothing has been answered.
func (f *Front) tryRead(ctx *fasthttp.RequestCtx, r *request) bool {
	read := &r.read
	*read = block.Read{Object: r.object(), MaxAge: f.Settings.maxAge(), Size: -1, QueryID: string(r.asked.queryID)}
	want := parseRange(borrowed(r.asked.part))
	known := f.Engine.Fresh(read)
	if known == nil || !complete(known) {
		r.route()
	}
	if known == nil && (ctx.IsHead() || want.suffix > 0 || want.from < 0 || r.asked.conditional || f.mustAsk(read)) {
		var err error
		if known, err = f.stat(ctx, read); err != nil {
			f.readFailed(ctx, r, read, err)
			return true
		}
	}
	if known != nil && !complete(known) {
		known = f.complete(read, known)
	}
	if known == nil {
		return f.readUnknown(ctx, r, read, want)
	}
	if unkept(known) {
		f.passObject(ctx, r)
		return true
	}
	return f.readKnown(ctx, r, known, want)
}

// readKnown is tryRead of an object that is known: what one block in the cache
// answers allocates nothing.
func (f *Front) readKnown(ctx *fasthttp.RequestCtx, r *request, known *object.Known, want span) bool {
	read := &r.read
	a, status, ok := r.resolve(known, want)
	switch {
	case status != 0:
		f.unmet(ctx, r, status, known)
		return true
	case !ok:
		f.fail(ctx, r, unsatisfiable(known.Meta.Size))
		return true
	case ctx.IsHead(), a.from == a.to:
		f.describe(ctx, r, &a)
		f.bare(ctx, &a)
		return true
	}
	if v, ok := f.Engine.Hit(read, known); ok {
		a.source = v.Source
		f.describe(ctx, r, &a)
		return f.send(ctx, &a, read, nil, v)
	}
	if views := f.Engine.Hits(read, known, f.window()); views != nil {
		a.source = block.SourceLocal
		f.describe(ctx, r, &a)
		return f.send(ctx, &a, read, &stream{watch: unwatched(), views: views[1:]}, views[0])
	}
	r.route()
	return f.readRest(ctx, r, read, &a)
}

// resolve finds out which bytes of a known object are asked for, and says so in
// r.read. status is that of conditions which don't hold; ok is false when there are
// no such bytes.
func (r *request) resolve(known *object.Known, want span) (a answer, status int, ok bool) {
	status, whole := r.asked.conditions(&known.Meta)
	if whole {
		want = span{to: -1}
	}
	from, to, ok := want.in(known.Meta.Size)
	if footer(r.key, from, to, known.Meta.Size) {
		r.read.Kind, r.read.Queue = block.KindSegmentFooter, block.QueueIndex
	}
	r.read.Offset, r.read.Size = from, to-from
	r.read.MaxAge = -1 // what is known is as young as it has to be
	return answer{known: known, meta: &known.Meta, from: from, to: to, part: want.given}, status, ok
}

// mustAsk reports whether only an answer that object storage has still to give
// can do: the object is known but that is too old, or has to be asked for each time.
// Else it comes with the first bytes.
func (f *Front) mustAsk(read *block.Read) bool {
	return read.MaxAge == 1 || f.Engine.Known(read.Object, "") != nil
}

// complete reports whether object storage has told us of the object, which is when
// its headers are known: not when a peer has, or when it was known before a restart.
func complete(known *object.Known) bool { return !known.Learned.IsZero() }

// unkept reports whether the object's headers are too many to be kept.
func unkept(known *object.Known) bool { return known.Meta.Extra == block.ExtraUnkept }

// passObject passes a read of such an object on: nobody but object storage knows
// what its bytes are encoded in.
func (f *Front) passObject(ctx *fasthttp.RequestCtx, r *request) {
	r.own()
	r.kind = passRead
	f.pass(ctx, r)
}

// complete looks up the headers that are missing: only object storage knows them
// all. Without an answer the object is served without them.
func (f *Front) complete(read *block.Read, known *object.Known) *object.Known {
	now := *read
	now.MaxAge = 1
	bound, cancel := context.WithTimeout(context.Background(), f.BlockTimeout)
	defer cancel()
	if full, err := f.Engine.Stat(bound, &now); err == nil {
		return full
	}
	return known
}

func unsatisfiable(size int64) *Error {
	return &Error{Code: codeInvalidRange, Message: "The requested range is not satisfiable.", Size: size}
}

// stat asks what an object is, for as long as the client waits for it.
func (f *Front) stat(ctx *fasthttp.RequestCtx, read *block.Read) (*object.Known, error) {
	bound, w := f.await(ctx)
	defer w.stop()
	defer bound.cancel()
	return f.Engine.Stat(bound.ctx, read)
}

// bounded is a context with its end.
type bounded struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// await returns a context for one wait on behalf of a client. Both it and the
// watch are to be ended.
func (f *Front) await(ctx *fasthttp.RequestCtx) (bounded, watch) {
	w := unwatched()
	if c, ok := ctx.Conn().(*conn); ok {
		w = watchClient(c)
	}
	c, cancel := context.WithTimeout(w.ctx, f.BlockTimeout)
	return bounded{c, cancel}, w
}

// readUnknown reads an object that nothing is known of: what it is comes with its
// first bytes.
func (f *Front) readUnknown(ctx *fasthttp.RequestCtx, r *request, read *block.Read, want span) bool {
	if want.given {
		read.Offset = want.from
		if want.to >= 0 {
			read.Size = want.to - want.from
		}
	}
	return f.readRest(ctx, r, read, &answer{part: want.given})
}

// readRest reads what is not all in one block of the cache. a.meta is what the
// read was planned by; without it, the answer is made by what is found.
func (f *Front) readRest(ctx *fasthttp.RequestCtx, r *request, read *block.Read, a *answer) bool {
	bound, w := f.await(ctx)
	defer bound.cancel()
	reader, views, err := f.begin(bound.ctx, read)
	if err != nil {
		w.stop()
		if errors.Is(err, block.ErrChanged) {
			return false
		}
		f.readFailed(ctx, r, read, err)
		return true
	}
	give := func() {
		release(views)
		reader.Close()
		w.stop()
	}
	meta := reader.Meta()
	if a.known != nil && a.known.Meta.Version != meta.Version {
		give()
		return false
	}
	if a.known == nil {
		a.from, a.to = read.Offset, read.Offset+reader.Len()
		known := f.Engine.Known(read.Object, "")
		if known != nil && !complete(known) {
			known = f.complete(read, known)
		}
		switch {
		case known == nil:
			a.meta = &meta
		case known.Meta.Version != meta.Version:
			give()
			return false
		case unkept(known):
			give()
			f.passObject(ctx, r)
			return true
		default:
			a.known, a.meta = known, &known.Meta
		}
	}
	if len(views) > 0 {
		a.source = views[0].Source
	}
	switch {
	case a.part && a.from >= meta.Size:
		give()
		f.fail(ctx, r, unsatisfiable(meta.Size))
	case a.from == a.to:
		give()
		f.describe(ctx, r, a)
	default:
		f.describe(ctx, r, a)
		f.send(ctx, a, read, &stream{reader: reader, watch: w, views: views[1:]}, views[0])
	}
	return true
}

// begin opens a read and gathers what its answer begins with. While there is no
// memory, which slow clients hold, it waits a while.
func (f *Front) begin(ctx context.Context, read *block.Read) (*engine.Reader, []block.View, error) {
	if f.Place != nil {
		if read.Owner = f.Place(ctx, read.Route); read.Owner != (block.Addr{}) && read.Queue == block.QueueNormal {
			// Its copy is the group's one copy. Ours makes way first.
			read.Queue = block.QueueDisposable
		}
	}
	began := time.Now()
	for tries := 0; ; tries++ {
		// Of many that begin at once, each would take a share as large as if it were
		// alone, and none would get it.
		read.Window = max(1, f.window()>>tries)
		reader, err := f.Engine.Open(ctx, read)
		var views []block.View
		if err == nil {
			views, err = gather(ctx, reader, read.Window)
		}
		if !noMemory(err) || time.Since(began) > busyPatience {
			return reader, views, err
		}
		select {
		case <-time.After(busyPause/2 + rand.N(busyPause)):
		case <-ctx.Done():
			return nil, nil, err
		}
	}
}

// noMemory reports whether a read has failed for a lack of what comes back by
// itself.
func noMemory(err error) bool {
	return errors.Is(err, block.ErrBusy) && !errors.Is(err, block.ErrThrottled)
}

// gather reads as many blocks as an answer may have under way before anything of
// it is sent: an object that changes, or a store that fails, in that time costs a
// new attempt or gets its error, and not an answer that is cut. It closes the
// reader when it fails.
func gather(ctx context.Context, reader *engine.Reader, most int) (views []block.View, err error) {
	left := reader.Len()
	for len(views) == 0 || len(views) < most && left > 0 {
		v, err := reader.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			release(views)
			reader.Close()
			return nil, err
		}
		if len(views) == 0 {
			left = reader.Len() // of the version that it is about now
		}
		left -= int64(v.To - v.From)
		views = append(views, v)
	}
	return views, nil
}

func release(views []block.View) {
	for i := range views {
		views[i].Lease.Release()
	}
}

// readFailed answers a read that did not come to its first byte.
func (f *Front) readFailed(ctx *fasthttp.RequestCtx, r *request, read *block.Read, err error) {
	e := errorOf(err)
	if errors.Is(err, block.ErrRange) {
		e = unsatisfiable(0)
		if known := f.Engine.Known(read.Object, ""); known != nil {
			e.Size = known.Meta.Size
		}
	}
	if errors.Is(err, context.Canceled) {
		f.count.abandoned.Add(1)
	}
	f.fail(ctx, r, e)
}

// unmet answers a request whose conditions don't hold.
func (f *Front) unmet(ctx *fasthttp.RequestCtx, r *request, status int, known *object.Known) {
	if status == http.StatusPreconditionFailed {
		f.fail(ctx, r, &Error{Code: codePrecondition, Message: "At least one of the pre-conditions you specified did not hold."})
		return
	}
	f.describe(ctx, r, &answer{known: known, meta: &known.Meta})
	ctx.SetStatusCode(http.StatusNotModified)
	ctx.Response.SkipBody = true
}

// answer is what a successful answer says of itself. known is nil where meta is
// all there is.
type answer struct {
	known    *object.Known
	meta     *block.Meta
	from, to int64
	// part: the client has asked for a range.
	part   bool
	source block.Source
}

// describe writes the header of an answer, but for its length.
func (f *Front) describe(ctx *fasthttp.RequestCtx, r *request, a *answer) {
	f.identify(ctx)
	h := &ctx.Response.Header
	for _, line := range a.header().Lines {
		h.SetCanonical(line.Name, line.Value)
	}
	var buf [64]byte
	if a.known != nil && !a.known.Learned.IsZero() {
		h.SetBytesV("Age", a.appendAge(buf[:0], time.Now()))
	}
	if a.source != block.SourceNone {
		h.Set("X-Headstart-Source", a.source.String())
	}
	if a.part {
		ctx.SetStatusCode(http.StatusPartialContent)
		h.SetBytesV("Content-Range", a.appendRange(buf[:0]))
	}
	if r.query == "" {
		return
	}
	for name, value := range ctx.QueryArgs().All() {
		if header := overrides(string(name)); header != "" {
			h.SetBytesV(header, value)
		}
	}
}

// appendAge appends how many seconds ago the object was learned of.
func (a *answer) appendAge(b []byte, now time.Time) []byte {
	return strconv.AppendInt(b, max(0, int64(now.Sub(a.known.Learned)/time.Second)), 10)
}

// appendRange appends which bytes of the object the answer has.
func (a *answer) appendRange(b []byte) []byte {
	b = append(b, "bytes "...)
	b = append(strconv.AppendInt(b, a.from, 10), '-')
	b = append(strconv.AppendInt(b, a.to-1, 10), '/')
	return strconv.AppendInt(b, a.meta.Size, 10)
}

// bare ends an answer that has a length and no body.
func (f *Front) bare(ctx *fasthttp.RequestCtx, a *answer) {
	if ctx.IsHead() {
		ctx.Response.SkipBody = true
		ctx.Response.Header.SetContentLength(int(a.to - a.from))
	}
}
