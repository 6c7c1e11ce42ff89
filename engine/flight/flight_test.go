package flight

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

func id(index uint64) block.ID { return block.ID{Hi: 1, Lo: 2, Index: index} }

// counted makes buffers and counts those that came back.
type counted struct{ made, freed atomic.Int64 }

func (c *counted) buf(text string) *block.Buf {
	c.made.Add(1)
	return block.NewBuf([]byte(text), func(*block.Buf) { c.freed.Add(1) })
}

func (c *counted) check(t *testing.T) {
	t.Helper()
	if made, freed := c.made.Load(), c.freed.Load(); made != freed {
		t.Errorf("%d buffers made, %d given back", made, freed)
	}
}

// store drives flights as the engine does: a fetch of its own context, which
// lands every flight, whatever becomes of the readers.
type store struct {
	counted
	gets      atomic.Int64
	cancelled atomic.Int64
	takes     time.Duration
}

func (s *store) read(fl *Flight) {
	s.gets.Add(1)
	fetch := NewFetch(context.Background())
	fetch.Lead(fl)
	go func() { // ends after s.takes, or when nobody waits
		defer fetch.End()
		select {
		case <-time.After(s.takes):
			fl.Land(Result{Buf: s.buf(fmt.Sprint(fl.ID().Index)), Source: block.SourceStore})
		case <-fetch.Context().Done():
			s.cancelled.Add(1)
			fl.Land(Result{Err: ErrRetry})
		}
	}()
}

// get reads one block as a reader does.
func (s *store) get(ctx context.Context, table *Table, id block.ID) (string, error) {
	fl, lead := table.Join(id)
	defer fl.Leave()
	if lead {
		s.read(fl)
	}
	res, err := fl.Wait(ctx)
	if err == nil {
		err = res.Err
	}
	if err != nil {
		return "", err
	}
	return string(res.Buf.Bytes()), nil
}

func TestSF05_ReadersShareOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, s := NewTable(), &store{takes: 40 * time.Millisecond}
		for range 500 {
			go func() {
				if text, err := s.get(t.Context(), table, id(7)); text != "7" || err != nil {
					t.Errorf("got %q, %v", text, err)
				}
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s.gets.Load() != 1 || s.made.Load() != 1 || table.Len() != 0 {
			t.Errorf("%d fetches, %d buffers, %d flights left; want 1, 1, 0", s.gets.Load(), s.made.Load(), table.Len())
		}
		s.check(t)
	})
}

func TestSF02_LeaderThatGivesUpFailsNobody(t *testing.T) {
	for _, c := range []struct{ leader, follower time.Duration }{
		{50 * time.Millisecond, 5 * time.Second},
		{5 * time.Second, 50 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			table, s := NewTable(), &store{takes: 300 * time.Millisecond}
			start := time.Now()
			reader := func(limit time.Duration) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				text, err := s.get(ctx, table, id(7))
				switch took := time.Since(start); {
				case limit < s.takes && (took != limit || !errors.Is(err, context.DeadlineExceeded)):
					t.Errorf("a reader with %v got %q, %v after %v", limit, text, err, took)
				case limit > s.takes && (took != s.takes || text != "7" || err != nil):
					t.Errorf("a reader with %v got %q, %v after %v", limit, text, err, took)
				}
			}
			go reader(c.leader)
			synctest.Wait() // it leads
			reader(c.follower)
			time.Sleep(10 * time.Second)
			if s.gets.Load() != 1 || s.cancelled.Load() != 0 {
				t.Errorf("%d fetches, %d cancelled; want one that ended well", s.gets.Load(), s.cancelled.Load())
			}
			s.check(t)
		})
	}
}

func TestS09_LastReaderThatLeavesCancelsTheFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, s := NewTable(), &store{takes: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		for range 3 {
			done.Go(func() { s.get(ctx, table, id(7)) })
		}
		synctest.Wait()
		cancel()
		done.Wait()
		synctest.Wait()
		if s.cancelled.Load() != 1 || table.Len() != 0 {
			t.Errorf("%d fetches cancelled, %d flights left; want 1, 0", s.cancelled.Load(), table.Len())
		}
		// The next reader starts anew and does not meet the cancelled fetch.
		s.takes = time.Millisecond
		if text, err := s.get(t.Context(), table, id(7)); text != "7" || err != nil {
			t.Errorf("the next reader got %q, %v", text, err)
		}
		s.check(t)
	})
}

func TestS09_FetchOfSeveralFlightsEndsWithItsLastOne(t *testing.T) {
	table, fetch := NewTable(), NewFetch(t.Context())
	fetch.Hold()
	var flights []*Flight
	for i := range uint64(3) {
		fl, lead := table.Join(id(i))
		if !lead {
			t.Fatalf("block %d: somebody else leads", i)
		}
		fetch.Lead(fl)
		flights = append(flights, fl)
	}
	fetch.Drop()
	flights[0].Leave()
	flights[1].Land(Result{Err: errors.New("gone")})
	if fetch.Context().Err() != nil {
		t.Fatal("cancelled while a reader waits for the third block")
	}
	flights[2].Leave()
	if fetch.Context().Err() == nil {
		t.Error("nobody waits, and the fetch goes on")
	}
	flights[1].Leave()
}

func TestLandAfterAbandonment(t *testing.T) {
	var c counted
	table, fetch := NewTable(), NewFetch(t.Context())
	fl, _ := table.Join(id(1))
	fetch.Lead(fl)
	fl.Leave()
	if fl.Land(Result{Buf: c.buf("late")}) {
		t.Error("an abandoned flight took a block")
	}
	c.check(t)
	if res, err := fl.Wait(t.Context()); err != nil || res.Err != ErrRetry || res.Buf != nil {
		t.Errorf("an abandoned flight ended with %+v, %v", res, err)
	}
}

func TestLandTakesOneResult(t *testing.T) {
	var c counted
	table := NewTable()
	fl, _ := table.Join(id(1))
	if !fl.Land(Result{Buf: c.buf("first")}) || fl.Land(Result{Buf: c.buf("second")}) || fl.Land(Result{Err: ErrRetry}) {
		t.Error("the first result must win")
	}
	if res, _ := fl.Wait(t.Context()); string(res.Buf.Bytes()) != "first" {
		t.Errorf("got %q", res.Buf.Bytes())
	}
	kept := fl.mu.result.Buf.Retain() // a waiter that keeps the block
	fl.Leave()
	if string(kept.Bytes()) != "first" || c.freed.Load() != 1 {
		t.Errorf("%d buffers given back while one is kept and one was refused", c.freed.Load())
	}
	kept.Release()
	c.check(t)
}

func TestFlightThatIsOverIsNotJoined(t *testing.T) {
	for name, end := range map[string]func(*Flight){
		"landed":    func(fl *Flight) { fl.Land(Result{Err: ErrRetry}) },
		"abandoned": func(fl *Flight) { fl.Leave() },
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable()
			old, _ := table.Join(id(1))
			end(old)
			select {
			case <-old.Done():
			default:
				t.Error("the flight's waiters were not woken")
			}
			fl, lead := table.Join(id(1))
			if !lead || fl == old || table.Len() != 1 {
				t.Errorf("joined a flight that is over (lead %v, %d flights)", lead, table.Len())
			}
			// The old flight's end must not take the new one out of the table.
			table.remove(old)
			if again, lead := table.Join(id(1)); lead || again != fl {
				t.Error("the end of an old flight removed a new one")
			}
		})
	}
}

func TestFlightThatIsEndingIsNotJoined(t *testing.T) {
	table := NewTable()
	old, _ := table.Join(id(1))
	old.mu.Lock()
	old.mu.over = true // Land has come as far as this, and was then put to sleep
	old.mu.Unlock()
	if fl, lead := table.Join(id(1)); !lead || fl == old {
		t.Error("joined a flight that is over")
	}
}

func TestLeadOfAFlightThatIsOver(t *testing.T) {
	table, fetch := NewTable(), NewFetch(t.Context())
	fl, _ := table.Join(id(1))
	fl.Leave() // the leader's own reader has gone before the fetch was there
	fetch.Lead(fl)
	if fetch.Context().Err() == nil {
		t.Error("a fetch that nobody waits for goes on")
	}
}

func TestSF01_FetchThatDiesBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable()
		fl, _ := table.Join(id(1))
		var retried atomic.Int64
		for range 49 {
			go func() {
				fl, lead := table.Join(id(1))
				defer fl.Leave()
				if res, err := fl.Wait(t.Context()); !lead && err == nil && res.Err == ErrRetry {
					retried.Add(1)
				}
			}()
		}
		synctest.Wait()
		func() {
			defer func() {
				recover()
				fl.Land(Result{Err: ErrRetry})
			}()
			panic("decoder")
		}()
		fl.Leave()
		synctest.Wait()
		if retried.Load() != 49 || table.Len() != 0 {
			t.Errorf("%d of 49 readers were told to look again, %d flights left", retried.Load(), table.Len())
		}
	})
}

func TestFetchKeepsValuesButNoDeadline(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "query 1"), time.Minute)
	fetch := NewFetch(ctx)
	cancel()
	if _, has := fetch.Context().Deadline(); has || fetch.Context().Err() != nil {
		t.Error("a fetch must not end with the reader that started it")
	}
	if fetch.Context().Value(key{}) != "query 1" {
		t.Error("a fetch must carry the values of its reader's context")
	}
	fetch.End()
	if fetch.Context().Err() == nil {
		t.Error("End must end the context")
	}
}

func TestLC29_FlightsOfDistantBlocksAreApart(t *testing.T) {
	table := NewTable()
	seen := map[*Flight]bool{}
	for _, base := range []block.ID{{Hi: 1, Lo: 2}, {Hi: 2, Lo: 1}, {Hi: 1 << 32, Lo: 2}, {Hi: 1, Lo: 2 << 32}} {
		for _, index := range []uint64{0, 1, 1 << 31, 1<<31 + 1, 1 << 32, 1<<32 + 1, 1 << 63, math.MaxUint64} {
			fl, lead := table.Join(base.At(index))
			if !lead || seen[fl] {
				t.Errorf("block %v shares the flight of another", base.At(index))
			}
			seen[fl] = true
		}
	}
}

func TestHashSpreads(t *testing.T) {
	const keys, buckets = 1 << 14, 1 << 10
	for name, key := range map[string]func(i uint64) block.ID{
		"blocks of one object": func(i uint64) block.ID { return id(i) },
		"every 16th block":     func(i uint64) block.ID { return id(i * 16) },
		"objects":              func(i uint64) block.ID { return block.BaseID(block.Object{Key: fmt.Sprint(i)}, "v") },
	} {
		var load [buckets]int
		for i := range uint64(keys) {
			load[hash(key(i), 12345)>>7%buckets]++ // the map keeps 7 bits beside the bucket
		}
		worst := 0
		for _, n := range load {
			worst = max(worst, n)
		}
		if worst > 4*keys/buckets {
			t.Errorf("%s: %d of %d keys in one of %d buckets", name, worst, keys, buckets)
		}
	}
}
