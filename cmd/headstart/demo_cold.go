package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"headstart/bench/tpch"
	"headstart/engine/block"
)

// List prices of AWS, us-east-1: a GET of S3 Standard, and a gigabyte between
// two availability zones, which both ends pay for.
const (
	usdPerGET         = 0.0004 / 1000
	usdPerCrossZoneGB = 2 * 0.01
)

// coldPasses is how many passes of the workload a cost is given for: one costs
// next to nothing.
const coldPasses = 1000

// demoColdOptions are the flags of "headstart demo -cold".
type demoColdOptions struct {
	on     bool
	list   string
	bes    []int
	rounds int
}

func (o *demoColdOptions) flags(f *flag.FlagSet) {
	f.BoolVar(&o.on, "cold", false, "measure the workload on clusters that know nothing yet, with and without peers")
	f.StringVar(&o.list, "bes", "1,3,8", "with -cold: how many BEs the clusters have, a `list`")
	f.IntVar(&o.rounds, "rounds", 5, "with -cold: how many rounds; medians are printed")
}

func (o *demoColdOptions) parse() error {
	for text := range strings.SplitSeq(o.list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 64 {
			return fmt.Errorf("-bes %s: %q is no number of BEs; want numbers from 1 to 64 and commas", o.list, text)
		}
		o.bes = append(o.bes, n)
	}
	if o.rounds < 1 {
		return fmt.Errorf("-rounds %d: want at least 1", o.rounds)
	}
	return nil
}

// coldWay is one way to read; keys are those of the BEs, nil for none: reads go
// to object storage themselves.
type coldWay struct {
	name string
	keys [][2]string
}

func coldWays() []coldWay {
	return []coldWay{
		{"direct", nil},
		{"no peers", [][2]string{{"enable_cache_read_from_peer", "false"}}},
		{"peers", [][2]string{{"enable_cache_read_from_peer", "true"}}},
		{"peers that fill", [][2]string{
			{"enable_cache_read_from_peer", "true"}, {"peer_cache_fill_compute_group_id", demoReadGroup},
		}},
	}
}

// coldPass is what one pass of the workload has cost.
type coldPass struct {
	wall, p50, p99                     time.Duration
	gets, s3Bytes, peerBytes, farBytes int64
}

// runCold lets all ways take turns, each time in a new cluster.
func (d *demo) runCold(ctx context.Context) error {
	d.out = newDemoOutput(d.stderr)
	if err := d.startStore(); err != nil {
		return err
	}
	defer d.store.Close()
	passes := make(map[string][]coldPass)
	began, ways := time.Now(), coldWays()
	for round := range d.cold.rounds {
		for _, bes := range d.cold.bes {
			for i := range ways {
				way := ways[(i+round)%len(ways)]
				p, err := d.coldPass(ctx, bes, way)
				if err != nil {
					return fmt.Errorf("%s, %d BEs: %w", way.name, bes, err)
				}
				key := coldKey(bes, way)
				passes[key] = append(passes[key], p)
			}
		}
		d.out.line("round %d of %d, %.0f s", round+1, d.cold.rounds, time.Since(began).Seconds())
	}
	return d.printCold(d.stdout, passes)
}

func coldKey(bes int, w coldWay) string { return fmt.Sprint(bes, " ", w.name) }

// coldPass starts a cluster and lets each BE run its share of the queries: query
// q runs on BE q mod bes, one after the other, as a query's reads come from the
// node that executes it.
func (d *demo) coldPass(ctx context.Context, bes int, way coldWay) (p coldPass, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	nodes, counts := make([]string, bes), func() (demoCounts, error) { return demoCounts{}, nil }
	if way.keys != nil {
		c, err := newDemoCluster(d.exe, fail)
		if err != nil {
			return p, err
		}
		defer c.stop()
		layout := make([]demoBE, bes)
		for i := range layout {
			layout[i] = demoBE{demoReadGroup, "read_group", [...]string{"zone-a", "zone-b"}[i%2]}
		}
		if err := c.start(ctx, d.store.URL(), layout, way.keys); err != nil {
			return p, err
		}
		for i, be := range c.bes {
			nodes[i] = be.web()
		}
		counts = func() (demoCounts, error) { return c.counts(ctx, demoReadGroup) }
	}
	before, began := d.store.Metrics(), time.Now()
	stats, err := d.readCold(ctx, nodes)
	p.wall = time.Since(began)
	if cause := context.Cause(ctx); err == nil && cause != nil {
		err = cause
	}
	if err != nil {
		return p, err
	}
	after, sum := d.store.Metrics(), demoCounts{}
	if sum, err = counts(); err != nil {
		return p, err
	}
	p.p50, p.p99 = stats.Quantile(0.50), stats.Quantile(0.99)
	p.gets, p.s3Bytes = after.GETs-before.GETs, after.Bytes-before.Bytes
	p.peerBytes, p.farBytes = sum.bytes[1], sum.farBytes
	return p, nil
}

// readCold runs the shares of all nodes at once; a node without an address
// stands for object storage itself.
func (d *demo) readCold(ctx context.Context, nodes []string) (*tpch.Stats, error) {
	all := make([]tpch.Stats, len(nodes))
	errs := make([]error, len(nodes))
	var streams sync.WaitGroup
	for i, node := range nodes {
		streams.Go(func() { // ends with its queries, or with ctx
			if node == "" {
				all[i], errs[i] = d.readDirect(ctx, i, len(nodes))
				return
			}
			replay, err := d.replay(slices.Repeat([]string{node}, len(d.trace.Objects)), nil)
			if err != nil {
				errs[i] = err
				return
			}
			defer replay.Close()
			for q := i; q < len(d.trace.Queries); q += len(nodes) {
				replay.Run(ctx, d.trace.Queries[q].Name, d.trace.Queries[q].Reads)
			}
			all[i] = replay.Stats()
		})
	}
	streams.Wait()
	sum := &tpch.Stats{}
	for i := range all {
		sum.Latencies = append(sum.Latencies, all[i].Latencies...)
		if s := &all[i]; s.WrongBytes > 0 || s.Errors > 0 {
			errs[i] = fmt.Errorf("%d reads failed, %d bytes were wrong: %w", s.Errors, s.WrongBytes, cmp.Or(s.FirstError, block.ErrCorrupt))
		}
	}
	slices.Sort(sum.Latencies)
	return sum, errors.Join(errs...)
}

// readDirect is the share of one node without any cache: a GET for each read.
func (d *demo) readDirect(ctx context.Context, node, nodes int) (s tpch.Stats, err error) {
	direct := tpch.NewDirect(d.trace, d.contents, d.store.URL()+"/"+demoBucket+"/")
	defer direct.Close()
	for q := node; q < len(d.trace.Queries) && err == nil; q += nodes {
		var took []time.Duration
		took, err = direct.Run(ctx, d.trace.Queries[q].Reads)
		s.Latencies = append(s.Latencies, took...)
	}
	return s, err
}

// printCold prints medians.
func (d *demo) printCold(w io.Writer, passes map[string][]coldPass) error {
	blocks := len(d.trace.EveryBlock(block.DefaultSize))
	fmt.Fprintf(w, `The recorded reads of 22 TPC-H queries, %d reads of %d objects (%d blocks). Query q runs on BE q mod n, %d reads at once on
each BE; every pass has a new cluster that knows nothing, BEs alternate between two locations. Object storage has the latency
law of the demo. Medians of %d rounds in which the ways take turns, wall time with least and most.
Cost of %d passes at list price: %.4f USD for 1,000 GETs, %.2f USD for a GB between locations.

`, d.trace.Reads(), len(d.trace.Objects), blocks, tpch.ReaderCount, d.cold.rounds, coldPasses, usdPerGET*1000, usdPerCrossZoneGB)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "BEs\tway\twall s\t\tof direct\tp50 ms\tp99 ms\tGETs\ta block\tS3 MB\tpeers MB\tcross MB\tUSD GETs\tUSD cross\tUSD\t")
	for _, bes := range d.cold.bes {
		direct := 0.0
		for _, way := range coldWays() {
			all := passes[coldKey(bes, way)]
			mid := func(of func(coldPass) float64) float64 { return quantileOf(all, 0.5, of) }
			wall := func(p coldPass) float64 { return p.wall.Seconds() }
			if way.keys == nil {
				direct = mid(wall)
			}
			gets := mid(func(p coldPass) float64 { return float64(p.gets) })
			far := mid(func(p coldPass) float64 { return float64(p.farBytes) / 1e6 })
			forGets, forFar := gets*usdPerGET*coldPasses, far/1e3*usdPerCrossZoneGB*coldPasses
			fmt.Fprintf(t, "%d\t%s\t%.2f\t(%.2f-%.2f)\t%.2fx\t%.2f\t%.1f\t%.0f\t%.2f\t%.1f\t%.1f\t%.1f\t%.3f\t%.3f\t%.3f\t\n",
				bes, way.name, mid(wall), quantileOf(all, 0, wall), quantileOf(all, 1, wall), direct/mid(wall),
				mid(func(p coldPass) float64 { return p.p50.Seconds() * 1e3 }), mid(func(p coldPass) float64 { return p.p99.Seconds() * 1e3 }),
				gets, gets/float64(blocks), mid(func(p coldPass) float64 { return float64(p.s3Bytes) / 1e6 }),
				mid(func(p coldPass) float64 { return float64(p.peerBytes) / 1e6 }), far, forGets, forFar, forGets+forFar)
		}
	}
	return t.Flush()
}

// quantileOf returns the quantile q of what of says of each pass.
func quantileOf(all []coldPass, q float64, of func(coldPass) float64) float64 {
	list := make([]float64, len(all))
	for i, p := range all {
		list[i] = of(p)
	}
	slices.Sort(list)
	return list[int(q*float64(len(list)-1)+0.5)]
}
