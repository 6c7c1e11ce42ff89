package shards

import "headstart/engine/block"

// rules are the settings that a change of one tablet goes by, read once.
type rules struct {
	nowMS              int64
	evictAt, allMissAt int64
	cooldownMS         int64
	version            uint64
}

func (t *Table) rulesAt(now int64) rules {
	return rules{
		nowMS:      now,
		evictAt:    max(1, t.settings.EvictionThreshold.Load()),
		allMissAt:  max(1, t.settings.AllMissThreshold.Load()),
		cooldownMS: max(0, t.settings.CooldownSeconds.Load()) * 1000,
		version:    t.versions.Add(1),
	}
}

// noted is what a note did that others must hear of.
type noted struct {
	evicted  []block.Addr
	cooldown bool
}

// note applies the results of one peer leg. asked tells which state the leg
// had started from: a piece of state that a later starter has changed since
// keeps its value.
func (d *draft) note(asked Snapshot, results []Result, r rules) noted {
	var done noted
	d.endCooldown(r.nowMS)
	began := asked.tablet.version
	d.noteGroup(began, asked, results, r, &done)
	for _, res := range results {
		i := d.find(res.Addr)
		if i < 0 {
			continue
		}
		if res.Outcome != block.OutcomeCircuitOpen {
			d.list[i].seenMS = r.nowMS
		}
		if began >= d.list[i].stamp && d.noteOne(i, began, res.Outcome, r.evictAt) {
			done.evicted = append(done.evicted, res.Addr)
		}
	}
	return done
}

// noteOne applies one result to candidate i and reports whether that evicts
// it.
func (d *draft) noteOne(i int, began uint64, o block.Outcome, evictAt int64) bool {
	e := &d.list[i]
	switch {
	case o == block.OutcomeHit, o == block.OutcomeMiss:
		e.fails = 0
	case o.Failed():
		e.fails++
	default:
		return false
	}
	e.stamp = began
	switch {
	case int64(e.fails) >= evictAt:
		d.remove(i)
		return true
	case o == block.OutcomeMiss, o == block.OutcomeCorrupt:
		d.toEnd(i)
	}
	return false
}

// noteGroup applies the results to what the tablet knows as a whole: the
// group that served last, and the reads in a row that all have missed.
func (d *draft) noteGroup(began uint64, asked Snapshot, results []Result, r rules, done *noted) {
	if began < d.stamp {
		return
	}
	for _, res := range results {
		i := d.find(res.Addr)
		if i < 0 || began < d.list[i].stamp {
			continue
		}
		group := d.list[i].peer.Value().group
		switch {
		case res.Outcome == block.OutcomeHit:
			// In a cooldown only a GET that is late asks: what it has found ends that.
			d.lastGroup, d.allMiss, d.cooldownUntilMS, d.stamp = group, 0, 0, began
		case res.Outcome == block.OutcomeMiss && d.lastGroup != "" && group == d.lastGroup:
			d.lastGroup, d.stamp = "", began
		}
	}
	if !allMissed(asked, results) {
		return
	}
	d.allMiss, d.stamp = d.allMiss+1, began
	if int64(d.allMiss) >= r.allMissAt {
		d.cooldownUntilMS = r.nowMS + r.cooldownMS
		d.stamp = r.version // reads that are under way come too late
		done.cooldown = true
	}
}

// allMissed reports whether every candidate of asked answered that it does
// not have the blocks.
func allMissed(asked Snapshot, results []Result) bool {
	for i := range asked.Len() {
		a := asked.At(i).Addr
		found := false
		for _, res := range results {
			found = found || res.Addr == a && res.Outcome == block.OutcomeMiss
		}
		if !found {
			return false
		}
	}
	return true
}

// endCooldown forgets a cooldown that is over: the count starts clean.
func (d *draft) endCooldown(now int64) {
	if d.cooldownUntilMS != 0 && now >= d.cooldownUntilMS {
		d.cooldownUntilMS, d.allMiss = 0, 0
	}
}
