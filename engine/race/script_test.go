package race_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/engine/race"
)

const (
	blockSize = 64
	headStart = 20 * time.Millisecond
)

// known is an object of 16 blocks whose last one is short.
func known() block.Meta {
	return block.Meta{Size: 16*blockSize - 5, Version: "v1"}
}

// step is one word of a scripted leg and how long after the word before it is said.
type step struct {
	after  time.Duration
	index  uint64
	status block.Status
	err    error
	panic  bool
	// bare: the block comes without its bytes.
	bare bool
	// meta replaces what the stream's Meta says from here on.
	meta *block.Meta
}

func has(index uint64, after time.Duration) step {
	return step{after: after, index: index, status: block.StatusData}
}

func lacks(index uint64, after time.Duration) step {
	return step{after: after, index: index, status: block.StatusNotFound}
}

func fills(after time.Duration) step { return step{after: after, status: block.StatusFilling} }

func fails(err error, after time.Duration) step { return step{after: after, err: err} }

// silent says nothing until the leg is cancelled.
func silent() step { return step{after: 365 * 24 * time.Hour, err: errors.New("never said")} }

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// opening is what became of one start of a scripted leg.
type opening struct {
	run      block.Run
	at       time.Duration
	closed   int
	stopped  time.Duration // when ctx ended; -1 if it had not when the leg ended
	streamed bool
	ctx      context.Context
}

// script is a leg that says what is written, by steps, for each time it is
// started; behind the steps comes io.EOF. One goroutine at a time uses it.
type script struct {
	books *books
	meta  block.Meta
	steps func(run block.Run) []step
	// openAfter and openErr are for a leg that fails before it has a stream.
	openAfter time.Duration
	openErr   error
	opened    []*opening
}

// says is a leg that says the same whatever it is asked for.
func says(b *books, steps ...step) *script {
	return &script{books: b, meta: known(), steps: func(block.Run) []step { return steps }}
}

// serves is a leg that brings what it is asked for: the first block after
// first, the others each after the time behind.
func serves(b *books, first, each time.Duration) *script {
	s := &script{books: b, meta: known()}
	s.steps = func(run block.Run) []step {
		var steps []step
		for i := range uint64(block.MaxRun) {
			if index := run.First + i; run.Has(index) && block.Geometry(blockSize).Len(index, s.meta.Size) > 0 {
				after := each
				if len(steps) == 0 {
					after = first
				}
				steps = append(steps, has(index, after))
			}
		}
		if len(steps) == 0 {
			steps = append(steps, step{after: first, err: io.EOF})
		}
		return steps
	}
	return s
}

func (s *script) open(ctx context.Context, run block.Run) (block.Stream, error) {
	o := &opening{run: run, at: time.Since(s.books.start), stopped: -1, ctx: ctx}
	s.opened = append(s.opened, o)
	if err := pause(ctx, o, s.books, s.openAfter); err != nil {
		return nil, err
	}
	if s.openErr != nil {
		return nil, s.openErr
	}
	o.streamed = true
	return &scripted{script: s, ctx: ctx, o: o, rest: s.steps(run), meta: s.meta}, nil
}

// pause waits, and notes when the leg was cancelled. A timer of no time at all can
// crash the race detector in a bubble (golang/go#78156).
func pause(ctx context.Context, o *opening, b *books, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		return nil
	}
	o.stopped = time.Since(b.start)
	return ctx.Err()
}

type scripted struct {
	script *script
	ctx    context.Context
	o      *opening
	rest   []step
	meta   block.Meta
}

func (s *scripted) Next() (block.Piece, error) {
	if len(s.rest) == 0 {
		return block.Piece{}, io.EOF
	}
	st := s.rest[0]
	s.rest = s.rest[1:]
	if err := pause(s.ctx, s.o, s.script.books, st.after); err != nil {
		return block.Piece{}, err
	}
	if st.meta != nil {
		s.meta = *st.meta
	}
	switch {
	case st.panic:
		panic("scripted")
	case st.err != nil:
		return block.Piece{}, st.err
	case st.status != block.StatusData || st.bare:
		return block.Piece{Index: st.index, Status: st.status}, nil
	}
	return block.Piece{Index: st.index, Status: st.status, Buf: s.script.books.buf(st.index, s.meta)}, nil
}

func (s *scripted) Meta() block.Meta { return s.meta }

func (s *scripted) Close() { s.o.closed++ }

// books count the buffers of one race, and its time.
type books struct {
	start       time.Time
	made, freed atomic.Int64
	// lag is how long the reader is away before each Next.
	lag time.Duration
}

// buf makes a block whose bytes say which one it is, and of which version.
func (b *books) buf(index uint64, meta block.Meta) *block.Buf {
	b.made.Add(1)
	n := blockSize
	if meta.Known() {
		n = max(16, block.Geometry(blockSize).Len(index, meta.Size))
	}
	data := make([]byte, n)
	binary.BigEndian.PutUint64(data, index)
	copy(data[8:16], meta.Version)
	return block.NewBuf(data, func(*block.Buf) { b.freed.Add(1) })
}

// slots counts what it lends.
type slots struct{ limit, used, refused atomic.Int64 }

func (s *slots) TryAcquire() bool {
	if s.used.Load() >= s.limit.Load() {
		s.refused.Add(1)
		return false
	}
	s.used.Add(1)
	return true
}

func (s *slots) Release() { s.used.Add(-1) }

// budget allows so many hedges; another goroutine may raise it.
type budget struct {
	left  atomic.Int64
	asked int
}

func allows(hedges int64) *budget {
	b := &budget{}
	b.left.Store(hedges)
	return b
}

func (b *budget) Spend() bool {
	b.asked++
	if b.left.Load() == 0 {
		return false
	}
	b.left.Add(-1)
	return true
}

func (b *budget) Refund() { b.left.Add(1) }

// got is one block that a race has handed out.
type got struct {
	index  uint64
	source block.Source
	at     time.Duration
}

// outcome is how a race went, as its reader sees it.
type outcome struct {
	blocks []got
	meta   block.Meta
	err    error
	at     time.Duration
	stats  race.Stats
}

// run reads a race to its end and checks what must hold for every race: bytes
// are those of their block, every buffer comes back, every stream is closed once,
// every context ends.
func run(t *testing.T, ctx context.Context, r block.Run, meta block.Meta, legs race.Legs, peer, store *script) outcome {
	t.Helper()
	if peer != nil {
		legs.Peer = peer.open
	}
	legs.Store, legs.BlockSize = store.open, blockSize
	var out outcome
	rc := race.Start(ctx, r, meta, legs)
	for {
		time.Sleep(store.books.lag)
		piece, src, err := rc.Next()
		if err != nil {
			out.err = err
			break
		}
		out.blocks = append(out.blocks, take(t, store.books, rc, piece, src))
	}
	out.at = time.Since(store.books.start)
	out.meta = rc.Meta()
	out.stats = rc.Wait()
	synctest.Wait()
	store.books.check(t)
	for _, s := range []*script{peer, store} {
		if s == nil {
			continue
		}
		for _, o := range s.opened {
			if o.streamed && o.closed != 1 {
				t.Errorf("a stream for %v was closed %d times, want once", o.run, o.closed)
			}
			if o.ctx.Err() == nil {
				t.Errorf("the context of the leg for %v never ends", o.run)
			}
		}
	}
	return out
}

// take checks one block and gives it back.
func take(t *testing.T, b *books, rc *race.Race, p block.Piece, src block.Source) got {
	t.Helper()
	data := p.Buf.Bytes()
	if index := binary.BigEndian.Uint64(data); index != p.Index || p.Status != block.StatusData {
		t.Errorf("block %d (status %d) holds the bytes of block %d", p.Index, p.Status, index)
	}
	if v := rc.Meta().Version; v != "" && v != block.Immutable && string(data[8:8+len(v)]) != string(v) {
		t.Errorf("block %d holds bytes of version %q in a race for %q", p.Index, data[8:16], v)
	}
	p.Buf.Release()
	return got{p.Index, src, time.Since(b.start)}
}

func (b *books) check(t *testing.T) {
	t.Helper()
	if made, freed := b.made.Load(), b.freed.Load(); made != freed {
		t.Errorf("%d buffers made, %d given back", made, freed)
	}
}

// bubble runs f in virtual time with fresh books.
func bubble(t *testing.T, f func(t *testing.T, b *books)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &books{start: time.Now()}) })
}

// want compares the blocks that were handed out, in order.
func (o *outcome) want(t *testing.T, err error, blocks ...got) {
	t.Helper()
	if !errors.Is(o.err, err) {
		t.Errorf("the race ended with %v, want %v", o.err, err)
	}
	if len(o.blocks) != len(blocks) {
		t.Fatalf("got %v, want %v", o.blocks, blocks)
	}
	for i := range blocks {
		if o.blocks[i] != blocks[i] {
			t.Errorf("got %v, want %v", o.blocks[i], blocks[i])
		}
	}
}

// starts compares when and for which blocks a leg was started.
func (s *script) starts(t *testing.T, name string, want ...opening) {
	t.Helper()
	if len(s.opened) != len(want) {
		t.Fatalf("the %s leg was started %d times, want %d", name, len(s.opened), len(want))
	}
	for i, w := range want {
		if o := s.opened[i]; o.at != w.at || o.run != w.run {
			t.Errorf("the %s leg was started at %v for %v, want at %v for %v", name, o.at, o.run, w.at, w.run)
		}
	}
}
