package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
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
	defer s.stop()
	var all []*series
	var ways []*way
	for _, name := range p.Ways {
		w, err := dial(name, s.hello, size)
		if err != nil {
			return nil, err
		}
		defer w.close()
		ways = append(ways, w)
		all = append(all, &series{Way: name, Size: size})
	}
	for n := range p.Rounds + 1 {
		for i, w := range ways {
			r, err := s.run(p, w)
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

// serving is a serving process.
type serving struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *json.Decoder
	hello hello
}

func startServer(p plan, size int) (*serving, error) {
	args := []string{"serve", "-block", strconv.Itoa(size)}
	if p.Profiles != "" {
		args = append(args, "-profile", filepath.Join(p.Profiles, fmt.Sprintf("server-%d.pprof", size)))
	}
	return startServing(args...)
}

// startServing starts this program again as a serving process.
func startServing(args ...string) (*serving, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &serving{cmd: exec.Command(self, args...)}
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.out = json.NewDecoder(bufio.NewReader(out))
	if err := s.out.Decode(&s.hello); err != nil {
		return nil, errors.Join(fmt.Errorf("the serving process says nothing: %w", err), s.stop())
	}
	return s, nil
}

func (s *serving) stop() error {
	s.in.Close()
	return s.cmd.Wait()
}

// usage returns what both processes have used so far.
func (s *serving) usage() (u usage, err error) {
	if _, err = io.WriteString(s.in, "\n"); err != nil {
		return u, err
	}
	if err = s.out.Decode(&u); err != nil {
		return u, err
	}
	own := usageOfSelf()
	u.CPU, u.Allocated = u.CPU+own.CPU, u.Allocated+own.Allocated
	return u, nil
}

// run lets the workers of one way fetch blocks for a while.
func (s *serving) run(p plan, w *way) (r round, err error) {
	fetches := make([]func(uint64) error, p.InFlight)
	for i := range fetches {
		if fetches[i], err = w.worker(); err != nil {
			return r, err
		}
	}
	// Room is made before, so that it does not count as garbage.
	took := make([][]time.Duration, p.InFlight)
	for i := range took {
		took[i] = make([]time.Duration, 0, int(p.Time/(5*time.Microsecond)))
	}
	before, err := s.usage()
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
				if err := fetches[i](random.Uint64N(s.hello.Blocks)); err != nil {
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
	after, err := s.usage()
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
