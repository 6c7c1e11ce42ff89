package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"headstart/engine/block"
	"headstart/rpc"
)

// frontend is an FE in a process of its own.
type frontend struct {
	cmd  *exec.Cmd
	addr block.Addr
}

// startFE starts an FE with a state of its own in dir, and waits until it is ready.
func startFE(program, dir string) (*frontend, error) {
	conf := filepath.Join(dir, "fe.conf")
	text := fmt.Sprintf("host = 127.0.0.1\nhttp_port = 0\nrpc_port = 0\nquery_port = 0\nmeta_dir = %s\nlog_level = error\n", filepath.Join(dir, "meta"))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	f := &frontend{cmd: exec.Command(program, "fe", "-conf", conf)}
	f.cmd.Stderr = os.Stderr
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w (make build makes it)", err)
	}
	var ready struct {
		RPCPort int `json:"rpc_port"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		f.stop()
		return nil, fmt.Errorf("the FE does not start: %w", err)
	}
	f.addr = block.Addr{Host: "127.0.0.1", Port: ready.RPCPort}
	return f, nil
}

func (f *frontend) stop() {
	f.cmd.Process.Kill()
	f.cmd.Wait() // killed: its error says no more
}

// usage is what the FE's process has used: time of a core, and memory now.
type usage struct {
	cpu time.Duration
	rss int64
	at  time.Time
}

// ticksPerSecond is the unit of /proc/PID/stat (USER_HZ), the same on all of Linux.
const ticksPerSecond = 100

func (f *frontend) usage() (u usage, err error) {
	u.at = time.Now()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.cmd.Process.Pid))
	if err != nil {
		return u, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 22 {
		return u, fmt.Errorf("/proc/%d/stat: %q", f.cmd.Process.Pid, stat)
	}
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	pages, errPages := strconv.ParseInt(fields[21], 10, 64)
	u.cpu = time.Duration(user+system) * time.Second / ticksPerSecond
	u.rss = pages * int64(os.Getpagesize())
	return u, errors.Join(errUser, errSystem, errPages)
}

// since says what share of a core was used from then on, and how much memory is in
// use.
func (f *frontend) since(then usage) (string, error) {
	now, err := f.usage()
	if err != nil {
		return "", err
	}
	share := float64(now.cpu-then.cpu) / float64(now.at.Sub(then.at))
	return fmt.Sprintf("FE: %.0f %% of a core, %.0f MB resident", 100*share, float64(now.rss)/1e6), nil
}

// backends are BEs that do nothing but report, each with an identity and a
// connection of its own.
type backends []*rpc.DirectoryClient

func newBackends(n int, fe block.Addr) (all backends, err error) {
	for i := range n {
		h := heartbeat(i)
		c, err := rpc.NewDirectoryClient(rpc.DirectoryClientOptions{
			Identity: rpc.NewIdentity(block.Node{ID: h.NodeID, GroupID: h.GroupID}, "", ""), Endpoints: []block.Addr{fe},
		})
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (all backends) close() {
	for _, c := range all {
		c.Close()
	}
}

// tally is what many callers have seen.
type tally struct {
	mu     sync.Mutex
	took   []time.Duration
	failed int
	err    error
}

func (t *tally) note(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, took)
	if err != nil {
		t.failed++
		t.err = err
	}
}

// over gives the rate and percentiles of calls that took so long all in all.
func (t *tally) over(all time.Duration) string {
	slices.Sort(t.took)
	at := func(percent int) time.Duration { return t.took[len(t.took)*percent/100].Round(10 * time.Microsecond) }
	text := fmt.Sprintf("%.0f a second, p50 %v, p99 %v", float64(len(t.took))/all.Seconds(), at(50), at(99))
	if t.failed > 0 {
		text += fmt.Sprintf(", %d failed, the last: %v", t.failed, t.err)
	}
	return text
}

// network measures an FE process that BEs of this process report to over Kitex.
func network(ctx context.Context, program string, count, tablets int, every, lasts time.Duration) error {
	dir, err := os.MkdirTemp("", "fescale")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fe, err := startFE(program, dir)
	if err != nil {
		return err
	}
	defer fe.stop()
	bes, err := newBackends(count, fe.addr)
	defer bes.close()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func() *tally
	}{
		{fmt.Sprintf("registration of %d BEs at once", count), func() *tally { return bes.each(ctx) }},
		{fmt.Sprintf("heartbeats, each BE every %v", every), func() *tally { return bes.beat(ctx, every, lasts) }},
		{"heartbeats, as fast as 64 callers can", func() *tally {
			return bes.flood(lasts, func(i int) error { return bes.heartbeat(ctx, i) })
		}},
		{fmt.Sprintf("look-ups of %d tablets, %d a call, each once", tablets, perCall), func() *tally { return bes.lookups(ctx, tablets) }},
		{"look-ups of one tablet, as fast as 64 callers can", func() *tally {
			return bes.flood(lasts, func(i int) error { return bes.lookup(ctx, i, i*7919%tablets, 1) })
		}},
	} {
		before, err := fe.usage()
		if err != nil {
			return err
		}
		calls := step.do()
		used, err := fe.since(before)
		if err != nil {
			return err
		}
		fmt.Printf("%s\t%s\t%s\n", step.what, calls.over(time.Since(before.at)), used)
	}
	return nil
}

func (all backends) heartbeat(ctx context.Context, i int) error {
	_, err := all[i%len(all)].Heartbeat(ctx, heartbeat(i%len(all)))
	return err
}

func (all backends) lookup(ctx context.Context, i, from, n int) error {
	_, err := all[i%len(all)].Lookup(ctx, routes(from, n))
	return err
}

// each lets every BE report once, all at the same time.
func (all backends) each(ctx context.Context) *tally {
	var t tally
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() { // ends with its call
			began := time.Now()
			err := all.heartbeat(ctx, i)
			t.note(time.Since(began), err)
		})
	}
	running.Wait()
	return &t
}

// beat lets every BE report in its interval.
func (all backends) beat(ctx context.Context, every, lasts time.Duration) *tally {
	var t tally
	var running sync.WaitGroup
	end := time.Now().Add(lasts)
	for i := range all {
		running.Go(func() { // ends with lasts
			next := time.NewTimer(every * time.Duration(i) / time.Duration(len(all)))
			defer next.Stop()
			for {
				<-next.C
				if !time.Now().Before(end) {
					return
				}
				began := time.Now()
				err := all.heartbeat(ctx, i)
				took := time.Since(began)
				t.note(took, err)
				next.Reset(max(0, every-took))
			}
		})
	}
	running.Wait()
	return &t
}

// flood calls from 64 goroutines for a while.
func (all backends) flood(lasts time.Duration, call func(i int) error) *tally {
	var t tally
	var running sync.WaitGroup
	var next atomic.Int64
	end := time.Now().Add(lasts)
	for range 64 {
		running.Go(func() { // ends with lasts
			for time.Now().Before(end) {
				i := int(next.Add(1))
				began := time.Now()
				err := call(i)
				t.note(time.Since(began), err)
			}
		})
	}
	running.Wait()
	return &t
}

// perCall is how many routes a BE asks for in one call.
const perCall = 256

// lookups asks for each tablet once, from eight BEs.
func (all backends) lookups(ctx context.Context, tablets int) *tally {
	var t tally
	var running sync.WaitGroup
	var next atomic.Int64
	for i := range 8 {
		running.Go(func() { // ends with the tablets
			for {
				from := int(next.Add(perCall)) - perCall
				if from >= tablets {
					return
				}
				began := time.Now()
				err := all.lookup(ctx, i, from, min(perCall, tablets-from))
				t.note(time.Since(began), err)
			}
		})
	}
	running.Wait()
	return &t
}
