package main

import (
	"testing"
	"time"
)

// TestAllWaysMoveBytes moves some by each; how fast is not the test's business.
func TestAllWaysMoveBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes half a gigabyte")
	}
	if err := run(1, time.Millisecond, t.TempDir()); err != nil {
		t.Error(err)
	}
}
