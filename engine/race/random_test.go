package race_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/engine/race"
)

var (
	errGaveUp = errors.New("the reader gave up")
	errPeer   = errors.New("the peer failed")
	errStore  = errors.New("the store failed")
)

// readerPatience is when a reader gives up a race that hangs.
const readerPatience = 10 * time.Second

// scenario is one random race: what is asked for, what both legs will say, and
// what the reader does.
type scenario struct {
	rng  *rand.Rand
	run  block.Run
	meta block.Meta
	// exists are the blocks of run that the object has.
	exists map[uint64]bool
	learns bool
	legs   race.Legs
	slots  *slots
	budget *budget
	lag    time.Duration
	giveUp time.Duration

	hasPeer   bool
	peerMeta  block.Meta
	peerSteps []step
	// promised are the blocks that the peer brings when it is left alone; prompt
	// means all there are, each within the head start.
	promised map[uint64]bool
	prompt   bool
	// broken: what the peer says ends by a fault; silent: by silence.
	broken, silent bool

	store [2]storeLaw
}

// storeLaw is how the store answers one GET.
type storeLaw struct {
	first, each time.Duration
	// stopAfter is how many blocks come before end is said; -1: all, and no end.
	stopAfter int
	end       step
}

func (l storeLaw) healthy() bool { return l.stopAfter < 0 }

func (sc *scenario) pick(ds ...int) time.Duration { return ms(ds[sc.rng.IntN(len(ds))]) }

func (sc *scenario) chance(percent int) bool { return sc.rng.IntN(100) < percent }

func newScenario(seed uint64) *scenario {
	sc := &scenario{rng: rand.New(rand.NewPCG(seed, 1)), promised: map[uint64]bool{}, exists: map[uint64]bool{}}
	sc.run = block.Run{First: uint64(sc.rng.IntN(5)), Want: uint16(sc.rng.Uint32()) | 1}
	if sc.chance(40) { // most real runs are short
		sc.run.Want &= 0b111
	}
	sc.meta = block.Meta{Size: int64(sc.run.First+18) * blockSize, Version: "v1"}
	if sc.learns = sc.chance(40); sc.learns {
		sc.meta.Size = sc.rng.Int64N(sc.meta.Size) / 16 * 16
	}
	for i := range uint64(block.MaxRun) {
		if index := sc.run.First + i; sc.run.Has(index) && block.Geometry(blockSize).Len(index, sc.meta.Size) > 0 {
			sc.exists[index] = true
		}
	}
	sc.legs = race.Legs{HeadStart: sc.pick(0, 5, 20, 100), Sequential: sc.chance(15)}
	if sc.chance(60) {
		sc.slots = &slots{}
		sc.slots.limit.Store(int64(sc.rng.IntN(2)))
		sc.legs.Slots = sc.slots
	}
	if sc.chance(40) {
		sc.budget = allows(sc.rng.Int64N(4))
		sc.legs.Budget, sc.legs.Again = sc.budget, sc.pick(0, 5)
	}
	sc.lag = sc.pick(0, 0, 0, 3, 50)
	sc.giveUp = readerPatience
	if sc.chance(10) {
		sc.giveUp = time.Duration(sc.rng.Int64N(int64(ms(200))))
	}
	sc.peerMeta = sc.meta
	if sc.hasPeer = sc.chance(90); sc.hasPeer {
		sc.writePeer()
	}
	for i := range sc.store {
		sc.store[i] = sc.law()
	}
	return sc
}

// writePeer writes what the peer says: a word for each block, then its end, or
// an end before that.
func (sc *scenario) writePeer() {
	if sc.learns && sc.chance(10) {
		sc.peerMeta.Version = "v0"
	}
	lacking, gap := sc.rng.IntN(60), []int{0, 1, 4, 15, 30, 120}[sc.rng.IntN(6):]
	sc.prompt = sc.peerMeta == sc.meta && sc.legs.HeadStart > 0
	var none, some []step
	for i := range uint64(block.MaxRun) {
		switch index := sc.run.First + i; {
		case !sc.exists[index]:
		case sc.chance(lacking):
			none = append(none, lacks(index, 0))
			sc.prompt = false
		default:
			some = append(some, has(index, sc.pick(gap...)))
			sc.prompt = sc.prompt && some[len(some)-1].after < sc.legs.HeadStart
		}
	}
	sc.peerSteps = append(none, some...)
	if sc.chance(20) { // in any order
		sc.rng.Shuffle(len(sc.peerSteps), func(i, j int) {
			sc.peerSteps[i], sc.peerSteps[j] = sc.peerSteps[j], sc.peerSteps[i]
		})
	}
	if sc.chance(15) {
		sc.legs.FillHeadStart = sc.pick(20, 50)
		sc.peerSteps = slices.Insert(sc.peerSteps, sc.rng.IntN(len(sc.peerSteps)+1), fills(0))
		sc.prompt = sc.prompt && sc.legs.HeadStart <= sc.legs.FillHeadStart
	}
	if sc.chance(40) {
		sc.breakPeer()
	}
	for _, s := range sc.peerSteps {
		if s.status == block.StatusData && sc.exists[s.index] {
			sc.promised[s.index] = true
		}
	}
}

// breakPeer ends what the peer says by a fault.
func (sc *scenario) breakPeer() {
	bad := []step{
		fails(errPeer, sc.pick(0, 10, 300)), fails(io.EOF, sc.pick(0, 10, 300)),
		{after: ms(1), panic: true}, silent(), has(sc.run.First+500, ms(1)),
	}[sc.rng.IntN(5)]
	sc.peerSteps = append(sc.peerSteps[:sc.rng.IntN(len(sc.peerSteps)+1)], bad)
	sc.prompt, sc.broken, sc.silent = false, true, bad.after == silent().after
}

func (sc *scenario) law() storeLaw {
	l := storeLaw{first: sc.pick(0, 5, 30, 200), each: sc.pick(0, 1, 10), stopAfter: -1}
	if sc.chance(35) {
		l.stopAfter = sc.rng.IntN(3)
		l.end = []step{fails(errStore, ms(5)), fails(io.EOF, ms(5)), {after: ms(5), panic: true}}[sc.rng.IntN(3)]
	}
	return l
}

// play runs the race.
func (sc *scenario) play(t *testing.T, b *books) (out outcome, peer, store *script) {
	b.lag = sc.lag
	if sc.hasPeer {
		peer = &script{books: b, meta: sc.peerMeta, steps: sc.peerSays}
	}
	served := serves(b, 0, 0)
	store = &script{books: b, meta: sc.meta}
	store.steps = func(run block.Run) []step {
		law := sc.store[min(len(store.opened), len(sc.store))-1]
		served = serves(b, law.first, law.each)
		served.meta = sc.meta
		steps := served.steps(run)
		if !law.healthy() {
			steps = append(steps[:min(law.stopAfter, len(steps))], law.end)
		}
		return steps
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), sc.giveUp, errGaveUp)
	defer cancel()
	meta := sc.meta
	if sc.learns {
		meta = block.UnknownMeta("")
	}
	return run(t, ctx, sc.run, meta, sc.legs, peer, store), peer, store
}

// peerSays is what the peer says of run: its faults whatever it is asked for.
func (sc *scenario) peerSays(run block.Run) (said []step) {
	for _, st := range sc.peerSteps {
		block := st.err == nil && !st.panic && st.status != block.StatusFilling && sc.exists[st.index]
		if !block || run.Has(st.index) {
			said = append(said, st)
		}
	}
	return said
}

// check compares a race with what its scenario promises.
func (sc *scenario) check(out *outcome, peer, store *script) error {
	seen := map[uint64]bool{}
	for _, g := range out.blocks {
		if seen[g.index] || !sc.exists[g.index] {
			return fmt.Errorf("block %d came twice, or does not exist", g.index)
		}
		if seen[g.index] = true; g.source == peerSrc && !sc.promised[g.index] {
			return fmt.Errorf("block %d came from a peer that never gave it", g.index)
		}
	}
	healthy := sc.store[0].healthy() && sc.store[1].healthy()
	dead := sc.store[0].stopAfter == 0 && sc.store[1].stopAfter == 0
	hedges := sc.hasPeer && !sc.legs.Sequential && (sc.slots == nil || sc.slots.limit.Load() > 0) &&
		(sc.budget == nil || sc.budget.left.Load() > 0)
	mixed := sc.hasPeer && sc.peerMeta != sc.meta
	switch {
	case out.err == io.EOF && len(seen) != len(sc.exists):
		if !mixed || sc.learns && out.meta.Size != sc.meta.Size {
			return fmt.Errorf("the race ended well with %d of %d blocks", len(seen), len(sc.exists))
		}
	case out.err == io.EOF:
	case out.err == errGaveUp:
		if sc.giveUp == readerPatience && (!sc.silent || hedges && healthy && !mixed && sc.legs.HeadStart > 0) {
			return errors.New("the race hung until its reader gave up")
		}
	case !sc.broken && !mixed && len(sc.promised) == len(sc.exists):
		return fmt.Errorf("error %w although the peer has all", out.err)
	case healthy && !(mixed && out.err == block.ErrChanged):
		return fmt.Errorf("error %w although the store can bring all", out.err)
	case len(seen) == len(sc.exists) && len(seen) > 0:
		return fmt.Errorf("error %w although every block was handed out", out.err)
	case len(store.opened) == 0:
		return fmt.Errorf("error %w although the store was not asked", out.err)
	case dead && !mixed && len(seen) != len(sc.promised):
		return fmt.Errorf("%d blocks, but the peer had %d and was not stopped", len(seen), len(sc.promised))
	}
	return errors.Join(sc.checkStats(out), sc.checkLegs(out, peer, store))
}

// checkStats: each race has one winner, or none when its reader gave it up.
func (sc *scenario) checkStats(out *outcome) error {
	want := race.BothFailed
	switch {
	case out.err == errGaveUp:
		want = race.NoWinner
	case len(out.blocks) == 0 && out.err == io.EOF:
		want = out.stats.Winner // whoever spoke first
		if want != race.PeerWon && want != race.StoreWon {
			return fmt.Errorf("winner %d of a race for an object without the blocks", want)
		}
	case len(out.blocks) > 0 && out.blocks[0].source == peerSrc:
		want = race.PeerWon
	case len(out.blocks) > 0:
		want = race.StoreWon
	}
	if out.stats.Winner != want {
		return fmt.Errorf("winner %d, want %d", out.stats.Winner, want)
	}
	return nil
}

// checkLegs: TestPR17, a bound on attempts; nothing is fetched that is there.
func (sc *scenario) checkLegs(out *outcome, peer, store *script) error {
	switch {
	case peer != nil && (len(peer.opened) < 1 || len(peer.opened) > 2), len(store.opened) > 2:
		return fmt.Errorf("%d store legs", len(store.opened))
	case peer != nil && len(peer.opened) == 2 && (len(store.opened) == 0 || sc.store[len(store.opened)-1].healthy()):
		return errors.New("the peer was asked again beside a healthy store")
	case sc.prompt && len(store.opened) > 0 && out.err == io.EOF:
		return fmt.Errorf("the store was asked %v beside a peer that was in time", store.opened[0])
	case out.stats.Hedged && (sc.legs.Sequential || !sc.hasPeer):
		return errors.New("hedged what must not be")
	case sc.budget == nil && out.stats.NoBudget:
		return errors.New("a budget that is not there has refused")
	case sc.budget != nil && sc.budget.left.Load() < 0:
		return errors.New("more hedges than allowed")
	case sc.slots != nil && sc.slots.used.Load() != 0:
		return errors.New("a slot was not given back")
	}
	for _, o := range store.opened {
		for _, g := range out.blocks {
			if g.at < o.at && o.run.Has(g.index) {
				return fmt.Errorf("the store was asked for block %d at %v, which came at %v", g.index, o.at, g.at)
			}
		}
	}
	return nil
}

// TestPR17_RandomRaces: a failing seed is replayed by -run 'RandomRaces/seed=N$'.
func TestPR17_RandomRaces(t *testing.T) {
	for seed := range uint64(3000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, b *books) {
				sc := newScenario(seed)
				out, peer, store := sc.play(t, b)
				if err := sc.check(&out, peer, store); err != nil {
					t.Errorf("%v\nrace: %v, %d blocks, %+v, %+v\npeer: %v\nstore: %+v", err,
						sc.run, len(sc.exists), sc.legs, out, sc.peerSteps, sc.store)
				}
			})
		})
	}
}
