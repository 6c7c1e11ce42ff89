package main

import (
	"testing"
	"time"

	"headstart/shards/placement"
)

// TestTabletsAreKnownToTheFEWithPeerReadOff: warm-ups and balance need to know of
// them, whether BEs ask each other or not.
func TestTabletsAreKnownToTheFEWithPeerReadOff(t *testing.T) {
	s3 := warehouse(t, 3)
	f, db := startTestFE(t, map[string]string{"balance_type": string(placement.WithoutWarmup)})
	b := patientBE(t, f, s3, map[string]string{})
	until(t, db, "SHOW BACKENDS", alive(1))
	for i := range 3 {
		readFile(t, b, i)
	}
	b.reporter.stop()
	if known, _ := f.directory.Tablets(); known != 0 {
		t.Fatalf("%d tablets are known already", known)
	}
	now, lookups := time.Now(), func() int64 { return f.directory.Metrics().Lookups }
	b.reporter.report(t.Context(), now)
	if known, _ := f.directory.Tablets(); known != 3 {
		t.Errorf("%d tablets are known", known)
	}
	before := lookups()
	b.reporter.report(t.Context(), now) // for an FE that has died since
	b.reporter.report(t.Context(), now)
	if before++; lookups() != before {
		t.Error("what was told twice is told again")
	}
	b.reporter.report(t.Context(), now.Add(24*time.Hour))
	if lookups() != before+1 {
		t.Error("what was told yesterday is not told again")
	}
}
