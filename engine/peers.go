package engine

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

// errNoPeer ends a peer leg whose candidates have all failed. No reader sees
// it: object storage has the last word.
var errNoPeer = errors.New("no candidate has the blocks")

// peerLeg is the peer leg of a race: it asks the candidates of a tablet one
// after another until one has data. It is used by one goroutine, its race's.
type peerLeg struct {
	e     *Engine
	req   *block.Fetch
	asked shards.Snapshot

	ctx     context.Context
	run     block.Run
	next    int
	call    *peerCall
	results []shards.Result
	// ready are pieces that Next has to hand out before it reads on.
	ready []block.Piece
	meta  block.Meta
	// served is the candidate whose bytes the leg hands out: written before the
	// first of them, read by the task that gets them.
	served atomic.Pointer[shards.Candidate]
}

// peerCall is one call to one candidate.
type peerCall struct {
	candidate shards.Candidate
	stream    block.Stream
	ticket    shards.Ticket
	cancel    context.CancelFunc
	started   time.Time
	lacks     []block.Piece
	// filling are the blocks that the peer is reading from object storage: the
	// leg asks for them again, and that call waits. began is when the fill did.
	filling block.Run
	began   time.Time
	// worst is the outcome of the blocks that the peer did not give.
	worst block.Outcome
}

// open implements race.Open.
func (p *peerLeg) open(ctx context.Context, run block.Run) (block.Stream, error) {
	p.ctx, p.run = ctx, run
	return p, nil
}

// Next implements block.Stream.
func (p *peerLeg) Next() (block.Piece, error) {
	for {
		if len(p.ready) > 0 {
			piece := p.ready[0]
			p.ready = p.ready[1:]
			return piece, nil
		}
		if p.call == nil {
			if err := p.dial(); err != nil {
				return block.Piece{}, err
			}
		}
		piece, err := p.call.stream.Next()
		switch {
		case err == nil && piece.Status == block.StatusData:
			p.meta = p.call.stream.Meta()
			p.firstData()
			p.ready = append(p.ready, piece)
		case err == nil && piece.Status == block.StatusFilling:
			p.call.fill(piece.Index, p.run)
			p.ready = append(p.ready, piece)
		case err == io.EOF && p.call.filling.Want != 0 && p.askAgain():
		case err == nil:
			p.call.lacks = append(p.call.lacks, block.Piece{Index: piece.Index, Status: block.StatusNotFound})
			p.call.worst = max(p.call.worst, piece.Status.Outcome())
		case err == io.EOF && p.served.Load() != nil:
			p.hangUp(block.OutcomeHit)
			return block.Piece{}, io.EOF
		case err == io.EOF:
			p.meta = p.call.stream.Meta()
			p.hangUp(max(p.call.worst, block.OutcomeMiss))
		default:
			p.hangUp(block.OutcomeOf(err, p.ctx.Err() != nil))
			if p.served.Load() != nil || p.ctx.Err() != nil {
				return block.Piece{}, err
			}
		}
	}
}

// firstData notes that the current candidate has answered with bytes: what it
// lacks is the store's turn, so that goes to the race first (S12).
func (p *peerLeg) firstData() {
	if p.served.Load() != nil {
		return
	}
	c := &p.call.candidate
	if p.call.began.IsZero() {
		p.e.Breakers.Observe(c.Addr, time.Since(p.call.started))
	} else {
		p.e.fillLatency.Observe(time.Since(p.call.began))
	}
	p.served.Store(c)
	p.ready = append(p.ready, p.call.lacks...)
	if c.GroupID == p.e.GroupID {
		p.e.count.sameGroupReads.Add(1)
	} else {
		p.e.count.crossGroupReads.Add(1)
	}
}

// dial calls the next candidate that may be asked. It answers errNoPeer when
// there is none left.
func (p *peerLeg) dial() error {
	for p.next < p.asked.Len() && p.ctx.Err() == nil {
		c := p.asked.At(p.next)
		p.next++
		if !p.e.mayAsk(&c) {
			continue
		}
		ticket, ok := p.e.Breakers.Allow(c.Addr)
		if !ok {
			p.results = append(p.results, shards.Result{Addr: c.Addr, Outcome: block.OutcomeCircuitOpen})
			continue
		}
		if p.ask(c, ticket, p.run, false) {
			return nil
		}
	}
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	return errNoPeer
}

// mayAsk applies the switches for peers of the own and of other groups (S16).
func (e *Engine) mayAsk(c *shards.Candidate) bool {
	if c.GroupID == e.GroupID {
		return e.Settings.EnableSameComputeGroupPeerRead.Load()
	}
	return e.Settings.EnableCrossComputeGroupRead.Load()
}

// ask starts a call to c for run. wait is for blocks that c is filling. It
// reports false, with the outcome noted, when the call could not even be sent.
func (p *peerLeg) ask(c shards.Candidate, ticket shards.Ticket, run block.Run, wait bool) bool {
	s := p.e.Settings
	req := *p.req
	req.Run, req.Wait = run, wait
	limit := s.PeerReadRPCTimeoutMS.Load()
	if group := s.PeerCacheFillComputeGroupID.Load(); group != nil && *group != "" && *group == c.GroupID {
		req.Fill = true
		limit = s.PeerServerCacheFillTimeoutMS.Load()
	}
	// A silent peer's call outlives the race, so that somebody sees its end (S28).
	probe := p.e.Breakers.Silent(c.Addr)
	parent := p.ctx
	if probe {
		parent = p.e.ctx
	}
	ctx, cancel := context.WithTimeout(parent, time.Duration(limit)*time.Millisecond)
	p.call = &peerCall{candidate: c, ticket: ticket, cancel: cancel, started: time.Now()}
	p.e.count.peerReads.Add(1)
	var err error
	if probe {
		p.call.stream = startProbe(ctx, p.ctx, p.e, c.Addr, &req, ticket)
	} else {
		p.call.stream, err = p.e.Peers.FetchFrom(ctx, c.Addr, &req)
	}
	if err != nil {
		p.hangUp(block.OutcomeOf(err, p.ctx.Err() != nil))
		return false
	}
	return true
}

// fill notes that the peer is reading a block from object storage.
func (c *peerCall) fill(index uint64, run block.Run) {
	c.filling.First = run.First
	c.filling.Want |= 1 << (index - run.First)
}

// askAgain ends a call that the peer has answered with "filling" and asks the
// same peer to answer when it has the blocks (S38). It reports false when that
// call could not be made; the old one is then still to be ended.
func (p *peerLeg) askAgain() bool {
	old := p.call
	old.worst = max(old.worst, block.OutcomeBusy) // if nobody waits for the fill
	if p.ctx.Err() != nil {
		return false
	}
	ticket, ok := p.e.Breakers.Allow(old.candidate.Addr)
	if !ok {
		return false
	}
	p.e.Breakers.Observe(old.candidate.Addr, time.Since(old.started))
	old.stream.Close()
	old.ticket.Done(block.OutcomeHit)
	old.cancel()
	if p.ask(old.candidate, ticket, old.filling, true) {
		p.call.began = old.started
	}
	return true
}

// hangUp ends the current call with its outcome.
func (p *peerLeg) hangUp(o block.Outcome) {
	call := p.call
	p.call = nil
	if call.stream != nil {
		call.stream.Close()
	}
	switch o {
	case block.OutcomeCorrupt:
		p.e.count.peerCorrupt.Add(1)
	case block.OutcomeHit, block.OutcomeMiss:
		now := time.Now()
		p.e.count.peerLatency.Observe(now, now.Sub(call.started))
	}
	if o == block.OutcomeCancelled && call.began.IsZero() {
		p.e.Breakers.Observe(call.candidate.Addr, time.Since(call.started))
	}
	p.results = append(p.results, shards.Result{Addr: call.candidate.Addr, Outcome: o})
	if probe, ok := call.stream.(*probeStream); ok && probe.detach() {
		return // the probe reports to the breaker itself, when its call ends
	}
	call.ticket.Done(o)
	call.cancel()
}

// Meta implements block.Stream.
func (p *peerLeg) Meta() block.Meta { return p.meta }

// Close implements block.Stream: it notes what has become of the candidates.
func (p *peerLeg) Close() {
	if p.call != nil {
		p.hangUp(block.OutcomeCancelled)
	}
	for _, piece := range p.ready {
		if piece.Buf != nil {
			piece.Buf.Release()
		}
	}
	p.ready = nil
	p.e.Table.Note(p.req.Route, p.asked, p.results)
}
