package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"headstart/engine"
	"headstart/engine/block"
)

const (
	blockSize = 4096
	// tabletFiles are the first objects of a bucket.
	tabletFiles = 4
)

// version is one content of an object, current from since on until the next one.
type version struct {
	since time.Duration
	etag  string
	data  []byte
}

// stored is one object of the bucket with its history. Tablet files have one
// version only.
type stored struct {
	block.Object
	route  block.Route
	tablet bool

	mu struct {
		sync.Mutex
		versions []version
		// unsure is when the store last failed to say what the object is now: a node
		// that asked goes on with what it knows, however old.
		unsure time.Duration
	}
}

// bucket is object storage: it keeps all versions that ever were.
type bucket struct {
	w       *world
	objects []*stored
	byName  map[block.Object]*stored
}

func newBucket(w *world, rng *rand.Rand) *bucket {
	b := &bucket{w: w, byName: map[block.Object]*stored{}}
	for i := range tabletFiles + 4 {
		o := &stored{Object: block.Object{Store: block.DefaultStore, Bucket: "b", Key: fmt.Sprintf("data/%d", i)}}
		if o.tablet = i < tabletFiles; o.tablet {
			o.route = block.TabletRoute(int64(i/2 + 1)) // two files each
		} else {
			o.route = block.ExternalRoute(o.Object)
		}
		o.mu.unsure = -time.Hour
		b.objects = append(b.objects, o)
		b.byName[o.Object] = o
		b.put(o, rng)
	}
	return b
}

// put writes a new version of an object: of some other size, as a rule.
func (b *bucket) put(o *stored, rng *rand.Rand) {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := rng.IntN(36*blockSize) + 1
	if rng.IntN(20) == 0 {
		size = 0
	}
	etag := fmt.Sprintf("v%d", len(o.mu.versions))
	o.mu.versions = append(o.mu.versions, version{b.w.now(), etag, content(o.Object, etag, size)})
}

// content tells in each 16 bytes whose they are: object and version, then the
// offset.
func content(o block.Object, etag string, size int) []byte {
	whose := block.BaseID(o, block.Version(etag)).Hi
	out := make([]byte, 0, size+16)
	for off := 0; off < size; off += 16 {
		out = binary.BigEndian.AppendUint64(out, whose)
		out = binary.BigEndian.AppendUint64(out, uint64(off))
	}
	return out[:size]
}

// truth is what block index of a version must hold, nil when there is no such
// block.
func (b *bucket) truth(obj block.Object, name block.Version, index uint64) []byte {
	o := b.byName[obj]
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range o.mu.versions {
		if n := block.Geometry(blockSize).Len(index, int64(len(v.data))); o.meta(v).Version == name && n > 0 {
			return v.data[block.Geometry(blockSize).Offset(index):][:n]
		}
	}
	return nil
}

// current is the version that the store has now.
func (o *stored) current() version {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.versions[len(o.mu.versions)-1]
}

// between returns the versions that were current at some time from one to the
// other, all up to then if the store has left a node unsure.
func (o *stored) between(from, to time.Duration) []version {
	o.mu.Lock()
	defer o.mu.Unlock()
	if from <= o.mu.unsure && o.mu.unsure <= to {
		from = 0
	}
	var list []version
	for i, v := range o.mu.versions {
		over := i+1 < len(o.mu.versions) && o.mu.versions[i+1].since < from
		if v.since <= to && !over {
			list = append(list, v)
		}
	}
	return list
}

// witness sees what a node learns from its Head, faults included.
type witness struct {
	engine.Origin
	b *bucket
}

// Head implements engine.Origin.
func (s witness) Head(ctx context.Context, obj block.Object) (block.Meta, error) {
	m, err := s.Origin.Head(ctx, obj)
	if err != nil && ctx.Err() != context.Canceled { // a deadline is the node's way to say that the store has not answered
		o := s.b.byName[obj]
		o.mu.Lock()
		o.mu.unsure = s.b.w.now()
		o.mu.Unlock()
	}
	return m, err
}

func (o *stored) meta(v version) block.Meta {
	m := block.Meta{Size: int64(len(v.data)), Version: block.Version(v.etag), ETag: v.etag}
	if o.tablet {
		m.Version = block.Immutable
	}
	return m
}

// origin is the bucket as one life of a node reads it, into its own buffers.
type origin struct {
	b *bucket
	l *life
}

// Head implements engine.Origin.
func (s origin) Head(ctx context.Context, obj block.Object) (block.Meta, error) {
	if err := pause(ctx, s.b.w.firstByte(obj)); err != nil {
		return block.Meta{}, err
	}
	o := s.b.byName[obj]
	return o.meta(o.current()), nil
}

// Fetch implements block.Store. The version is the one that is current when the
// first byte goes out.
func (s origin) Fetch(ctx context.Context, f *block.Fetch) (block.Stream, error) {
	if err := pause(ctx, s.b.w.firstByte(f.Object, f.Run)); err != nil {
		return nil, &block.Error{Op: "get", Object: f.Object, Source: block.SourceStore, Err: err}
	}
	o := s.b.byName[f.Object]
	v := o.current()
	r := &body{ctx: ctx, l: s.l, f: f, data: v.data, meta: o.meta(v), left: f.Run}
	if f.Meta.ETag != "" && f.Meta.ETag != v.etag || f.Meta.Version != "" && f.Meta.Version != r.meta.Version {
		return nil, r.wrap(block.ErrChanged)
	}
	return r, nil
}

// body is one GET's reply.
type body struct {
	ctx  context.Context
	l    *life
	f    *block.Fetch
	data []byte
	meta block.Meta
	left block.Run
	sent bool
}

// Next implements block.Stream.
func (s *body) Next() (block.Piece, error) {
	for i := range uint64(block.MaxRun) {
		index := s.f.Run.First + i
		n := block.Geometry(s.f.BlockSize).Len(index, s.meta.Size)
		if !s.left.Has(index) || n == 0 {
			continue
		}
		s.left = s.left.Without(index)
		if s.sent {
			if err := pause(s.ctx, 50*time.Microsecond); err != nil {
				return block.Piece{}, s.wrap(err)
			}
		}
		s.sent = true
		buf, err := s.l.buffers.Get(n)
		if err != nil {
			return block.Piece{}, s.wrap(err)
		}
		copy(buf.Bytes(), s.data[block.Geometry(s.f.BlockSize).Offset(index):])
		buf.Seal()
		return block.Piece{Index: index, Status: block.StatusData, Buf: buf}, nil
	}
	return block.Piece{}, io.EOF
}

// Meta implements block.Stream.
func (s *body) Meta() block.Meta { return s.meta }

// Close implements block.Stream.
func (s *body) Close() {}

func (s *body) wrap(err error) error {
	return &block.Error{Op: "get", Object: s.f.Object, Source: block.SourceStore, Err: err}
}

// pause waits for d, or for the end of ctx, whose error it returns.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 { // see engine's: the race detector
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
