// Command hits measures cached answers over HTTP beside rivals: nginx that serves
// files (with sendfile and without), nginx that caches (proxy_cache and slice),
// Varnish. Each server has one core to itself and wrk the other; rounds are
// interleaved, and medians and ratios are what counts. It installs nothing: what is
// missing is said and left out.
//
// Beside the rate stands the processor time of an answer, which other programs on
// the machine disturb less.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"headstart/bench/s3law"
)

// bucket is the bucket, and the folder of files, that all serve.
const bucket = "bench"

// options are the flags of the command.
type options struct {
	headstart              string
	rounds, connections    int
	seconds                int
	serverCore, clientCore string
	sizes                  []int
}

func main() {
	o := options{}
	flag.StringVar(&o.headstart, "headstart", "../../bin/headstart", "the binary (make build)")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds, of which the median counts")
	flag.IntVar(&o.seconds, "seconds", 2, "how long one server is measured in a round")
	flag.IntVar(&o.connections, "connections", 16, "connections of wrk")
	flag.StringVar(&o.serverCore, "server-core", "0", "the servers' core")
	flag.StringVar(&o.clientCore, "client-core", "1", "wrk's core")
	sizes := flag.String("sizes", "1024,65536,1048576", "sizes of objects")
	flag.Parse()
	for text := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "hits: -sizes %q: want numbers of bytes with commas between them\n", *sizes)
			os.Exit(2)
		}
		o.sizes = append(o.sizes, n)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "hits:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	for _, tool := range []string{"wrk", "taskset"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing (Debian packages wrk and util-linux)", tool)
		}
	}
	dir, err := os.MkdirTemp("", "headstart-hits")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	objects := make(map[int][]byte)
	var list []s3law.Object
	for _, size := range o.sizes {
		objects[size] = random(size)
		list = append(list, s3law.Object{Key: key(size), Data: objects[size]})
	}
	if err := writeFiles(dir, list); err != nil {
		return err
	}
	store, err := s3law.Start(s3law.Options{Bucket: bucket, Objects: list})
	if err != nil {
		return err
	}
	defer store.Close()
	store.Enable(false)
	servers, stop, err := startAll(o, dir, store.URL())
	defer stop()
	if err != nil {
		return err
	}
	for _, s := range servers {
		for _, size := range o.sizes {
			if err := s.check(size, objects[size]); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return compare(o, servers)
}

func random(n int) []byte {
	data := make([]byte, n)
	seed := [32]byte{byte(n), byte(n >> 8), byte(n >> 16)}
	_, _ = rand.NewChaCha8(seed).Read(data) // never fails
	return data
}

func key(size int) string { return fmt.Sprintf("hit-%d", size) }

func writeFiles(dir string, list []s3law.Object) error {
	files := filepath.Join(dir, "files", bucket)
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // servers change their user
		return err
	}
	for _, o := range list {
		if err := os.WriteFile(filepath.Join(files, o.Key), o.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) url(size int) string { return "http://" + s.addr + "/" + bucket + "/" + key(size) }

// check fills the server's cache and compares what it answers, whole and in part.
func (s *server) check(size int, want []byte) error {
	for range 20 { // until it is in the cache whichever way that goes
		for _, rng := range []string{"", fmt.Sprintf("bytes=1-%d", size/2)} {
			req, err := http.NewRequest(http.MethodGet, s.url(size), nil)
			if err != nil {
				return err
			}
			part := want
			if rng != "" {
				req.Header.Set("Range", rng)
				part = want[1 : size/2+1]
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // its bytes are here
			if err != nil || !bytes.Equal(got, part) {
				return fmt.Errorf("%d bytes, range %q: status %d, %d bytes are not those of the object: %w", size, rng, resp.StatusCode, len(got), err)
			}
		}
	}
	return nil
}

// figure is one measurement.
type figure struct{ rate, cpu float64 }

// compare measures in rounds and prints the table.
func compare(o options, servers []*server) error {
	fmt.Printf("one core each, wrk -t1 -c%d, median of %d rounds of %d s; us is the server's processor time for an answer\n",
		o.connections, o.rounds, o.seconds)
	for _, size := range o.sizes {
		figures := make([][]figure, len(servers))
		for round := range o.rounds {
			for i := range servers {
				at := (i + round) % len(servers) // nobody always comes first
				f, err := measure(o, servers[at], size)
				if err != nil {
					return fmt.Errorf("%s, %d bytes: %w", servers[at].name, size, err)
				}
				figures[at] = append(figures[at], f)
			}
		}
		var ours figure
		for i, s := range servers {
			rates, cpus := make([]float64, o.rounds), make([]float64, o.rounds)
			for k, f := range figures[i] {
				rates[k], cpus[k] = f.rate, f.cpu
			}
			now := figure{median(rates), median(cpus)}
			if i == 0 {
				ours = now
			}
			fmt.Printf("%8d bytes  %-20s %8.0f/s %7.1f us   headstart: %.2fx the rate, %.2fx the answers a CPU second\n",
				size, s.name, now.rate, now.cpu, ours.rate/now.rate, now.cpu/ours.cpu)
		}
	}
	return nil
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// measure lets wrk ask one server for one object.
func measure(o options, s *server, size int) (figure, error) {
	before, err := s.cpu()
	if err != nil {
		return figure{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(o.seconds+20)*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "taskset", "-c", o.clientCore, "wrk", "-t1", fmt.Sprintf("-c%d", o.connections),
		fmt.Sprintf("-d%ds", o.seconds), s.url(size)).CombinedOutput()
	if err != nil {
		return figure{}, fmt.Errorf("wrk: %w: %.300s", err, out)
	}
	after, err := s.cpu()
	if err != nil {
		return figure{}, err
	}
	var f figure
	var answers int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "Requests/sec:":
			f.rate, err = strconv.ParseFloat(fields[1], 64)
		case len(fields) > 2 && fields[1] == "requests":
			answers, err = strconv.Atoi(fields[0])
		case strings.HasPrefix(strings.TrimSpace(line), "Non-2xx"), strings.HasPrefix(strings.TrimSpace(line), "Socket errors"):
			err = fmt.Errorf("wrk: %s", strings.TrimSpace(line))
		}
		if err != nil {
			return figure{}, err
		}
	}
	if answers == 0 || f.rate == 0 {
		return figure{}, fmt.Errorf("wrk has no answers: %.300s", out)
	}
	f.cpu = float64((after - before).Nanoseconds()) / 1e3 / float64(answers)
	return f, nil
}
