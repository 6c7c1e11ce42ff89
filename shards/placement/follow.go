package placement

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// maxConflicts bounds how often a change is planned anew because another FE
	// was first, and conflictPause is what this FE has to hear of it in.
	maxConflicts  = 100
	conflictPause = 10 * time.Millisecond
)

// again repeats a change until no other FE is first.
func (d *Directory) again(ctx context.Context, change func() error) error {
	for try := 0; ; try++ {
		err := change()
		if try == maxConflicts || !errors.Is(err, ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(conflictPause):
		}
	}
}

// Follow applies a change that another FE has saved. next is called while no
// change of this FE is under way; without true there is nothing to apply. An
// error means that the change does not fit what this FE knows. applied is called
// when it is in force, before any other change.
func (d *Directory) Follow(next func() (Change, bool), applied func()) error {
	d.change.Lock()
	defer d.change.Unlock()
	c, ok := next()
	if !ok {
		return nil
	}
	for _, tb := range c.Tablets {
		if err := d.tablets.merge(tb); err != nil {
			return err
		}
	}
	c.Tablets = nil
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.mu.fits(&c); err != nil {
		return err
	}
	d.mu.apply(c)
	d.judgeLocked(time.Now())
	applied()
	return nil
}

// Replace applies the whole state, read while no change of this FE is under way:
// what this FE knows and the state lacks is gone. ErrInvalid means that it is
// another cluster's, or read says so. applied is called when the state is in force,
// before any other change.
func (d *Directory) Replace(read func() (State, error), applied func()) error {
	d.change.Lock()
	defer d.change.Unlock()
	s, err := read()
	if err != nil {
		return err
	}
	if s.ClusterID != d.clusterID {
		return fmt.Errorf("%w state: it is of cluster %q now, this FE is of %q", ErrInvalid, s.ClusterID, d.clusterID)
	}
	for _, tb := range s.Tablets {
		if err := d.tablets.merge(tb); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all := Change{Backends: s.Backends, Groups: s.Groups, Assignments: s.Assignments, Rounds: s.Rounds, Jobs: s.Jobs}
	if err := d.mu.fits(&all); err != nil {
		return err
	}
	d.mu.lastID = max(d.mu.lastID, s.LastID)
	// What is gone goes first: a backend may have the address of one that was dropped.
	d.mu.apply(d.mu.lacking(&s))
	d.mu.apply(Change{Groups: s.Groups, Backends: s.Backends, Jobs: s.Jobs})
	d.mu.apply(Change{Assignments: s.Assignments, Rounds: s.Rounds})
	d.judgeLocked(time.Now())
	applied()
	return nil
}

// lacking returns the change that takes away what a state lacks.
func (r *registry) lacking(s *State) (c Change) {
	backends, jobs := make(map[int64]bool, len(s.Backends)), make(map[int64]bool, len(s.Jobs))
	for _, b := range s.Backends {
		backends[b.ID] = true
	}
	for _, j := range s.Jobs {
		jobs[j.ID] = true
	}
	for id := range r.byID {
		if !backends[id] {
			c.Dropped = append(c.Dropped, id)
		}
	}
	for id := range r.jobs {
		if !jobs[id] {
			c.DroppedJobs = append(c.DroppedJobs, id)
		}
	}
	kept := make(map[Assignment]bool, len(s.Assignments))
	for _, a := range s.Assignments {
		kept[a] = true
	}
	for id, g := range r.groups {
		for route, backend := range g.assigned.Range {
			if !kept[Assignment{route, id, backend}] {
				c.Assignments = append(c.Assignments, Assignment{Route: route, GroupID: id})
			}
		}
	}
	return c
}

// fits reports what a change names that is neither known nor part of it.
func (r *registry) fits(c *Change) error {
	groups, backends := make(map[string]bool), make(map[int64]bool)
	for _, g := range c.Groups {
		groups[g.ID] = true
	}
	for _, b := range c.Backends {
		backends[b.ID] = true
		if id := b.Heartbeat.GroupID; r.groups[id] == nil && !groups[id] {
			return fmt.Errorf("%w compute group %q of backend %d", ErrUnknown, id, b.ID)
		}
	}
	for _, round := range c.Rounds {
		if r.groups[round.GroupID] == nil && !groups[round.GroupID] {
			return fmt.Errorf("%w compute group %q of a round of balance", ErrUnknown, round.GroupID)
		}
	}
	for _, a := range c.Assignments {
		if r.groups[a.GroupID] == nil && !groups[a.GroupID] || a.BackendID != 0 && r.byID[a.BackendID] == nil && !backends[a.BackendID] {
			return fmt.Errorf("%w compute group %q or backend %d of %s", ErrUnknown, a.GroupID, a.BackendID, a.Route)
		}
	}
	return nil
}
