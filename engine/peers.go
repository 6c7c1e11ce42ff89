package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"headstart/engine/block"
	"headstart/engine/timeline"
	"headstart/shards"
)

// errNoPeer ends a peer leg whose candidates have all failed. No reader sees
// it: object storage has the last word.
var errNoPeer = errors.New("no candidate has the blocks")

// peerLeg is the peer leg of a race: it asks the candidates of a tablet one
// after another until one has data. It is used by one goroutine, its race's.
type peerLeg struct {
	e    *Engine
	req  *block.Fetch
	mode *mode
	// aside: it is the leg of a GET that is late. It asks nobody to fill, and what
	// the candidates lack then says nothing about them.
	aside bool
	// pause is how long it has waited last before it asked them all again.
	pause time.Duration

	// fillGroup is peer_cache_fill_compute_group_id when the leg was opened.
	fillGroup string
	ctx       context.Context
	run       block.Run
	next      int
	call      *peerCall
	results   []shards.Result
	// ready are pieces that Next has to hand out before it reads on.
	ready []block.Piece
	meta  block.Meta
	// filling: the race has been told that the current candidate fills. again: it
	// is to be asked for what it fills.
	filling, again bool
	// recalled: the leg has been opened once more, when the race was decided. What
	// follows is of the time before, and valid after the leg has ended. waited: a
	// candidate was filling, and was asked to answer when it had the blocks. first is
	// the candidate that gave blocks, late the one whose call was under way when the
	// leg ended.
	opened, recalled bool
	waited           bool
	first            *shards.Candidate
	late             *block.Addr
	// sent: somebody was called; else there was no race.
	sent bool
	// served is the candidate whose bytes the leg hands out: written before the
	// first of them, read by the task that gets them.
	served atomic.Pointer[shards.Candidate]
}

// peerCall is one call to one candidate.
type peerCall struct {
	candidate shards.Candidate
	stream    block.Stream
	// step is the call in the timeline.
	step timeline.ID
	// ticket and cancel are the call's end, but for probes, which end themselves.
	ticket  shards.Ticket
	cancel  context.CancelFunc
	started time.Time
	lacks   []block.Piece
	// filling are the blocks that the peer is reading from object storage: the
	// leg asks for them again, and that call waits. began is when the fill did.
	filling block.Run
	began   time.Time
	// worst is the outcome of the blocks that the peer did not give. why says in a
	// timeline what its outcome does not.
	worst block.Outcome
	why   string
}

// open implements race.Open. A race may open the leg once more, when object
// storage has failed and the leg that was stopped for it has ended.
func (p *peerLeg) open(ctx context.Context, run block.Run) (block.Stream, error) {
	p.ctx, p.run, p.next, p.results = ctx, run, 0, nil
	p.filling, p.again = false, false
	p.recalled, p.opened = p.opened, true
	p.served.Store(nil)
	if p.aside {
		return p, nil
	}
	if group := p.e.Settings.PeerCacheFillComputeGroupID.Load(); group != nil {
		p.fillGroup = *group
	}
	if p.fillGroup != "" && !p.hasFillGroup() {
		p.e.noteUnmatched(p.fillGroup)
	}
	return p, nil
}

// noteUnmatched counts a read whose candidates are all of other groups than the
// one that is to fill, and says so once for each value of the key: it may be a
// group's name, not its id (CF-08).
func (e *Engine) noteUnmatched(group string) {
	e.count.fillGroupUnmatched.Add(1)
	if last := e.unmatched.Load(); last != nil && *last == group {
		return
	}
	if last := e.unmatched.Swap(&group); last == nil || *last != group {
		e.Logger.Warn("no candidate belongs to the fill group: is it given by its name instead of its id?", "peer_cache_fill_compute_group_id", group)
	}
}

func (p *peerLeg) hasFillGroup() bool {
	for i := range p.mode.asked.Len() {
		if p.mode.asked.At(i).GroupID == p.fillGroup {
			return true
		}
	}
	return false
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
			if p.served.Load() != nil {
				return block.Piece{}, io.EOF // who gave a part has failed at the rest of it
			}
			if err := p.dial(); err == errNoPeer && p.aside {
				p.rest()
				continue
			} else if err != nil {
				return block.Piece{}, err
			}
		}
		if p.again {
			if p.again = false; !p.askAgain() {
				p.over()
			}
			continue
		}
		piece, err := p.call.stream.Next()
		switch {
		case err == nil && piece.Status == block.StatusData:
			p.data(piece)
		case err == nil && piece.Status == block.StatusFilling:
			p.call.fill(piece.Index, p.run)
		case err == nil:
			p.call.lacks = append(p.call.lacks, block.Piece{Index: piece.Index, Status: block.StatusNotFound})
			p.call.worst = max(p.call.worst, piece.Status.Outcome())
		case err == io.EOF && p.call.filling.Want != 0:
			p.tell()
			p.again = true
		case err == io.EOF:
			p.over()
		default:
			p.call.explain(err)
			p.hangUp(p.outcomeOf(err))
			if p.served.Load() != nil || p.ctx.Err() != nil {
				return block.Piece{}, err
			}
		}
	}
}

// data takes a block of the current candidate.
func (p *peerLeg) data(piece block.Piece) {
	p.meta = p.call.stream.Meta()
	if !p.req.Meta.Known() && !p.meta.Known() {
		piece.Buf.Release() // bytes of an object of which nobody knows the size
		p.hangUp(block.OutcomeError)
		return
	}
	p.firstData()
	p.mode.trace.Got(p.call.step, len(piece.Buf.Bytes()))
	if p.e.isFar(&p.call.candidate) {
		p.e.far.spend(int64(len(piece.Buf.Bytes())))
		p.e.count.farBytes.Add(int64(len(piece.Buf.Bytes())))
	}
	p.ready = append(p.ready, piece)
}

// over ends a call whose reply has come to its end.
func (p *peerLeg) over() {
	if p.served.Load() != nil {
		p.hangUp(block.OutcomeHit)
		return
	}
	p.meta = p.call.stream.Meta()
	p.hangUp(max(p.call.worst, block.OutcomeMiss))
}

// tell passes on what the candidate does not bring, which is the store's turn
// then (S12), and behind it that it fills. Who is asked next is not asked for
// what the store reads.
func (p *peerLeg) tell() {
	for _, piece := range p.call.lacks {
		p.run = p.run.Without(piece.Index)
	}
	p.ready = append(p.ready, p.call.lacks...)
	p.call.lacks = nil
	if p.call.filling.Want != 0 && !p.filling {
		p.filling = true
		p.ready = append(p.ready, block.Piece{Index: p.run.First, Status: block.StatusFilling})
	}
}

// outcomeOf is the outcome of a call that ends with err. A peer that has given
// blocks has answered, though we don't wait for the rest.
func (p *peerLeg) outcomeOf(err error) block.Outcome {
	cancelled := p.ctx.Err() != nil
	if cancelled && p.served.Load() != nil {
		return block.OutcomeHit
	}
	return block.OutcomeOf(err, cancelled)
}

// firstData notes that the current candidate has answered with bytes.
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
	if !p.recalled {
		p.first = c
	}
	p.tell()
	if c.GroupID == p.e.GroupID {
		p.e.count.sameGroupReads.Add(1)
	} else {
		p.e.count.crossGroupReads.Add(1)
	}
}

// dial calls the next candidate that may be asked. It answers errNoPeer when
// there is none left.
func (p *peerLeg) dial() error {
	for p.next < p.mode.asked.Len() && p.ctx.Err() == nil {
		c := p.mode.asked.At(p.next)
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

// rest waits before the candidates are asked again: while a GET is late, one of
// them may come by the block. Each wait is twice as long as the last one.
func (p *peerLeg) rest() {
	p.next, p.results = 0, nil
	p.pause = max(2*p.pause, lateGet)
	select {
	case <-time.After(p.pause):
	case <-p.ctx.Done():
	}
}

// mayAsk applies the switches for peers of the own and of other groups and the
// list of allowed groups (S16), and the bound on what comes from another
// location (S19).
func (e *Engine) mayAsk(c *shards.Candidate) bool {
	s := e.Settings
	if c.GroupID == e.GroupID {
		if !s.EnableSameComputeGroupPeerRead.Load() {
			return false
		}
	} else if !s.EnableCrossComputeGroupRead.Load() {
		return false
	}
	if allowed := s.PeerReadAllowedComputeGroups.Load(); allowed != nil && len(*allowed) > 0 && !slices.Contains(*allowed, c.GroupID) {
		return false
	}
	return !e.isFar(c) || e.far.left(s.PeerCrossLocationBytesPerSecond.Load(), time.Now())
}

// isFar reports that the candidate is known to be in another location.
func (e *Engine) isFar(c *shards.Candidate) bool {
	return c.Location != "" && e.Location != "" && c.Location != e.Location
}

// ask starts a call to c for run. wait is for blocks that c is filling. It
// reports false, with the outcome noted, when the call could not even be sent.
func (p *peerLeg) ask(c shards.Candidate, ticket shards.Ticket, run block.Run, wait bool) bool {
	s := p.e.Settings
	p.sent = true
	req := *p.req
	req.Run, req.Wait = run, wait
	req.Fill = !p.aside && (p.fillGroup != "" && p.fillGroup == c.GroupID || p.mode.owner == c.Addr)
	limit := s.PeerReadRPCTimeoutMS.Load()
	if req.Fill || wait {
		limit = s.PeerServerCacheFillTimeoutMS.Load()
	}
	step := p.mode.trace.Start(timeline.Peer, c.Addr, run)
	if p.e.Breakers.Silent(c.Addr) {
		// Somebody has to see the end of the call, whoever wins (S28).
		p.call = &peerCall{candidate: c, started: time.Now(), step: step}
		p.call.stream = p.e.startProbe(p.ctx, time.Duration(limit)*time.Millisecond, c.Addr, &req, ticket)
		return true
	}
	ctx, cancel := context.WithTimeout(p.ctx, time.Duration(limit)*time.Millisecond)
	p.call = &peerCall{candidate: c, ticket: ticket, cancel: cancel, started: time.Now(), step: step}
	stream, err := p.e.callPeer(ctx, c.Addr, &req)
	if err != nil {
		p.call.explain(err)
		p.hangUp(p.outcomeOf(err))
		return false
	}
	p.call.stream = stream
	return true
}

// fill notes that the peer is reading a block from object storage.
func (c *peerCall) fill(index uint64, run block.Run) {
	c.filling.First = run.First
	c.filling.Want |= 1 << (index - run.First)
}

// askAgain ends a call that the peer has answered with "filling" and asks the
// same peer to answer when it has the blocks (S38). It reports false when that
// call could not be made. "Filling" is an answer: the call that brought it ends
// first, because it may be the probe that closes the circuit for the next one.
func (p *peerLeg) askAgain() bool {
	old := p.call
	old.worst = max(old.worst, block.OutcomeBusy) // if nobody waits for the fill
	if p.ctx.Err() != nil {
		return false
	}
	p.e.Breakers.Observe(old.candidate.Addr, time.Since(old.started))
	p.waited = p.waited || !p.recalled
	p.mode.trace.End(old.step, "filling", old.queued())
	old.end(block.OutcomeHit)
	ticket, ok := p.e.Breakers.Allow(old.candidate.Addr)
	if !ok {
		return false
	}
	if p.ask(old.candidate, ticket, old.filling, true) {
		p.call.began = old.started
	}
	return true
}

// callPeer sends a request and counts it.
func (e *Engine) callPeer(ctx context.Context, addr block.Addr, req *block.Fetch) (block.Stream, error) {
	e.count.peerReads.Add(1)
	stream, err := e.Peers.FetchFrom(ctx, addr, req)
	if err != nil {
		return nil, err
	}
	return &countedStream{Stream: stream, bytes: &e.count.peerBytes}, nil
}

// hangUp ends the current call with its outcome.
func (p *peerLeg) hangUp(o block.Outcome) {
	call := p.call
	p.call = nil
	p.mode.trace.End(call.step, cmp.Or(call.why, o.String()), call.queued())
	call.end(o)
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
	if p.filling && p.served.Load() == nil {
		p.filling = false
		p.ready = append(p.ready, block.Piece{Index: p.run.First, Status: block.StatusFillTimeout})
	}
}

// explain keeps the code of an answer that the peer has given instead of blocks.
func (c *peerCall) explain(err error) {
	for _, code := range [...]struct {
		err  error
		says string
	}{
		{block.ErrRefused, "refused: it takes this node for a stranger"}, {block.ErrInvalid, "refused: invalid request"},
		{block.ErrDenied, "refused: denied"}, {block.ErrThrottled, "refused: throttled"}, {block.ErrChanged, "refused: another version"},
	} {
		if errors.Is(err, code.err) {
			c.why = code.says
			return
		}
	}
}

// queued returns how long the peer has kept the call in its queue, if it said.
func (c *peerCall) queued() time.Duration {
	if q, ok := c.stream.(block.Queued); ok {
		return q.Waited()
	}
	return 0
}

// end closes the call's stream and tells the breaker how it went.
func (c *peerCall) end(o block.Outcome) {
	if c.stream != nil {
		c.stream.Close()
	}
	if c.cancel != nil {
		c.cancel()
		c.ticket.Done(o)
	}
}

// Meta implements block.Stream.
func (p *peerLeg) Meta() block.Meta { return p.meta }

// Close implements block.Stream: it notes what has become of the candidates.
func (p *peerLeg) Close() {
	switch {
	case p.call == nil:
	case p.ctx.Err() == nil: // its answer made no sense to the race, or made us panic
		p.hangUp(block.OutcomeError)
	default:
		p.hangUp(p.outcomeOf(context.Canceled))
	}
	if n := len(p.results); n > 0 && !p.recalled && p.results[n-1].Outcome == block.OutcomeCancelled {
		p.late = &p.results[n-1].Addr
	}
	for _, piece := range p.ready {
		if piece.Buf != nil {
			p.e.count.wastedBytes.Add(int64(len(piece.Buf.Bytes())))
			piece.Buf.Release()
		}
	}
	p.ready = nil
	if p.aside && p.served.Load() == nil {
		return
	}
	if p.allMissed() && (p.aside || p.mode.missed.Swap(true)) {
		return // another run of the same read has said so: it is one read in a row (S25)
	}
	p.e.Table.Note(p.req.Route, p.mode.asked, p.results)
}

// allMissed reports whether every candidate was asked and lacks the blocks.
func (p *peerLeg) allMissed() bool {
	for _, r := range p.results {
		if r.Outcome != block.OutcomeMiss {
			return false
		}
	}
	return len(p.results) == p.mode.asked.Len()
}
