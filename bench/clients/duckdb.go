package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"headstart/bench/s3law"
)

// queries is DuckDB with the 22 TPC-H queries.
type queries struct {
	headstart, python, tpch string
	law                     bool
	rounds                  int
	store                   *s3law.Server
	// digests are those of the first run.
	digests string
	ways    []*way
}

// way is one way for the queries' reads to take, with what each round has
// measured.
type way struct {
	name    string
	seconds []float64
	gets    []float64
}

// report runs the queries and prints the row. It returns 1 when that has failed.
func (q *queries) report(work string) int {
	if err := q.run(work); err != nil {
		fmt.Printf("| DuckDB httpfs, 22 TPC-H queries | FAILED | %v |\n", err)
		return 1
	}
	var cells []string
	for _, w := range q.ways {
		cells = append(cells, fmt.Sprintf("%s %.1f s (%.2fx), %.0f GETs", w.name, median(w.seconds), median(q.ways[0].seconds)/median(w.seconds), median(w.gets)))
	}
	fmt.Printf("| DuckDB httpfs, 22 TPC-H queries | ok | digests as from the store itself; median of %d rounds, law %v: %s |\n",
		q.rounds, q.law, strings.Join(cells, "; "))
	return 0
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func (q *queries) run(work string) error {
	var objects []s3law.Object
	data := os.DirFS(filepath.Join(q.tpch, "data"))
	err := fs.WalkDir(data, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		bytes, err := fs.ReadFile(data, path)
		objects = append(objects, s3law.Object{Key: path, Data: bytes})
		return err
	})
	if err != nil {
		return err
	}
	if q.store, err = s3law.Start(s3law.Options{Bucket: "bench", Objects: objects}); err != nil {
		return err
	}
	defer q.store.Close()
	q.store.Enable(q.law)
	for _, name := range []string{"direct", "through a cold BE", "a warm BE", "a cold BE with a warm peer"} {
		q.ways = append(q.ways, &way{name: name})
	}
	for round := range q.rounds {
		if err := q.round(filepath.Join(work, fmt.Sprintf("duckdb-%d", round))); err != nil {
			return err
		}
	}
	return nil
}

// round goes each way once, with caches of its own. The peer is of another compute
// group, so that the objects are the second BE's own to hold.
func (q *queries) round(dir string) error {
	fe, err := startFE(q.headstart, filepath.Join(dir, "fe"))
	if err != nil {
		return err
	}
	defer fe.stop()
	conf := fmt.Sprintf("fe_endpoints = 127.0.0.1:%d\nenable_cache_read_from_peer = true\n", fe.ready.RPCPort)
	first, err := startBE(q.headstart, filepath.Join(dir, "first"), q.store.URL(), conf+"compute_group_id = one\n")
	if err != nil {
		return err
	}
	defer first.stop()
	for i, url := range []string{q.store.URL(), first.s3(), first.s3()} {
		if err := q.measure(q.ways[i], url); err != nil {
			return err
		}
	}
	second, err := startBE(q.headstart, filepath.Join(dir, "second"), q.store.URL(), conf+"compute_group_id = two\n")
	if err != nil {
		return err
	}
	defer second.stop()
	if err := awaitAlive(fe, 2); err != nil {
		return err
	}
	return q.measure(q.ways[3], second.s3())
}

// awaitAlive waits until the FE knows of so many BEs: they report in their own
// time.
func awaitAlive(fe *node, want int) error {
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		var list []struct {
			Alive bool `json:"alive"`
		}
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/backends", fe.ready.HTTPPort))
		if err == nil {
			err = json.NewDecoder(resp.Body).Decode(&list)
			_ = resp.Body.Close() // it has been read
		}
		alive := 0
		for _, be := range list {
			if be.Alive {
				alive++
			}
		}
		if err == nil && alive == want {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the FE does not see %d BEs alive", want)
}

// measure runs the queries once.
func (q *queries) measure(w *way, url string) error {
	before := q.store.Metrics()
	ctx, cancel := context.WithTimeout(context.Background(), eachLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, q.python, filepath.Join(q.tpch, "queries.py"),
		strings.TrimPrefix(url, "http://"), "bench", keyID, secret).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.500s", w.name, err, out)
	}
	digests, seconds := results(string(out))
	if q.digests == "" {
		q.digests = digests
	}
	if digests != q.digests || strings.Count(digests, " ") != 22 {
		return fmt.Errorf("%s: the results differ: %q, want %q", w.name, digests, q.digests)
	}
	w.seconds = append(w.seconds, seconds)
	w.gets = append(w.gets, float64(q.store.Metrics().GETs-before.GETs))
	fmt.Fprintf(os.Stderr, "%s: %.1f s\n", w.name, seconds)
	return nil
}

// results takes digests and the time of all out of what queries.py prints.
func results(out string) (digests string, seconds float64) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 6 {
			digests += f[5] + " "
		} else if len(f) == 3 && f[0] == "total" {
			_, _ = fmt.Sscan(f[1], &seconds) // 0 shows
		}
	}
	return digests, seconds
}
