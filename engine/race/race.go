// Package race runs the two legs of one hedged fetch of a run of blocks: a
// peer, and object storage some time behind it. The first valid bytes of each
// block win; a leg that is not needed any more is cancelled.
//
// A leg is a pull stream that only its own goroutine reads. Pieces belong to
// the race until Next hands them on; what nobody takes, it gives back. A race
// never decides whom to ask: that is the legs' affair.
package race

import (
	"context"
	"io"
	"time"

	"headstart/engine/block"
)

// Open starts a leg for the blocks of run. ctx ends when the leg has lost.
type Open func(ctx context.Context, run block.Run) (block.Stream, error)

// Slots admits store legs that start while the peer leg still runs (S42).
type Slots interface {
	TryAcquire() bool
	Release()
}

// Legs is what a race is made of.
type Legs struct {
	// Peer may be nil: then the store is read at once. A piece of the peer leg
	// with StatusNotFound says that the leg will not bring that block.
	Peer Open
	// Store reads object storage.
	Store Open
	// HeadStart is how long the peer leg may go without progress before the
	// store leg starts beside it. Sequential switches that off.
	HeadStart  time.Duration
	Sequential bool
	// Slots bounds the store legs that run beside a peer leg; nil means no bound.
	Slots Slots
	// BlockSize cuts the run down once a leg has told the object's size.
	BlockSize int64
}

// Winner is how a race has ended.
type Winner uint8

// The ends of a race. A race that its readers gave up has none of them.
const (
	NoWinner Winner = iota
	PeerWon
	StoreWon
	BothFailed
)

// Stats is what a race has cost; read it after Wait.
type Stats struct {
	Winner Winner
	// Hedged: the store leg started while the peer leg was still running.
	Hedged bool
	// NoSlot: a hedge was due and found no slot.
	NoSlot bool
	// WastedBytes came from the wire and were not needed.
	WastedBytes int64
	// PeerErr is why the peer leg ended without all it was asked for.
	PeerErr error
}

type legID uint8

const (
	peerLeg legID = iota
	storeLeg
)

func (l legID) source() block.Source {
	if l == peerLeg {
		return block.SourcePeer
	}
	return block.SourceStore
}

// event is one word of a leg to the race: a piece, or its end.
type event struct {
	leg   legID
	piece block.Piece
	meta  block.Meta
	err   error
	ended bool
}

// leg is the race's side of one leg.
type leg struct {
	cancel  context.CancelFunc
	started bool
	ended   bool
	err     error
	// lacks are the blocks of the run that the leg has said it will not bring.
	lacks uint16
}

// Race is a race under way. It is used by one goroutine.
type Race struct {
	ctx    context.Context
	legs   Legs
	run    block.Run
	left   block.Run
	meta   block.Meta
	leg    [2]leg
	events chan event
	timer  *time.Timer
	slot   bool
	again  bool
	stats  Stats
}

// Start starts the race for run. It ends with ctx, or when Next has returned an
// error; the caller then calls Wait.
func Start(ctx context.Context, run block.Run, meta block.Meta, legs Legs) *Race {
	r := &Race{
		ctx: ctx, legs: legs, run: run, left: run, meta: meta,
		// A leg sends at most one event for each block and one for its end, and at
		// most three start (the store's may start again, once), so that no leg ever
		// waits for a race that has stopped listening.
		events: make(chan event, 3*(block.MaxRun+1)),
		timer:  time.NewTimer(time.Hour),
	}
	r.timer.Stop()
	if legs.Peer == nil {
		r.start(storeLeg, run)
		return r
	}
	r.start(peerLeg, run)
	if !legs.Sequential {
		r.timer.Reset(legs.HeadStart)
		if legs.HeadStart <= 0 {
			r.hedge()
		}
	}
	return r
}

// Meta returns what the legs have told of the object so far.
func (r *Race) Meta() block.Meta { return r.meta }

// Next returns the next block and where it came from. It answers io.EOF when
// every block of the run that exists has been handed out. When object storage
// has failed it answers object storage's error.
func (r *Race) Next() (block.Piece, block.Source, error) {
	for {
		if r.left.Want == 0 {
			return block.Piece{}, 0, r.finish(io.EOF)
		}
		select {
		case ev := <-r.events:
			if piece, ok := r.take(ev); ok {
				return piece, ev.leg.source(), nil
			}
			if r.leg[peerLeg].idle() && r.leg[storeLeg].idle() && r.left.Want != 0 {
				return block.Piece{}, 0, r.finish(r.failure())
			}
		case <-r.timer.C:
			r.hedge()
		case <-r.ctx.Done():
			r.stats.Winner = NoWinner
			return block.Piece{}, 0, r.finish(context.Cause(r.ctx))
		}
	}
}

// idle reports that nothing more can come from the leg.
func (l *leg) idle() bool { return !l.started || l.ended }

// take accounts for one event. It returns a piece that is to be handed out.
func (r *Race) take(ev event) (block.Piece, bool) {
	if ev.meta.Known() && !r.meta.Known() {
		r.learn(ev.meta)
	}
	l := &r.leg[ev.leg]
	switch {
	case ev.ended:
		l.ended, l.err = true, ev.err
		l.cancel()
		r.legEnded(ev)
		return block.Piece{}, false
	case ev.piece.Status != block.StatusData:
		l.lacks |= 1 << (ev.piece.Index - r.run.First)
		return block.Piece{}, false
	case !r.left.Has(ev.piece.Index):
		r.waste(ev.piece)
		return block.Piece{}, false
	}
	r.left = r.left.Without(ev.piece.Index)
	if r.stats.Winner == NoWinner {
		r.stats.Winner = PeerWon
		if ev.leg == storeLeg {
			r.stats.Winner = StoreWon
		}
	}
	r.settle(ev.leg)
	return ev.piece, true
}

// learn cuts the run down to the blocks that the object has.
func (r *Race) learn(meta block.Meta) {
	r.meta = meta
	blocks := block.Geometry(r.legs.BlockSize).Blocks(meta.Size)
	for i := r.run.First; i < r.run.First+block.MaxRun; i++ {
		if i >= blocks {
			r.left = r.left.Without(i)
		}
	}
}

// settle acts on a block that leg has brought: it has answered, so the other
// leg is needed only for what this one lacks.
func (r *Race) settle(leg legID) {
	other := &r.leg[1-leg]
	lacks := r.left.Want & r.leg[leg].lacks
	switch {
	case lacks == 0:
		if other.started && !other.ended {
			other.cancel()
		}
	case leg == peerLeg && !other.started && !r.legs.Sequential:
		// A partial answer: the rest comes from object storage, at once (S12).
		r.hedgeFor(block.Run{First: r.left.First, Want: lacks})
	}
	if leg == peerLeg && !r.legs.Sequential && !other.started {
		r.timer.Reset(r.legs.HeadStart)
	}
}

// legEnded acts on the end of a leg: what it has not brought is the store's
// turn, if the store has not had it.
func (r *Race) legEnded(ev event) {
	if ev.leg == storeLeg {
		r.releaseSlot()
		r.restartStore()
		return
	}
	r.stats.PeerErr = ev.err
	r.timer.Stop()
	if r.left.Want != 0 && !r.leg[storeLeg].started {
		r.start(storeLeg, r.left)
	}
	r.restartStore()
}

// restartStore reads what neither leg has brought although neither failed at
// the store: the store leg was asked for, or was cut down to, a part of the
// run, and the peer broke its word on the rest.
func (r *Race) restartStore() {
	store := &r.leg[storeLeg]
	peerOver := r.leg[peerLeg].idle()
	if r.left.Want != 0 && peerOver && store.started && store.ended && r.mayRestart(store.err) {
		r.again = true
		r.start(storeLeg, r.left)
	}
}

// mayRestart tells a store leg that has done its part, or was stopped by us,
// from one that failed.
func (r *Race) mayRestart(err error) bool {
	return !r.again && r.ctx.Err() == nil && r.stats.Winner == PeerWon && (err == nil || err == errStopped)
}

func (r *Race) failure() error {
	if r.stats.Winner == NoWinner {
		r.stats.Winner = BothFailed
	}
	if err := r.leg[storeLeg].err; err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// hedge starts the store leg for all that is left, beside the peer leg.
func (r *Race) hedge() { r.hedgeFor(r.left) }

func (r *Race) hedgeFor(run block.Run) {
	if r.leg[storeLeg].started || r.leg[peerLeg].ended {
		return
	}
	if r.legs.Slots != nil && !r.legs.Slots.TryAcquire() {
		r.stats.NoSlot = true
		return
	}
	r.slot = r.legs.Slots != nil
	r.stats.Hedged = true
	r.start(storeLeg, run)
}

func (r *Race) releaseSlot() {
	if r.slot {
		r.slot = false
		r.legs.Slots.Release()
	}
}

// start runs a leg in a goroutine of its own, which ends when its stream does;
// finish and settle end the stream by cancelling the leg's context.
func (r *Race) start(id legID, run block.Run) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	r.leg[id] = leg{cancel: func() { cancel(errStopped) }, started: true}
	open := r.legs.Peer
	if id == storeLeg {
		open = r.legs.Store
		r.timer.Stop()
	}
	go pump(ctx, id, open, run, r.events)
}

// finish stops both legs. The race has then nothing more to hand out, but its
// legs may still be ending: see Wait.
func (r *Race) finish(err error) error {
	r.timer.Stop()
	for i := range r.leg {
		if r.leg[i].started && !r.leg[i].ended {
			r.leg[i].cancel()
		}
	}
	return err
}

// Wait waits until both legs have ended, gives back what nobody has taken, and
// returns the race's books. Call it once, after Next has returned an error.
func (r *Race) Wait() Stats {
	r.finish(nil)
	for i := range r.leg {
		for r.leg[i].started && !r.leg[i].ended {
			ev := <-r.events
			switch {
			case ev.ended:
				r.leg[ev.leg].ended = true
				r.leg[ev.leg].cancel()
			case ev.piece.Buf != nil:
				r.waste(ev.piece)
			}
		}
	}
	for len(r.events) > 0 {
		if ev := <-r.events; ev.piece.Buf != nil {
			r.waste(ev.piece)
		}
	}
	r.releaseSlot()
	return r.stats
}

func (r *Race) waste(p block.Piece) {
	if p.Buf != nil {
		r.stats.WastedBytes += int64(len(p.Buf.Bytes()))
		p.Buf.Release()
	}
}
