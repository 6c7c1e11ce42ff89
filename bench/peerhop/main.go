// Command peerhop compares ways of fetching blocks from another process: the
// peer hop as nodes use it, stock Kitex over the same IDL, and plain TCP. All
// three send from the same mapped File Cache, and each receiver verifies the
// blocks' CRC32C. The ways take turns, so that a noisy machine is noisy for all
// of them; what counts is the median of the rounds. peerhop overload offers the
// serving side more than it can do.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peerhop:", err)
		os.Exit(1)
	}
}

// plan is what is to be measured.
type plan struct {
	Ways     []string
	Sizes    []int
	Rounds   int
	Time     time.Duration
	InFlight int
	Profiles string
}

func run(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			return serve(args[1:])
		case "device":
			return serveDevice(args[1:])
		case "overload":
			return overload(args[1:])
		}
	}
	flags := flag.NewFlagSet("peerhop", flag.ContinueOnError)
	sizes := flags.String("sizes", "1048576,65536,4096", "block sizes in bytes")
	ways := flags.String("ways", "hop,tcp,kitex-netpoll,kitex-gonet,hop-tls,tls", "what is compared")
	rounds := flags.Int("rounds", 10, "rounds")
	each := flags.Duration("time", time.Second, "how long each way runs in a round")
	inFlight := flags.Int("inflight", 4, "calls in flight")
	profiles := flags.String("profiles", "", "folder for CPU profiles of both processes, client.pprof and server-SIZE.pprof")
	asJSON := flags.Bool("json", false, "print every measurement as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := plan{Ways: list(*ways), Rounds: *rounds, Time: *each, InFlight: *inFlight, Profiles: *profiles}
	for _, s := range list(*sizes) {
		var n int
		if _, err := fmt.Sscan(s, &n); err != nil || n < 1 {
			return fmt.Errorf("-sizes: %q is not a size in bytes", s)
		}
		p.Sizes = append(p.Sizes, n)
	}
	if p.Profiles != "" {
		stop, err := startProfile(filepath.Join(p.Profiles, "client.pprof"))
		if err != nil {
			return err
		}
		defer stop()
	}
	var all []*series
	for _, size := range p.Sizes {
		s, err := measure(p, size)
		if err != nil {
			return fmt.Errorf("blocks of %d bytes: %w", size, err)
		}
		all = append(all, s...)
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(all)
	}
	report(os.Stdout, p, all)
	return nil
}

// startProfile profiles this process until stop is called.
func startProfile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}
