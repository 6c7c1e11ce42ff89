package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"headstart/bench/peerhop/ways"
)

// round is what one way has done in one round.
type round struct {
	Calls    int
	Elapsed  time.Duration
	P50, P99 time.Duration
	// CPU is the processor time of both processes, Garbage the bytes that their
	// heaps handed out.
	CPU     time.Duration
	Garbage uint64
}

// series is all rounds of one way with blocks of one size.
type series struct {
	Way    string
	Size   int
	Rounds []round
}

// measure lets all ways take turns at fetching blocks of one size.
func measure(p plan, size int) ([]*series, error) {
	s, err := startServer(p, size)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	var all []*series
	var list []ways.Way
	for _, name := range p.Ways {
		w, err := dial(name, s.Hello, size)
		if err != nil {
			return nil, err
		}
		list = append(list, w)
		all = append(all, &series{Way: name, Size: size})
	}
	for n := range p.Rounds + 1 {
		for i, w := range list {
			r, err := fetchFor(p, s, size, w)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].Way, err)
			}
			if n > 0 { // the first round is for warming up
				all[i].Rounds = append(all[i].Rounds, r)
			}
		}
	}
	return all, nil
}

func startServer(p plan, size int) (*ways.Process, error) {
	args := []string{"serve", "-block", strconv.Itoa(size)}
	if p.Profiles != "" {
		args = append(args, "-profile", filepath.Join(p.Profiles, fmt.Sprintf("server-%d.pprof", size)))
	}
	return ways.Start(args...)
}

// fetchFor lets the workers of one way fetch blocks for a while.
func fetchFor(p plan, s *ways.Process, size int, open ways.Way) (r round, err error) {
	fetches := make([]ways.Fetch, p.InFlight)
	// Room is made before, so that it does not count as garbage.
	buffers, took := make([][]byte, p.InFlight), make([][]time.Duration, p.InFlight)
	for i := range fetches {
		if fetches[i], err = open(); err != nil {
			return r, err
		}
		buffers[i] = make([]byte, size)
		took[i] = make([]time.Duration, 0, int(p.Time/(5*time.Microsecond)))
	}
	before, err := s.Usage()
	if err != nil {
		return r, err
	}
	start := time.Now()
	errs := make(chan error, p.InFlight)
	var wg sync.WaitGroup
	for i := range fetches {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for from := start; from.Sub(start) < p.Time; {
				if err := fetches[i](random.Uint64N(s.Hello.Blocks), buffers[i]); err != nil {
					errs <- err
					return
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(from))
				from = now
			}
		})
	}
	wg.Wait()
	r.Elapsed = time.Since(start)
	after, err := s.Usage()
	if err != nil {
		return r, err
	}
	select {
	case err := <-errs:
		return r, err
	default:
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	r.Calls = len(all)
	r.P50, r.P99 = all[len(all)/2], all[len(all)*99/100]
	r.CPU, r.Garbage = after.CPU-before.CPU, after.Allocated-before.Allocated
	return r, nil
}
