package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"headstart/engine/block"
)

// WarmPart is the part of a batch that one backend warms up.
type WarmPart struct {
	BackendID int64
	Addr      block.Addr
	Batch     WarmBatch
}

// split sorts the pieces of a batch by the backends that do them.
type split struct {
	parts  []WarmPart
	byID   map[int64]int
	groups map[string]int
}

func newSplit() *split { return &split{byID: make(map[int64]int), groups: make(map[string]int)} }

// batch returns the batch of a backend.
func (s *split) batch(id int64, addr block.Addr) *WarmBatch {
	at, ok := s.byID[id]
	if !ok {
		at = len(s.parts)
		s.byID[id] = at
		s.parts = append(s.parts, WarmPart{BackendID: id, Addr: addr})
	}
	return &s.parts[at].Batch
}

// tablet gives a backend a tablet to warm up from sources; their ids tell lists
// of sources apart.
func (s *split) tablet(id int64, addr block.Addr, tablet uint64, sources []Holder, sourceIDs []int64) {
	b := s.batch(id, addr)
	var key strings.Builder
	key.WriteString(strconv.FormatInt(id, 36))
	for _, source := range sourceIDs {
		key.WriteString("<" + strconv.FormatInt(source, 36))
	}
	at, ok := s.groups[key.String()]
	if !ok {
		at = len(b.Groups)
		s.groups[key.String()] = at
		b.Groups = append(b.Groups, WarmGroup{Sources: slices.Clone(sources)})
	}
	b.Groups[at].Tablets = append(b.Groups[at].Tablets, tablet)
}

// MoveParts returns the work of a batch of moves, by backend. Moves without a
// source have none.
func MoveParts(moves []Move) []WarmPart {
	s := newSplit()
	for _, m := range moves {
		if m.FromID != 0 {
			s.tablet(m.ToID, m.To.Addr, m.Tablet, []Holder{m.From}, []int64{m.FromID})
		}
	}
	for i := range s.parts {
		s.parts[i].Batch.Balance = true
	}
	return s.parts
}

// maxSources is how many backends a tablet is warmed up from at most.
const maxSources = 3

// JobParts returns the work of the buckets from `from` up to `to` of a job of
// tablets, by backend. It is an error when the destination has no backend to
// hand out.
func (d *Directory) JobParts(job *Job, from, to int) ([]WarmPart, error) {
	t := d.current(time.Now())
	dst := t.group(job.DstGroup)
	if dst == nil {
		return nil, fmt.Errorf("%w backend of compute group %q that is alive", ErrUnknown, job.DstGroup)
	}
	s := newSplit()
	for bucket := from; bucket < to; bucket++ {
		for _, id := range d.jobTablets(job, bucket) {
			route := block.Route{Kind: block.RouteTablet, ID: id}
			key := keyOf(route)
			var sources []Holder
			var sourceIDs []int64
			for i := range t.groups {
				g := &t.groups[i]
				if g == dst || job.SrcGroup != "" && g.id != job.SrcGroup || len(sources) == maxSources {
					continue
				}
				r, at := g.owner(route, key)
				sources, sourceIDs = append(sources, r.holders[at]), append(sourceIDs, r.ids[at])
			}
			r, at := dst.owner(route, key)
			s.tablet(r.ids[at], r.holders[at].Addr, id, sources, sourceIDs)
		}
	}
	return s.parts, nil
}

// jobTablets returns the tablets of a bucket that a job is about.
func (d *Directory) jobTablets(job *Job, bucket int) []uint64 {
	if job.Type == JobCluster {
		return d.tablets.appendIDs(nil, bucket)
	}
	var ids []uint64
	for _, id := range job.Tablets {
		if bucketOf(keyOf(block.Route{Kind: block.RouteTablet, ID: id})) == bucket {
			ids = append(ids, id)
		}
	}
	return ids
}

// ObjectParts returns the work of warming up objects outside tablets in a
// group, by backend.
func (d *Directory) ObjectParts(groupID string, objects []WarmObject) ([]WarmPart, error) {
	g := d.current(time.Now()).group(groupID)
	if g == nil {
		return nil, fmt.Errorf("%w backend of compute group %q that is alive", ErrUnknown, groupID)
	}
	s := newSplit()
	for _, o := range objects {
		route := block.ExternalRoute(o.Object)
		r, at := g.owner(route, keyOf(route))
		b := s.batch(r.ids[at], r.holders[at].Addr)
		b.Objects = append(b.Objects, o)
	}
	return s.parts, nil
}

// Reachable reports whether a backend is there to be called: alive, and still
// the process at that address.
func (d *Directory) Reachable(backendID int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.mu.byID[backendID]
	return b != nil && !b.Heartbeat.Leaving && d.mu.goodUntil(b, d.settings.limits()).After(time.Now())
}

// AnyMember returns a backend of the group that can be handed out, for work
// that each of them can do; turn picks another one each time.
func (d *Directory) AnyMember(groupID string, turn int) (id int64, addr block.Addr, ok bool) {
	g := d.current(time.Now()).group(groupID)
	if g == nil {
		return 0, block.Addr{}, false
	}
	r := g.old
	if len(r.ids) == 0 {
		r = g.new
	}
	at := turn % len(r.ids)
	return r.ids[at], r.holders[at].Addr, true
}

// StartJob starts a run of a pending job, cut so that a batch has about want
// tablets, and returns it.
func (d *Directory) StartJob(ctx context.Context, id int64, want int) (Job, error) {
	var started Job
	err := d.alter(ctx, func(r *registry) (Change, error) {
		j := r.jobs[id]
		if j == nil || j.Status != JobPending {
			return Change{}, fmt.Errorf("%w: warm-up job %d is not pending", ErrOver, id)
		}
		started = *j
		started.Status, started.Started, started.Finished = JobRunning, time.Now().Round(0).UTC(), time.Time{}
		started.JobProgress = JobProgress{}
		if j.Type != JobPrefix {
			tablets := len(j.Tablets)
			if j.Type == JobCluster {
				tablets = int(r.known.size.Load())
			}
			started.Step = min(max(BucketCount*want/max(tablets, 1), 1), BucketCount)
			started.AllBatch = (BucketCount + started.Step - 1) / started.Step
		}
		if used, room := r.cached(j.SrcGroup), r.capacity(j.DstGroup); used > room {
			started.Warning = doesNotFit("the source has cached", used, room)
		}
		return Change{Jobs: []Job{started}}, nil
	})
	return started, err
}

func doesNotFit(what string, used, room int64) string {
	return fmt.Sprintf("does not fit: %s %d bytes and the destination's File Cache has %d", what, used, room)
}

// cached returns how many bytes the backends of a group have cached, as they say.
func (r *registry) cached(groupID string) (bytes int64) {
	for _, b := range r.byID {
		if b.Heartbeat.GroupID == groupID {
			bytes += b.Heartbeat.CacheUsedBytes
		}
	}
	return bytes
}

// capacity returns how many bytes the backends of a group can cache.
func (r *registry) capacity(groupID string) (bytes int64) {
	for _, b := range r.byID {
		if b.Heartbeat.GroupID == groupID && b.Membership != Out {
			bytes += b.Heartbeat.CacheCapacityBytes
		}
	}
	return bytes
}

// SaveJob keeps how far the run of a job has come.
func (d *Directory) SaveJob(ctx context.Context, id int64, p JobProgress) error {
	return d.alterJob(ctx, id, func(r *registry, j *Job) { j.progress(r, p) })
}

// FinishJob ends a run: a job that runs once is finished, a periodic one waits.
func (d *Directory) FinishJob(ctx context.Context, id int64, p JobProgress) error {
	return d.alterJob(ctx, id, func(r *registry, j *Job) {
		j.progress(r, p)
		j.Finished, j.Status = time.Now().Round(0).UTC(), JobFinished
		if j.Periodic() {
			j.Status = JobPending
		}
	})
}

func (j *Job) progress(r *registry, p JobProgress) {
	if room := r.capacity(j.DstGroup); p.BytesListed > room {
		p.Warning = doesNotFit("the objects below the prefix so far have", p.BytesListed, room)
	}
	j.JobProgress = p
}

// TabletView is one tablet as SHOW TABLETS shows it.
type TabletView struct {
	TabletID  uint64
	BackendID int64
}

// TabletsOf returns the known tablets that a backend serves, in the order of
// their ids: at most limit.
func (d *Directory) TabletsOf(backendID int64, limit int) ([]TabletView, error) {
	groupID, ok := d.groupOf(backendID)
	if !ok {
		return nil, fmt.Errorf("%w backend %d", ErrUnknown, backendID)
	}
	g := d.current(time.Now()).group(groupID)
	var views []TabletView
	for bucket := 0; g != nil && bucket < BucketCount; bucket++ {
		for _, id := range d.tablets.appendIDs(nil, bucket) {
			route := block.Route{Kind: block.RouteTablet, ID: id}
			if r, at := g.owner(route, keyOf(route)); r.ids[at] == backendID {
				views = append(views, TabletView{TabletID: id, BackendID: backendID})
			}
		}
	}
	slices.SortFunc(views, func(a, b TabletView) int { return cmp.Compare(a.TabletID, b.TabletID) })
	return views[:min(limit, len(views))], nil
}

// groupOf returns the group that a backend belongs to.
func (d *Directory) groupOf(backendID int64) (id string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.mu.byID[backendID]
	if b == nil {
		return "", false
	}
	return b.Heartbeat.GroupID, true
}
