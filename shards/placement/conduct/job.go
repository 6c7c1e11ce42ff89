package conduct

import (
	"context"
	"fmt"
	"time"

	"headstart/shards/placement"
)

// job is a run of a warm-up job under way.
type job struct {
	placement.Job
	batches map[*jobBatch]bool
	// taken are the buckets that are done or in batches.
	taken placement.Buckets
	// listing is set while a backend is asked for objects, turn is which, broken
	// how often that has failed in a row.
	listing      bool
	turn, broken int
	// pause is when the job may be looked at again after a failure.
	pause time.Time
	// news is set while the Directory lacks progress; told is when it got some.
	news bool
	told time.Time
}

// jobBatch is a batch of a job: buckets from one on, or a page of objects.
type jobBatch struct {
	batch
	from    int
	attempt int
	objects []placement.WarmObject
	more    bool
}

// stepJobs takes every job as far as it goes now.
func (c *Conductor) stepJobs(ctx context.Context, now time.Time) {
	under := make(map[int64]bool)
	for _, due := range c.directory.DueJobs() {
		if due.Status == placement.JobPending {
			started, err := c.directory.StartJob(ctx, due.ID, c.options.BatchTablets)
			if err != nil {
				continue // cancelled, or the store fails: tried again
			}
			due = started
		}
		under[due.ID] = true
		j := c.jobs[due.ID]
		if j == nil {
			j = &job{Job: due, taken: due.Done, batches: make(map[*jobBatch]bool)}
			c.jobs[due.ID] = j
		}
		if c.stepJob(ctx, j, now) {
			delete(c.jobs, due.ID)
		}
	}
	for id, j := range c.jobs {
		if !under[id] { // cancelled
			for b := range j.batches {
				c.release(b.parts, true)
			}
			delete(c.jobs, id)
		}
	}
}

// stepJob reports whether the run has ended.
func (c *Conductor) stepJob(ctx context.Context, j *job, now time.Time) bool {
	for b := range j.batches {
		if b.all((*part).ended) {
			c.settleJob(j, b, now)
		}
	}
	done := false
	switch {
	case now.Before(j.pause):
	case j.Type == placement.JobPrefix:
		done = j.Listed && len(j.batches) == 0
		if !done && !j.listing && len(j.batches) == 0 {
			c.list(ctx, j, now)
		}
	default:
		c.fillJob(j, now)
		done = j.Done.Len() == placement.BucketCount
	}
	if done {
		err := c.directory.FinishJob(ctx, j.ID, j.JobProgress)
		return err == nil || lost(err)
	}
	if j.news && now.Sub(j.told) >= pollEvery {
		j.told = now
		if err := c.directory.SaveJob(ctx, j.ID, j.JobProgress); err == nil || lost(err) {
			j.news = false
		}
	}
	return false
}

// settleJob takes a batch into the books whose parts have all ended. One that
// has failed is tried again, by who serves its tablets then.
func (c *Conductor) settleJob(j *job, b *jobBatch, now time.Time) {
	broken := 0
	for _, p := range b.parts {
		if p.state == failed {
			broken++
			j.Err, j.news = p.err, true
		}
	}
	if broken > 0 && b.attempt+1 < c.options.Attempts {
		if now.Sub(b.started) < retryAfter {
			return
		}
		b.started = now
		if c.plan(j, b) {
			b.attempt++
		}
		return
	}
	for _, p := range b.parts {
		j.Blocks += p.progress.Blocks
		j.Bytes += p.progress.Bytes
	}
	delete(j.batches, b)
	j.FailedParts += broken
	j.FinishBatch++
	j.news = true
	if j.Type != placement.JobPrefix {
		j.Done.AddAll(&b.buckets)
		return
	}
	if n := len(b.objects); n > 0 {
		j.After = b.objects[n-1].Object.Key
	}
	j.Listed = !b.more
}

// plan gives the parts of a batch out, to who serves its tablets or objects
// now. It reports whether there is anybody.
func (c *Conductor) plan(j *job, b *jobBatch) bool {
	var work []placement.WarmPart
	var err error
	if j.Type == placement.JobPrefix {
		work, err = c.directory.ObjectParts(j.DstGroup, b.objects)
	} else {
		work, err = c.directory.JobParts(&j.Job, b.from, min(b.from+j.Step, placement.BucketCount))
	}
	if err != nil {
		j.Err, j.news = err.Error(), true
		return false
	}
	b.parts = c.give(work)
	return true
}

// fillJob makes batches of what is left, as many as may be under way.
func (c *Conductor) fillJob(j *job, now time.Time) {
	for from := 0; from < placement.BucketCount && len(j.batches) < c.options.MaxBatches; from += j.Step {
		if j.taken.Has(from) {
			continue
		}
		b := &jobBatch{from: from}
		b.started = now
		if !c.plan(j, b) {
			j.pause = now.Add(pollEvery)
			return
		}
		for i := from; i < min(from+j.Step, placement.BucketCount); i++ {
			b.buckets.Add(i)
		}
		j.taken.AddAll(&b.buckets)
		j.batches[b] = true
		if len(b.parts) == 0 {
			c.settleJob(j, b, now)
		}
	}
}

// pageSize is how many objects of a prefix make a batch.
const pageSize = 1000

// list asks a backend of the destination for the next objects of a prefix.
func (c *Conductor) list(ctx context.Context, j *job, now time.Time) {
	j.turn++
	id, addr, ok := c.directory.AnyMember(j.DstGroup, j.turn)
	if !ok {
		j.Err, j.news, j.pause = "no backend of the destination is alive", true, now.Add(pollEvery)
		return
	}
	j.listing = true
	call := placement.ListCall{Prefix: j.Prefix, After: j.After, Max: pageSize}
	c.calls.Go(func() { // ends with the call, which has a limit
		callCtx, cancel := context.WithTimeout(ctx, 4*callTimeout)
		defer cancel()
		page, err := c.backends.List(callCtx, addr, call)
		c.tell(ctx, func() { c.listed(j, id, page, err) })
	})
}

// listed makes a batch of a page of objects.
func (c *Conductor) listed(j *job, id int64, page placement.ListReply, err error) {
	if c.jobs[j.ID] != j {
		return // cancelled
	}
	j.listing = false
	now := time.Now()
	if err != nil {
		if j.broken++; j.broken >= c.options.Attempts {
			j.Listed = true
			j.FailedParts++
		}
		j.Err, j.news, j.pause = fmt.Sprintf("backend %d can't list %s: %v", id, j.Prefix, err), true, now.Add(retryAfter)
		return
	}
	j.broken = 0
	b := &jobBatch{objects: page.Objects, more: page.More}
	b.started = now
	if !c.plan(j, b) {
		j.pause = now.Add(pollEvery)
		return
	}
	for _, o := range page.Objects {
		j.BytesListed += max(0, o.Meta.Size)
	}
	j.AllBatch = j.FinishBatch + 1
	if page.More {
		j.AllBatch++
	}
	j.batches[b], j.news = true, true
}
