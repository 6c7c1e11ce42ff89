// Package race runs the two legs of one hedged fetch of a run of blocks: a
// peer, and object storage some time behind it. The first valid bytes of each
// block win; a leg that is not needed any more is cancelled.
//
// A leg is a pull stream that only its own goroutine reads. Pieces belong to
// the race until Next hands them on; what nobody takes, it gives back. A race
// never decides whom to ask, and never hands out blocks of two versions.
package race

import (
	"context"
	"errors"
	"io"
	"time"

	"headstart/engine/block"
)

// Open starts a leg for the blocks of run. ctx ends when the leg has lost, and
// the leg with it; its other deadlines are its own.
type Open func(ctx context.Context, run block.Run) (block.Stream, error)

// Slots admits store legs that start while the peer leg still runs (S42).
type Slots interface {
	// TryAcquire takes a slot if there is a free one.
	TryAcquire() bool
	// Release gives it back.
	Release()
}

// Budget bounds what hedging costs: the store legs that start only because the
// peer leg is late (S36).
type Budget interface {
	// Spend asks for one more GET.
	Spend() bool
	// Refund takes back what Spend has allowed and nobody has used.
	Refund()
}

// Legs is what a race is made of.
type Legs struct {
	// Peer may be nil: then the store is read at once. A piece of the peer leg
	// with StatusNotFound says that the leg will not bring that block.
	Peer Open
	// Store reads object storage; Hedge does so beside a peer leg that is late,
	// and may be nil when that makes no difference.
	Store, Hedge Open
	// HeadStart is how long the peer leg may go without a block before the store
	// leg starts beside it; 0 starts both at once. Sequential switches that off.
	HeadStart  time.Duration
	Sequential bool
	// FillHeadStart takes the place of HeadStart once the peer leg has said, with
	// StatusFilling, that it reads object storage itself (S38), until it says with
	// StatusFillTimeout that this has come to nothing and it goes on without.
	FillHeadStart time.Duration
	// Slots bounds the store legs that run beside a peer leg, Budget those among
	// them that a late peer leg has started; nil means no bound.
	Slots  Slots
	Budget Budget
	// Again is how long after a refused hedge the race asks once more; 0 means
	// that it waits for the next word of the peer leg.
	Again time.Duration
	// Twin: both legs read object storage, Peer first and Store when it is late.
	// What the first one lacks or fails at is not asked for again.
	Twin bool
	// AskPeers: the second one of a Twin asks peers instead (BP-09), and ends when
	// object storage fails.
	AskPeers bool
	// BlockSize cuts the run down once a leg has told the object's size.
	BlockSize int64
}

// errStopped is the end of a leg that the race does not need any more.
var errStopped = errors.New("the other leg of the race has won")

// ErrPanic is in the error of a leg that panicked.
var ErrPanic = errors.New("panic")

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
	// Hedged: the store leg started while the peer leg might still bring blocks.
	Hedged bool
	// NoSlot: a hedge was due and found no slot; NoBudget: it was not allowed.
	NoSlot, NoBudget bool
	// WastedBytes came from the wire and were not needed.
	WastedBytes int64
	// PeerErr is why the peer leg failed; nil when it was merely stopped.
	PeerErr error
}

// Race is a race under way. It is used by one goroutine.
type Race struct {
	ctx  context.Context
	legs Legs
	run  block.Run
	left block.Run
	// meta is what the race is about. open: nobody knew when it started, so that
	// the word of a leg may still replace it.
	meta   block.Meta
	open   bool
	leg    [2]leg
	events chan event
	// late is when the head start ends, which began at since; stalled: it has, and
	// no block came since then.
	late    <-chan time.Time
	since   time.Time
	stalled bool
	// again is when a refused hedge is asked for once more.
	again <-chan time.Time
	// filling: the peer leg reads object storage itself. answered: it has said so
	// last, behind the word on what it lacks.
	filling, answered bool
	slot              bool
	stats             Stats
}

// Start starts the race for run. It ends with ctx, or when Next has returned an
// error; the caller then calls Wait.
func Start(ctx context.Context, run block.Run, meta block.Meta, legs Legs) *Race {
	r := &Race{
		ctx: ctx, legs: legs, run: run, left: run, meta: meta, open: !meta.Known(),
		// A leg sends at most one event for each block, two on a fill that it waits
		// for and one for its end, and at most four start, so that no leg ever waits
		// for a race that has stopped listening.
		events: make(chan event, 4*(block.MaxRun+3)),
	}
	if legs.Peer != nil {
		r.start(peerLeg, legs.Peer, run.Want)
		r.arm()
		r.stalled = legs.HeadStart <= 0
	}
	r.cover()
	return r
}

// Meta returns what the legs have told of the object so far. It does not change
// any more when Next has handed out a block.
func (r *Race) Meta() block.Meta { return r.meta }

// Next returns the next block and where it came from. It answers io.EOF when
// every block of the run that exists has been handed out. When object storage
// has failed it answers object storage's error.
func (r *Race) Next() (block.Piece, block.Source, error) {
	for r.left.Want != 0 {
		var piece block.Piece
		ev, said := r.wait()
		taken := said && r.take(ev, &piece)
		r.cover()
		if taken {
			return piece, r.source(ev.leg), nil
		}
		if r.left.Want == 0 { // the object has none of the blocks: an answer too
			r.won(ev.leg)
			break
		}
		if err := context.Cause(r.ctx); err != nil {
			r.stats.Winner = NoWinner
			return block.Piece{}, 0, r.finish(err)
		}
		if r.leg[peerLeg].idle() && r.leg[storeLeg].idle() || r.denied() {
			return block.Piece{}, 0, r.finish(r.failure())
		}
	}
	return block.Piece{}, 0, r.finish(io.EOF)
}

// wait returns what a leg says next; false when it is time or the readers that
// spoke. What a leg has said in time counts, however late it is listened to.
func (r *Race) wait() (event, bool) {
	select {
	case ev := <-r.events:
		return ev, true
	default:
	}
	select {
	case ev := <-r.events:
		return ev, true
	case <-r.late:
		r.stalled = true
	case <-r.again:
	case <-r.ctx.Done():
	}
	return event{}, false
}

// take accounts for one event. It reports true when piece is to be handed out.
func (r *Race) take(ev event, piece *block.Piece) bool {
	l := &r.leg[ev.leg]
	switch {
	case ev.ended:
		r.ended(ev)
		return false
	case !r.agrees(ev.meta):
		l.stop(block.ErrChanged)
		r.waste(ev.piece)
		return false
	case ev.piece.Status == block.StatusFilling:
		r.filling, r.answered = true, true
		r.await(r.legs.FillHeadStart)
		return false
	case ev.piece.Status == block.StatusFillTimeout:
		r.unfill()
		return false
	case ev.piece.Status != block.StatusData:
		l.lacks |= 1 << (ev.piece.Index - r.run.First)
		r.answered = false // more of this may come
		return false
	case !r.left.Has(ev.piece.Index):
		r.waste(ev.piece)
		return false
	case r.meta.Known() && len(ev.piece.Buf.Bytes()) != block.Geometry(r.legs.BlockSize).Len(ev.piece.Index, r.meta.Size):
		l.stop(block.ErrCorrupt)
		r.waste(ev.piece)
		return false
	}
	r.left = r.left.Without(ev.piece.Index)
	r.won(ev.leg)
	if ev.leg == peerLeg {
		r.arm()
	}
	// It has answered, so the other leg is needed only for what this one lacks.
	if other := &r.leg[1-ev.leg]; !other.last && r.left.Want&^l.brings() == 0 {
		other.stop(errStopped)
	}
	*piece = ev.piece
	return true
}

// agrees reports whether a leg speaks of the version that the race is about
// (S14). Until a block has been handed out, a race that did not know the object
// believes the last word.
func (r *Race) agrees(meta block.Meta) bool {
	switch {
	case !meta.Known() || r.meta.Known() && meta.Version == r.meta.Version:
		return true
	case !r.meta.Known() || r.open && r.stats.Winner == NoWinner:
		r.learn(meta)
		return true
	}
	// A file that never changes may be named by its ETag as well.
	return meta.Version == block.Immutable || r.meta.Version == block.Immutable
}

// learn cuts the run down to the blocks that the object has.
func (r *Race) learn(meta block.Meta) {
	r.meta = meta
	if r.stats.Winner == NoWinner {
		r.left = r.run
	}
	blocks := block.Geometry(r.legs.BlockSize).Blocks(meta.Size)
	for i := range uint64(block.MaxRun) {
		if r.run.First+i >= blocks {
			r.left = r.left.Without(r.run.First + i)
		}
	}
}

func (r *Race) won(id legID) {
	switch {
	case r.stats.Winner != NoWinner:
	case id == peerLeg:
		r.stats.Winner = PeerWon
	default:
		r.stats.Winner = StoreWon
	}
}

// ended notes the end of a leg.
func (r *Race) ended(ev event) {
	l := &r.leg[ev.leg]
	l.ended = true
	if l.err == nil {
		l.err = ev.err
	}
	l.cancel()
	if ev.leg == storeLeg {
		r.releaseSlot()
		return
	}
	if l.err != nil && r.legs.AskPeers {
		r.leg[storeLeg].stop(l.err) // two nodes could wait for each other's failed GETs
	}
	if l.err != errStopped {
		r.stats.PeerErr = l.err
	}
}

// cover starts the store leg when it is its turn: for all that is left when the
// peer leg won't bring any of it, or has brought nothing for the head start
// (S03); for what the peer lacks as soon as it has answered, be it with a promise
// (S12, S38).
func (r *Race) cover() {
	peer, store := &r.leg[peerLeg], &r.leg[storeLeg]
	hopes := r.left.Want & peer.brings()
	need := r.left.Want
	if !r.stalled {
		need &^= hopes
	}
	if need == 0 || r.ctx.Err() != nil {
		return
	}
	switch {
	case !store.mayStart(need):
		if hopes == 0 && !r.legs.Twin {
			r.recall(need)
		}
	case hopes == 0 && r.legs.Twin:
	case hopes == 0:
		r.start(storeLeg, r.legs.Store, need) // the reader's own: it needs no slot
	case r.legs.Sequential:
	case r.stalled:
		r.hedge(need, r.legs.Budget)
	case (r.answered || r.stats.Winner == PeerWon) && !store.started:
		r.hedge(need, nil)
	}
}

// recall starts the peer leg again, for what it has not said it lacks: it was
// stopped because the store had answered, and the store has failed at the rest.
// That the object is another one by now is no failure but the answer.
func (r *Race) recall(need uint16) {
	peer, store := &r.leg[peerLeg], &r.leg[storeLeg]
	need &^= peer.lacks
	gone := errors.Is(store.err, block.ErrChanged) || errors.Is(store.err, block.ErrNotFound)
	if need == 0 || gone || !store.ended || !peer.started || !peer.mayStart(need) {
		return
	}
	r.filling, r.answered = false, false
	r.start(peerLeg, r.legs.Peer, need)
	r.arm()
}

func (r *Race) source(id legID) block.Source {
	if r.legs.AskPeers {
		return (1 - id).source()
	}
	if r.legs.Twin {
		return block.SourceStore
	}
	return id.source()
}

// hedge starts the store leg beside the peer leg, if budget and slots allow it.
func (r *Race) hedge(need uint16, budget Budget) {
	switch {
	case budget != nil && !budget.Spend():
		r.stats.NoBudget = true
	case r.legs.Slots != nil && !r.legs.Slots.TryAcquire():
		if budget != nil {
			budget.Refund()
		}
		r.stats.NoSlot = true
	default:
		r.slot = r.legs.Slots != nil
		r.stats.Hedged = true
		open := r.legs.Hedge
		if open == nil {
			open = r.legs.Store
		}
		r.start(storeLeg, open, need)
		return
	}
	if r.legs.Again > 0 {
		r.again = time.After(r.legs.Again)
	}
}

func (r *Race) releaseSlot() {
	if r.slot {
		r.slot = false
		r.legs.Slots.Release()
	}
}

// arm starts the head start, anew after each block of the peer.
func (r *Race) arm() {
	r.since = time.Now()
	if r.filling {
		r.await(r.legs.FillHeadStart)
	} else {
		r.await(r.legs.HeadStart)
	}
}

// await gives the peer leg that long from now on; 0 means as long as it takes.
func (r *Race) await(d time.Duration) {
	r.stalled, r.late = false, nil
	if d > 0 {
		r.late = time.After(d)
	}
}

// unfill goes back to the head start that there was before a fill: what the fill
// has taken counts.
func (r *Race) unfill() {
	r.filling, r.answered = false, false
	left := r.legs.HeadStart - time.Since(r.since)
	r.await(left)
	r.stalled = left <= 0
}

// start runs a leg in a goroutine of its own, which ends when its stream does;
// stop and finish end the stream by cancelling the leg's context.
func (r *Race) start(id legID, open Open, want uint16) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	r.leg[id] = leg{cancel: func() { cancel(errStopped) }, started: true, last: r.leg[id].started, asked: want}
	go pump(ctx, id, open, block.Run{First: r.run.First, Want: want}, r.events)
}

// denied reports that object storage has refused the reader before a peer has
// answered: that is the answer then, however fast the peers are (OS-19).
func (r *Race) denied() bool {
	return r.stats.Winner == NoWinner && r.leg[storeLeg].ended && errors.Is(r.leg[storeLeg].err, block.ErrDenied)
}

func (r *Race) failure() error {
	if r.stats.Winner == NoWinner {
		r.stats.Winner = BothFailed
	}
	err := r.leg[storeLeg].err
	if first := r.leg[peerLeg].err; r.legs.Twin && first != nil && first != errStopped {
		err = first // object storage's as well, and said first
	}
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// finish stops both legs. The race has then nothing more to hand out, but its
// legs may still be ending: see Wait.
func (r *Race) finish(err error) error {
	for i := range r.leg {
		r.leg[i].stop(errStopped)
	}
	return err
}

// Wait waits until both legs have ended, gives back what nobody has taken, and
// returns the race's books. Call it once, after Next has returned an error.
func (r *Race) Wait() Stats {
	r.finish(nil)
	for !r.leg[peerLeg].idle() || !r.leg[storeLeg].idle() {
		if ev := <-r.events; ev.ended {
			r.ended(ev)
		} else {
			r.waste(ev.piece)
		}
	}
	return r.stats
}

func (r *Race) waste(p block.Piece) {
	if p.Buf == nil {
		return
	}
	if !p.Shared {
		r.stats.WastedBytes += int64(len(p.Buf.Bytes()))
	}
	p.Buf.Release()
}
