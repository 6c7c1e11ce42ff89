package s3law

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestLawQuantiles draws the law without waiting for it.
func TestLawQuantiles(t *testing.T) {
	const n = 200_000
	var slow int
	fast := make([]time.Duration, 0, n)
	law := Law{Seed: 7}
	for i := range uint64(n) {
		if d := law.FirstByte(i); d == SlowFirstByte {
			slow++
		} else {
			fast = append(fast, d)
		}
	}
	if share := float64(slow) / n; math.Abs(share-SlowShare) > 0.001 {
		t.Errorf("slow share %.4f, want %.2f", share, SlowShare)
	}
	slices.Sort(fast)
	for _, c := range []struct{ q, ms float64 }{{0.50, 28}, {0.84134, 49.2}, {0.99, 104}} {
		got := fast[int(c.q*float64(len(fast)))].Seconds() * 1000
		if math.Abs(got-c.ms) > 0.02*c.ms {
			t.Errorf("quantile %.3f is %.1f ms, want %.1f", c.q, got, c.ms)
		}
	}
}

// TestLawNeighboursAreIndependent: requests draw by number, so numbers that
// follow one another must not draw alike.
func TestLawNeighboursAreIndependent(t *testing.T) {
	const n = 100_000
	law := Law{Seed: 1}
	var sum, sumSq, sumProduct float64
	last := math.Log(float64(law.FirstByte(0)))
	for i := range uint64(n) {
		x := math.Log(float64(law.FirstByte(i + 1)))
		sum, sumSq, sumProduct = sum+x, sumSq+x*x, sumProduct+x*last
		last = x
	}
	mean := sum / n
	if r := (sumProduct/n - mean*mean) / (sumSq/n - mean*mean); math.Abs(r) > 0.02 {
		t.Errorf("draws that follow one another correlate by %.3f", r)
	}
}

func TestLawSeed(t *testing.T) {
	one, again, other := Law{Seed: 1}, Law{Seed: 1}, Law{Seed: 2}
	var same int
	for i := range uint64(1000) {
		if one.FirstByte(i) != again.FirstByte(i) {
			t.Fatalf("draw %d of one seed differs", i)
		}
		if one.FirstByte(i) == other.FirstByte(i) {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d of 1000 draws of two seeds are the same", same)
	}
}

func TestLawBody(t *testing.T) {
	if got := (Law{}).Body(90_000_000); got != time.Second {
		t.Errorf("90 MB take %v, want 1s", got)
	}
}
