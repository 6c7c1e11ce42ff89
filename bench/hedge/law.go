// Package hedge measures the engine's race in virtual time: many reads under
// the latency laws of object storage and of a healthy peer, first bytes only.
// It drives the real engine through its two doors, Origin and Peers; nothing
// else is simulated. It owns no memory and opens no socket.
package hedge

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"headstart/engine/block"
)

// Laws are the latencies of both sides. The numbers are measured ones: object
// storage answers at a median of 28 ms (p99 104 ms) and in 1 % at 180 ms; a
// healthy peer at 1.2 ms, but 3 % of its calls meet a queue of 12 ms on average
// and 2 % a stall of 250 ms.
type Laws struct {
	// Slowdown multiplies every latency; 0 means 1.
	Slowdown float64
	// PeersDead makes peers accept calls and never answer.
	PeersDead bool

	mu struct {
		sync.Mutex
		rng  *rand.Rand
		gets int64
	}
}

// NewLaws returns laws that draw from seed.
func NewLaws(seed uint64) *Laws {
	l := &Laws{Slowdown: 1}
	l.mu.rng = rand.New(rand.NewPCG(seed, seed))
	return l
}

// GETs returns how many requests object storage has seen.
func (l *Laws) GETs() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.gets
}

func (l *Laws) scale(ns float64) time.Duration { return time.Duration(ns * l.Slowdown) }

func (l *Laws) lognormalLocked(median time.Duration, sigma float64) float64 {
	return float64(median) * math.Exp(sigma*l.mu.rng.NormFloat64())
}

func (l *Laws) store() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.gets++
	d := l.lognormalLocked(28*time.Millisecond, 0.564)
	if l.mu.rng.Float64() < 0.01 {
		d = float64(180 * time.Millisecond)
	}
	return l.scale(d)
}

func (l *Laws) peer() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.lognormalLocked(1200*time.Microsecond, 0.5)
	switch p := l.mu.rng.Float64(); {
	case p < 0.03:
		d += l.mu.rng.ExpFloat64() * float64(12*time.Millisecond)
	case p < 0.05:
		d += l.mu.rng.ExpFloat64() * float64(250*time.Millisecond)
	}
	return l.scale(d)
}

// Fetch implements block.Store.
func (l *Laws) Fetch(ctx context.Context, f *block.Fetch) (block.Stream, error) {
	return &stream{ctx: ctx, f: *f, after: l.store()}, nil
}

// FetchFrom implements block.Peers.
func (l *Laws) FetchFrom(ctx context.Context, _ block.Addr, f *block.Fetch) (block.Stream, error) {
	if l.PeersDead {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &stream{ctx: ctx, f: *f, after: l.peer()}, nil
}

// Head implements engine.Origin; no read of this package needs it.
func (l *Laws) Head(context.Context, block.Object) (block.Meta, error) {
	return block.Meta{}, errors.ErrUnsupported
}

// objectSize is large enough for any number of reads.
const objectSize = 1 << 50

// stream brings all blocks at once, after its delay.
type stream struct {
	ctx   context.Context
	f     block.Fetch
	after time.Duration
	begun bool
}

// Next implements block.Stream.
func (s *stream) Next() (block.Piece, error) {
	if !s.begun {
		s.begun = true
		select {
		case <-s.ctx.Done():
			return block.Piece{}, s.ctx.Err()
		case <-time.After(s.after):
		}
	}
	span, _ := s.f.Run.Span()
	if span.Want == 0 {
		return block.Piece{}, io.EOF
	}
	s.f.Run = s.f.Run.Without(span.First)
	buf := block.NewBuf(make([]byte, s.f.BlockSize), nil)
	buf.Seal()
	return block.Piece{Index: span.First, Status: block.StatusData, Buf: buf}, nil
}

// Meta implements block.Stream.
func (s *stream) Meta() block.Meta {
	return block.Meta{Size: objectSize, Version: block.Immutable}
}

// Close implements block.Stream.
func (s *stream) Close() {}
