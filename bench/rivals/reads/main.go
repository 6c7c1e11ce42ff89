// Command reads replays the recorded reads of the 22 TPC-H queries, as S3 clients
// make them, from object storage with the latency law and from what people put in
// front of it: Headstart, nginx (proxy_cache and slice) and Varnish. Each round has
// new servers with empty caches; the second pass finds what the first has left. It
// installs nothing: what is missing is said and left out.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"headstart/bench/s3law"
	"headstart/bench/tpch"
	"headstart/bench/turns"
)

const bucket = "tpch-sf1"

func main() {
	headstart := flag.String("headstart", "../../bin/headstart", "the binary (make build)")
	rounds := flag.Int("rounds", 2, "rounds of each of the two runs")
	flag.Parse()
	if err := run(*headstart, *rounds); err != nil {
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

func run(headstart string, rounds int) error {
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
		Units:  []string{"s cold", "s warm", "GETs cold", "GETs warm", "S3 MB"},
		Rounds: rounds,
	}
	for _, s := range servers(headstart) {
		if missing := s.missing(); missing != "" {
			fmt.Printf("%s is left out: %s\n", s.name, missing)
			continue
		}
		p.Subjects = append(p.Subjects, turns.Subject{
			Name: s.name, Config: s.config, Why: s.why, Measure: func() ([]float64, error) { return w.measure(s) },
		})
	}
	return turns.Compare(os.Stdout, p)
}

// measure starts a server with an empty cache and reads everything twice.
func (w *world) measure(s server) ([]float64, error) {
	addr, stop, err := s.start(w.store.URL())
	if err != nil {
		return nil, err
	}
	defer stop()
	d := tpch.NewDirect(w.trace, w.contents, "http://"+addr+"/"+bucket+"/")
	defer d.Close()
	var seconds, gets [2]float64
	before := w.store.Metrics()
	for pass := range seconds {
		from, began := w.store.Metrics(), time.Now()
		for _, q := range w.trace.Queries {
			if _, err := d.Run(context.Background(), q.Reads); err != nil {
				return nil, err
			}
		}
		seconds[pass] = time.Since(began).Seconds()
		gets[pass] = float64(w.store.Metrics().GETs - from.GETs)
	}
	bytes := w.store.Metrics().Bytes - before.Bytes
	return []float64{seconds[0], seconds[1], gets[0], gets[1], float64(bytes) / 1e6}, nil
}
