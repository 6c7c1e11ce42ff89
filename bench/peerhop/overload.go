package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

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

// outcome is how one call ended.
type outcome struct {
	status block.Status
	took   time.Duration
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
	fmt.Fprintln(t, "policy\tload\toffered/s\tserved/s\tp50\tp99\trejected after p50\tp99\tmax wait served\tfailed\tcores used\t")
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
	s, err := startServing(args...)
	if err != nil {
		return err
	}
	defer s.stop()
	to, err := parse(s.hello.Addrs["hop"])
	if err != nil {
		return err
	}
	buffers, err := pools.NewBuffers(pools.BuffersOptions{Name: "blocks", BlockSize: callSize})
	if err != nil {
		return err
	}
	f, err := newFleet(buffers.Get)
	if err != nil {
		return err
	}
	defer f.close()
	f.connect(to)
	before, err := s.usage()
	if err != nil {
		return err
	}
	for _, p := range phases {
		began := time.Now()
		all := f.offer(to, p)
		u, err := s.usage()
		if err != nil {
			return err
		}
		cores := (u.CPU - before.CPU).Seconds() / time.Since(began).Seconds()
		before = u
		served, rejected, failed := split(all)
		fmt.Fprintf(t, "%s\t%s %.1fx\t%.0f\t%.0f\t%s\t%s\t%s\t%s\t%s\t%d\t%.2f\t\n", policy, p.name, p.times,
			float64(len(all))/p.lasts.Seconds(), float64(len(served))/p.lasts.Seconds(),
			at(served, 50), at(served, 99), at(rejected, 50), at(rejected, 99), u.Longest.Round(100*time.Microsecond), failed, cores)
	}
	return nil
}

// fleet is the nodes that call, each with no more connections than a node has to
// another by default.
type fleet struct{ nodes []*rpc.Client }

const (
	fleetSize = 8
	fleetConn = 256
)

func newFleet(alloc func(int) (*block.Buf, error)) (*fleet, error) {
	f := &fleet{}
	for i := range fleetSize {
		c, err := rpc.NewClient(rpc.ClientOptions{
			Identity: identity(fmt.Sprint("client", i)), Alloc: alloc, MaxConnsPerAddr: fleetConn, ConnectTimeout: time.Second,
		})
		if err != nil {
			f.close()
			return nil, err
		}
		f.nodes = append(f.nodes, c)
	}
	return f, nil
}

func (f *fleet) close() {
	for _, c := range f.nodes {
		c.Close()
	}
}

// connect makes the connections that an overload needs: it is the queue that is
// to be measured.
func (f *fleet) connect(to block.Addr) {
	var wg sync.WaitGroup
	for _, c := range f.nodes {
		for range fleetConn {
			wg.Go(func() { callOnce(c, to) }) // ends with its call
		}
	}
	wg.Wait()
}

// offer makes the calls of one phase and waits for their answers.
func (f *fleet) offer(to block.Addr, p phase) (all []outcome) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	rate := p.times * float64(capacity)
	start, n := time.Now(), 0
	for next := time.Duration(0); next < p.lasts; n++ {
		next += time.Duration(rand.ExpFloat64() * float64(time.Second) / rate)
		time.Sleep(next - time.Since(start))
		c := f.nodes[n%len(f.nodes)]
		wg.Go(func() {
			o := callOnce(c, to)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, o)
		})
	}
	wg.Wait()
	return all
}

// callOnce makes a call; one without an answer has no status.
func callOnce(c *rpc.Client, to block.Addr) (o outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	begin := time.Now()
	s, err := c.FetchFrom(ctx, to, &block.Fetch{
		Object: theObject(), Meta: block.Meta{Size: callSize, Version: block.Immutable}, BlockSize: callSize, Run: block.NewRun(0, 1),
	})
	if err != nil {
		return o
	}
	defer s.Close()
	piece, err := s.Next()
	if err != nil {
		return o
	}
	if piece.Buf != nil {
		piece.Buf.Release()
	}
	return outcome{piece.Status, time.Since(begin)}
}

func split(all []outcome) (served, rejected []time.Duration, failed int) {
	for _, o := range all {
		switch o.status {
		case 0:
			failed++
		case block.StatusData:
			served = append(served, o.took)
		default:
			rejected = append(rejected, o.took)
		}
	}
	slices.Sort(served)
	slices.Sort(rejected)
	return served, rejected, failed
}

// at is a percentile for a table.
func at(all []time.Duration, percent int) string {
	if len(all) == 0 {
		return "-"
	}
	return all[min(len(all)*percent/100, len(all)-1)].Round(100 * time.Microsecond).String()
}

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
		Name: "peer fetch", Workers: deviceCalls, MaxQueue: 4096, Timeout: 100 * time.Millisecond, Adaptive: *policy == "adaptive",
	})
	if err != nil {
		return err
	}
	d := &device{queue: queue, data: make([]byte, callSize)}
	d.crc = block.Checksum(d.data)
	ln, err := listen()
	if err != nil {
		return err
	}
	s, err := rpc.NewServer(rpc.ServerOptions{Listener: ln, Identity: identity("server")}, d)
	if err != nil {
		return err
	}
	go s.Serve() // ends with the process
	return answer(hello{Addrs: map[string]string{"hop": ln.Addr().String()}}, func() usage {
		u := usageOfSelf()
		u.Longest = time.Duration(d.longest.Swap(0))
		return u
	})
}
