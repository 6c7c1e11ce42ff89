package shards

import (
	"math/rand/v2"
	"time"

	"headstart/engine/block"
)

// The pace of look-ups that bring nothing (S29).
const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
	// lostLookup is when a look-up that never ended no longer keeps others away.
	lostLookup = 30 * time.Second
)

// backoff is the pause after n look-ups in a row that brought nothing: it
// doubles up to a cap, and half of it is chance, so that the tablets of one
// scan don't come back together.
func backoff(n uint8) time.Duration {
	d := min(maxBackoff, firstBackoff<<min(n-1, 16))
	return d/2 + rand.N(d/2)
}

// refreshAfter spreads look-ups of lists in use around the refresh interval.
func refreshAfter(interval time.Duration) time.Duration {
	if interval < 10 {
		return interval
	}
	return interval - rand.N(interval/10)
}

// BeginLookup reports whether the caller is the one who asks the FE for the
// candidates of r; he must call EndLookup. It is false while another one
// asks, while look-ups back off, during a cooldown, and when the list is
// neither empty nor due for a refresh.
func (t *Table) BeginLookup(r block.Route) bool {
	now := t.clock.nowMS()
	expiry := t.settings.expiryMS()
	if s, ok := t.tablets.of(r).Load(r.ID); ok && !s.tablet.lookupDue(now, expiry) {
		return false
	}
	mine := false
	stored := t.update(r, func(old *tablet) *tablet {
		if mine = old == nil || old.lookupDue(now, expiry); !mine {
			return old
		}
		d := old.thaw()
		d.endCooldown(now)
		d.dropExpired(now, expiry)
		d.fetching, d.lookupAtMS = true, now+lostLookup.Milliseconds()
		return t.freeze(&d)
	})
	if !mine || !stored {
		return false
	}
	t.counters.lookups.Add(1)
	return true
}

// lookupDue reports whether the FE may be asked for the tablet now.
func (t *tablet) lookupDue(now, expiry int64) bool {
	if t.cooldownUntilMS > now {
		return false
	}
	if !t.fetching && t.idleLookups == 0 && t.live(now, expiry) == 0 {
		return true
	}
	return now >= t.lookupAtMS
}

// EndLookup ends what BeginLookup began: found are the holders of r in the
// FE's order, err tells that the FE gave no answer. Candidates that are known
// already keep their place and their failures. When the tablet was removed in
// the meantime nothing happens.
func (t *Table) EndLookup(r block.Route, found []Candidate, err error) {
	now := t.clock.nowMS()
	usable := make([]Candidate, 0, len(found))
	for _, c := range found {
		if t.usable(c) {
			usable = append(usable, c)
		}
	}
	switch {
	case err != nil:
		t.counters.lookupsFailed.Add(1)
	case len(usable) == 0:
		t.counters.lookupsEmpty.Add(1)
	}
	t.update(r, func(old *tablet) *tablet {
		if old == nil || !old.fetching {
			return old
		}
		d := old.thaw()
		d.endCooldown(now)
		d.dropExpired(now, t.settings.expiryMS())
		d.endLookup(usable, now, t.settings.refresh(), t.versions.Add(1))
		return t.freeze(&d)
	})
	t.makeRoom()
}

func (d *draft) endLookup(found []Candidate, now int64, refresh time.Duration, version uint64) {
	d.fetching = false
	for _, c := range found {
		d.join(c, now, version)
	}
	if len(found) > 0 {
		d.idleLookups = 0
		d.lookupAtMS = now + refreshAfter(refresh).Milliseconds()
		return
	}
	d.idleLookups = min(d.idleLookups+1, 32)
	d.lookupAtMS = now + backoff(d.idleLookups).Milliseconds()
}

// RefreshShare returns how many lists are to be refreshed at a time by a job that
// does so once every interval: twice their average number, so that each has its
// turn though not all grow old evenly.
func (t *Table) RefreshShare(interval time.Duration) int {
	return int(float64(2*t.size.Load()) * min(1, interval.Seconds()/max(1, t.settings.refresh().Seconds())))
}

// DueForRefresh returns up to limit routes whose lists are in use and were
// looked up long ago (S29). It walks the whole table: for a background job,
// which calls BeginLookup for each of them.
func (t *Table) DueForRefresh(limit int) []block.Route {
	now := t.clock.nowMS()
	expiry := t.settings.expiryMS()
	since := now - t.settings.refresh().Milliseconds()
	var due []block.Route
	t.tablets.each(func(r block.Route, s slot) bool {
		if len(due) >= limit {
			return false
		}
		if s.tablet.usedSince(since) && s.tablet.live(now, expiry) > 0 && s.tablet.lookupDue(now, expiry) {
			due = append(due, r)
		}
		return true
	})
	return due
}

// usedSince reports whether a candidate has been asked since then.
func (t *tablet) usedSince(ms int64) bool {
	for i := range t.cands {
		if t.cands[i].seenMS.Load() >= ms {
			return true
		}
	}
	return false
}
