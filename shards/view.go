package shards

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"headstart/engine/block"
)

// View is a tablet as /api/peer_cache shows it, and takes it for op=set.
// Times are Unix milliseconds.
type View struct {
	TabletID   int64           `json:"tablet_id"`
	Candidates []CandidateView `json:"candidates"`
	// LastGroupID is the group that last served the tablet.
	LastGroupID     string `json:"last_successful_compute_group_id"`
	Fetching        bool   `json:"fetching_from_fe"`
	AllMiss         int    `json:"consecutive_all_miss"`
	CooldownUntilMS int64  `json:"cooldown_until_ms"`
}

// CandidateView is one candidate of a View, in the order of the list.
type CandidateView struct {
	Host         string `json:"host"`
	Port         int    `json:"brpc_port"`
	GroupID      string `json:"compute_group_id"`
	LastAccessMS int64  `json:"last_access_time_ms"`
	Failures     int    `json:"consecutive_rpc_failures"`
}

// ListView is what op=show_all answers.
type ListView struct {
	// Total is the number of tablets that have candidates, shown or not.
	Total   int    `json:"total"`
	Tablets []View `json:"tablets"`
}

// Show returns the state of r, and whether it is known. The view of a tablet
// that is not known is an empty one.
func (t *Table) Show(r block.Route) (View, bool) {
	s, ok := t.tablets.of(r).Load(r.ID)
	if !ok {
		return View{TabletID: int64(r.ID), Candidates: []CandidateView{}}, false
	}
	return s.tablet.view(r, t.clock.nowMS(), t.settings.expiryMS()), true
}

// ShowAll returns up to limit tablets that have candidates, in the order of
// their ids.
func (t *Table) ShowAll(limit int) ListView {
	now := t.clock.nowMS()
	expiry := t.settings.expiryMS()
	list := ListView{Tablets: []View{}}
	t.tablets.each(func(r block.Route, s slot) bool {
		if r.Kind == block.RouteTablet && s.tablet.live(now, expiry) > 0 {
			list.Total++
			if len(list.Tablets) < limit {
				list.Tablets = append(list.Tablets, s.tablet.view(r, now, expiry))
			}
		}
		return true
	})
	slices.SortFunc(list.Tablets, func(a, b View) int { return cmp.Compare(a.TabletID, b.TabletID) })
	return list
}

// view leaves out what has run out: expired candidates, a cooldown that is
// over, a look-up that was lost.
func (t *tablet) view(r block.Route, now, expiry int64) View {
	v := View{
		TabletID:    int64(r.ID),
		Candidates:  make([]CandidateView, 0, len(t.cands)),
		LastGroupID: t.lastGroup,
		Fetching:    t.fetching && now < t.lookupAtMS,
	}
	if t.cooldownUntilMS == 0 || now < t.cooldownUntilMS {
		v.AllMiss, v.CooldownUntilMS = int(t.allMiss), t.cooldownUntilMS
	}
	for i := range t.cands {
		c := t.cands[i].candidate()
		if now-c.LastAccessMS < expiry {
			v.Candidates = append(v.Candidates, CandidateView{
				Host: c.Addr.Host, Port: c.Addr.Port, GroupID: c.GroupID,
				LastAccessMS: c.LastAccessMS, Failures: c.Failures,
			})
		}
	}
	return v
}

// Set replaces the list and all counts of r by those of forced (S76), except
// for what cannot be forced: the tablet's id, the time of the last access,
// which is now, and whether a look-up is under way. The error says what is
// wrong with forced; nothing is changed then.
func (t *Table) Set(r block.Route, forced View) error {
	if err := t.check(forced); err != nil {
		return err
	}
	now := t.clock.nowMS()
	t.makeRoom()
	stored := t.update(r, func(old *tablet) *tablet {
		d := draft{state: state{
			stamp:           t.versions.Add(1),
			lastGroup:       forced.LastGroupID,
			allMiss:         uint16(forced.AllMiss),
			cooldownUntilMS: forced.CooldownUntilMS,
		}}
		if old != nil {
			d.fetching, d.lookupAtMS, d.idleLookups = old.fetching, old.lookupAtMS, old.idleLookups
		}
		for _, c := range forced.Candidates {
			d.join(c.candidate(), now, d.stamp)
			d.list[d.find(c.addr())].fails = c.Failures
		}
		d.endCooldown(now)
		return t.freeze(&d)
	})
	if !stored {
		return fmt.Errorf("%s: the table is full (%d tablets)", r, t.settings.MaxTablets.Load())
	}
	return nil
}

func (c CandidateView) addr() block.Addr { return block.Addr{Host: c.Host, Port: c.Port} }

func (c CandidateView) candidate() Candidate { return Candidate{Addr: c.addr(), GroupID: c.GroupID} }

func (t *Table) check(v View) error {
	if len(v.Candidates) > MaxCandidates {
		return fmt.Errorf("%d candidates: at most %d are possible", len(v.Candidates), MaxCandidates)
	}
	for _, c := range v.Candidates {
		switch {
		case !validAddr(c.addr()):
			return fmt.Errorf("candidate %q port %d: want a host and a port from 1 to 65535", c.Host, c.Port)
		case t.isSelf(c.addr()):
			return fmt.Errorf("candidate %s is this node itself", c.addr())
		case c.Failures < 0 || c.Failures > maxFails:
			return fmt.Errorf("candidate %s: consecutive_rpc_failures %d: want 0 to %d", c.addr(), c.Failures, maxFails)
		}
	}
	if v.AllMiss < 0 || v.AllMiss > math.MaxUint16 {
		return fmt.Errorf("consecutive_all_miss %d: want 0 to %d", v.AllMiss, math.MaxUint16)
	}
	if v.CooldownUntilMS < 0 {
		return fmt.Errorf("cooldown_until_ms %d: want Unix milliseconds, or 0 for none", v.CooldownUntilMS)
	}
	return nil
}

// Remove forgets r and reports whether it was known.
func (t *Table) Remove(r block.Route) bool {
	known := false
	t.update(r, func(old *tablet) *tablet {
		known = old != nil
		return nil
	})
	return known
}

// ResetCooldown ends the cooldown of r, sets its count to 0, and reports
// whether r is known. Reads that are under way do not count any more.
func (t *Table) ResetCooldown(r block.Route) bool {
	known := false
	t.update(r, func(old *tablet) *tablet {
		if known = old != nil; !known {
			return nil
		}
		d := old.thaw()
		d.cooldownUntilMS, d.allMiss, d.stamp = 0, 0, t.versions.Add(1)
		return t.freeze(&d)
	})
	return known
}
