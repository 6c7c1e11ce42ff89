package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"headstart/engine/block"
)

// JobType says what a warm-up job copies.
type JobType string

// The types of jobs.
const (
	// JobCluster copies what the backends of another group have cached.
	JobCluster JobType = "CLUSTER"
	// JobTablet copies what other groups have cached of some tablets.
	JobTablet JobType = "TABLET"
	// JobPrefix reads the objects below a prefix from object storage.
	JobPrefix JobType = "PREFIX"
)

// JobStatus is how far a job is:
//
//	          starts              all batches done
//	pending ──────────► running ───────────────────► finished
//	   ▲                   │
//	   └───────────────────┘ a periodic job, until it is due again
//	pending, running ──────────────────────────────► cancelled
type JobStatus string

// The states of a job, by the reference's words.
const (
	JobPending   JobStatus = "PENDING"
	JobRunning   JobStatus = "RUNNING"
	JobFinished  JobStatus = "FINISHED"
	JobCancelled JobStatus = "CANCELLED"
)

// Job is a warm-up job, as it is kept.
type Job struct {
	ID   int64
	Type JobType
	// SrcGroup is set for JobCluster. Both are ids.
	SrcGroup, DstGroup string
	Tablets            []uint64 `json:",omitempty"`
	// Prefix is an object store's path without the last part of the name.
	Prefix block.Object
	// IntervalS is 0 for a job that runs once.
	IntervalS int
	Status    JobStatus
	// Started is the start of the current run, or of the last one.
	Created, Started, Finished time.Time
	JobProgress
}

// JobProgress is how far the current run of a job is, or how far the last one
// came. It is saved now and then: a new leader does again what came after.
type JobProgress struct {
	// Step is how many buckets one batch has; Done has the buckets that are done.
	Step int
	Done Buckets
	// After is the last key of the prefix that is done; Listed is set when there
	// are no more.
	After  string
	Listed bool
	// FinishBatch of AllBatch batches are done. The number of those of a prefix
	// is known when it has been listed.
	FinishBatch, AllBatch int
	// Blocks and Bytes were copied; BytesListed is the size of a prefix so far.
	Blocks, Bytes, BytesListed int64
	// FailedParts counts the pieces of work that were given up.
	FailedParts int
	// Err is why the last one was given up, Warning what is wrong with the job.
	Err, Warning string
}

// maxJobs is how many jobs are kept that have ended.
const maxJobs = 100

// maxJobTablets bounds the tablets that one job may name.
const maxJobTablets = 100_000

// Periodic reports whether the job runs again and again.
func (j *Job) Periodic() bool { return j.IntervalS > 0 }

// Active reports whether the job has not ended.
func (j *Job) Active() bool { return j.Status == JobPending || j.Status == JobRunning }

// ETA returns how long the run will take if it goes on as it went: 0 when that
// can't be told.
func (j *Job) ETA(now time.Time) time.Duration {
	if j.Status != JobRunning || j.FinishBatch == 0 || j.Type == JobPrefix && !j.Listed {
		return 0
	}
	return now.Sub(j.Started) * time.Duration(j.AllBatch-j.FinishBatch) / time.Duration(j.FinishBatch)
}

// check refuses a job that can't be meant.
func (j *Job) check(r *registry) error {
	for _, id := range [...]string{j.DstGroup, j.SrcGroup} {
		if r.groups[id] == nil && (id != "" || j.Type == JobCluster) {
			return fmt.Errorf("%w compute group %q", ErrUnknown, id)
		}
	}
	switch {
	case j.DstGroup == "":
		return fmt.Errorf("%w warm-up job: no compute group to warm up", ErrInvalid)
	case j.Type == JobCluster && j.SrcGroup == j.DstGroup:
		return fmt.Errorf("%w warm-up job: source and destination are the same compute group", ErrInvalid)
	case j.Type == JobTablet && (len(j.Tablets) == 0 || len(j.Tablets) > maxJobTablets):
		return fmt.Errorf("%w warm-up job: %d tablets: want 1 to %d", ErrInvalid, len(j.Tablets), maxJobTablets)
	case j.Type == JobPrefix && j.Prefix.Bucket == "":
		return fmt.Errorf("%w warm-up job: the prefix names no bucket", ErrInvalid)
	case j.Type != JobCluster && j.Type != JobTablet && j.Type != JobPrefix:
		return fmt.Errorf("%w warm-up job: type %q", ErrInvalid, j.Type)
	case j.IntervalS < 0:
		return fmt.Errorf("%w warm-up job: sync_interval_sec %d: want 1 or more", ErrInvalid, j.IntervalS)
	}
	return nil
}

// same reports whether two jobs do the same, so that one of them is too many.
func (j *Job) same(other *Job) bool {
	return j.Type == other.Type && j.SrcGroup == other.SrcGroup && j.DstGroup == other.DstGroup &&
		j.Prefix == other.Prefix && j.IntervalS == other.IntervalS && slices.Equal(j.Tablets, other.Tablets)
}

// CreateJob keeps a new job, which starts when the destination has no other
// that runs, and returns its number. Of the job, what it is to do is taken.
func (d *Directory) CreateJob(ctx context.Context, job Job) (int64, error) {
	slices.Sort(job.Tablets)
	job.Tablets = slices.Compact(job.Tablets)
	err := d.alter(ctx, func(r *registry) (Change, error) {
		if err := job.check(r); err != nil {
			return Change{}, err
		}
		var ended []*Job
		for _, other := range r.jobs {
			if !other.Active() {
				ended = append(ended, other)
			} else if job.same(other) {
				return Change{}, fmt.Errorf("%w warm-up job: job %d does the same; cancel it first", ErrInvalid, other.ID)
			}
		}
		job.ID = r.lastID + 1
		job.Status, job.Created = JobPending, time.Now().Round(0).UTC()
		c := Change{Jobs: []Job{job}}
		slices.SortFunc(ended, func(a, b *Job) int { return cmp.Compare(a.ID, b.ID) })
		for _, old := range ended[:max(0, len(ended)-maxJobs+1)] {
			c.DroppedJobs = append(c.DroppedJobs, old.ID)
		}
		return c, nil
	})
	return job.ID, err
}

// CancelJob ends a job. What its backends have been given, they are told to drop.
func (d *Directory) CancelJob(ctx context.Context, id int64) error {
	return d.alterJob(ctx, id, func(_ *registry, j *Job) {
		j.Status, j.Finished = JobCancelled, time.Now().Round(0).UTC()
	})
}

// alterJob changes a job that has not ended.
func (d *Directory) alterJob(ctx context.Context, id int64, change func(*registry, *Job)) error {
	return d.alter(ctx, func(r *registry) (Change, error) {
		j := r.jobs[id]
		switch {
		case j == nil:
			return Change{}, fmt.Errorf("%w warm-up job %d", ErrUnknown, id)
		case !j.Active():
			return Change{}, fmt.Errorf("%w: warm-up job %d is %s", ErrOver, id, j.Status)
		}
		changed := *j
		change(r, &changed)
		return Change{Jobs: []Job{changed}}, nil
	})
}

// Jobs returns all jobs that are kept, in the order of their numbers.
func (d *Directory) Jobs() []Job {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Job, 0, len(d.mu.jobs))
	for _, j := range d.mu.jobs {
		all = append(all, *j)
	}
	slices.SortFunc(all, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// DueJobs returns the jobs that are to run now: those that run, and of those
// that are pending and due the first of each destination that has none.
func (d *Directory) DueJobs() []Job {
	now, busy := time.Now(), make(map[string]bool)
	var due, pending []Job
	for _, j := range d.Jobs() {
		switch {
		case j.Status == JobRunning:
			due, busy[j.DstGroup] = append(due, j), true
		case j.Status == JobPending && !now.Before(j.Started.Add(time.Duration(j.IntervalS)*time.Second)):
			pending = append(pending, j)
		}
	}
	for _, j := range pending {
		if !busy[j.DstGroup] {
			due, busy[j.DstGroup] = append(due, j), true
		}
	}
	return due
}
