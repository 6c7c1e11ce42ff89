// Command reads replays the recorded reads of the 22 TPC-H queries, as S3 clients
// make them, from object storage with the latency law and from what people put in
// front of it: Headstart, nginx (proxy_cache and slice), Varnish, Traffic Server
// (slice and cache_range_requests) and Cachey. Each round has new servers with empty
// caches; the second pass finds what the first has left. It installs nothing: what
// is missing is said and left out. bench/rivals/servers has the configurations.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"headstart/bench/rivals/servers"
	"headstart/bench/s3law"
	"headstart/bench/tpch"
	"headstart/bench/turns"
)

const bucket = "tpch-sf1"

func main() {
	headstart := flag.String("headstart", "../../bin/headstart", "the binary (make build)")
	cachey := flag.String("cachey", "cachey", "the binary (make rivals builds it)")
	rounds := flag.Int("rounds", 3, "rounds of each of the two runs")
	flag.Parse()
	if err := run(*headstart, *cachey, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "reads:", err)
		os.Exit(1)
	}
}

// world is what all rounds have in common.
type world struct {
	trace    *tpch.Trace
	contents *tpch.Contents
	store    *s3law.Server
}

func run(headstart, cachey string, rounds int) error {
	trace, err := tpch.Load()
	if err != nil {
		return err
	}
	w := &world{trace: trace, contents: tpch.Generate(trace.Objects, 1)}
	objects := make([]s3law.Object, len(trace.Objects))
	for i, o := range trace.Objects {
		objects[i] = s3law.Object{Key: o.Key, Data: w.contents.Object(i)}
	}
	if w.store, err = s3law.Start(s3law.Options{Bucket: bucket, Objects: objects, Law: s3law.Law{Seed: 1}}); err != nil {
		return err
	}
	defer w.store.Close()
	p := turns.Plan{
		Title:  fmt.Sprintf("%d recorded reads of TPC-H, %d at once, with an empty cache and then once more", trace.Reads(), tpch.ReaderCount),
		Units:  []string{"s cold", "s warm", "CPU-s both", "GETs cold", "GETs warm", "S3 MB"},
		Judged: 2,
		Rounds: rounds,
	}
	for _, s := range []servers.Server{
		servers.Headstart(headstart), servers.NginxCache(), servers.Varnish(), servers.TrafficServer(true), servers.Cachey(cachey), servers.Origin(),
	} {
		if missing := s.Missing(); missing != "" {
			fmt.Println(missing)
			continue
		}
		p.Subjects = append(p.Subjects, turns.Subject{
			Name: s.Name, Config: s.Config, Why: s.Why, Once: s.Name == servers.Origin().Name,
			Measure: func() ([]float64, error) { return w.measure(s) },
		})
	}
	return turns.Compare(os.Stdout, p)
}

// measure starts a server with an empty cache and reads everything twice; once from
// object storage itself, which answers the second time as it did the first.
func (w *world) measure(s servers.Server) ([]float64, error) {
	r, err := s.Start(servers.Options{Store: w.store.URL(), Workers: runtime.NumCPU()})
	if err != nil {
		return nil, err
	}
	defer r.Stop()
	d := tpch.NewDirect(w.trace, w.contents, r.URL(bucket, ""))
	defer d.Close()
	idle, err := r.CPU()
	if err != nil {
		return nil, err
	}
	cold, err := w.pass(d)
	if err != nil {
		return nil, err
	}
	warm := cold
	if s.Name != servers.Origin().Name {
		if warm, err = w.pass(d); err != nil {
			return nil, err
		}
	}
	cpu, err := r.CPU()
	return []float64{cold.seconds, warm.seconds, (cpu - idle).Seconds(), cold.gets, warm.gets, (cold.bytes + warm.bytes) / 1e6}, err
}

// pass is what reading everything once has taken.
type pass struct{ seconds, gets, bytes float64 }

func (w *world) pass(d *tpch.Direct) (pass, error) {
	from, began := w.store.Metrics(), time.Now()
	for _, q := range w.trace.Queries {
		if _, err := d.Run(context.Background(), q.Reads); err != nil {
			return pass{}, err
		}
	}
	seconds, to := time.Since(began).Seconds(), w.store.Metrics()
	return pass{seconds, float64(to.GETs - from.GETs), float64(to.Bytes - from.Bytes)}, nil
}
