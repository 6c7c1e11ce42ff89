package pools

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// take takes one thing after another until it is refused.
func take(s *Shares, who string) (got int) {
	for s.TryAcquire(who, 1) {
		got++
	}
	return got
}

func TestSE05_OneAloneMayHaveAllAndGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShares(32)
		if got := take(s, "a"); got != 32 {
			t.Errorf("alone: %d", got)
		}
		if s.TryAcquire("b", 1) {
			t.Error("there are more than 32")
		}
		// What a gives back is b's, until both have a half.
		for i := range 20 {
			s.Release("a", 1)
			if !s.TryAcquire("b", 1) && i < 16 {
				t.Errorf("b is refused its part after %d", i)
			}
			if s.TryAcquire("a", 1) && i < 15 {
				t.Errorf("a gets more than its part back after %d", i)
			}
		}
		if m := s.Metrics(); m.InUse != 32 || m.Users != 2 || m.Limit != 32 {
			t.Errorf("%+v", m)
		}
		s.Release("b", 16)
		if s.TryAcquire("a", 1) {
			t.Error("a gets b's part although b has just been refused")
		}
		time.Sleep(keen)
		if got := take(s, "a"); got != 16 {
			t.Errorf("when nobody else wants it: %d more", got)
		}
		s.Release("a", 32)
		time.Sleep(keen)
		if take(s, "c"); s.Metrics().Users != 1 {
			t.Errorf("%d users are remembered", s.Metrics().Users)
		}
	})
}

func TestSharesBoundWhatOneHas(t *testing.T) {
	s := NewShares(math.MaxInt)
	s.SetLimitEach(100)
	for _, step := range []struct {
		who  string
		n    int64
		want bool
	}{
		{"a", 60, true}, {"a", 41, false}, {"a", 40, true}, {"a", 1, false}, {"b", 500, true}, {"b", 1, false}, {"c", 0, true},
	} {
		if got := s.TryAcquire(step.who, step.n); got != step.want {
			t.Errorf("%s asks for %d: %v", step.who, step.n, got)
		}
	}
	s.SetLimitEach(0)
	if !s.TryAcquire("a", 1<<40) {
		t.Error("without a bound for each")
	}
	defer func() {
		if recover() == nil {
			t.Error("a Release too many goes unseen")
		}
	}()
	s.Release("b", 501)
}

// More want it than there is: nobody goes without for long.
func TestSE05_ThousandsOfUsersAllGetTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShares(32)
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[string]int{}
		for i := range 200 {
			who := fmt.Sprint("node ", i%40)
			if i >= 40 {
				who = "greedy" // 160 of 200 callers are one
			}
			wg.Go(func() {
				random := rand.New(rand.NewPCG(2, uint64(i)))
				for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
					time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
					if s.TryAcquire(who, 1) {
						time.Sleep(10 * time.Millisecond)
						s.Release(who, 1)
						mu.Lock()
						got[who]++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		for who, n := range got {
			if who != "greedy" && n < 100 {
				t.Errorf("%s has got it %d times in 10 s", who, n)
			}
		}
		if len(got) != 41 || s.InUse() != 0 {
			t.Errorf("%d users, %d in use", len(got), s.InUse())
		}
	})
}
