package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"headstart/blockcache"
	"headstart/engine/block"
	"headstart/engine/flight"
	"headstart/engine/object"
	"headstart/engine/plan"
	"headstart/engine/profile"
	"headstart/engine/race"
	"headstart/engine/timeline"
	"headstart/shards"
)

// mode is how the misses of a read are fetched.
type mode struct {
	// flights is the table that the read joins: Engine.races when a peer may be
	// asked, else Engine.gets.
	flights *flight.Table
	peers   bool
	// twin: a GET that is late may get a second one. So it is for GETs that hedge
	// a late peer; all others are left as they are.
	twin bool
	// asked are the candidates: those of a race, or those that a GET which is late
	// asks whether one of them has the block by now.
	asked shards.Snapshot
	// missed is set by the first run of the read that all of asked lack.
	missed *atomic.Bool
	// owner is asked to fill, as a peer of the fill group is.
	owner block.Addr
	query *profile.Query
	// trace is the timeline of the read, nil for none.
	trace *timeline.Read
	// read is what the misses are of, nil for the store leg of a race. looking: the
	// FE is asked for candidates meanwhile, so what may come along is decided when
	// the first block has come.
	read    *block.Read
	looking bool
	// spare, when not nil, is how a read goes on that object storage has failed.
	spare *mode
}

// decide looks whom a read that misses may ask. Without candidates it goes to
// object storage, and the FE is asked behind it (S02).
func (e *Engine) decide(req *block.Read, query *profile.Query, trace *timeline.Read) mode {
	alone := mode{flights: e.gets, read: req, query: query, trace: trace}
	if !e.asksPeers(req.NoPeer, req.Route) {
		return alone
	}
	snap := e.Table.Candidates(req.Route)
	trace.Mark(timeline.Candidates, block.Run{}, snap.Len(), known(snap.State()))
	switch snap.State() {
	case shards.Empty:
		e.count.lazyFetch.Add(1)
		query.AddLazyFetch()
		e.lookUp(req.Route, query)
		alone.looking = e.Directory != nil
	case shards.Ready:
		return mode{flights: e.races, peers: true, asked: snap, missed: new(atomic.Bool), owner: req.Owner, query: query, trace: trace}
	case shards.Cooldown:
		alone.asked = snap
	case shards.Slow:
		// All of them lose their races: they are asked when object storage fails (S37).
		alone.spare = &mode{flights: e.races, peers: true, asked: snap, missed: new(atomic.Bool), owner: req.Owner, query: query, trace: trace}
	}
	return alone
}

// asksPeers reports whether a read asks peers, if there are any.
func (e *Engine) asksPeers(noPeer bool, route block.Route) bool {
	return !noPeer && e.Peers != nil && e.Settings.EnableCacheReadFromPeer.Load() &&
		(route.Kind != block.RouteExternal || e.Settings.EnableExternalPeerRead.Load())
}

// known says in a timeline what is known of peers.
func known(s shards.State) string {
	switch s {
	case shards.Empty:
		return "none known: the FE is asked behind the read"
	case shards.Ready:
		return "ready"
	case shards.Slow:
		return "all slow: object storage first"
	}
	return "in cooldown: object storage only"
}

// fetch starts the work behind led flights, whose blocks rise. req is a
// template: each run gets a copy of its own.
func (e *Engine) fetch(m mode, req *block.Fetch, known *object.Known, led []*flight.Flight) {
	indexes := make([]uint64, len(led))
	for i, f := range led {
		indexes[i] = f.ID().Index
	}
	runs := plan.Runs(indexes, block.MaxRun)
	if !m.peers {
		var spans []block.Run
		for _, run := range runs {
			spans = append(spans, plan.Spans(run, e.getMaxBlocks())...)
		}
		runs = spans
	}
	for _, run := range runs {
		part := *req
		part.Run = run
		t := e.newTask(m, &part, known)
		for range run.Count() {
			t.flights[led[0].ID().Index-run.First] = led[0]
			t.fetch.Lead(led[0])
			led = led[1:]
		}
		if !m.peers {
			t.grow()
		}
		t.run()
	}
}

func (e *Engine) getMaxBlocks() int {
	return max(1, min(int(e.Settings.ObjectStorageGetMaxBlocks.Load()), block.MaxRun))
}

// task is one run on its way: it drives a race and lands its blocks.
type task struct {
	e       *Engine
	fetch   *flight.Fetch
	mode    mode
	req     *block.Fetch
	known   *object.Known
	started time.Time
	// flights[i] is the flight of block Run.First+i, nil when there is none. Those
	// of extra come along with the others, for nobody yet (S39).
	flights [block.MaxRun]*flight.Flight
	extra   block.Run
	// learning is set until the object is known.
	learning *flight.Flight

	leg  *peerLeg
	race *race.Race
	// direct: the store leg is this task's own GET, not a share in others.
	direct bool
	raced  bool
	// landed: the first block has come, and a timeline knows whose it was.
	landed bool
	err    error
}

func (e *Engine) newTask(m mode, req *block.Fetch, known *object.Known) *task {
	return &task{
		e: e, fetch: flight.NewFetch(context.Background()), mode: m, req: req, known: known,
		started: time.Now(), err: flight.ErrRetry,
	}
}

// run starts the task. Its goroutine ends with its race, when nobody waits for
// its flights any more, or with the engine.
func (t *task) run() {
	if !t.e.start(t.drive) {
		t.err = t.wrap(errClosed)
		t.end()
	}
}

// drive runs the race to its end. Whatever happens, every flight of the task is
// over when it returns.
func (t *task) drive() {
	defer t.end()
	defer context.AfterFunc(t.e.ctx, t.fetch.End)()
	t.start()
	for {
		piece, src, err := t.race.Next()
		if err != nil {
			t.finish(err)
			return
		}
		res := t.result(piece, src)
		if t.mode.peers && !t.landed {
			t.landed = true
			t.mode.trace.Mark(timeline.Winner, t.req.Run, 0, src.String())
		}
		if t.known == nil {
			if !t.learn(t.race.Meta(), piece, res) {
				piece.Buf.Release()
				t.finish(errors.New("the reply does not say what the object is"))
				return
			}
			piece.Buf.Release()
			continue
		}
		t.land(piece, res)
	}
}

// start starts the race: with peers if the read may ask them, as a sequence if
// races are switched off or too many run (S07).
func (t *task) start() {
	e := t.e
	var asked shards.Snapshot // those whose pace decides what the race may spend
	if t.mode.peers {
		asked = t.mode.asked
	}
	spender := e.spender(asked, t.started)
	if !t.mode.twin { // a race's store leg is a part of what has earned already
		spender.budget.earn(e.Settings.PeerRaceHedgeBudgetPercent.Load())
	}
	legs := race.Legs{Store: t.get, BlockSize: e.BlockSize, Again: hedgeAgain}
	t.direct = !t.mode.peers
	if t.mode.peers {
		t.raced = e.Settings.EnablePeerS3Race.Load() && e.Races.TryAcquire()
		if !t.raced {
			e.count.raceSequential.Add(1)
		}
		t.leg = &peerLeg{e: e, req: t.req, mode: &t.mode}
		legs.Peer = t.leg.open
		legs.Sequential = !t.raced
		legs.HeadStart, legs.FillHeadStart = e.headStart(t.mode.asked), e.patience()
		legs.Slots = e.RaceGets
		if e.Settings.EnableAdaptivePeerRaceHedge.Load() {
			legs.Budget = spender
		}
		if t.known == nil {
			legs.Store = t.shareLearning
		} else {
			legs.Store, legs.Hedge = t.shareGets(false), t.shareGets(true)
		}
	}
	if delay, ok := e.twinDelay(); ok && t.mode.twin {
		legs.Peer, legs.Twin, legs.HeadStart = t.get, true, delay
		legs.Budget = spender
	} else if t.direct && !t.mode.twin && t.known != nil && t.mode.asked.Len() > 0 {
		t.leg = &peerLeg{e: e, req: t.req, mode: &t.mode, aside: true}
		legs.Peer, legs.Twin, legs.AskPeers, legs.HeadStart = t.get, true, true, lateGet
		legs.Store = t.leg.open
	}
	if t.mode.trace != nil {
		legs.Hedge = t.traced(legs.Hedge, legs.Store)
	}
	t.race = race.Start(t.fetch.Context(), t.req.Run, t.req.Meta, legs)
}

// traced returns the hedge of a race, or what stands for it, as one that tells
// the timeline when it starts.
func (t *task) traced(hedge, store race.Open) race.Open {
	if hedge == nil {
		hedge = store
	}
	return func(ctx context.Context, run block.Run) (block.Stream, error) {
		t.mode.trace.Mark(timeline.Hedge, run, 0, "")
		return hedge(ctx, run)
	}
}

// result describes a piece for those who wait for it.
func (t *task) result(piece block.Piece, src block.Source) flight.Result {
	res := flight.Result{Buf: piece.Buf, Index: piece.Index, Source: src, Took: time.Since(t.started)}
	if src == block.SourcePeer {
		if c := t.leg.served.Load(); c != nil {
			res.Peer, res.SameGroup = c.Addr, c.GroupID == t.e.GroupID
		}
	}
	return res
}

// land offers a block to the cache, then wakes its waiters: a reader that comes
// between the two finds one or the other. It takes over the piece's reference.
func (t *task) land(piece block.Piece, res flight.Result) {
	if res.Source == block.SourcePeer || t.direct {
		t.keep(piece)
	}
	if t.mode.looking {
		t.e.foresee(t.mode, t.req, t.known)
		t.mode.looking = false
	}
	i := piece.Index - t.req.Run.First
	size := int64(len(piece.Buf.Bytes()))
	f := t.flights[i]
	if f == nil {
		piece.Buf.Release()
		t.waste(piece, size)
		return
	}
	if !f.Land(res) {
		t.waste(piece, size)
	} else if t.extra.Has(piece.Index) {
		t.e.count.carriedBytes.Add(size)
	}
	t.extra = t.extra.Without(piece.Index)
	t.flights[i] = nil
}

// waste counts a block that nobody here needs.
func (t *task) waste(piece block.Piece, size int64) {
	if !piece.Shared {
		t.e.count.wastedBytes.Add(size)
	}
}

// keep offers a block to the cache, which takes a reference of its own or says no.
func (t *task) keep(piece block.Piece) {
	t.e.Cache.Offer(&blockcache.Entry{
		Object: t.req.Object, Meta: t.known.Meta, ID: t.known.Base.At(piece.Index), Queue: t.req.Queue, Route: t.req.Route, Fill: t.req.ForPeer,
	}, piece.Buf)
}

// finish notes why the race ended. io.EOF means that all there is has landed.
func (t *task) finish(err error) {
	if err == io.EOF {
		if t.known == nil && t.learn(t.race.Meta(), block.Piece{}, flight.Result{}) {
			return // an object without a byte where the read begins
		}
		err = io.ErrUnexpectedEOF
	}
	switch {
	case t.e.ctx.Err() != nil:
		err = errClosed
	case errors.Is(err, context.Canceled):
		err = flight.ErrRetry // nobody waits any more
	case errors.Is(err, race.ErrPanic):
		t.e.panicked(t.req.Object, err)
		err = flight.ErrRetry // one of the waiters takes over
	}
	t.err = t.wrap(err)
}

func (e *Engine) panicked(o block.Object, err error) {
	e.count.panics.Add(1)
	e.Logger.Error("fetch panicked", "object", o.String(), "error", err)
}

// wrap makes err a *block.Error, once.
func (t *task) wrap(err error) error {
	var typed *block.Error
	if errors.Is(err, flight.ErrRetry) || errors.As(err, &typed) {
		return err
	}
	return &block.Error{Op: "read", Object: t.req.Object, Source: block.SourceStore, Err: err}
}

// end lands what has not come, waits for the legs and closes the books. A panic
// on the way is an error of this fetch alone: the next reader tries again.
func (t *task) end() {
	if p := recover(); p != nil {
		t.e.panicked(t.req.Object, fmt.Errorf("panic: %v", p))
	}
	if t.learning != nil {
		t.learning.Land(flight.Result{Err: t.err})
	}
	for i, f := range t.flights {
		if f != nil {
			f.Land(flight.Result{Err: t.err})
			t.flights[i] = nil
		}
	}
	if t.extra.Want != 0 {
		t.e.growth.Return(t.known.Base, t.extra)
	}
	t.fetch.End()
	if t.race == nil {
		return
	}
	stats := t.race.Wait()
	if errors.Is(stats.PeerErr, race.ErrPanic) {
		t.e.panicked(t.req.Object, stats.PeerErr)
	}
	if t.raced {
		t.e.Races.Release()
	}
	if t.leg != nil && t.leg.aside {
		t.e.count.addAside(&stats)
	}
	raced := t.raced && t.leg.sent
	t.e.count.addRace(stats, raced)
	if stats.NoSlot || stats.NoBudget {
		t.mode.trace.Mark(timeline.Hedge, t.req.Run, 0, refusal(stats))
	}
	if raced && (stats.Winner == race.PeerWon || stats.Winner == race.StoreWon) {
		t.mode.query.AddRace(stats.Winner == race.PeerWon)
		t.noteRace(stats.Winner == race.PeerWon)
	}
}

// refusal says in a timeline why a hedge that was due did not start at once.
func refusal(s race.Stats) string {
	if s.NoSlot {
		return "was refused for a while: all of max_peer_race_s3_thread_num in use"
	}
	return "was refused for a while: peer_race_hedge_budget_percent used up"
}
