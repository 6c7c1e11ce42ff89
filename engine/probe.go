package engine

import (
	"context"
	"io"
	"sync/atomic"

	"headstart/engine/block"
	"headstart/shards"
)

// probeStream is a call to a peer that has been silent for long. The race reads
// it like any other, but when the race is over the call runs on to its own
// deadline, outside the race's slot, so that a peer that never answers is found
// out although all its calls lose (S28).
//
//	attached ── detach ──▶ detached   the probe reports to the breaker
//	   └────── call ends ─▶ ended     the leg reports to the breaker
type probeStream struct {
	race   context.Context
	pieces chan block.Piece
	// end is set before pieces is closed.
	end  error
	meta atomic.Pointer[block.Meta]
	// state is moved once, by the leg (detach) or by the call's end.
	state atomic.Uint32
}

const (
	probeAttached uint32 = iota
	probeDetached
	probeEnded
)

// startProbe starts the call; its goroutine ends with the call or with ctx,
// which has the call's deadline.
func startProbe(ctx, race context.Context, e *Engine, addr block.Addr, req *block.Fetch, ticket shards.Ticket) *probeStream {
	s := &probeStream{race: race, pieces: make(chan block.Piece, block.MaxRun)}
	go s.run(ctx, e, addr, req, ticket)
	return s
}

func (s *probeStream) run(ctx context.Context, e *Engine, addr block.Addr, req *block.Fetch, ticket shards.Ticket) {
	worst, err := s.relay(ctx, e, addr, req)
	s.end = err
	close(s.pieces)
	if s.state.CompareAndSwap(probeAttached, probeEnded) {
		return
	}
	s.drop()
	if err != io.EOF {
		worst = block.OutcomeOf(err, e.ctx.Err() != nil)
	}
	ticket.Done(worst)
}

func (s *probeStream) relay(ctx context.Context, e *Engine, addr block.Addr, req *block.Fetch) (block.Outcome, error) {
	stream, err := e.Peers.FetchFrom(ctx, addr, req)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	outcome := block.OutcomeMiss
	for range req.Run.Count() {
		piece, err := stream.Next()
		if err != nil {
			return outcome, err
		}
		if piece.Status == block.StatusData {
			outcome = block.OutcomeHit
		}
		meta := stream.Meta()
		s.meta.Store(&meta)
		s.pieces <- piece
	}
	return outcome, io.EOF
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

// Close implements block.Stream.
func (s *probeStream) Close() {}

// detach leaves the call to itself. It reports false when it has ended.
func (s *probeStream) detach() bool {
	if s.state.CompareAndSwap(probeAttached, probeDetached) {
		return true
	}
	s.drop()
	return false
}

// drop gives back the pieces that nobody took; the channel is closed.
func (s *probeStream) drop() {
	for piece := range s.pieces {
		if piece.Buf != nil {
			piece.Buf.Release()
		}
	}
}
