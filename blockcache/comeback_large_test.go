//go:build !race

package blockcache

import (
	"testing"

	"headstart/engine/block"
)

// What the disk is to give back of a large file it gives back in steps, each of
// them small enough to be done before a disk counts as one that hangs. The race
// detector's builds would keep the file on the heap.
func TestLC15_LargeFilesAreTrimmedInSteps(t *testing.T) {
	const capacity = 3*diskStep + 1<<20
	var sum, most int64
	punched := func(_, n int64) error {
		sum, most = sum+n, max(most, n)
		return nil
	}
	c := open(t, hook(options(t.TempDir(), capacity, 64*kib), hooked{punch: punched}))
	flush(t, c) // the writer has done what a start asks for
	if sum != pages(capacity) || most > diskStep {
		t.Errorf("%d bytes given back, up to %d at once; want %d, up to %d", sum, most, pages(capacity), int64(diskStep))
	}
	if !offer(c, 1, 0, 64*kib, block.QueueNormal) {
		t.Error("no room")
	}
	has(t, c, 1, 0, 64*kib)
}
