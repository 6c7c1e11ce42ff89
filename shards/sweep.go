package shards

import (
	"slices"

	"github.com/puzpuzpuz/xsync/v3"

	"headstart/engine/block"
)

// Sweep drops candidates and addresses that have not been used for
// peer_candidate_expiry_s, and tablets that nothing is left of (S26). It
// returns the number of candidates dropped.
func (t *Table) Sweep() int {
	now := t.clock.nowMS()
	expiry := t.settings.expiryMS()
	dropped := 0
	t.tablets.each(func(r block.Route, s slot) bool {
		if s.tablet.live(now, expiry) == len(s.tablet.cands) && !s.tablet.idle(now) {
			return true
		}
		n := 0
		t.update(r, func(old *tablet) *tablet {
			if old == nil {
				return nil
			}
			d := old.thaw()
			d.endCooldown(now)
			n = d.dropExpired(now, expiry)
			if next := t.freeze(&d); !next.idle(now) {
				return next
			}
			return nil
		})
		dropped += n
		return true
	})
	t.counters.expired.Add(int64(dropped))
	t.breakers.sweep(now, expiry)
	return dropped
}

// idle reports whether nothing would be lost with the tablet.
func (t *tablet) idle(now int64) bool {
	return len(t.cands) == 0 && now >= t.lookupAtMS && now >= t.cooldownUntilMS
}

// lastUsedMS is when a candidate of the tablet was last asked. Tablets without
// candidates go first when room is needed, but for those with a look-up under
// way.
func (s slot) lastUsedMS(now int64) int64 {
	if s.tablet.fetching {
		return now
	}
	last := int64(0)
	for i := range s.tablet.cands {
		last = max(last, s.tablet.cands[i].seenMS.Load())
	}
	return last
}

// makeRoom drops the least recently used eighth when the table is nearly
// full. It is called on background paths only; readers find room or do
// without.
func (t *Table) makeRoom() {
	limit := t.settings.MaxTablets.Load()
	if t.size.Load() < limit-limit/16 || !t.trimming.TryLock() {
		return
	}
	defer t.trimming.Unlock()
	now := t.clock.nowMS()
	n := trim(limit-limit/8, func(s slot) int64 { return s.lastUsedMS(now) }, t.tablets.tablets, t.tablets.externals)
	t.size.Add(-n)
	t.counters.trimmed.Add(n)
}

// trimSample is how many entries trim looks at to find its cut.
const trimSample = 4096

// trim drops the entries of all maps that were used least recently until about
// keep of them are left, and returns how many it dropped. It finds the age to cut
// at from a sample.
func trim[K comparable, V any](keep int64, lastUsedMS func(V) int64, maps ...*xsync.MapOf[K, V]) int64 {
	size := int64(0)
	for _, m := range maps {
		size += int64(m.Size())
	}
	if size <= keep {
		return 0
	}
	step := max(1, size/trimSample)
	used := make([]int64, 0, trimSample+trimSample/8)
	i := int64(0)
	for _, m := range maps {
		m.Range(func(_ K, v V) bool {
			if i%step == 0 {
				used = append(used, lastUsedMS(v))
			}
			i++
			return true
		})
	}
	if len(used) == 0 {
		return 0
	}
	slices.Sort(used)
	cut := used[min(int64(len(used))-1, (size-keep)*int64(len(used))/size)]
	excess, dropped := size-keep, int64(0)
	for _, m := range maps {
		m.Range(func(k K, v V) bool {
			if dropped >= excess {
				return false
			}
			if lastUsedMS(v) > cut {
				return true
			}
			m.Compute(k, func(now V, known bool) (V, bool) {
				if known && lastUsedMS(now) <= cut {
					dropped++
					return now, true
				}
				return now, !known
			})
			return true
		})
	}
	return dropped
}
