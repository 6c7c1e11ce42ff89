package blockcache

import (
	"math/rand/v2"
	"testing"

	"headstart/engine/block"
)

// mix draws block sizes from one to most, as many small as large ones.
func mix(rng *rand.Rand, least, most int) int {
	steps := 0
	for least<<(steps+1) <= most {
		steps++
	}
	n := least << rng.IntN(steps+1)
	return min(most, n+rng.IntN(n))
}

// A mix of sizes that shifts: what is allocated on disk holds live data.
func TestS52_MixedSizesWasteLittle(t *testing.T) {
	const total = 64 << 20
	dir := t.TempDir()
	o := options(dir, total, 1<<20)
	o.WriteQueueBytes = 4 << 20
	c := open(t, o)
	rng := rand.New(rand.NewPCG(7, 7))
	object := 0
	for phase, bounds := range [][2]int{
		{4 << 10, 1 << 20}, {4 << 10, 64 << 10}, {256 << 10, 1 << 20}, {4 << 10, 1 << 20}, {16 << 10, 256 << 10}, {4 << 10, 1 << 20},
	} {
		moved, written := c.Metrics().MovedBytes, int64(0)
		for written < total*5/4 {
			size := mix(rng, bounds[0], bounds[1])
			offer(c, object/200, uint64(object%200), size, block.QueueNormal)
			written += int64(size)
			object++
			flush(t, c)
		}
		m, used := c.Metrics(), allocated(t, dir)
		t.Logf("phase %d: %.1f %% of %d KiB allocated are live, %d blocks, %.0f %% written again to move",
			phase, 100*float64(m.Bytes)/float64(used), used>>10, m.Blocks, 100*float64(m.MovedBytes-moved)/float64(written))
		if used > total {
			t.Errorf("phase %d: %d bytes of disk in use, capacity %d", phase, used, total)
		}
		if float64(m.Bytes) < 0.9*float64(used) {
			t.Errorf("phase %d: %d bytes live of %d allocated", phase, m.Bytes, used)
		}
		invariants(t, c)
	}
}
