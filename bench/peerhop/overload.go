package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"headstart/bench/peerhop/ways"
	"headstart/engine/block"
	"headstart/pools"
	"headstart/rpc"
)

// The device that holds the capacity: so many calls at a time, each of which
// takes so long.
const (
	deviceCalls = 64
	deviceTime  = 64 * time.Millisecond
	capacity    = int(time.Second / deviceTime * deviceCalls)
	// callSize is the block of a call: small, so that the device is the limit.
	callSize = 4 << 10
	// queueTimeout is how long a call may wait for the device.
	queueTimeout = 100 * time.Millisecond
)

// device is a Reader behind a pool: each call of it takes its time.
type device struct {
	queue *pools.Queue
	data  []byte
	crc   uint32
	// longest is the longest wait of a call that was served, in nanoseconds.
	longest atomic.Int64
}

// ServeBlocks implements rpc.Reader.
func (d *device) ServeBlocks(ctx context.Context, from block.Node, f *block.Fetch, reply *block.Reply) {
	came := time.Now()
	status := block.StatusData
	err := d.queue.DoFor(ctx, from.GroupID, func(context.Context) {
		waited := int64(time.Since(came))
		for most := d.longest.Load(); waited > most && !d.longest.CompareAndSwap(most, waited); most = d.longest.Load() {
		}
		time.Sleep(deviceTime)
	})
	switch {
	case errors.Is(err, pools.ErrQueueTimeout):
		status = block.StatusQueueTimeout
	case errors.Is(err, pools.ErrQueueFull):
		status = block.StatusQueueFull
	case err != nil:
		status = block.StatusFailed
	}
	reply.Waited = time.Since(came)
	answer := block.Answer{Index: f.Run.First, Status: status}
	if status == block.StatusData {
		answer.Lease = block.NewLease(keeper{}, 0, d.data, d.crc)
	}
	reply.Answers = append(reply.Answers, answer)
}

// keeper lends memory that stays.
type keeper struct{}

// CopyLease implements block.Memory.
func (keeper) CopyLease(_ uint64, lent []byte, off int, dst []byte) (int, error) {
	return copy(dst, lent[off:]), nil
}

// ReleaseLease implements block.Memory.
func (keeper) ReleaseLease(uint64) {}

// Stat implements rpc.Reader.
func (d *device) Stat(context.Context, block.Object, block.Version) (block.Meta, error) {
	return block.Meta{}, block.ErrNotFound
}

// Read implements rpc.Reader.
func (d *device) Read(context.Context, *block.Read, int64) ([]block.View, block.Meta, error) {
	return nil, block.Meta{}, block.ErrNotFound
}

// phase is a part of a load.
type phase struct {
	name  string
	times float64 // of the capacity
	lasts time.Duration
}

// overload is the open load: calls come at random, whatever became of those
// before them.
func overload(args []string) error {
	flags := flag.NewFlagSet("peerhop overload", flag.ContinueOnError)
	lasts := flags.Duration("time", 5*time.Second, "how long the overload lasts")
	policies := flags.String("policies", "fifo,adaptive", "the queue's policies that are compared")
	loads := flags.String("loads", "3,10", "how many times its capacity the device is offered")
	profiles := flags.String("profiles", "", "folder for CPU profiles of both processes, client.pprof and server.pprof")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *profiles != "" {
		stop, err := startProfile(filepath.Join(*profiles, "client.pprof"))
		if err != nil {
			return err
		}
		defer stop()
	}
	fmt.Printf("a device that does %d calls a second, %d at a time; open load, Poisson\n\n", capacity, deviceCalls)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\t\t\tserved\t\t\t\trejected\tlate: queue\tserver\t\tcaller\t\ttimers late\t\tcalls late\t\t\t")
	fmt.Fprintln(t, "policy\tload\toffered/s\ta second\tp50\tp99\tmax wait\t\tmax\tp99\tmax\tp99\tmax\tserver p99\tcaller p99\tp99\tfailed\tcores\t")
	for _, policy := range list(*policies) {
		for _, load := range list(*loads) {
			times, err := strconv.ParseFloat(load, 64)
			if err != nil {
				return fmt.Errorf("-loads: %w", err)
			}
			phases := []phase{
				{"before", 0.5, 2 * time.Second},
				{"overload", times, *lasts},
				{"1st s after", 0.5, time.Second},
				{"2nd s after", 0.5, time.Second},
			}
			if err := overloadOnce(t, policy, phases, *profiles); err != nil {
				return err
			}
		}
	}
	return t.Flush()
}

func overloadOnce(t io.Writer, policy string, phases []phase, profiles string) error {
	args := []string{"device", "-policy", policy}
	if profiles != "" {
		args = append(args, "-profile", filepath.Join(profiles, "server.pprof"))
	}
	s, err := ways.Start(args...)
	if err != nil {
		return err
	}
	defer s.Stop()
	f, err := newCrowd(s.Hello.Addrs["hop"])
	if err != nil {
		return err
	}
	defer f.close()
	var own ruler
	go own.run() // ends with the process
	before, err := s.Usage()
	if err != nil {
		return err
	}
	for _, p := range phases {
		own.p99()
		began := time.Now()
		all, made := f.offer(p)
		u, err := s.Usage()
		if err != nil {
			return err
		}
		cores := (u.CPU - before.CPU).Seconds() / time.Since(began).Seconds()
		before = u
		served, held, seen, rejected, failed := split(all, policy)
		fmt.Fprintf(t, "%s\t%s %.1fx\t%.0f\t%.0f\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.2f\t\n", policy, p.name, p.times,
			float64(len(all))/p.lasts.Seconds(), float64(len(served))/p.lasts.Seconds(),
			at(served, 50), at(served, 99), short(u.Longest), rejected, short(u.Late), at(held, 99), at(held, 100), at(seen, 99), at(seen, 100),
			short(u.Timers), short(own.p99()), at(made, 99), failed, cores)
	}
	return nil
}

// split sorts out what became of the calls of a phase: how long those served took,
// and how late the others were told, by what the server and by what the caller
// has seen of it. An adaptive queue has its second, shorter time only once it
// counts as overloaded: those that came before are left out of what was late.
func split(all []outcome, policy string) (served, held, seen []time.Duration, rejected, failed int) {
	due, from := queueTimeout, time.Duration(0)
	if policy == "adaptive" {
		due, from = queueTimeout/10, 2*queueTimeout
	}
	for _, o := range all {
		switch {
		case o.status == 0:
			failed++
		case o.status == block.StatusData:
			served = append(served, o.took)
		default:
			if rejected++; o.came >= from {
				held, seen = append(held, o.held-due), append(seen, o.took-due)
			}
		}
	}
	slices.Sort(served)
	slices.Sort(held)
	slices.Sort(seen)
	return served, held, seen, rejected, failed
}

// at is a percentile for a table.
func at(all []time.Duration, percent int) string {
	if len(all) == 0 {
		return "-"
	}
	return short(all[min(len(all)*percent/100, len(all)-1)])
}

func short(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }

// serveDevice is the serving process of an overload.
func serveDevice(args []string) error {
	flags := flag.NewFlagSet("peerhop device", flag.ContinueOnError)
	policy := flags.String("policy", "adaptive", "the queue's policy")
	profile := flags.String("profile", "", "file for a CPU profile")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *profile != "" {
		stop, err := startProfile(*profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	rpc.LogKitex(slog.New(slog.DiscardHandler))
	queue, err := pools.NewQueue(pools.QueueOptions{
		Name: "peer fetch", Workers: deviceCalls, MaxQueue: 4096, Timeout: queueTimeout, Adaptive: *policy == "adaptive",
	})
	if err != nil {
		return err
	}
	d := &device{queue: queue, data: make([]byte, callSize)}
	d.crc = block.Checksum(d.data)
	ln, err := ways.Listen()
	if err != nil {
		return err
	}
	s, err := rpc.NewServer(rpc.ServerOptions{Listener: ln, Identity: ways.Identity("server")}, d)
	if err != nil {
		return err
	}
	go s.Serve() // ends with the process
	var own ruler
	go own.run() // ends with the process
	return ways.Answer(ways.Hello{Addrs: map[string]string{"hop": ln.Addr().String()}}, func() ways.Usage {
		u := ways.UsageOfSelf()
		u.Longest = time.Duration(d.longest.Swap(0))
		u.Late, u.Timers = queue.Metrics().MostLate, own.p99()
		return u
	})
}
