package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// The values of compute_group_status.
const (
	statusNormal    = "NORMAL"
	statusSuspended = "SUSPENDED"
	statusDrained   = "DRAINED"
)

// BackendView is one backend as SHOW BACKENDS shows it; the fields have the
// names and the order of its columns.
type BackendView struct {
	BackendID                                                     int64
	Host                                                          string
	HeartbeatPort, BePort, HTTPPort, BrpcPort, ArrowFlightSQLPort int
	// LastHeartbeat is zero when this FE has heard none.
	LastStartTime, LastHeartbeat time.Time
	Alive, SystemDecommissioned  bool
	// TabletNum counts the known tablets that the backend serves; it may lag
	// behind by a moment, the longer the more tablets there are.
	TabletNum int
	// The capacities are those of the File Cache, in bytes; nothing of it is
	// trash or remote.
	DataUsedCapacity, TrashUsedCapacity, AvailCapacity, TotalCapacity int64
	// The percentages are 0 to 100.
	UsedPct, MaxDiskUsedPct float64
	RemoteUsedCapacity      int64
	// Tag is the reference's JSON, spaces included.
	Tag, ErrMsg, Version, Status string
	// HeartbeatFailureCounter counts the heartbeats that are overdue.
	HeartbeatFailureCounter int
	CPUCores                int
	Memory                  int64
	// LiveSince is zero unless Alive.
	LiveSince    time.Time
	RunningTasks int
	NodeRole     string

	// What follows has no column of its own.
	NodeID, GroupID, GroupName, Location string
	// Leaving is set while the backend drains.
	Leaving    bool
	Membership Membership
	// Assigned counts the routes that are assigned explicitly.
	Assigned int
}

// GroupView is one compute group.
type GroupView struct {
	ID, Name string
	// Status is NORMAL, SUSPENDED or DRAINED.
	Status string
	// Backends counts all of the group's, Alive those of them that are alive.
	Backends, Alive int
	BalanceType     BalanceType
	WarmUpTimeout   time.Duration
	// Round is the last round of balance, its zero value when there was none.
	Round Round
}

// backends returns all backends in the order of their numbers.
func (r *registry) backends(tablets map[int64]int, now time.Time, l limits) []BackendView {
	status := make(map[string]string, len(r.groups))
	for _, g := range r.groupViews(now, l) {
		status[g.ID] = g.Status
	}
	views := make([]BackendView, 0, len(r.byID))
	for _, b := range r.byID {
		v := b.view(status[b.Heartbeat.GroupID], now, l)
		v.TabletNum = tablets[b.ID]
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b BackendView) int { return cmp.Compare(a.BackendID, b.BackendID) })
	return views
}

func (b *backend) view(groupStatus string, now time.Time, l limits) BackendView {
	h := &b.Heartbeat
	v := BackendView{
		BackendID: b.ID,
		Host:      h.Host, HeartbeatPort: h.HeartbeatPort, BePort: h.BePort, HTTPPort: h.HTTPPort,
		BrpcPort: h.BrpcPort, ArrowFlightSQLPort: h.ArrowFlightSQLPort,
		LastStartTime: h.Started, LastHeartbeat: b.heard,
		Alive: b.alive(now, l), SystemDecommissioned: b.Decommissioned,
		DataUsedCapacity: h.CacheUsedBytes, AvailCapacity: max(0, h.CacheCapacityBytes-h.CacheUsedBytes),
		TotalCapacity: h.CacheCapacityBytes,
		Tag:           h.tag(groupStatus), Version: h.Version,
		Status:   fmt.Sprintf(`{"isLeaving" : %t, "isDecommissioned" : %t}`, h.Leaving, b.Decommissioned),
		CPUCores: h.CPUCores, Memory: h.MemoryBytes,
		NodeRole: "computation",
		NodeID:   h.NodeID, GroupID: h.GroupID, GroupName: h.GroupName, Location: h.Location,
		Leaving: h.Leaving, Membership: b.Membership, Assigned: b.assigned,
	}
	if v.TotalCapacity > 0 {
		v.UsedPct = 100 * float64(v.DataUsedCapacity) / float64(v.TotalCapacity)
		v.MaxDiskUsedPct = v.UsedPct
	}
	switch silent := now.Sub(b.heard); {
	case b.heard.IsZero():
		v.ErrMsg = "not heard since this FE started"
	case v.Alive:
		v.LiveSince = b.liveSince
		v.HeartbeatFailureCounter = overdue(silent, l)
	default:
		v.HeartbeatFailureCounter = overdue(silent, l)
		v.ErrMsg = fmt.Sprintf("not heard for %s", silent.Truncate(time.Second))
	}
	return v
}

// overdue counts the heartbeats missed: the one that is just due is not.
func overdue(silent time.Duration, l limits) int { return max(0, int(silent/l.interval)-1) }

// groupViews returns all groups in the order of their ids.
func (r *registry) groupViews(now time.Time, l limits) []GroupView {
	type count struct{ all, alive, staying int }
	counts := make(map[string]count, len(r.groups))
	for _, b := range r.byID {
		c := counts[b.Heartbeat.GroupID]
		c.all++
		if b.alive(now, l) {
			c.alive++
		}
		if !b.Heartbeat.Leaving && !b.Decommissioned {
			c.staying++
		}
		counts[b.Heartbeat.GroupID] = c
	}
	views := make([]GroupView, 0, len(r.groups))
	for id, g := range r.groups {
		c := counts[id]
		v := GroupView{
			ID: id, Name: g.Name, Status: statusNormal, Backends: c.all, Alive: c.alive,
			BalanceType: g.balanceType(r.settings), WarmUpTimeout: g.warmUpTimeout(), Round: g.round,
		}
		switch {
		case g.Suspended:
			v.Status = statusSuspended
		case c.all > 0 && c.staying == 0:
			v.Status = statusDrained
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b GroupView) int { return cmp.Compare(a.ID, b.ID) })
	return views
}

// tag returns the column Tag. What it quotes is printable UTF-8 (Validate), so
// that Go's quoting is JSON's.
func (h *Heartbeat) tag(groupStatus string) string {
	return `{"cloud_unique_id" : ` + strconv.Quote(h.CloudUniqueID) +
		`, "compute_group_id" : ` + strconv.Quote(h.GroupID) +
		`, "compute_group_name" : ` + strconv.Quote(h.GroupName) +
		`, "compute_group_status" : ` + strconv.Quote(groupStatus) +
		`, "location" : ` + strconv.Quote(h.Location) + `}`
}
