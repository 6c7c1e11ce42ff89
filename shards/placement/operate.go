package placement

import (
	"context"
	"fmt"
	"time"

	"headstart/engine/block"
)

// Assign makes a backend serve the routes for its group, whatever the rank
// says: all of them or, with an error, none. While the backend can't be handed
// out the rank decides. An assignment ends with Unassign, with the backend, and
// when the backend moves to another group.
func (d *Directory) Assign(ctx context.Context, backendID int64, routes []block.Route) error {
	return d.alter(ctx, func(r *registry) (Change, error) {
		b := r.byID[backendID]
		if b == nil {
			return Change{}, fmt.Errorf("%w backend %d", ErrUnknown, backendID)
		}
		if r.assigned+len(routes) > d.options.MaxAssignments {
			return Change{}, fmt.Errorf("%w: %d routes are assigned, %d more would be above %d",
				ErrFull, r.assigned, len(routes), d.options.MaxAssignments)
		}
		return assignment(routes, b.Heartbeat.GroupID, backendID)
	})
}

// Unassign leaves the routes of a group to the rank again. Routes without an
// assignment are no error.
func (d *Directory) Unassign(ctx context.Context, groupID string, routes []block.Route) error {
	return d.alter(ctx, func(r *registry) (Change, error) {
		if r.groups[groupID] == nil {
			return Change{}, fmt.Errorf("%w compute group %q", ErrUnknown, groupID)
		}
		return assignment(routes, groupID, 0)
	})
}

func assignment(routes []block.Route, groupID string, backendID int64) (Change, error) {
	var c Change
	for _, route := range routes {
		if err := checkRoute(route); err != nil {
			return Change{}, err
		}
		c.Assignments = append(c.Assignments, Assignment{Route: route, GroupID: groupID, BackendID: backendID})
	}
	return c, nil
}

// SetDecommissioned says whether a backend is kept from being handed out, over
// its restarts. Its tablets leave it, or come back to it, in a round of balance.
func (d *Directory) SetDecommissioned(ctx context.Context, backendID int64, on bool) error {
	return d.alter(ctx, func(r *registry) (Change, error) {
		b := r.byID[backendID]
		if b == nil {
			return Change{}, fmt.Errorf("%w backend %d", ErrUnknown, backendID)
		}
		c := Change{Backends: []Record{b.Record}}
		rec := &c.Backends[0]
		rec.Decommissioned = on
		switch {
		case on && rec.Membership == Member && r.settled(b.Heartbeat.GroupID, b.ID, time.Now(), Member, Waiting):
			rec.Membership = Out
			c.Assignments = r.assignmentsOf(b, 0)
		case !on && rec.Membership == Out:
			rec.Membership = r.entry(b.Heartbeat.GroupID, b.ID, time.Now())
		}
		return c, nil
	})
}

// Balance returns what a group itself says of how its tablets move: "" and 0
// leave it to the FE.
func (d *Directory) Balance(groupID string) (BalanceType, int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.mu.groups[groupID]
	if g == nil {
		return "", 0, fmt.Errorf("%w compute group %q", ErrUnknown, groupID)
	}
	return g.BalanceType, g.WarmUpTimeoutS, nil
}

// SetBalance sets how the tablets of a group move: "" and 0 leave it to the FE.
func (d *Directory) SetBalance(ctx context.Context, groupID string, t BalanceType, warmUpTimeoutS int) error {
	if t != "" {
		if _, err := ParseBalanceType(string(t)); err != nil {
			return err
		}
	}
	if warmUpTimeoutS < 0 {
		return fmt.Errorf("%w balance_warm_up_task_timeout %d: want 1 or more seconds", ErrInvalid, warmUpTimeoutS)
	}
	return d.alter(ctx, func(r *registry) (Change, error) {
		g := r.groups[groupID]
		if g == nil {
			return Change{}, fmt.Errorf("%w compute group %q", ErrUnknown, groupID)
		}
		changed := g.Group
		changed.BalanceType, changed.WarmUpTimeoutS = t, warmUpTimeoutS
		return Change{Groups: []Group{changed}}, nil
	})
}

// SetSuspended says whether all backends of a group are kept from being handed
// out.
func (d *Directory) SetSuspended(ctx context.Context, groupID string, on bool) error {
	return d.alter(ctx, func(r *registry) (Change, error) {
		g := r.groups[groupID]
		if g == nil {
			return Change{}, fmt.Errorf("%w compute group %q", ErrUnknown, groupID)
		}
		changed := g.Group
		changed.Suspended = on
		return Change{Groups: []Group{changed}}, nil
	})
}

// Drop forgets a backend and its assignments. If it is still running, its next
// heartbeat registers it under another number.
func (d *Directory) Drop(ctx context.Context, backendID int64) error {
	return d.alter(ctx, func(r *registry) (Change, error) {
		b := r.byID[backendID]
		if b == nil {
			return Change{}, fmt.Errorf("%w backend %d", ErrUnknown, backendID)
		}
		return Change{Dropped: []int64{backendID}, Assignments: r.assignmentsOf(b, 0)}, nil
	})
}

// alter plans a change, saves it and then applies it. When another FE was first,
// it is planned anew.
func (d *Directory) alter(ctx context.Context, plan func(*registry) (Change, error)) error {
	return d.again(ctx, func() error { return d.alterOnce(ctx, plan) })
}

func (d *Directory) alterOnce(ctx context.Context, plan func(*registry) (Change, error)) error {
	d.change.Lock()
	defer d.change.Unlock()
	d.mu.Lock()
	c, err := plan(d.mu.registry)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if err := d.saveLocked(ctx, c); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.apply(c)
	d.judgeLocked(time.Now())
	return nil
}
