package engine

import (
	"context"
	"errors"
	"io"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

// reply is how a scripted peer or store answers one call.
type reply struct {
	after time.Duration
	// err ends the call; then pieces that came before it stand.
	err error
	// lacks are the blocks that a peer does not have; status what it says of them,
	// StatusNotFound when 0.
	lacks  map[uint64]bool
	all    bool // lacks all
	status block.Status
	// misses are those of lacks that it does not have whatever status says.
	misses map[uint64]bool
	// silent never answers.
	silent bool
	// corrupt flips a byte where the checksum finds it.
	corrupt bool
	// short leaves out the last byte of each block.
	short bool
	// cut breaks the reply off after so many blocks, when positive.
	cut int
	// gap is the pause before each block but the first.
	gap time.Duration
	// lag is how long the call goes on after it was cancelled.
	lag time.Duration
	// twice sends the first block again and again.
	twice bool
	// panics makes the decoder panic instead of the first block.
	panics bool
	// noMeta leaves out what the object is; version is another one than the store's.
	noMeta  bool
	version string
}

// always answers every call with r, serves with all blocks after d.
func always(r reply) func(int, *block.Fetch) reply {
	return func(int, *block.Fetch) reply { return r }
}

func serves(d time.Duration) func(int, *block.Fetch) reply { return always(reply{after: d}) }

// call is one request that reached a scripted peer or the store.
type call struct {
	at   time.Duration
	addr string
	req  block.Fetch
	// streamed: it got a stream. closed is when that was closed, negative before,
	// cancelled how its context stood then.
	streamed, cancelled bool
	// bytes were sent.
	bytes  int64
	closed time.Duration
}

// Lookup implements Directory.
func (w *world) Lookup(ctx context.Context, routes []block.Route) ([][]shards.Candidate, error) {
	w.mu.Lock()
	w.mu.asked = append(w.mu.asked, routes...)
	lookup := w.mu.lookup
	w.mu.Unlock()
	if err := pause(ctx, 2*time.Millisecond); err != nil {
		return nil, err
	}
	found := make([][]shards.Candidate, len(routes))
	for i, r := range routes {
		if lookup != nil {
			c, err := lookup(r)
			if err != nil {
				return nil, err
			}
			found[i] = c
		}
	}
	return found, nil
}

// Head implements Origin.
func (w *world) Head(ctx context.Context, o block.Object) (block.Meta, error) {
	w.mu.Lock()
	w.mu.heads++
	obj, err, takes, panics := w.mu.objects[o], w.mu.headErr, w.mu.headTakes, w.mu.headPanics
	w.mu.Unlock()
	if panics {
		panic("head")
	}
	if obj == nil {
		err = block.ErrNotFound
	}
	if gone := pause(ctx, takes); gone != nil {
		err = gone
	}
	if err != nil {
		return block.Meta{}, &block.Error{Op: "head", Object: o, Source: block.SourceStore, Err: err}
	}
	return w.meta(obj, ""), nil
}

func (w *world) meta(o *storedObject, v block.Version) block.Meta {
	if v == "" {
		v = block.Version(o.version)
	}
	return block.Meta{Size: o.size, Version: v, ETag: o.version}
}

// Fetch implements block.Store.
func (w *world) Fetch(ctx context.Context, f *block.Fetch) (block.Stream, error) {
	w.mu.Lock()
	c := &call{at: w.since(), closed: -1, req: *f}
	w.mu.gets = append(w.mu.gets, c)
	n, script := len(w.mu.gets)-1, w.mu.store
	obj := w.mu.objects[f.Object]
	w.mu.Unlock()
	r := script(n, f) // outside the lock: a script may panic
	if obj == nil && r.err == nil {
		r.err = block.ErrNotFound
	}
	if r.err == nil && f.Meta.ETag != "" && f.Meta.ETag != obj.version {
		r.err = block.ErrChanged
	}
	return w.answer(ctx, c, obj, r, block.SourceStore, "")
}

// FetchFrom implements block.Peers.
func (w *world) FetchFrom(ctx context.Context, addr block.Addr, f *block.Fetch) (block.Stream, error) {
	w.mu.Lock()
	c := &call{at: w.since(), closed: -1, addr: addr.String(), req: *f}
	n := 0
	for _, old := range w.mu.calls {
		if old.addr == c.addr {
			n++
		}
	}
	w.mu.calls = append(w.mu.calls, c)
	script := w.mu.peers[addr.String()]
	obj := w.mu.objects[f.Object]
	w.mu.Unlock()
	r := reply{err: errors.New("connection refused")}
	if script != nil {
		r = script(n, f)
	}
	return w.answer(ctx, c, obj, r, block.SourcePeer, addr.String())
}

func (w *world) answer(ctx context.Context, c *call, obj *storedObject, r reply, src block.Source, addr string) (block.Stream, error) {
	if obj != nil && r.version != "" {
		obj = &storedObject{size: obj.size, version: r.version}
	}
	if r.err != nil && r.cut == 0 {
		if err := pause(ctx, r.after); err != nil {
			return nil, err
		}
		return nil, &block.Error{Op: "fetch", Object: c.req.Object, Source: src, Addr: addr, Err: r.err}
	}
	w.mu.Lock()
	c.streamed = true
	w.mu.Unlock()
	return &scripted{w: w, ctx: ctx, c: c, obj: obj, r: r, left: c.req.Run}, nil
}

// pause waits for d, or for the end of ctx, whose error it returns. A timer of no
// time at all can crash the race detector in a bubble (golang/go#78156).
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// scripted is the stream of one reply: first what the peer lacks, then the data.
type scripted struct {
	w     *world
	ctx   context.Context
	c     *call
	obj   *storedObject
	r     reply
	left  block.Run
	begun bool
	sent  int
}

// Next implements block.Stream.
func (s *scripted) Next() (block.Piece, error) {
	if s.r.silent {
		<-s.ctx.Done()
		time.Sleep(s.r.lag)
		return block.Piece{}, s.ctx.Err()
	}
	wait := s.r.gap
	if !s.begun {
		wait = s.r.after
	}
	if err := pause(s.ctx, wait); err != nil {
		time.Sleep(s.r.lag)
		return block.Piece{}, err
	}
	s.begun = true
	if s.r.panics {
		panic("decoder")
	}
	for pass := range 2 {
		for i := range uint64(block.MaxRun) {
			index := s.c.req.Run.First + i
			lacks := s.r.all || s.r.lacks[index]
			if !s.left.Has(index) || lacks != (pass == 0) {
				continue
			}
			return s.piece(index, lacks)
		}
	}
	return block.Piece{}, io.EOF
}

func (s *scripted) piece(index uint64, lacks bool) (block.Piece, error) {
	if !s.r.twice {
		s.left = s.left.Without(index)
	}
	n := block.Geometry(testBlock).Len(index, s.obj.size)
	if n == 0 {
		return s.Next()
	}
	if lacks {
		status := s.r.status
		if status == 0 || s.r.misses[index] {
			status = block.StatusNotFound
		}
		return block.Piece{Index: index, Status: status}, nil
	}
	if s.r.cut > 0 && s.sent == s.r.cut {
		return block.Piece{}, &block.Error{Op: "fetch", Object: s.c.req.Object, Err: s.r.err}
	}
	s.sent++
	if s.r.short {
		n--
	}
	if s.r.corrupt {
		return block.Piece{}, &block.Error{Op: "fetch", Object: s.c.req.Object, Source: block.SourcePeer, Err: block.ErrCorrupt}
	}
	s.w.mu.Lock()
	s.c.bytes += int64(n)
	s.w.mu.Unlock()
	s.w.bufs.Add(1)
	buf := block.NewBuf(content(s.c.req.Object, s.obj.version, int64(index)*testBlock, n), func(*block.Buf) { s.w.bufs.Add(-1) })
	buf.Seal()
	return block.Piece{Index: index, Status: block.StatusData, Buf: buf}, nil
}

// Meta implements block.Stream.
func (s *scripted) Meta() block.Meta {
	if s.r.noMeta {
		return block.UnknownMeta(s.c.req.Meta.Version)
	}
	v := s.c.req.Meta.Version
	if v != block.Immutable {
		v = ""
	}
	return s.w.meta(s.obj, v)
}

// Close implements block.Stream.
func (s *scripted) Close() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.c.closed, s.c.cancelled = s.w.since(), s.ctx.Err() != nil
}
