package placement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"headstart/engine/block"
)

// registration is a heartbeat that has something to keep. Many come at once when a
// cluster starts, and a write to the store takes its time: whoever holds change
// saves those of all who wait for it.
type registration struct {
	h Heartbeat
	// change is what it makes; mayWait is set when that may be applied before it is
	// saved.
	change  Change
	mayWait bool
	// done is set under change, with id or err.
	done bool
	id   int64
	err  error
}

// maxRegistrations bounds those that are saved together.
const maxRegistrations = 256

// register keeps what is new in a heartbeat. When the store fails, a backend
// that it knows in the same group is noted all the same, and the next heartbeat
// tries to save again: a full disk of the FE must not make BEs seem dead.
func (d *Directory) register(ctx context.Context, h Heartbeat) (int64, error) {
	mine := &registration{h: h}
	d.waiting.Lock()
	d.waiting.list = append(d.waiting.list, mine)
	d.waiting.Unlock()
	d.change.Lock()
	defer d.change.Unlock()
	for !mine.done {
		batch := d.takeWaiting()
		if len(batch) == 0 {
			return 0, errLost
		}
		// It is not up to one caller to give up what the others wait for; the store
		// has a time limit of its own.
		d.registerLocked(context.WithoutCancel(ctx), batch)
	}
	return mine.id, mine.err
}

// errLost is for a registration that somebody has taken up and has panicked with.
var errLost = errors.New("the registration was lost; the next heartbeat tries again")

// takeWaiting takes up registrations, one of each address.
func (d *Directory) takeWaiting() (taken []*registration) {
	d.waiting.Lock()
	defer d.waiting.Unlock()
	addrs := make(map[block.Addr]bool)
	var left []*registration
	for _, r := range d.waiting.list {
		if addr := r.h.Addr(); !addrs[addr] && len(taken) < maxRegistrations {
			addrs[addr] = true
			taken = append(taken, r)
		} else {
			left = append(left, r)
		}
	}
	d.waiting.list = left
	return taken
}

// registerLocked is called with change held.
func (d *Directory) registerLocked(ctx context.Context, batch []*registration) {
	planned, all := d.planBatch(batch)
	var saveErr error
	if len(planned) > 0 {
		saveErr = d.saveLocked(ctx, all)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, r := range planned {
		r.done = true
		if saveErr != nil && (!r.mayWait || errors.Is(saveErr, ErrConflict)) {
			r.err = saveErr
			continue
		}
		d.mu.apply(r.change)
		b := d.mu.byAddr[r.h.Addr()]
		b.unsaved = saveErr != nil
		r.id = b.ID
		d.aliveLocked(b, &r.h, now)
	}
	d.judgeLocked(now)
}

// planBatch plans registrations, and returns those that are to be saved, with what
// they change together. The others have ended.
func (d *Directory) planBatch(batch []*registration) (planned []*registration, all Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, fresh := time.Now(), 0
	groups, added := make(map[string]Group), make(map[string]bool)
	for _, r := range batch {
		b, err := d.mu.find(&r.h, now)
		if err == nil {
			err = d.roomLocked(b, &r.h, fresh, added)
		}
		if err != nil {
			r.done, r.err = true, err
			continue
		}
		r.mayWait = b != nil && b.Heartbeat.GroupID == r.h.GroupID
		id := d.mu.lastID + 1 + int64(fresh)
		if b == nil {
			fresh++
		}
		r.change = d.mu.plan(b, r.h, id, now)
		planned = append(planned, r)
		all.Backends = append(all.Backends, r.change.Backends...)
		all.Assignments = append(all.Assignments, r.change.Assignments...)
		for _, g := range r.change.Groups {
			groups[g.ID] = g
			if d.mu.groups[g.ID] == nil {
				added[g.ID] = true
			}
		}
	}
	for _, g := range groups {
		all.Groups = append(all.Groups, g)
	}
	return planned, all
}

// roomLocked refuses a backend or group above the bound, when so many backends and
// these groups are being added already.
func (d *Directory) roomLocked(b *backend, h *Heartbeat, backends int, added map[string]bool) error {
	limit, groups := d.options.MaxBackends, len(d.mu.groups)+len(added)
	known := d.mu.groups[h.GroupID] != nil || added[h.GroupID]
	if b == nil && len(d.mu.byID)+backends >= limit || !known && groups >= limit {
		return fmt.Errorf("%w: %d backends or groups are known already; drop those that are gone", ErrFull, limit)
	}
	return nil
}
