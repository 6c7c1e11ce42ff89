package shards

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

func (w *world) race(name string, outcomes string) {
	for _, o := range outcomes {
		w.peers.NoteRace(addr(name), o == 'w')
	}
}

func TestS37_SlowPeerIsTriedLastAndProbedBack(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.read("a=hit")
		w.race("a", "wlllllllllllllll"[:15])
		w.wantOrder("a b")
		w.race("a", "l")
		w.wantOrder("b a")
		w.set.SlowPeerEjection.Store(false)
		w.wantOrder("a b")
		w.set.SlowPeerEjection.Store(true)
		time.Sleep(ejectFor - time.Millisecond)
		w.wantOrder("b a")
		time.Sleep(time.Millisecond)
		w.wantOrder("a b")
		w.race("a", "lwll")
		w.wantOrder("b a")
		time.Sleep(2*ejectFor - time.Millisecond)
		w.wantOrder("b a")
		time.Sleep(time.Millisecond)
		w.race("a", "wwlw"+"wwww")
		w.wantOrder("a b")
		w.race("a", "wlwlwlwlwlwlwlwl")
		w.race("a", "llll")
		w.wantOrder("a b")
		if n := w.peers.Metrics().Ejected; n != 2 {
			t.Fatalf("%d ejections", n)
		}
	})
}

func TestS37_EjectionGetsLongerUpToABound(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.race("a", "llllllllllll")
		for i := range 12 {
			w.race("a", "llll")
			begin := time.Now()
			for w.order() == "b a" {
				time.Sleep(time.Second)
			}
			if got, want := time.Since(begin), ejectFor<<min(i, maxLevel); got != want {
				t.Fatalf("ejection %d lasted %v, want %v", i, got, want)
			}
			w.read("a=busy b=busy")
		}
	})
}

func TestS37_ShortEjectionDoesNotEndALongOne(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b c")
		w.race("a", "llllllllllllllll")
		time.Sleep(ejectFor)
		w.race("a", "llll")
		w.race("b", "llllllllllllllll")
		w.wantOrder("c a b")
		time.Sleep(ejectFor)
		w.wantOrder("b c a")
	})
}

func TestS37_AllSlowMeansStoreFirst(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.race("a", "llllllllllllllll")
		w.wantState(Ready)
		w.race("b", "llllllllllllllll")
		w.wantState(Slow)
		w.wantOrder("a b")
		time.Sleep(ejectFor)
		w.wantState(Ready)
	})
}

func TestS37_RacesDuringTheEjectionDoNotCount(t *testing.T) {
	inBubble(t, func(w *world) {
		w.learn("a b")
		w.race("a", "llllllllllllllll")
		w.race("a", "llllllllllllllllllllllllllllllll")
		time.Sleep(ejectFor)
		w.wantOrder("a b")
	})
}

// TestS36_QuantileFollowsALaw draws from the latency law of a healthy peer.
func TestS36_QuantileFollowsALaw(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func() time.Duration {
		ms := 1.2 * math.Exp(0.5*r.NormFloat64())
		switch u := r.Float64(); {
		case u < 0.03:
			ms += 12 * r.ExpFloat64()
		case u < 0.05:
			ms += 250 * r.ExpFloat64()
		}
		return time.Duration(ms * float64(time.Millisecond))
	}
	all := make([]time.Duration, 200_000)
	for i := range all {
		all[i] = draw()
	}
	slices.Sort(all)
	var l Latency
	errs := make([]float64, 0, 2000)
	for _, q := range []float64{0.5, 0.95} {
		exact := float64(all[int(q*float64(len(all)))])
		errs = errs[:0]
		for range 2000 {
			for range 16 {
				l.Observe(draw())
			}
			got, ok := l.Quantile(q)
			if ok {
				errs = append(errs, float64(got)/exact-1)
			}
		}
		slices.Sort(errs)
		if m := errs[len(errs)/2]; math.Abs(m) > 0.1 {
			t.Errorf("quantile %v is off by %.1f %% in the median", q, 100*m)
		}
		if low, high := errs[len(errs)/20], errs[len(errs)*19/20]; low < -0.3 || high > 1 {
			t.Errorf("quantile %v is off by %.0f %% to %.0f %%", q, 100*low, 100*high)
		}
	}
}

func TestS36_QuantileNeedsEnoughAndForgets(t *testing.T) {
	inBubble(t, func(w *world) {
		a := addr("a")
		if _, ok := w.peers.Quantile(a, 0.95); ok {
			t.Fatal("a quantile of nothing")
		}
		for i := range 20 {
			if _, ok := w.peers.Quantile(a, 0.95); ok {
				t.Fatalf("a 95th percentile of %d calls", i)
			}
			w.peers.Observe(a, time.Millisecond)
		}
		got, ok := w.peers.Quantile(a, 0.95)
		if !ok || got < 900*time.Microsecond || got > 1200*time.Microsecond {
			t.Fatalf("95th percentile %v, %v", got, ok)
		}
		for range 2 * latencyWindow {
			w.peers.Observe(a, 10*time.Millisecond)
		}
		if got, _ := w.peers.Quantile(a, 0.5); got < 9*time.Millisecond || got > 11*time.Millisecond {
			t.Fatalf("median %v after the change", got)
		}
		if _, ok := w.peers.Quantile(addr("b"), 0.5); ok {
			t.Fatal("addresses share a tracker")
		}
	})
}

func TestS36_BucketsCoverEveryDuration(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, 1, latencyUnit - 1, latencyUnit, 31 * time.Microsecond,
		32 * time.Microsecond, time.Millisecond, 20 * time.Millisecond, time.Second, 16 * time.Second} {
		low, width := latencyRange(latencyBucket(d))
		if d = max(0, d); d < low || d >= low+width {
			t.Errorf("%v lies in the bucket from %v, %v wide", d, low, width)
		}
	}
	if b := latencyBucket(time.Hour); b != latencyBuckets-1 {
		t.Errorf("an hour lies in bucket %d", b)
	}
}

func TestS36_ConcurrentObserversLoseNothing(t *testing.T) {
	var l Latency
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50_000 {
				l.Observe(time.Millisecond)
			}
		})
	}
	all.Wait()
	sum := int32(0)
	for i := range l.buckets {
		if n := l.buckets[i].Load(); n < 0 {
			t.Fatalf("bucket %d holds %d", i, n)
		} else {
			sum += n
		}
	}
	if total := l.total.Load(); sum != total || total >= latencyWindow+4 {
		t.Fatalf("buckets hold %d, total %d", sum, total)
	}
}
