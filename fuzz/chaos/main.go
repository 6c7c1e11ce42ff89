// Command chaos cuts one of three BEs off from its peers and from the FE, while
// all three are read from, and heals the network after a while. The nodes are
// processes in network namespaces of their own; to be cut off means that every
// packet vanishes, those of old connections too. No read may fail or bring a
// wrong byte, and peers must be used again within one open period of their
// circuits. It has to run where it may make networks: make chaos.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == "enter" {
		err = enter(os.Args[2:])
	} else {
		err = run(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// openPeriod is cache_peer_read_circuit_open_seconds of the nodes, by default.
const openPeriod = 30 * time.Second

// phase is a part of the run.
type phase struct {
	name  string
	lasts time.Duration
	begin func() error
}

func run(args []string) error {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	exe := flags.String("headstart", "bin/headstart", "the program to run nodes with")
	before := flags.Duration("before", 10*time.Second, "how long the cluster is read from before the cut")
	cut := flags.Duration("cut", time.Minute, "how long one node is cut off")
	after := flags.Duration("after", openPeriod+15*time.Second, "how long the cluster is read from after that")
	rate := flags.Int("rate", 40, "reads a second from each node")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// The kernel ends the nodes when the thread that has started them ends.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := startCluster(ctx, *exe)
	if err != nil {
		return err
	}
	defer c.stop()
	if err := c.warm(ctx); err != nil {
		return err
	}
	l := startLoad(ctx, c, *rate)
	defer l.stop()
	victim := c.bes[victimIndex]
	fmt.Printf("three BEs and an FE; %d reads a second from each BE, each of a block that it does not have; %s is cut off\n\n", *rate, victim.name)
	var counts []count
	for _, p := range []phase{
		{"before", *before, func() error { return nil }},
		{"cut off", *cut, func() error { return c.peers.cut(victim) }},
		{"healed", *after, func() error { return c.peers.heal(victim) }},
	} {
		if err := p.begin(); err != nil {
			return err
		}
		n, err := l.count(ctx, p)
		if err != nil {
			return err
		}
		counts = append(counts, n)
	}
	l.stop()
	report(os.Stdout, counts)
	return verdict(counts)
}

func report(w io.Writer, counts []count) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "phase\treads\tfailed\twrong\tfrom peers\tof the cut one\tby the cut one\tp50\tp99\tlongest\t")
	for _, c := range counts {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.0f %%\t%.0f %%\t%d\t%v\t%v\t%v\t\n", c.phase, c.reads, c.failed, c.wrong,
			100*share(c.fromPeers, c.reads), 100*share(c.victimFromPeers, c.victimReads), c.byVictim,
			c.at(50), c.at(99), c.at(100))
	}
	t.Flush()
	healed := counts[len(counts)-1]
	fmt.Fprintf(w, "\nafter healing, the first block out of the cut node's cache came after: %s; its own first block of a peer: %s\n",
		since(healed.firstByVictim), since(healed.firstOfVictim))
}

func since(d time.Duration) string {
	if d < 0 {
		return "never"
	}
	return d.Round(100 * time.Millisecond).String()
}

func share(n, of int) float64 { return float64(n) / float64(max(of, 1)) }

// verdict says what is wrong.
func verdict(counts []count) error {
	for _, c := range counts {
		if c.failed > 0 || c.wrong > 0 {
			return fmt.Errorf("%s: %d reads failed (the first: %v), %d brought wrong bytes", c.phase, c.failed, c.err, c.wrong)
		}
		if c.reads == 0 {
			return fmt.Errorf("%s: nothing was read", c.phase)
		}
	}
	before, cut, healed := counts[0], counts[1], counts[2]
	switch {
	case before.byVictim == 0 || before.victimFromPeers == 0:
		return fmt.Errorf("peers were not used before the cut")
	case cut.byVictim > before.byVictim || cut.victimFromPeers > before.victimFromPeers:
		return fmt.Errorf("the cut node was not cut off")
	case healed.firstByVictim < 0 || healed.firstByVictim > openPeriod:
		return fmt.Errorf("the cut node was not asked again within %v", openPeriod)
	case healed.firstOfVictim < 0 || healed.firstOfVictim > openPeriod:
		return fmt.Errorf("the cut node did not ask its peers again within %v", openPeriod)
	}
	return nil
}
