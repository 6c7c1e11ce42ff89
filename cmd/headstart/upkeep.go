package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"headstart/blockcache"
	"headstart/engine"
	"headstart/shards"
)

// coarse is how often the clock of the candidate table ticks: a look at the
// system's own costs more than the look-up that it is for.
const coarse = 5 * time.Millisecond

// upkeep is what a BE does by itself for its candidates.
type upkeep struct {
	// nowMS is the coarse clock, in Unix milliseconds. Only the ticker writes it; a
	// reader may conclude that it was right at most a few ticks ago.
	nowMS    atomic.Int64
	settings *shards.Settings
	ctx      context.Context
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// startUpkeep starts the clock; stop ends it.
func startUpkeep(settings *shards.Settings) *upkeep {
	u := &upkeep{settings: settings}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	u.nowMS.Store(time.Now().UnixMilli())
	u.done.Go(func() { // ends with stop
		tick := time.NewTicker(coarse)
		defer tick.Stop()
		for {
			select {
			case <-u.ctx.Done():
				return
			case now := <-tick.C:
				u.nowMS.Store(now.UnixMilli())
			}
		}
	})
	return u
}

// sweep drops candidates that nobody has used for long, each
// peer_candidate_cleanup_interval_s (S26). A change of the key holds from the
// next round on, and rounds look at it at least once a minute.
func (u *upkeep) sweep(t *shards.Table) {
	u.done.Go(func() { // ends with stop
		for last := time.Now(); ; {
			every := time.Duration(u.settings.CleanupSeconds.Load()) * time.Second
			wait := min(max(every-time.Since(last), time.Second), time.Minute)
			select {
			case <-u.ctx.Done():
				return
			case <-time.After(wait):
			}
			if time.Since(last) >= every {
				t.Sweep()
				last = time.Now()
			}
		}
	})
}

// learn lets the engine know the objects of the File Cache once all of that has
// been read: the start does not wait for it.
func (u *upkeep) learn(cache *blockcache.Cache, e *engine.Engine) {
	u.done.Go(func() { // ends with the reading, or with stop
		if cache.AwaitLoaded(u.ctx) == nil {
			e.LearnCached()
		}
	})
}

// stop ends all of it and waits.
func (u *upkeep) stop() {
	u.cancel()
	u.done.Wait()
}
