package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"headstart/bench/s3law"
	"headstart/bench/tpch"
	"headstart/engine/block"
)

const (
	demoBucket     = "tpch-sf1"
	demoReadGroup  = "cg_read_01"
	demoWriteGroup = "cg_write_01"
	// demoWarmPasses bounds how often all blocks are read to warm peers: blocks
	// that a full write queue has turned away come in with the next pass.
	demoWarmPasses = 5
)

// demoOptions are the flags of "headstart demo".
type demoOptions struct {
	seed           uint64
	json, stay     bool
	killPercent    int
	cold           demoColdOptions
	stdout, stderr io.Writer
}

// demo is one run: object storage, an FE and four BEs, and the workload.
type demo struct {
	demoOptions
	// exe is started with "fe" and "be" as first argument.
	exe      string
	trace    *tpch.Trace
	contents *tpch.Contents
	out      *demoOutput
	store    *s3law.Server
	cluster  *demoCluster
	// readers and writers have the host:port of the primary of each object in
	// the two groups.
	readers, writers []string
}

// runDemo is the sub-command "demo". It returns the exit code: 1 if anything
// failed or a byte was wrong, 2 for bad usage.
func runDemo(args []string, stdout, stderr io.Writer) int {
	o, err := parseDemo(args, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	// The kernel ends the nodes when the thread that started them ends, so that
	// thread has to live as long as the demo.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Once the first signal has come, a second one ends the process at once.
	context.AfterFunc(ctx, stop)

	exe, err := os.Executable()
	if err == nil {
		d := &demo{demoOptions: o, exe: exe}
		if d.trace, err = tpch.Load(); err == nil {
			err = d.do(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "headstart demo:", err)
		return 1
	}
	return 0
}

func parseDemo(args []string, stdout, stderr io.Writer) (demoOptions, error) {
	o := demoOptions{stdout: stdout, stderr: stderr}
	f := flag.NewFlagSet("headstart demo", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Uint64Var(&o.seed, "seed", 1, "seed of the object contents and of the S3 latency")
	f.BoolVar(&o.json, "json", false, "print the result as one JSON object; progress goes to stderr")
	f.BoolVar(&o.stay, "stay", false, "leave the nodes running at the end, until Ctrl-C")
	f.IntVar(&o.killPercent, "kill-peer-at", 0,
		"kill -9 one BE of "+demoWriteGroup+" after this `percent` of the reads of peer_warm; 0: none")
	o.cold.flags(f)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.cold.parse()
	switch {
	case err != nil:
	case f.NArg() > 0:
		err = fmt.Errorf("headstart demo takes no arguments, got %q", f.Args())
	case o.cold.on && (o.json || o.stay || o.killPercent != 0):
		err = errors.New("-cold goes with -seed, -bes and -rounds only")
	case o.killPercent < 0 || o.killPercent > 99:
		err = fmt.Errorf("-kill-peer-at %d: want 0 to 99", o.killPercent)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return o, err
}

// do does what the options ask for.
func (d *demo) do(ctx context.Context) error {
	if d.cold.on {
		return d.runCold(ctx)
	}
	return d.run(ctx)
}

// run starts everything, replays the trace in all phases, reports and cleans
// up.
func (d *demo) run(ctx context.Context) (err error) {
	progress := d.stdout
	if d.json {
		progress = d.stderr
	}
	d.out = newDemoOutput(progress)
	ctx, fail := context.WithCancelCause(ctx)
	defer func() {
		// A node that dies ends ctx: what failed next is not the cause.
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, errNodeDied) {
			err = cause
		}
		fail(nil)
	}()
	if err := d.startStore(); err != nil {
		return err
	}
	defer d.store.Close()
	if d.cluster, err = newDemoCluster(d.exe, fail); err != nil {
		return err
	}
	defer d.cluster.stop()
	if err := d.startNodes(ctx); err != nil {
		return err
	}
	report := demoReport{seed: d.seed}
	for _, p := range d.phases() {
		result, err := d.runPhase(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		report.add(result)
	}
	if err := d.print(&report); err != nil {
		return err
	}
	if d.stay {
		d.printURLs()
		<-ctx.Done()
		if cause := context.Cause(ctx); errors.Is(cause, errNodeDied) {
			return cause
		}
	}
	return report.verdict()
}

// startStore makes the objects and serves them.
func (d *demo) startStore() (err error) {
	var total int64
	for _, o := range d.trace.Objects {
		total += o.Size
	}
	began := time.Now()
	d.contents = tpch.Generate(d.trace.Objects, d.seed)
	objects := make([]s3law.Object, len(d.trace.Objects))
	for i, o := range d.trace.Objects {
		objects[i] = s3law.Object{Key: o.Key, Data: d.contents.Object(i)}
	}
	d.store, err = s3law.Start(s3law.Options{Bucket: demoBucket, Objects: objects, Law: s3law.Law{Seed: d.seed}})
	if err != nil {
		return err
	}
	d.out.line("S3 server at %s: %d objects, %.0f MB, made from seed %d in %.1f s",
		d.store.URL(), len(objects), float64(total)/1e6, d.seed, time.Since(began).Seconds())
	return nil
}

// startNodes starts FE and BEs and learns from the FE who serves which object.
func (d *demo) startNodes(ctx context.Context) (err error) {
	c := d.cluster
	err = c.start(ctx, d.store.URL(), []demoBE{
		{demoWriteGroup, "write_group", "default"}, {demoWriteGroup, "write_group", "default"},
		{demoReadGroup, "read_group", "default"}, {demoReadGroup, "read_group", "default"},
	}, [][2]string{{"enable_cache_read_from_peer", "false"}, {"object_storage_get_max_blocks", "1"}})
	if err != nil {
		return err
	}
	d.out.line("%s", c.fe)
	for _, be := range c.bes {
		d.out.line("%s  %s", be, be.group)
	}
	if d.readers, err = c.primaries(ctx, demoReadGroup, len(d.trace.Objects)); err != nil {
		return err
	}
	d.writers, err = c.primaries(ctx, demoWriteGroup, len(d.trace.Objects))
	return err
}

// demoPhase is one replay of the whole trace.
type demoPhase struct {
	name    string
	prepare func(context.Context) error
	// killPercent is when a peer is killed, 0 for never.
	killPercent int
}

func (d *demo) phases() []demoPhase {
	return []demoPhase{
		{name: "s3_only", prepare: func(ctx context.Context) error {
			return d.cluster.configure(ctx, demoReadGroup, "enable_cache_read_from_peer", "false")
		}},
		{name: "peer_warm", killPercent: d.killPercent, prepare: func(ctx context.Context) error {
			if err := d.warm(ctx); err != nil {
				return err
			}
			return d.cluster.configure(ctx, demoReadGroup, "enable_cache_read_from_peer", "true")
		}},
		{name: "fill", prepare: func(ctx context.Context) error {
			if err := d.cluster.clear(ctx, demoWriteGroup); err != nil {
				return err
			}
			return d.cluster.configure(ctx, demoReadGroup, "peer_cache_fill_compute_group_id", demoWriteGroup)
		}},
	}
}

// warm reads all objects through the BEs of the write group, as the jobs that
// wrote them would have left them in its cache. The latency of S3 is off.
func (d *demo) warm(ctx context.Context) error {
	d.store.Enable(false)
	defer d.store.Enable(true)
	blocks := d.trace.EveryBlock(block.DefaultSize)
	held := 0
	for pass := 0; pass < demoWarmPasses && held < len(blocks); pass++ {
		replay, err := d.replay(d.writers, nil)
		if err != nil {
			return err
		}
		replay.Run(ctx, "warm", blocks)
		s := replay.Stats()
		replay.Close()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.Errors > 0:
			return fmt.Errorf("warming %s: %d errors, the first: %w", demoWriteGroup, s.Errors, s.FirstError)
		case s.WrongBytes > 0:
			return fmt.Errorf("warming %s: %d wrong bytes", demoWriteGroup, s.WrongBytes)
		}
		held = int(s.Local)
	}
	d.out.line("%s is warm: it holds %d of %d blocks", demoWriteGroup, held, len(blocks))
	return nil
}

func (d *demo) replay(nodes []string, after func(int64)) (*tpch.Replay, error) {
	return tpch.NewReplay(tpch.ReplayOptions{
		Trace: d.trace, Contents: d.contents, Bucket: demoBucket, Nodes: nodes, AfterRead: after,
	})
}

// runPhase replays the trace on the read group, whose cache is emptied before
// each query. Neither that nor the preparation is in the wall time.
func (d *demo) runPhase(ctx context.Context, p demoPhase) (demoResult, error) {
	if err := p.prepare(ctx); err != nil {
		return demoResult{}, err
	}
	total := int64(d.trace.Reads())
	killAt := total * int64(p.killPercent) / 100
	var ended atomic.Int64
	replay, err := d.replay(d.readers, func(n int64) {
		ended.Add(1)
		if n == killAt {
			d.out.line("%s", d.cluster.kill(demoWriteGroup, d.writers))
		}
	})
	if err != nil {
		return demoResult{}, err
	}
	defer replay.Close()
	before, err := d.cluster.counts(ctx, demoReadGroup)
	if err != nil {
		return demoResult{}, err
	}
	gets := d.store.Metrics().GETs
	stop := d.out.follow(p.name, total, &ended)
	defer stop()
	var wall time.Duration
	for _, q := range d.trace.Queries {
		if err := d.cluster.clear(ctx, demoReadGroup); err != nil {
			return demoResult{}, err
		}
		wall += replay.Run(ctx, p.name+"-"+q.Name, q.Reads)
		if ctx.Err() != nil {
			return demoResult{}, context.Cause(ctx)
		}
	}
	gets = d.store.Metrics().GETs - gets
	after, err := d.cluster.counts(ctx, demoReadGroup)
	if err != nil {
		return demoResult{}, err
	}
	return newDemoResult(p.name, wall, replay.Stats(), after.add(-1, before), gets), nil
}
