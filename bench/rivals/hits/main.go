// Command hits measures cached answers over HTTP beside rivals: nginx that serves
// files (with sendfile and without), nginx that caches (proxy_cache and slice),
// Varnish, Traffic Server and Cachey. Each server has one core to itself and wrk the
// other; all are asked in turns, a second each. It installs nothing: what is missing
// is said and left out. bench/rivals/servers has the configurations.
//
// Time an answer is what a client sees: as many times as a rival costs, so many
// times ours answers more a second. Beside it stands the processor time of the
// server, which other programs on the machine disturb less.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"headstart/bench/rivals/servers"
	"headstart/bench/s3law"
	"headstart/bench/turns"
)

// bucket is the bucket, and the folder of files, that all serve.
const bucket = "bench"

// options are the flags of the command.
type options struct {
	headstart, cachey      string
	rounds, connections    int
	seconds                int
	serverCore, clientCore string
	only                   string
	sizes                  []int
}

func main() {
	o := options{}
	flag.StringVar(&o.headstart, "headstart", "../../bin/headstart", "the binary (make build)")
	flag.StringVar(&o.cachey, "cachey", "/tmp/headstart-rivals/bin/server", "the binary (make rivals builds it)")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds of each of the two runs")
	flag.IntVar(&o.seconds, "seconds", 1, "how long one server is measured in a round")
	flag.IntVar(&o.connections, "connections", 16, "connections of wrk")
	flag.StringVar(&o.serverCore, "server-core", "0", "the servers' core")
	flag.StringVar(&o.clientCore, "client-core", "1", "wrk's core")
	flag.StringVar(&o.only, "only", "", "ours and the rivals whose `name` has this in it")
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
	// Servers are stopped by who has started them, when it is interrupted too.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "hits:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
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
	all, stop, err := startAll(o, filepath.Join(dir, "files"), store.URL())
	defer stop()
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, size := range o.sizes {
			if err := check(s, size, objects[size]); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
		}
	}
	for i, size := range o.sizes {
		if err := compare(ctx, o, all, size, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// startAll starts what is there, ours first. stop ends what has been started, with
// an error too.
func startAll(o options, files, store string) (all []*servers.Running, stop func(), err error) {
	stop = func() {
		for _, s := range all {
			_ = s.Stop() // what it leaves is temporary
		}
	}
	where := servers.Options{Store: store, Files: files, Core: o.serverCore, Workers: 1}
	for _, s := range []servers.Server{
		servers.Headstart(o.headstart), servers.NginxStatic(true), servers.NginxStatic(false),
		servers.NginxCache(), servers.Varnish(), servers.TrafficServer(false), servers.Cachey(o.cachey),
	} {
		// The others but Cachey read from nginx, which therefore is always started.
		first, origin := len(all) == 0, len(all) == 1
		if !first && !origin && !strings.Contains(s.Name, o.only) {
			continue
		}
		if missing := s.LeftOut(); missing != "" {
			if first || origin {
				return all, stop, errors.New(missing)
			}
			fmt.Println(missing)
			continue
		}
		r, err := s.Start(where)
		if err != nil {
			return all, stop, err
		}
		if all = append(all, r); origin {
			where.Origin = "http://" + r.Addr()
		}
	}
	return all, stop, nil
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

// whole is the range that a server is asked for all bytes with, "" if it needs none.
func whole(s *servers.Running, size int) string {
	if s.WholeAsRange {
		return fmt.Sprintf("bytes=0-%d", size-1)
	}
	return ""
}

// check fills the server's cache and compares what it answers, whole and in part.
func check(s *servers.Running, size int, want []byte) error {
	for range 20 { // until it is in the cache whichever way that goes
		all := whole(s, size)
		for _, rng := range []string{all, fmt.Sprintf("bytes=1-%d", size/2)} {
			req, err := http.NewRequest(http.MethodGet, s.URL(bucket, key(size)), nil)
			if err != nil {
				return err
			}
			part := want
			if rng != "" {
				req.Header.Set("Range", rng)
			}
			if rng != all {
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

// compare measures one size in rounds and prints the table, the first with what
// they all are.
func compare(ctx context.Context, o options, all []*servers.Running, size int, first bool) error {
	p := turns.Plan{
		Title:  fmt.Sprintf("A hit of %d bytes, one core each, wrk -t1 -c%d, %d s each", size, o.connections, o.seconds),
		Units:  []string{"µs/answer", "CPU-µs/answer", "its own", "the kernel's", "answers/s"},
		Judged: 2,
		Rounds: o.rounds,
	}
	for i, s := range all {
		if i > 0 && !strings.Contains(s.Name, o.only) {
			continue
		}
		subject := turns.Subject{Name: s.Name, Why: s.WhyHit, Measure: func() ([]float64, error) { return measure(ctx, o, s, size) }}
		if first {
			subject.Config = s.Config
		}
		p.Subjects = append(p.Subjects, subject)
	}
	return turns.Compare(os.Stdout, p)
}

// measure lets wrk ask one server for one object.
func measure(ctx context.Context, o options, s *servers.Running, size int) ([]float64, error) {
	args := []string{"-c", o.clientCore, "wrk", "-t1", fmt.Sprintf("-c%d", o.connections), fmt.Sprintf("-d%ds", o.seconds)}
	if rng := whole(s, size); rng != "" {
		args = append(args, "-H", "Range: "+rng)
	}
	before, err := s.CPU()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.seconds+20)*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "taskset", append(args, s.URL(bucket, key(size)))...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("wrk: %w: %.300s", err, out)
	}
	after, err := s.CPU()
	if err != nil {
		return nil, err
	}
	answers, rate, err := parse(string(out))
	if err != nil {
		return nil, err
	}
	took := after.Since(before)
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / answers }
	return []float64{1e6 / rate, each(took.Both()), each(took.User), each(took.Kernel), rate}, nil
}

// parse reads what wrk says.
func parse(out string) (answers, rate float64, err error) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "Requests/sec:":
			rate, err = strconv.ParseFloat(fields[1], 64)
		case len(fields) > 2 && fields[1] == "requests":
			answers, err = strconv.ParseFloat(fields[0], 64)
		case strings.HasPrefix(line, "  Non-2xx"), strings.HasPrefix(line, "  Socket errors"):
			err = fmt.Errorf("wrk: %s", strings.TrimSpace(line))
		}
		if err != nil {
			return 0, 0, err
		}
	}
	if !(answers > 0 && rate > 0) {
		return 0, 0, fmt.Errorf("wrk has no answers: %.300s", out)
	}
	return answers, rate, nil
}
