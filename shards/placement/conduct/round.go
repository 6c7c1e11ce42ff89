package conduct

import (
	"context"
	"slices"
	"time"

	"headstart/shards/placement"
)

// batch is buckets of a round or a job that are warmed up together.
type batch struct {
	buckets placement.Buckets
	moves   int
	parts   []*part
	started time.Time
	// switched is set once the batch's tablets are to go by the new side.
	switched bool
}

// all reports whether all parts satisfy is.
func (b *batch) all(is func(*part) bool) bool {
	return !slices.ContainsFunc(b.parts, func(p *part) bool { return !is(p) })
}

// round is a round of balance under way.
type round struct {
	placement.RoundView
	batches []*batch
	// taken are the buckets that are in batches, or to be switched, or switched;
	// next is where the next batch is looked for.
	taken placement.Buckets
	next  int
	// switching and counts are what the Directory is to be told.
	switching placement.Buckets
	counts    placement.RoundCounts
	told      time.Time
}

// stepRounds takes every round as far as it goes now.
func (c *Conductor) stepRounds(ctx context.Context, now time.Time) {
	for _, groupID := range c.directory.DueGroups() {
		if _, err := c.directory.StartRound(ctx, groupID); err != nil && !lost(err) {
			return
		}
	}
	under := make(map[string]bool)
	for _, view := range c.directory.Rounds() {
		under[view.GroupID] = true
		r := c.rounds[view.GroupID]
		if r == nil || !r.Started.Equal(view.Started) {
			r = &round{taken: view.Switched}
			c.rounds[view.GroupID] = r
		}
		r.RoundView = view
		c.stepRound(ctx, r, now)
	}
	for id, r := range c.rounds {
		if !under[id] {
			c.forget(r)
		}
	}
}

func (c *Conductor) forget(r *round) {
	for _, b := range r.batches {
		c.release(b.parts, false)
	}
	delete(c.rounds, r.GroupID)
}

func (c *Conductor) stepRound(ctx context.Context, r *round, now time.Time) {
	if r.Unheard {
		return
	}
	if !r.Counted { // who began it was stopped before it had counted
		if err := c.directory.CountRound(ctx, &r.Round); err != nil {
			return
		}
	}
	for _, id := range r.Silent {
		c.sendBack(ctx, r, id, "it is silent")
	}
	for _, b := range slices.Clone(r.batches) {
		c.settle(ctx, r, b, now)
	}
	if r.Moving {
		c.fill(r, now)
	}
	saved := c.save(ctx, r, now)
	through := r.Switched.Len() == placement.BucketCount && (len(r.batches) == 0 || r.Waited)
	if saved && (through || !r.Moving) {
		if err := c.directory.EndRound(ctx, &r.Round); err == nil || lost(err) {
			c.forget(r)
		}
	}
}

// settle looks at a batch: whether it is to be switched, and whether it is over.
func (c *Conductor) settle(ctx context.Context, r *round, b *batch, now time.Time) {
	late := r.Type != placement.SyncWarmup && now.Sub(b.started) >= r.Timeout
	for _, p := range b.parts {
		switch {
		case p.counted || !p.ended() && !late:
			continue
		case p.state == warm:
			r.counts.Warm += p.tablets()
		case r.Type == placement.SyncWarmup && c.sendBack(ctx, r, p.BackendID, p.err):
			c.giveBack(r, b)
			return
		case p.state == failed:
			r.counts.Failed += p.tablets()
		default:
			r.counts.TimedOut += p.tablets()
		}
		p.counted = true
	}
	over := b.all(func(p *part) bool { return p.counted })
	known := func(p *part) bool { return p.state != fresh || p.counted }
	if !b.switched && (over || r.Type == placement.PeerReadAsyncWarmup && b.all(known)) {
		b.switched = true
		r.switching.AddAll(&b.buckets)
		r.counts.Moved += b.moves
	}
	if over {
		c.release(b.parts, false)
		r.batches = slices.DeleteFunc(r.batches, func(other *batch) bool { return other == b })
	}
}

// sendBack leaves a backend that joins out of the round. It reports whether
// that is so now: a backend that was a member before can't be left out.
func (c *Conductor) sendBack(ctx context.Context, r *round, id int64, why string) bool {
	if !slices.Contains(r.Joining, id) {
		return false
	}
	err := c.directory.SendBack(ctx, id, why)
	return err == nil || lost(err)
}

// giveBack plans the buckets of a batch anew, without a backend that was sent
// back.
func (c *Conductor) giveBack(r *round, b *batch) {
	c.release(b.parts, true)
	r.batches = slices.DeleteFunc(r.batches, func(other *batch) bool { return other == b })
	for i, word := range b.buckets {
		r.taken[i] &^= word
	}
	r.next = 0
}

// fill makes batches of what is left, as many as may be under way.
func (c *Conductor) fill(r *round, now time.Time) {
	waiting := 0
	for _, b := range r.batches {
		if !b.switched {
			waiting++
		}
	}
	for waiting < c.options.MaxBatches && r.next < placement.BucketCount {
		buckets, moves, next := c.directory.Moves(r.GroupID, r.next, c.options.BatchTablets, &r.taken)
		if next == r.next {
			return // nobody to be handed out
		}
		r.next = next
		r.taken.AddAll(&buckets)
		b := &batch{buckets: buckets, moves: len(moves), parts: c.give(placement.MoveParts(moves)), started: now}
		if len(b.parts) == 0 {
			r.switching.AddAll(&buckets)
			r.counts.Moved += len(moves)
			continue
		}
		r.batches = append(r.batches, b)
		waiting++
	}
}

// save tells the Directory what is to be switched, at once, and the counts, now
// and then. It reports whether the Directory knows all that is to be switched.
func (c *Conductor) save(ctx context.Context, r *round, now time.Time) bool {
	none := r.switching == placement.Buckets{}
	if none && (r.counts == placement.RoundCounts{} || now.Sub(r.told) < pollEvery) {
		return true
	}
	if err := c.directory.Switch(ctx, &r.Round, &r.switching, r.counts); err != nil {
		return lost(err)
	}
	r.switching, r.counts, r.told = placement.Buckets{}, placement.RoundCounts{}, now
	return true
}
