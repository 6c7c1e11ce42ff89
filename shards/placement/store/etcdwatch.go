package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"headstart/shards/placement"
)

// Watch lets d follow the changes of others, in their order, until ctx ends. When
// some were missed, because etcd has compacted them away or this FE was away from
// it for too long, or because it was at a member of etcd that the others don't reach,
// it reads the whole state anew. An error means that the state is
// another cluster's now, or of a newer program: the FE has to start anew.
func (e *Etcd) Watch(ctx context.Context, d *placement.Directory) error {
	// A member that has lost its leader hears of nothing, and says nothing of that.
	// With this it ends the watch, and the client asks another one.
	ctx = clientv3.WithRequireLeader(ctx)
	for {
		err := e.watch(ctx, d)
		if ctx.Err() != nil {
			return nil
		}
		e.log.Warn("changes of other FEs were missed: the state is read anew", "error", e.wrap(err))
		for {
			if err = e.replace(ctx, d); err == nil {
				break
			}
			if errors.Is(err, placement.ErrInvalid) {
				return err
			}
			e.log.Warn("the state can't be read", "error", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(relistAgain):
			}
		}
	}
}

// replace reads the whole state anew into d.
func (e *Etcd) replace(ctx context.Context, d *placement.Directory) error {
	var seen sight
	return d.Replace(func() (s placement.State, err error) {
		s, seen, err = e.list(ctx)
		return s, err
	}, func() { e.see(seen) })
}

// relistAgain is the pause between attempts to read the state.
const relistAgain = time.Second

func (e *Etcd) watch(ctx context.Context, d *placement.Directory) error {
	e.mu.Lock()
	from := e.mu.from
	e.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for answer := range e.client.Watch(ctx, e.state, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := answer.Err(); err != nil {
			return err
		}
		for events := answer.Events; len(events) > 0; {
			n := 1
			for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
				n++
			}
			if err := e.follow(events[:n], d); err != nil {
				return err
			}
			events = events[n:]
		}
	}
	return errors.New("the watch has ended")
}

// follow applies one revision, unless it is this FE's own.
func (e *Etcd) follow(events []*clientv3.Event, d *placement.Directory) error {
	var r etcdReader
	for _, event := range events {
		var err error
		if event.Type == clientv3.EventTypeDelete {
			err = r.remove(event.Kv, e)
		} else {
			err = r.put(event.Kv, e)
		}
		if err != nil {
			return fmt.Errorf("revision %d: %w", event.Kv.ModRevision, err)
		}
	}
	return d.Follow(func() (placement.Change, bool) {
		if r.revision == 0 {
			// To merge one's own tablets does no harm. Other rows are those of a large
			// change, which was applied when it held.
			return placement.Change{Tablets: r.Tablets}, len(r.Tablets) > 0
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if r.revision <= e.mu.seen {
			return placement.Change{}, false
		}
		return r.Change, true
	}, func() {
		if r.revision == 0 {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.mu.seen, e.mu.lastID = r.revision, max(e.mu.lastID, r.lastID)
	})
}
