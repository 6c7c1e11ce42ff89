package placement

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// sentBack is how long a backend that could not warm up waits before it may
// join again.
const sentBack = time.Minute

// settled reports whether a backend may come into a group, or leave it, without
// a round of balance: there is nothing to move, or nobody alive to move it from
// or to (of the memberships given), or it moves without being warmed up.
func (r *registry) settled(groupID string, id int64, now time.Time, others ...Membership) bool {
	g := r.groups[groupID]
	switch {
	case g == nil:
		return true
	case g.round.active():
		return false
	case r.known.size.Load() == 0 || g.balanceType(r.settings) == WithoutWarmup:
		return true
	}
	l := r.settings.limits()
	starting := now.Sub(r.started) < l.timeout
	for _, b := range r.byID {
		if b.Heartbeat.GroupID == groupID && b.ID != id && slices.Contains(others, b.Membership) &&
			(b.alive(now, l) || starting && b.heard.IsZero()) {
			return false
		}
	}
	return true
}

// entry returns the membership of a backend that comes into a group.
func (r *registry) entry(groupID string, id int64, now time.Time) Membership {
	if r.settled(groupID, id, now, Member) {
		return Member
	}
	return Waiting
}

// due reports whether the group needs a round of balance: someone waits to join
// it, or has to leave.
func (r *registry) due(g *group, now time.Time, l limits) bool {
	return !g.round.active() && !g.Suspended && r.waited(g, now, l)
}

// waited reports whether someone waits for the next round of the group.
func (r *registry) waited(g *group, now time.Time, l limits) bool {
	for _, b := range r.byID {
		if b.Heartbeat.GroupID == g.ID && b.next(now, l) != b.Membership {
			return true
		}
	}
	return false
}

// next returns the membership that the start of a round gives the backend.
func (b *backend) next(now time.Time, l limits) Membership {
	switch {
	case b.Membership == Member && b.Decommissioned:
		return Leaving
	case b.Membership == Waiting && b.Decommissioned:
		return Out
	case b.Membership == Waiting && b.alive(now, l) && !b.Heartbeat.Leaving && !now.Before(b.notBefore):
		return Joining
	}
	return b.Membership
}

// last returns the membership that the end of a round gives the backend.
func (b *backend) last() Membership {
	switch {
	case b.Membership == Joining:
		return Member
	case b.Membership == Leaving && b.Decommissioned:
		return Out
	case b.Membership == Leaving:
		return Waiting
	}
	return b.Membership
}

// remember returns the change that gives backends of a group other
// memberships. Who goes out loses what was assigned to it.
func (r *registry) remember(groupID string, of func(*backend) Membership) Change {
	var c Change
	for _, b := range r.byID {
		to := of(b)
		if b.Heartbeat.GroupID != groupID || to == b.Membership {
			continue
		}
		rec := b.Record
		rec.Membership = to
		c.Backends = append(c.Backends, rec)
		if to == Out {
			c.Assignments = append(c.Assignments, r.assignmentsOf(b, 0)...)
		}
	}
	return c
}

// DueGroups returns the ids of the groups that need a round of balance.
func (d *Directory) DueGroups() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, l := time.Now(), d.settings.limits()
	var due []string
	for id, g := range d.mu.groups {
		if d.mu.due(g, now, l) {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	return due
}

// RoundView is a round under way, and what there is to know to take it on.
type RoundView struct {
	Round
	// Timeout is how long a batch may take.
	Timeout time.Duration
	// Joining are those who join, Silent those of them that can't be reached.
	Joining, Silent []int64
	// Moving is set when someone who can be reached joins or leaves.
	Moving bool
	// Unheard is set while the FE, just started, has not heard all of the group
	// yet: it does not know who serves what.
	Unheard bool
	// Waited is set when someone waits for the round to end.
	Waited bool
}

// Rounds returns the rounds of balance that are under way.
func (d *Directory) Rounds() []RoundView {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, l := time.Now(), d.settings.limits()
	views := make(map[string]*RoundView)
	for id, g := range d.mu.groups {
		if g.round.active() {
			views[id] = &RoundView{Round: g.round, Timeout: g.warmUpTimeout(), Waited: d.mu.waited(g, now, l)}
		}
	}
	starting := now.Sub(d.mu.started) < l.timeout
	for _, b := range d.mu.byID {
		v := views[b.Heartbeat.GroupID]
		if v == nil || b.Membership == Waiting || b.Membership == Out {
			continue
		}
		unheard := starting && b.heard.IsZero()
		reached := b.alive(now, l) && !b.Heartbeat.Leaving
		v.Unheard = v.Unheard || unheard
		v.Moving = v.Moving || reached && b.Membership != Member
		if b.Membership == Joining {
			v.Joining = append(v.Joining, b.ID)
			if !reached && !unheard {
				v.Silent = append(v.Silent, b.ID)
			}
		}
	}
	all := make([]RoundView, 0, len(views))
	for _, v := range views {
		all = append(all, *v)
	}
	return all
}

// StartRound starts a round of balance of a group that needs one. It returns
// the round, which has ended already when tablets move without warm-up.
func (d *Directory) StartRound(ctx context.Context, groupID string) (Round, error) {
	var round Round
	err := d.alter(ctx, func(r *registry) (Change, error) {
		g := r.groups[groupID]
		now, l := time.Now(), d.settings.limits()
		if g == nil || !r.due(g, now, l) {
			return Change{}, fmt.Errorf("%w: compute group %q needs no balance", ErrOver, groupID)
		}
		c := r.remember(groupID, func(b *backend) Membership { return b.next(now, l) })
		round = Round{GroupID: groupID, Type: g.balanceType(d.settings), Started: now.Round(0).UTC()}
		if round.Type == WithoutWarmup {
			for i := range c.Backends {
				c.Backends[i].Membership = (&backend{Record: c.Backends[i]}).last()
			}
			round.Ended = round.Started
		}
		c.Rounds = []Round{round}
		return c, nil
	})
	if err != nil || !round.Ended.IsZero() {
		return round, err
	}
	d.options.Logger.Info("balance begins", "compute_group_id", groupID, "balance_type", string(round.Type))
	return round, d.CountRound(ctx, &round)
}

// CountRound counts what is to move in a round that has begun: only then there are
// two sides to compare. While nobody can be handed out it does nothing.
func (d *Directory) CountRound(ctx context.Context, round *Round) error {
	p := d.planner(round.GroupID)
	if p == nil {
		return nil
	}
	moves := p.countMoves(&d.tablets)
	return d.alterRound(ctx, round, func(r *Round) { r.Moves, r.Counted = moves, true })
}

// alterRound changes the round that is under way, if that is still the one
// that the caller means, and lets the caller know it as it is now.
func (d *Directory) alterRound(ctx context.Context, round *Round, change func(*Round)) error {
	return d.alter(ctx, func(r *registry) (Change, error) {
		g := r.groups[round.GroupID]
		if g == nil || !g.round.active() || !g.round.Started.Equal(round.Started) {
			return Change{}, fmt.Errorf("%w: the round of balance of compute group %q", ErrOver, round.GroupID)
		}
		now := g.round
		change(&now)
		*round = now
		return Change{Rounds: []Round{now}}, nil
	})
}

// Switch lets the tablets of buckets go by the new side, and counts them.
func (d *Directory) Switch(ctx context.Context, round *Round, buckets *Buckets, counts RoundCounts) error {
	return d.alterRound(ctx, round, func(r *Round) {
		r.Switched.AddAll(buckets)
		r.RoundCounts.Add(counts)
	})
}

// EndRound ends a round: all that has not been switched is now.
func (d *Directory) EndRound(ctx context.Context, round *Round) error {
	err := d.alter(ctx, func(r *registry) (Change, error) {
		g := r.groups[round.GroupID]
		if g == nil || !g.round.active() || !g.round.Started.Equal(round.Started) {
			return Change{}, fmt.Errorf("%w: the round of balance of compute group %q", ErrOver, round.GroupID)
		}
		c := r.remember(round.GroupID, (*backend).last)
		*round = g.round
		round.Ended = time.Now().Round(0).UTC()
		c.Rounds = []Round{*round}
		return c, nil
	})
	if err == nil {
		d.options.Logger.Info("balance ends", "compute_group_id", round.GroupID, "balance_type", string(round.Type),
			"moved", round.Moved, "warm", round.Warm, "timed_out", round.TimedOut, "failed", round.Failed, "took", round.Ended.Sub(round.Started))
	}
	return err
}

// SendBack makes a backend that joins wait for a later round: it has fallen
// silent, or fails to warm up. Its tablets are not moved to it, and those that
// were go on to others.
func (d *Directory) SendBack(ctx context.Context, backendID int64, why string) error {
	return d.alter(ctx, func(r *registry) (Change, error) {
		b := r.byID[backendID]
		if b == nil || b.Membership != Joining {
			return Change{}, fmt.Errorf("%w: backend %d does not join", ErrOver, backendID)
		}
		b.notBefore = time.Now().Add(sentBack)
		rec := b.Record
		rec.Membership = Waiting
		d.options.Logger.Warn("backend left out of the round of balance", "backend_id", backendID, "reason", why)
		return Change{Backends: []Record{rec}}, nil
	})
}

// planner compares the sides of the group's round as they can be handed out
// now; nil when no round is under way or nobody can be handed out.
func (d *Directory) planner(groupID string) *planner {
	g := d.current(time.Now()).group(groupID)
	if g == nil || g.switched == nil {
		return nil
	}
	return newPlanner(g)
}

// Moves returns the buckets from one on that a batch of a round is made of,
// and their moves: as many buckets as it takes to have at least want moves. It
// leaves out buckets that are switched, and those of taken. While nobody of the
// group can be handed out there is nothing to say, and next is from.
func (d *Directory) Moves(groupID string, from, want int, taken *Buckets) (buckets Buckets, moves []Move, next int) {
	p := d.planner(groupID)
	if p == nil {
		return buckets, nil, from
	}
	var ids []uint64
	for next = from; next < BucketCount && len(moves) < want; next++ {
		if taken.Has(next) || p.group.switched.Has(next) {
			continue
		}
		buckets.Add(next)
		ids = d.tablets.appendIDs(ids[:0], next)
		for _, id := range ids {
			if m, ok := p.move(id); ok {
				moves = append(moves, m)
			}
		}
	}
	return buckets, moves, next
}
