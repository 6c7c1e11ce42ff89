package store

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// childEnv makes the test binary the FE that is killed.
const childEnv = "HEADSTART_TEST_STORE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		saveForever(path)
	}
	os.Exit(m.Run())
}

func fullRecord(id int64) placement.Record {
	return placement.Record{ID: id, Decommissioned: true, Heartbeat: placement.Heartbeat{
		NodeID: "node", Host: "10.0.0.1", HeartbeatPort: 9050, BePort: 9060, HTTPPort: 8040, BrpcPort: 8060,
		ArrowFlightSQLPort: 8050, GroupID: "cg1", GroupName: "group", CloudUniqueID: "1:x:y", Location: "az1",
		Version: "1.0", Started: time.Date(2026, 11, 29, 1, 2, 3, 4, time.UTC), CPUCores: 8, MemoryBytes: 1 << 35,
		CacheCapacityBytes: 1 << 40, Leaving: true,
	}}
}

func fullRound(groupID string) placement.Round {
	at := time.Date(2026, 11, 29, 1, 2, 3, 4, time.UTC)
	r := placement.Round{
		GroupID: groupID, Type: placement.SyncWarmup, Started: at, Ended: at.Add(time.Minute), Moves: 5,
		RoundCounts: placement.RoundCounts{Moved: 4, Warm: 3, TimedOut: 2, Failed: 1},
	}
	r.Switched.Add(70)
	return r
}

func fullJob(id int64) placement.Job {
	at := time.Date(2026, 11, 29, 1, 2, 3, 4, time.UTC)
	j := placement.Job{
		ID: id, Type: placement.JobTablet, SrcGroup: "cg1", DstGroup: "cg2", Tablets: []uint64{1, 1 << 63},
		Prefix: block.Object{Store: "s3", Bucket: "b", Key: "k/"}, IntervalS: 60, Status: placement.JobRunning,
		Created: at, Started: at.Add(time.Second), Finished: at.Add(time.Minute),
		JobProgress: placement.JobProgress{
			Step: 8, After: "k/1", Listed: true, FinishBatch: 1, AllBatch: 2, Blocks: 3, Bytes: 4, BytesListed: 5,
			FailedParts: 6, Err: "why", Warning: "what",
		},
	}
	j.Done.Add(1)
	return j
}

func open(t *testing.T, path string) *Bolt {
	t.Helper()
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func loaded(t *testing.T, b *Bolt) placement.State {
	t.Helper()
	s, err := b.Load(t.Context(), "other cluster")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestS86_WhatIsSavedIsLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fe.db")
	b := open(t, path)
	s, err := b.Load(t.Context(), "cluster1")
	if err != nil || !reflect.DeepEqual(s, placement.State{ClusterID: "cluster1", LastID: 10000}) {
		t.Fatalf("a new store has %+v, %v", s, err)
	}
	tablet, external := block.TabletRoute(1), block.Route{Kind: block.RouteExternal, ID: 1}
	for _, c := range []placement.Change{
		{
			Backends: []placement.Record{fullRecord(10001), fullRecord(10002)},
			Groups:   []placement.Group{{ID: "cg1", Name: "group", Suspended: true}},
		},
		{Assignments: []placement.Assignment{
			{Route: tablet, GroupID: "cg1", BackendID: 10002}, {Route: external, GroupID: "cg1", BackendID: 10001},
		}},
		{Dropped: []int64{10002}, Assignments: []placement.Assignment{{Route: tablet, GroupID: "cg1"}}},
		{Rounds: []placement.Round{fullRound("cg2")}, Jobs: []placement.Job{fullJob(10003), fullJob(10004)}},
		{Rounds: []placement.Round{fullRound("cg1")}, DroppedJobs: []int64{10004}},
		{Tablets: []placement.TabletBucket{{Index: 4095, Data: []byte("data")}}},
	} {
		if err := b.Save(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	want := placement.State{
		ClusterID: "cluster1", LastID: 10004,
		Backends:    []placement.Record{fullRecord(10001)},
		Groups:      []placement.Group{{ID: "cg1", Name: "group", Suspended: true}},
		Assignments: []placement.Assignment{{Route: external, GroupID: "cg1", BackendID: 10001}},
		Rounds:      []placement.Round{fullRound("cg1"), fullRound("cg2")},
		Jobs:        []placement.Job{fullJob(10003)},
		Tablets:     []placement.TabletBucket{{Index: 4095, Data: []byte("data")}},
	}
	if got := loaded(t, open(t, path)); !reflect.DeepEqual(got, want) {
		t.Errorf("loaded %+v\nwant   %+v", got, want)
	}
}

// A field that is renamed would be lost by the stores that exist: schema 1.
func TestS86_StoredFormDoesNotChangeUnseen(t *testing.T) {
	full := fullRecord(10001)
	full.Membership = placement.Leaving
	group := placement.Group{ID: "cg1", Name: "group", Suspended: true, BalanceType: placement.SyncWarmup, WarmUpTimeoutS: 7}
	for file, record := range map[string]any{
		"record.v1.json": fullRecord(10001), "leaving.v1.json": full, "group.v1.json": group,
		"round.v1.json": fullRound("cg1"), "job.v1.json": fullJob(10003),
	} {
		golden, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != strings.TrimSpace(string(golden)) {
			t.Errorf("%s: stored as\n%s\nwant\n%s", file, got, golden)
		}
	}
}

func TestS86_StoresThatAreNotOursAreRefusedUntouched(t *testing.T) {
	rewrite := func(update func(*bbolt.Tx) error) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Update(update); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		make func(*testing.T, string)
		want string
	}{
		"newer schema": {rewrite(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("meta")).Put([]byte("schema"), []byte("2"))
		}), "the file has schema 2 and this program knows up to 1; start the newer program"},
		"no schema": {rewrite(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("meta")).Delete([]byte("schema"))
		}), "belongs to another program"},
		"other buckets": {rewrite(func(tx *bbolt.Tx) error {
			if err := tx.DeleteBucket([]byte("meta")); err != nil {
				return err
			}
			_, err := tx.CreateBucket([]byte("aaa"))
			return err
		}), `belongs to another program (it holds "aaa")`},
		"not bbolt": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("no database\n", 4096)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "invalid database"},
		"cut": {func(t *testing.T, path string) {
			if err := os.Truncate(path, 9000); err != nil {
				t.Fatal(err)
			}
		}, "fe.db"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "fe.db")
			b := open(t, path)
			loaded(t, b)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			c.make(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Open(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one that names the file and says %q", err, c.want)
			}
			if after, err := os.ReadFile(path); err != nil || !slices.Equal(before, after) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

func TestS86_SecondProcessIsToldWhoHoldsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fe.db")
	open(t, path)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("error %v", err)
	}
}

// saveForever saves one backend and its assignment after another, and prints
// each number once it is saved.
func saveForever(path string) {
	b, err := Open(path)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	s, err := b.Load(ctx, "cluster1")
	if err != nil {
		panic(err)
	}
	for id := s.LastID + 1; ; id++ {
		c := placement.Change{
			Backends:    []placement.Record{fullRecord(id)},
			Groups:      []placement.Group{{ID: "cg1"}},
			Assignments: []placement.Assignment{{Route: block.TabletRoute(id), GroupID: "cg1", BackendID: id}},
		}
		if err := b.Save(ctx, c); err != nil {
			panic(err)
		}
		fmt.Println(id)
	}
}

func TestS86_KillNineLosesNothingThatWasSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fe.db")
	var last int64
	for range 5 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childEnv+"="+path)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 20 && lines.Scan(); n++ {
			if _, err := fmt.Sscan(lines.Text(), &last); err != nil {
				t.Fatal(err)
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what was saved before the signal arrived
			if _, err := fmt.Sscan(lines.Text(), &last); err != nil {
				t.Fatal(err)
			}
		}
		_ = child.Wait() // "signal: killed"
	}
	if last < 10100 {
		t.Fatalf("only %d was reached", last)
	}
	s := loaded(t, open(t, path))
	if s.ClusterID != "cluster1" || s.LastID < last || len(s.Backends) != int(s.LastID-10000) {
		t.Errorf("%s: last number %d, %d backends; %d was saved", s.ClusterID, s.LastID, len(s.Backends), last)
	}
	if len(s.Assignments) != len(s.Backends) {
		t.Errorf("%d backends but %d assignments: half a save was kept", len(s.Backends), len(s.Assignments))
	}
}
