// Command reads replays the recorded reads of the 22 TPC-H queries, as S3 clients
// make them, from object storage with the latency law and from what people put in
// front of it: Headstart, nginx (proxy_cache and slice), Varnish, Traffic Server
// (slice and cache_range_requests) and Cachey. Each round has new servers with empty
// caches; the second pass finds what the first has left. It installs nothing: what
// is missing is said and left out. bench/rivals/servers has the configurations.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"headstart/bench/rivals/servers"
	"headstart/bench/s3law"
	"headstart/bench/tpch"
	"headstart/bench/turns"
)

const bucket = "tpch-sf1"

func main() {
	headstart := flag.String("headstart", "../../bin/headstart", "the binary (make build)")
	cachey := flag.String("cachey", "/tmp/headstart-rivals/bin/server", "the binary (make rivals builds it)")
	rounds := flag.Int("rounds", 3, "rounds of each of the two runs")
	only := flag.String("only", "", "ours and the rivals whose `name` has this in it")
	flag.Parse()
	// Servers are stopped by who has started them, when it is interrupted too.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *headstart, *cachey, *only, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "reads:", err)
		os.Exit(1)
	}
}

// world is what all rounds have in common.
type world struct {
	trace    *tpch.Trace
	contents *tpch.Contents
	objects  []s3law.Object
}

func run(ctx context.Context, headstart, cachey, only string, rounds int) error {
	trace, err := tpch.Load()
	if err != nil {
		return err
	}
	w := &world{trace: trace, contents: tpch.Generate(trace.Objects, 1)}
	for i, o := range trace.Objects {
		w.objects = append(w.objects, s3law.Object{Key: o.Key, Data: w.contents.Object(i)})
	}
	p := turns.Plan{
		Title:  fmt.Sprintf("%d recorded reads of TPC-H, %d at once, with an empty cache and then once more", trace.Reads(), tpch.ReaderCount),
		Units:  []string{"s cold", "s warm", "CPU-s cold", "CPU-s warm", "GETs cold", "GETs warm", "S3 MB"},
		Judged: 2,
		Rounds: rounds,
	}
	for _, s := range []servers.Server{
		servers.Headstart(headstart), servers.NginxCache(), servers.Varnish(), servers.TrafficServer(true), servers.Cachey(cachey), servers.Origin(),
	} {
		if len(p.Subjects) > 0 && !strings.Contains(s.Name, only) {
			continue
		}
		if missing := s.LeftOut(); missing != "" {
			if len(p.Subjects) == 0 {
				return errors.New(missing)
			}
			fmt.Println(missing)
			continue
		}
		played := 0
		p.Subjects = append(p.Subjects, turns.Subject{
			Name: s.Name, Config: s.Config, Why: s.WhyRead, Once: s.Name == servers.Origin().Name,
			Measure: func() ([]float64, error) {
				// The law is another one in each round, but the same for all in it, and in
				// both runs: a few slow GETs are a tenth of what a cold read takes.
				played++
				return w.measure(ctx, s, uint64(played%rounds))
			},
		})
	}
	return turns.Compare(os.Stdout, p)
}

// measure starts object storage and a server with an empty cache, and reads
// everything twice; once from object storage itself, which answers the second time as
// it did the first.
func (w *world) measure(ctx context.Context, s servers.Server, seed uint64) ([]float64, error) {
	store, err := s3law.Start(s3law.Options{Bucket: bucket, Objects: w.objects, Law: s3law.Law{Seed: seed}})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	r, err := s.Start(servers.Options{Store: store.URL(), Workers: runtime.NumCPU()})
	if err != nil {
		return nil, err
	}
	defer r.Stop()
	d := tpch.NewDirect(w.trace, w.contents, r.URL(bucket, ""))
	defer d.Close()
	cold, err := pass(ctx, d, store, r)
	if err != nil {
		return nil, err
	}
	warm := cold
	if s.Name != servers.Origin().Name {
		warm, err = pass(ctx, d, store, r)
	}
	return []float64{cold.seconds, warm.seconds, cold.cpu, warm.cpu, cold.gets, warm.gets, (cold.bytes + warm.bytes) / 1e6}, err
}

// taken is what reading everything once has taken; cpu is the server's.
type taken struct{ seconds, cpu, gets, bytes float64 }

func pass(ctx context.Context, d *tpch.Direct, store *s3law.Server, r *servers.Running) (taken, error) {
	idle, err := r.CPU()
	if err != nil {
		return taken{}, err
	}
	from, began := store.Metrics(), time.Now()
	for _, q := range d.Trace.Queries {
		if _, err := d.Run(ctx, q.Reads); err != nil {
			return taken{}, err
		}
	}
	seconds, to := time.Since(began).Seconds(), store.Metrics()
	cpu, err := r.CPU()
	return taken{seconds, cpu.Since(idle).Both().Seconds(), float64(to.GETs - from.GETs), float64(to.Bytes - from.Bytes)}, err
}
