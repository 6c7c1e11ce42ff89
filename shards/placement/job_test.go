package placement_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"headstart/engine/block"
	"headstart/shards/placement"
)

func TestS85_JobsThatCannotBeMeantAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		ctx := t.Context()
		f.hear(beat("a", "src"), beat("b", "dst"))
		cluster := placement.Job{Type: placement.JobCluster, SrcGroup: "src", DstGroup: "dst"}
		if id, err := f.CreateJob(ctx, cluster); err != nil || id != 10003 {
			t.Fatalf("job %d, %v", id, err)
		}
		if id, err := f.CreateJob(ctx, placement.Job{Type: placement.JobTablet, DstGroup: "dst", Tablets: []uint64{2, 1, 2}}); err != nil || id != 10004 {
			t.Fatalf("job %d, %v", id, err)
		}
		if got := f.Jobs()[1].Tablets; len(got) != 2 || got[0] != 1 {
			t.Errorf("the job has tablets %v", got)
		}
		periodic := cluster
		periodic.IntervalS = -1
		for name, c := range map[string]struct {
			job  placement.Job
			want error
		}{
			"source":      {placement.Job{Type: placement.JobCluster, SrcGroup: "no", DstGroup: "dst"}, placement.ErrUnknown},
			"no source":   {placement.Job{Type: placement.JobCluster, DstGroup: "dst"}, placement.ErrUnknown},
			"destination": {placement.Job{Type: placement.JobCluster, SrcGroup: "src", DstGroup: "no"}, placement.ErrUnknown},
			"nowhere":     {placement.Job{Type: placement.JobTablet, Tablets: []uint64{1}}, placement.ErrInvalid},
			"itself":      {placement.Job{Type: placement.JobCluster, SrcGroup: "src", DstGroup: "src"}, placement.ErrInvalid},
			"no tablets":  {placement.Job{Type: placement.JobTablet, DstGroup: "dst"}, placement.ErrInvalid},
			"too many":    {placement.Job{Type: placement.JobTablet, DstGroup: "dst", Tablets: manyTablets(100_001)}, placement.ErrInvalid},
			"no bucket":   {placement.Job{Type: placement.JobPrefix, DstGroup: "dst", Prefix: block.Object{Key: "k"}}, placement.ErrInvalid},
			"type":        {placement.Job{Type: "TABLE", DstGroup: "dst"}, placement.ErrInvalid},
			"interval":    {periodic, placement.ErrInvalid},
			"twice":       {cluster, placement.ErrInvalid},
		} {
			if _, err := f.CreateJob(ctx, c.job); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if err := f.CancelJob(ctx, 9); !errors.Is(err, placement.ErrUnknown) {
			t.Errorf("cancel of no job: %v", err)
		}
		must(t, f.CancelJob(ctx, 10003))
		if _, err := f.CreateJob(ctx, cluster); err != nil {
			t.Errorf("the same job after a cancel: %v", err)
		}
	})
}

func manyTablets(n int) []uint64 {
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = uint64(i)
	}
	return ids
}

func TestS85_OnlyTheLastHundredJobsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFE(t)
		f.hear(beat("a", "dst"))
		for i := range 120 {
			id, err := f.CreateJob(t.Context(), placement.Job{Type: placement.JobTablet, DstGroup: "dst", Tablets: []uint64{uint64(i)}})
			must(t, err)
			if i > 0 {
				must(t, f.CancelJob(t.Context(), id))
			}
		}
		f.restart()
		jobs := f.Jobs()
		if len(jobs) != 101 || jobs[0].Status != placement.JobPending || jobs[100].ID != 10121 {
			t.Errorf("%d jobs are kept, the first %s, the last %d", len(jobs), jobs[0].Status, jobs[len(jobs)-1].ID)
		}
	})
}
