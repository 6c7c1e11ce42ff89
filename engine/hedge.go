package engine

import (
	"sync/atomic"
	"time"

	"headstart/shards"
)

// The numbers of hedging; bench/hedge has the figures that chose them. The peer
// quantile is what the budget can pay for: a little under one call in twenty is
// hedged. The twin of a late GET comes too late to help the 99.9th percentile,
// so it waits for the rare GET that hangs, and leaves the budget to hedges.
const (
	peerQuantile = 0.951
	getQuantile  = 0.98
	fillQuantile = 0.95
	// minHeadStart keeps a hedge from starting on the noise of a local network.
	minHeadStart = time.Millisecond
	// fillPatience is how long the first fills may take, before any has told.
	fillPatience = 250 * time.Millisecond
	// lateGet is when a GET that has brought nothing asks the candidates whether one
	// of them has the block by now, or gets it: later than nearly all GETs of object
	// storage that is well.
	lateGet = 250 * time.Millisecond
	// sourcePatience is how long the source of a rebalance may take before it is a
	// suspect.
	sourcePatience = 250 * time.Millisecond
	// hedgeAgain is how soon a refused hedge asks once more.
	hedgeAgain = 5 * time.Millisecond
	// budgetBurst is how many extra GETs may be ahead of the budget: as many as
	// races that a peer's sudden silence can catch.
	budgetBurst = 64
)

// budget bounds the GETs that start only because somebody is late. Each fetch
// earns a part of one, each extra GET spends one; in a broad slowdown, when all
// are late, hedging stops at what has been earned.
type budget struct {
	// milli is in thousandths of a GET, from -burst to +burst. Its writers add to
	// it and cut it back; a reader may conclude how many are left at this moment.
	milli atomic.Int64
}

const (
	oneGet    = 1000
	burstGets = budgetBurst * oneGet
)

// earn adds percent of a GET.
func (b *budget) earn(percent int64) {
	for {
		now := b.milli.Load()
		sum := min(now+percent*oneGet/100, burstGets)
		if sum == now || b.milli.CompareAndSwap(now, sum) {
			return
		}
	}
}

// take spends one GET. Forced takes go into debt, which later ones pay back; at
// the limit of debt they are allowed and not charged.
func (b *budget) take(forced bool) (allowed, charged bool) {
	for {
		now := b.milli.Load()
		if now < oneGet && (!forced || now <= -burstGets) {
			return forced, false
		}
		if b.milli.CompareAndSwap(now, now-oneGet) {
			return true, true
		}
	}
}

// spender is the budget as one race sees it (race.Budget). A peer that has
// never answered, or not lately, is no late peer but a suspect: hedging it is
// not refused, only charged.
//
// The source of a rebalance was greeted before its first read (S84), so it is no
// suspect until it has been silent for sourcePatience. Readers storm it, its
// answers are late because of them, and GETs beside those add to the storm: they
// have a budget of their own, which begins with nothing.
type spender struct {
	e      *Engine
	budget *budget
	asked  shards.Snapshot
	// source: the race begins with the source of a rebalance. began is when it did.
	source bool
	began  time.Time
	// charged is what the last Spend has cost, for Refund.
	charged bool
}

// spender returns the budget of a race that is about to begin with a candidate of
// asked.
func (e *Engine) spender(asked shards.Snapshot, began time.Time) *spender {
	s := &spender{e: e, budget: &e.budget, asked: asked, began: began}
	if c, ok := e.chosen(asked); ok && e.Breakers.Vouched(c.Addr) {
		s.budget, s.source = &e.sourceBudget, true
	}
	return s
}

// Spend implements race.Budget.
func (s *spender) Spend() (allowed bool) {
	forced := false
	if c, ok := s.e.chosen(s.asked); ok {
		if s.source {
			forced = time.Since(s.began) >= sourcePatience || s.e.Breakers.Quiet(c.Addr, sourcePatience)
		} else {
			_, known := s.e.Breakers.Quantile(c.Addr, peerQuantile)
			forced = !known || s.e.Breakers.Quiet(c.Addr, 0)
		}
	}
	allowed, s.charged = s.budget.take(forced)
	return allowed
}

// Refund implements race.Budget.
func (s *spender) Refund() {
	if s.charged {
		s.charged = false
		s.budget.milli.Add(oneGet)
	}
}

// chosen returns the candidate that a race will begin with: the first one that
// may be asked now.
func (e *Engine) chosen(asked shards.Snapshot) (shards.Candidate, bool) {
	for i := range asked.Len() {
		if c := asked.At(i); e.mayAsk(&c) && !e.Breakers.Refuses(c.Addr) {
			return c, true
		}
	}
	return shards.Candidate{}, false
}

// headStart returns how long the chosen candidate may go without an answer: its
// live quantile, never more than the configured head start (S36).
func (e *Engine) headStart(asked shards.Snapshot) time.Duration {
	most := time.Duration(e.Settings.PeerRaceHedgeDelayMS.Load()) * time.Millisecond
	if !e.Settings.EnableAdaptivePeerRaceHedge.Load() {
		return most
	}
	if c, ok := e.chosen(asked); ok {
		if q, ok := e.Breakers.Quantile(c.Addr, peerQuantile); ok {
			return min(most, max(q, minHeadStart))
		}
	}
	return most
}

// patience returns how long a fill may take before object storage is asked
// beside it (S38): as long as a GET of our own may take as well, or a cluster
// whose object storage is slow would GET all blocks twice (BP-09).
func (e *Engine) patience() time.Duration {
	patience := fillPatience
	if q, ok := e.fillLatency.Quantile(fillQuantile); ok {
		patience = max(q, time.Duration(e.Settings.PeerRaceHedgeDelayMS.Load())*time.Millisecond)
	}
	get, _ := e.getLatency.Quantile(fillQuantile)
	return max(patience, get)
}

// twinDelay returns when a GET that has brought nothing is late, if that is
// known.
func (e *Engine) twinDelay() (time.Duration, bool) {
	if !e.Settings.EnableAdaptivePeerRaceHedge.Load() {
		return 0, false
	}
	return e.getLatency.Quantile(getQuantile)
}

// observeGet remembers how long a GET took to bring its first block.
func (e *Engine) observeGet(began time.Time) {
	now := time.Now()
	e.getLatency.Observe(now.Sub(began))
	e.count.storeLatency.Observe(now, now.Sub(began))
}

// noteRace tells the breakers how the candidate that the leg began with did, if
// it was its pace that decided (S37).
func (t *task) noteRace(peerWon bool) {
	if t.leg.waited {
		return // it was as fast as object storage, which it had to read itself
	}
	if c := t.leg.first; peerWon && c != nil {
		t.e.Breakers.NoteRace(c.Addr, true)
		return
	}
	if t.leg.late != nil {
		t.e.Breakers.NoteRace(*t.leg.late, false)
	}
}
