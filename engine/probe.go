package engine

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

// probeStream is a call to a peer that has been silent for long. The race reads
// it like any other, but when the race is over the call runs on to its first
// answer or to its own deadline, outside the race's slot, so that a peer that
// never answers is found out although all its calls lose (S28). It reports to
// the breaker itself, whoever still listens.
type probeStream struct {
	e      *Engine
	race   context.Context
	cancel context.CancelFunc
	pieces chan block.Piece
	// end is set before pieces is closed.
	end error
	// meta is nil until the peer has answered, and written before the piece that
	// it came with is sent.
	meta atomic.Pointer[block.Meta]
	// left is set by the leg when it reads no more. From then on both sides drop
	// what they find in pieces: whichever of send and left comes second sees the
	// other.
	left atomic.Bool
}

// startProbe starts a call to addr that may take until limit. Its goroutine ends
// with the peer's first answer that nobody listens to, with the reply, at the
// limit or with the engine. It ends the ticket.
func (e *Engine) startProbe(race context.Context, limit time.Duration, addr block.Addr, req *block.Fetch, ticket shards.Ticket) *probeStream {
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	s := &probeStream{e: e, race: race, cancel: cancel, pieces: make(chan block.Piece, block.MaxRun)}
	started := e.start(func() {
		defer cancel()
		ticket.Done(s.run(ctx, addr, req))
	})
	if !started {
		cancel()
		ticket.Done(block.OutcomeCancelled)
		s.end = errClosed
		close(s.pieces)
	}
	return s
}

// run makes the call and returns what it tells of the peer.
func (s *probeStream) run(ctx context.Context, addr block.Addr, req *block.Fetch) (outcome block.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			outcome, s.end = block.OutcomeError, fmt.Errorf("panic in a call to %s: %v", addr, p)
			s.e.panicked(req.Object, s.end)
		}
		close(s.pieces)
		if s.left.Load() {
			s.drop()
		}
	}()
	outcome, s.end = s.relay(ctx, addr, req)
	return outcome
}

// relay passes the reply on for as long as somebody listens.
func (s *probeStream) relay(ctx context.Context, addr block.Addr, req *block.Fetch) (block.Outcome, error) {
	stream, err := s.e.callPeer(ctx, addr, req)
	if err != nil {
		return block.OutcomeOf(err, s.e.ctx.Err() != nil), err
	}
	defer stream.Close()
	outcome := block.OutcomeMiss
	for answered := false; ; answered = true {
		piece, err := stream.Next()
		if err != nil && err != io.EOF && !(answered && s.left.Load()) {
			return block.OutcomeOf(err, s.e.ctx.Err() != nil), err
		}
		meta := stream.Meta()
		s.meta.Store(&meta)
		switch {
		case err != nil:
			return outcome, err
		case piece.Status == block.StatusData:
			outcome = block.OutcomeHit
		case outcome != block.OutcomeHit:
			outcome = max(outcome, piece.Status.Outcome())
		}
		s.pieces <- piece
		if s.left.Load() {
			s.drop()
			return outcome, context.Canceled
		}
	}
}

// Next implements block.Stream.
func (s *probeStream) Next() (block.Piece, error) {
	select {
	case piece, ok := <-s.pieces:
		if !ok {
			return block.Piece{}, s.end
		}
		return piece, nil
	case <-s.race.Done():
		return block.Piece{}, context.Cause(s.race)
	}
}

// Meta implements block.Stream.
func (s *probeStream) Meta() block.Meta {
	if meta := s.meta.Load(); meta != nil {
		return *meta
	}
	return block.Meta{}
}

// Close implements block.Stream. A call that has not been answered goes on.
func (s *probeStream) Close() {
	s.left.Store(true)
	s.drop()
	if s.meta.Load() != nil {
		s.cancel()
	}
}

// drop gives back the pieces that nobody takes.
func (s *probeStream) drop() {
	for {
		select {
		case piece, ok := <-s.pieces:
			if !ok {
				return
			}
			if piece.Buf != nil {
				s.e.count.wastedBytes.Add(int64(len(piece.Buf.Bytes())))
				piece.Buf.Release()
			}
		default:
			return
		}
	}
}
