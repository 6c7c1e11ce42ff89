// Command micro runs the Go benchmarks of the hot paths and prints their
// medians. The packages take turns, one run of each a round, so
// that a busy minute of the machine does not fall on one of them alone. With
// -ref it measures a second commit in the same rounds, and benchstat compares
// the two.
//
//	go run ./bench/micro -ref main
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// packages are those on the way of a read. Benchmarks that take seconds a
// round, or are about something else, are not run: see skipped.
const packages = "./blockcache ./engine ./engine/block ./engine/plan ./engine/profile ./engine/race " +
	"./pools ./rpc ./rpc/framing ./rpc/s3 ./shards ./shards/placement"

// skipped are measured by commands of their own, below bench.
const skipped = "CostOfBookkeeping/sixteen|Open|PlanMillion|PeerHop|Copy"

type options struct {
	packages, bench, skip, ref string
	rounds                     int
	each                       time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.packages, "packages", packages, "packages, separated by blanks")
	flag.StringVar(&o.bench, "bench", ".", "which benchmarks, a regular expression")
	flag.StringVar(&o.skip, "skip", skipped, "which not")
	flag.StringVar(&o.ref, "ref", "", "a `commit` to compare with")
	flag.IntVar(&o.rounds, "rounds", 6, "rounds; six are the fewest that benchstat gives a range for")
	flag.DurationVar(&o.each, "time", 200*time.Millisecond, "how long each benchmark runs in a round")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "micro:", err)
		os.Exit(1)
	}
}

// side is one commit that is measured.
type side struct {
	name, root string
	// binaries are the test binaries by package; a package that the commit does
	// not have has none.
	binaries map[string]string
	out      bytes.Buffer
}

func run(ctx context.Context, o options) error {
	tmp, err := os.MkdirTemp("", "headstart-micro-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	sides := []*side{{name: "now", root: here}}
	if o.ref != "" {
		tree := filepath.Join(tmp, "tree")
		if err := git(ctx, "worktree", "add", "--detach", "--quiet", tree, o.ref); err != nil {
			return fmt.Errorf("-ref %s: %w", o.ref, err)
		}
		defer git(context.WithoutCancel(ctx), "worktree", "remove", "--force", tree)
		sides = []*side{{name: strings.ReplaceAll(o.ref, "/", "-"), root: tree}, sides[0]}
	}
	list := strings.Fields(o.packages)
	for _, s := range sides {
		if err := s.build(ctx, tmp, list); err != nil {
			return err
		}
	}
	began := time.Now()
	for n := range o.rounds {
		for _, p := range list {
			for i := range sides { // who comes first changes
				if err := sides[(i+n)%len(sides)].measure(ctx, o, p); err != nil {
					return err
				}
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d, %v\n", n+1, o.rounds, time.Since(began).Round(time.Second))
	}
	if len(sides) == 1 {
		return report(os.Stdout, o, sides[0].out.Bytes())
	}
	return compare(ctx, tmp, sides)
}

// git leaves its output with this process's errors.
func git(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func (s *side) build(ctx context.Context, tmp string, list []string) error {
	s.binaries = make(map[string]string)
	for _, p := range list {
		if _, err := os.Stat(filepath.Join(s.root, p)); os.IsNotExist(err) {
			continue
		}
		binary := filepath.Join(tmp, s.name+"-"+strings.ReplaceAll(strings.Trim(p, "./"), "/", "-")+".test")
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, p)
		cmd.Dir, cmd.Stderr = s.root, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s of %s: %w", p, s.name, err)
		}
		s.binaries[p] = binary
	}
	return nil
}

// measure runs the benchmarks of a package once.
func (s *side) measure(ctx context.Context, o options, p string) error {
	if s.binaries[p] == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, s.binaries[p], "-test.run=^$", "-test.bench="+o.bench, "-test.skip="+o.skip,
		"-test.benchtime="+o.each.String(), "-test.benchmem")
	cmd.Dir = filepath.Join(s.root, p) // where go test runs them
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s of %s: %w\n%s", p, s.name, err, out.Bytes())
	}
	s.out.Write(out.Bytes())
	return nil
}

// compare lets benchstat say what differs.
func compare(ctx context.Context, tmp string, sides []*side) error {
	args := []string{"tool", "benchstat"}
	for _, s := range sides {
		path := filepath.Join(tmp, s.name)
		if err := os.WriteFile(path, s.out.Bytes(), 0o600); err != nil {
			return err
		}
		args = append(args, s.name+"="+path)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
