package flight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"headstart/engine/block"
)

// storm is many readers of few blocks, all joining, waiting, leaving and
// landing at once. The race detector reads it too.
type storm struct {
	counted
	t       *testing.T
	table   *Table
	mu      sync.Mutex
	fetches []*Fetch
	joined  atomic.Int64
	read    atomic.Int64
	drivers sync.WaitGroup
}

func TestS09_StormOfReaders(t *testing.T) {
	const readers, rounds = 32, 150
	seed := rand.Uint64()
	s := &storm{t: t, table: NewTable()}
	var done sync.WaitGroup
	for i := range uint64(readers) {
		rng := rand.New(rand.NewPCG(seed, i))
		done.Go(func() {
			for range rounds {
				s.reader(rng)
			}
		})
	}
	done.Wait()
	s.drivers.Wait()
	s.check(t)
	if n := s.table.Len(); n != 0 {
		t.Errorf("%d flights left", n)
	}
	for _, f := range s.fetches {
		if f.Context().Err() == nil {
			t.Fatal("the context of a fetch whose flights are over goes on")
		}
	}
	if s.read.Load() == 0 || s.joined.Load() == 0 {
		t.Errorf("%d blocks read, %d flights joined: the storm has shared nothing", s.read.Load(), s.joined.Load())
	}
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
}

// reader joins up to three neighbours, leads what nobody else does, and waits
// for them, unless it is in a hurry.
func (s *storm) reader(rng *rand.Rand) {
	first := rng.Uint64N(8)
	var mine, led []*Flight
	for i := range 1 + rng.Uint64N(3) {
		fl, lead := s.table.Join(id(first + i))
		mine = append(mine, fl)
		if lead {
			led = append(led, fl)
		} else {
			s.joined.Add(1)
		}
	}
	if len(led) > 0 {
		s.lead(led, rng.IntN(3))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rng.IntN(4) == 0 {
		cancel()
	}
	for _, fl := range mine {
		res, err := fl.Wait(ctx)
		switch {
		case err != nil || errors.Is(res.Err, ErrRetry):
		case res.Err != nil || string(res.Buf.Bytes()) != fmt.Sprint(fl.ID().Index):
			s.t.Errorf("block %d: %+v", fl.ID().Index, res)
		default:
			s.read.Add(1)
		}
		fl.Leave()
	}
}

// lead starts a fetch that lands its flights, gives up, or dies.
func (s *storm) lead(led []*Flight, fate int) {
	fetch := NewFetch(context.Background())
	s.mu.Lock()
	s.fetches = append(s.fetches, fetch)
	s.mu.Unlock()
	for _, fl := range led {
		fetch.Lead(fl)
	}
	s.drivers.Go(func() {
		defer fetch.End()
		for i, fl := range led {
			if fetch.Context().Err() != nil || fate == 1 && i == 1 {
				fl.Land(Result{Err: ErrRetry})
				continue
			}
			fl.Land(Result{Buf: s.buf(fmt.Sprint(fl.ID().Index)), Source: block.SourceStore})
		}
	})
}
