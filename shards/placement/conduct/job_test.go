package conduct_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
	"headstart/shards/placement/conduct"
)

// twoGroups is a group src of two backends, which knows tablets, and a group
// cg of two.
func twoGroups(t *testing.T) (w *world, c, d *backend) {
	w = newWorld(t)
	w.join("a", "src")
	w.join("b", "src")
	c, d = w.join("c", "cg"), w.join("d", "cg")
	w.know(tablets)
	return w, c, d
}

func (w *world) create(j placement.Job) int64 {
	w.t.Helper()
	id, err := w.CreateJob(w.t.Context(), j)
	if err != nil {
		w.t.Fatal(err)
	}
	w.conductor.Wake()
	return id
}

func (w *world) job(id int64) *placement.Job {
	w.t.Helper()
	for _, j := range w.Jobs() {
		if j.ID == id {
			return &j
		}
	}
	w.t.Fatalf("there is no job %d", id)
	return nil
}

// finished waits for a job to end.
func (w *world) finished(id int64, limit time.Duration) *placement.Job {
	w.t.Helper()
	w.until(limit, fmt.Sprintf("job %d ends", id), func() bool { return !w.job(id).Active() })
	return w.job(id)
}

// wantWarmed fails the test unless each tablet was warmed up times times where
// cg serves it.
func (w *world) wantWarmed(times int, bes ...*backend) {
	w.t.Helper()
	owners := w.owners(tablets)
	w.change(func() {
		for _, b := range bes {
			for id, host := range owners {
				want := 0
				if host == b.beat.Host {
					want = times
				}
				if got := b.warmed[uint64(id)]; got != want {
					w.t.Fatalf("%s has warmed tablet %d up %d times, want %d", b, id, got, want)
				}
			}
		}
	})
}

func clusterJob() placement.Job {
	return placement.Job{Type: placement.JobCluster, SrcGroup: "src", DstGroup: "cg"}
}

func TestS85_JobOfAGroupWarmsEachTabletUpWhereItIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.change(func() { c.took, d.took = 10*time.Second, 10*time.Second })
		id := w.create(clusterJob())
		w.until(5*time.Second, "the job runs", func() bool { return w.job(id).Status == placement.JobRunning })
		if j := w.job(id); j.AllBatch < 9 || j.FinishBatch != 0 || j.ETA(time.Now()) != 0 {
			t.Errorf("at its start the job shows %d of %d batches, ETA %s", j.FinishBatch, j.AllBatch, j.ETA(time.Now()))
		}
		j := w.finished(id, 5*time.Minute)
		if j.Status != placement.JobFinished || j.FinishBatch != j.AllBatch || j.FailedParts != 0 || j.Err != "" || j.Bytes == 0 {
			t.Errorf("the job ends as %+v", j)
		}
		w.wantWarmed(1, c, d)
		owners, _ := w.Lookup(t.Context(), []block.Route{block.TabletRoute(7)})
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(c.sources)+len(d.sources) != 0 {
			t.Error("a job has set candidates, as only a move may")
		}
		for _, b := range []*backend{c, d} {
			for _, batch := range b.batches {
				for _, g := range batch.Groups {
					for _, tablet := range g.Tablets {
						if tablet == 7 && g.Sources[0] != owners[0][1] {
							t.Errorf("tablet 7 came from %v, src has it on %v", g.Sources, owners[0][1])
						}
					}
				}
			}
		}
	})
}

func TestS85_ProgressAndETAShowWhileAJobRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := twoGroups(t)
		w.stop()
		w.options = conduct.Options{BatchTablets: 60, MaxBatches: 1}
		w.start()
		id := w.create(clusterJob())
		w.until(time.Minute, "half is done", func() bool { return w.job(id).FinishBatch >= 5 })
		j := w.job(id)
		elapsed := time.Since(j.Started)
		want := elapsed * time.Duration(j.AllBatch-j.FinishBatch) / time.Duration(j.FinishBatch)
		if got := j.ETA(time.Now()); got != want || got < time.Second {
			t.Errorf("%d of %d batches after %s: ETA %s, want %s", j.FinishBatch, j.AllBatch, elapsed, got, want)
		}
		if rest := w.finished(id, time.Minute).Finished.Sub(time.Now().Add(-time.Since(j.Started))); rest <= 0 {
			t.Errorf("finished %s after it was half done", rest)
		}
	})
}

func TestS85_JobOfTabletsWarmsUpThoseAndNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		id := w.create(placement.Job{Type: placement.JobTablet, DstGroup: "cg", Tablets: []uint64{3, 1, 3, 1_000_000}})
		if j := w.finished(id, time.Minute); j.Status != placement.JobFinished || j.AllBatch != 1 {
			t.Errorf("the job ends as %+v", j)
		}
		got := map[uint64]int{}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, b := range []*backend{c, d} {
			for tablet, n := range b.warmed {
				got[tablet] += n
			}
		}
		if len(got) != 3 || got[1] != 1 || got[3] != 1 || got[1_000_000] != 1 {
			t.Errorf("warmed up: %v", got)
		}
	})
}

func TestS85_JobOfAPrefixGoesPageByPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		var objects []placement.WarmObject
		for i := range 25 {
			objects = append(objects, placement.WarmObject{
				Object: block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprintf("dir/%02d", i)}, Meta: block.Meta{Size: 100},
			})
		}
		w.change(func() { w.mu.objects = objects })
		id := w.create(placement.Job{Type: placement.JobPrefix, DstGroup: "cg", Prefix: block.Object{Store: "s3", Bucket: "b", Key: "dir/"}})
		j := w.finished(id, time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if j.Status != placement.JobFinished || j.FinishBatch != 3 || j.AllBatch != 3 || j.BytesListed != 2500 || w.mu.pages != 3 {
			t.Errorf("the job ends as %+v after %d pages", j, w.mu.pages)
		}
		for _, o := range objects {
			found, err := w.Lookup(t.Context(), []block.Route{block.ExternalRoute(o.Object)})
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range []*backend{c, d} {
				want := 0
				if found[0][0].Addr.Host == b.beat.Host {
					want = 1
				}
				if got := b.objects[o.Object.Key]; got != want {
					t.Errorf("%s has warmed %s up %d times, want %d", b, o.Object.Key, got, want)
				}
			}
		}
	})
}

func TestS85_PrefixThatCannotBeListedEndsWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.change(func() { c.broken = errors.New("no such bucket"); d.broken = c.broken })
		id := w.create(placement.Job{Type: placement.JobPrefix, DstGroup: "cg", Prefix: block.Object{Bucket: "b"}})
		if j := w.finished(id, time.Minute); j.FailedParts != 1 || !strings.Contains(j.Err, "no such bucket") {
			t.Errorf("the job ends as %+v", j)
		}
	})
}

func TestS85_PeriodicJobRunsAgainAndNeverOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		periodic := clusterJob()
		periodic.IntervalS = 60
		id := w.create(periodic)
		start := time.Now()
		time.Sleep(30 * time.Second)
		if j := w.job(id); j.Status != placement.JobPending || j.FinishBatch != j.AllBatch || j.Started.Sub(start) > time.Second {
			t.Errorf("between two runs the job shows %+v", j)
		}
		w.wantWarmed(1, c, d)
		w.restart() // the next run is not forgotten
		time.Sleep(time.Minute)
		w.wantWarmed(2, c, d)
		w.change(func() { c.took, d.took = 90*time.Second, 90*time.Second })
		time.Sleep(4 * time.Minute) // runs from 120 and from about 210
		w.wantWarmed(4, c, d)
		if err := w.CancelJob(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		w.wantWarmed(4, c, d)
	})
}

func TestS85_CancelledJobIsDroppedByItsBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.change(func() { c.took, d.took = time.Hour, time.Hour })
		id := w.create(clusterJob())
		time.Sleep(5 * time.Second)
		if err := w.CancelJob(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(c.batches)+len(d.batches) != 0 || c.dropped == 0 || d.dropped == 0 {
			t.Errorf("c and d still have %d and %d batches", len(c.batches), len(d.batches))
		}
		if j := w.job(id); j.Status != placement.JobCancelled || j.Finished.IsZero() {
			t.Errorf("the job shows %+v", j)
		}
		if err := w.CancelJob(t.Context(), id); !errors.Is(err, placement.ErrOver) {
			t.Errorf("a second cancel: %v", err)
		}
	})
}

func TestS85_JobGoesOnAfterTheFERestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.stop()
		w.options = conduct.Options{BatchTablets: 20, MaxBatches: 2}
		w.start()
		id := w.create(clusterJob())
		w.until(time.Minute, "a part is done", func() bool { return w.job(id).FinishBatch > 10 })
		w.restart()
		if j := w.finished(id, 5*time.Minute); j.Status != placement.JobFinished || j.FinishBatch != j.AllBatch {
			t.Errorf("the job ends as %+v", j)
		}
		again, owners := 0, w.owners(tablets)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, host := range owners {
			n := map[string]*backend{"c": c, "d": d}[host].warmed[uint64(i)]
			if n == 0 {
				t.Fatalf("tablet %d is not warm on %s", i, host)
			}
			again += n - 1
		}
		if again > 100 {
			t.Errorf("%d tablets were warmed up again", again)
		}
	})
}

func TestS85_BackendThatRestartsIsToldItsBatchesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.change(func() { c.took, d.took = 5*time.Second, 5*time.Second })
		id := w.create(clusterJob())
		time.Sleep(3 * time.Second)
		w.change(func() { c.down = true })
		time.Sleep(2 * time.Second) // shorter than the heartbeat's time limit
		w.restartBE(c)
		if j := w.finished(id, time.Minute); j.FailedParts != 0 {
			t.Errorf("the job ends as %+v", j)
		}
		w.wantWarmed(1, c, d)
	})
}

func TestS85_TabletsOfADeadBackendAreWarmedUpWhereTheyAreServedNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.change(func() { c.took, d.took = 5*time.Second, 5*time.Second })
		id := w.create(clusterJob())
		time.Sleep(2 * time.Second)
		w.change(func() { c.down = true })
		j := w.finished(id, 2*time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if j.FailedParts != 0 || len(d.warmed) != tablets {
			t.Errorf("d has warmed %d tablets up; %+v", len(d.warmed), j)
		}
	})
}

func TestS85_JobWaitsWhileItsDestinationIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.change(func() { c.down, d.down = true, true })
		time.Sleep(10 * time.Second)
		id := w.create(clusterJob())
		time.Sleep(time.Minute)
		if j := w.job(id); j.Status != placement.JobRunning || !strings.Contains(j.Err, "alive") {
			t.Errorf("with nobody to warm up the job shows %+v", j)
		}
		w.restartBE(c)
		w.restartBE(d)
		if j := w.finished(id, time.Minute); j.FailedParts != 0 || j.FinishBatch != j.AllBatch {
			t.Errorf("the job ends as %+v", j)
		}
		// The first of both that is back serves everything until the other one is.
		w.change(func() {
			for id := range uint64(tablets) {
				if c, d := c.warmed[id], d.warmed[id]; c > 1 || d > 1 || c+d == 0 {
					t.Fatalf("tablet %d was warmed up %d times on c and %d times on d", id, c, d)
				}
			}
		})
	})
}

func TestS85_JobWaitsForADestinationThatGoesDownMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.change(func() { c.took, d.took = time.Hour, time.Hour })
		id := w.create(clusterJob())
		time.Sleep(2 * time.Second)
		w.change(func() { c.down, d.down = true, true })
		time.Sleep(2 * time.Minute)
		w.change(func() { c.took, d.took = time.Second, time.Second })
		w.restartBE(c)
		w.restartBE(d)
		if j := w.finished(id, time.Minute); j.FailedParts != 0 || j.FinishBatch != j.AllBatch {
			t.Errorf("the job ends as %+v", j)
		}
		w.wantWarmed(1, c, d)
	})
}

func TestS85_PageThatComesAfterTheCancelIsNotWarmedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.change(func() {
			c.slow, d.slow = 5*time.Second, 5*time.Second
			w.mu.objects = []placement.WarmObject{{Object: block.Object{Bucket: "b", Key: "k"}}}
		})
		id := w.create(placement.Job{Type: placement.JobPrefix, DstGroup: "cg", Prefix: block.Object{Bucket: "b"}})
		time.Sleep(3 * time.Second)
		if err := w.CancelJob(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.mu.pages != 1 || c.starts+d.starts != 0 {
			t.Errorf("%d pages, then %d batches", w.mu.pages, c.starts+d.starts)
		}
	})
}

func TestS85_PartsThatKeepFailingAreCountedAndTheJobEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, d := twoGroups(t)
		w.change(func() { c.broken = errors.New("input/output error") })
		j := w.finished(w.create(clusterJob()), 20*time.Minute)
		if j.Status != placement.JobFinished || j.FailedParts == 0 || !strings.Contains(j.Err, "input/output error") {
			t.Errorf("the job ends as %+v", j)
		}
		owners := w.owners(tablets)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, host := range owners {
			if host == "d" && d.warmed[uint64(i)] == 0 {
				t.Fatalf("tablet %d of d is not warm", i)
			}
		}
	})
}

func TestS85_JobsOfOneDestinationRunOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := twoGroups(t)
		first := w.create(clusterJob())
		second := w.create(placement.Job{Type: placement.JobTablet, DstGroup: "cg", Tablets: []uint64{1}})
		time.Sleep(500 * time.Millisecond)
		if a, b := w.job(first), w.job(second); a.Status != placement.JobRunning || b.Status != placement.JobPending {
			t.Errorf("the jobs are %s and %s", a.Status, b.Status)
		}
		a, b := w.finished(first, time.Minute), w.finished(second, time.Minute)
		if b.Started.Before(a.Finished) {
			t.Errorf("the second started %s before the first had ended", a.Finished.Sub(b.Started))
		}
	})
}

func TestS85_WarnsThatItDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, c := w.join("a", "src"), w.join("c", "cg")
		w.change(func() { a.beat.CacheUsedBytes, c.beat.CacheCapacityBytes = 5000, 4999 })
		time.Sleep(2 * time.Second)
		w.know(10)
		j := w.finished(w.create(clusterJob()), time.Minute)
		if want := "does not fit: the source has cached 5000 bytes and the destination's File Cache has 4999"; j.Warning != want {
			t.Errorf("warning %q, want %q", j.Warning, want)
		}
		big := placement.WarmObject{Object: block.Object{Bucket: "b", Key: "k"}, Meta: block.Meta{Size: 5001}}
		w.change(func() { w.mu.objects = []placement.WarmObject{big} })
		j = w.finished(w.create(placement.Job{Type: placement.JobPrefix, DstGroup: "cg", Prefix: block.Object{Bucket: "b"}}), time.Minute)
		if !strings.HasPrefix(j.Warning, "does not fit: the objects below the prefix") {
			t.Errorf("warning %q", j.Warning)
		}
		w.change(func() { c.beat.CacheCapacityBytes = 5001 })
		time.Sleep(2 * time.Second)
		if j = w.finished(w.create(clusterJob()), time.Minute); j.Warning != "" {
			t.Errorf("warning %q although it fits", j.Warning)
		}
	})
}
