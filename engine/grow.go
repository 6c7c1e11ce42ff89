package engine

import (
	"strings"
	"time"

	"headstart/engine/block"
	"headstart/engine/flight"
	"headstart/engine/object"
	"headstart/shards"
)

// grow lets the task's GET bring neighbours along that are likely to be asked
// for soon (S39). They become flights that any reader can join, and blocks of
// the cache; a GET that its readers give up is given up all the same.
func (t *task) grow() {
	e, base, span := t.e, t.known.Base, t.req.Run
	blocks := e.geometry.Blocks(t.known.Meta.Size)
	wish := e.growth.Grow(base, span, blocks, e.getMaxBlocks(), time.Since(e.began))
	if wish == span {
		return
	}
	var flights [block.MaxRun]*flight.Flight
	for i, f := range t.flights {
		if f != nil {
			flights[span.First+uint64(i)-wish.First] = f
		}
	}
	t.flights, t.req.Run = flights, wish
	for index := span.First; index > wish.First; index-- {
		if !t.carry(index - 1) {
			t.cut(wish.First, index)
			break
		}
	}
	end := wish.First + uint64(wish.Count())
	for index := span.First + uint64(span.Count()); index < end; index++ {
		if !t.carry(index) {
			t.cut(index, end)
			break
		}
	}
	t.extra = block.Run{First: wish.First, Want: t.req.Run.Want &^ (span.Want << (span.First - wish.First))}
}

// carry adds block index to the task unless it is cached or on its way.
func (t *task) carry(index uint64) bool {
	id := t.known.Base.At(index)
	if lease, ok := t.e.Cache.Peek(id); ok {
		lease.Release()
		return false
	}
	f := t.mode.flights.Carry(id, t.fetch)
	t.flights[index-t.req.Run.First] = f
	return f != nil
}

// cut takes the blocks from first to end out of the task again.
func (t *task) cut(first, end uint64) {
	out := block.NewRun(first, int(end-first))
	t.e.growth.Return(t.known.Base, out)
	t.req.Run.Want &^= out.Want << (first - t.req.Run.First)
}

// foresee brings the rest of a small object along with its end, when that is what
// the mode's read misses: a footer. It goes by the read as it was asked for, not by
// its blocks, or every read of the last block were one. What peers can give is not
// worth a guess.
func (e *Engine) foresee(m mode, req *block.Fetch, known *object.Known) {
	read, size := m.read, known.Meta.Size
	if read == nil || m.peers || read.ForPeer || read.Size >= e.BlockSize {
		return
	}
	rng, ok := e.clamp(read, 0, size)
	if !ok || rng.End != size || size-rng.Offset >= e.BlockSize || m.looking && e.Table.Candidates(read.Route).State() == shards.Ready {
		return
	}
	m.read, m.looking = nil, false
	span := block.NewRun(rng.First, int(rng.Count))
	for _, run := range e.growth.Rest(known.Base, span, e.geometry.Blocks(size), e.getMaxBlocks(), time.Since(e.began)) {
		e.bring(m, req, known, run)
	}
}

// used notes that a read has found a block in the cache or on its way. One that came
// along may be half of what a scan has before it: then the next GET starts. It costs
// nothing as long as there are none.
func (e *Engine) used(read *block.Read, known *object.Known, index uint64) {
	if e.growth.Used(known.Base, index) {
		e.readAhead(read, known, index)
	}
}

func (e *Engine) readAhead(read *block.Read, known *object.Known, index uint64) {
	if read.ForPeer {
		return
	}
	run := e.growth.Ahead(known.Base, index, e.geometry.Blocks(known.Meta.Size), e.getMaxBlocks(), time.Since(e.began))
	if run.Want == 0 {
		return
	}
	req := block.Fetch{
		Object: read.Object, Meta: known.Meta, BlockSize: e.BlockSize, Route: read.Route, Kind: read.Kind, Queue: read.Queue, QueryID: read.QueryID,
	}
	// A hit's names are borrowed.
	req.Object.Bucket, req.Object.Key = strings.Clone(read.Object.Bucket), strings.Clone(read.Object.Key)
	if req.Route == (block.Route{}) { // nor has it looked for one
		req.Route = block.ExternalRoute(req.Object)
	}
	if e.asksPeers(read.NoPeer, req.Route) && e.Table.Candidates(req.Route).State() == shards.Ready {
		e.growth.Return(known.Base, run)
		return
	}
	e.bring(mode{flights: e.gets, query: e.Profiles.Get(read.QueryID)}, &req, known, run)
}

// bring starts the GET of a run that nobody waits for yet, up to the first block
// that is there already or on its way.
func (e *Engine) bring(m mode, req *block.Fetch, known *object.Known, run block.Run) {
	part := *req
	part.Run, part.Meta = run, known.Meta
	t := e.newTask(m, &part, known)
	for end, index := run.First+uint64(run.Count()), run.First; index < end; index++ {
		if !t.carry(index) {
			t.cut(index, end)
			break
		}
	}
	if t.extra = t.req.Run; t.extra.Want != 0 {
		t.run()
	}
}
