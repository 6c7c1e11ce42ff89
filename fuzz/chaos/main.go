// Command chaos cuts one of three BEs off from its peers and from the FE, while
// all three are read from, and heals the network after a while. The nodes are
// processes in network namespaces of their own; to be cut off means that every
// packet vanishes, those of old connections too. No read may fail or bring a
// wrong byte, and peers must be used again within one open period of their
// circuits. With -lose fe it is the FE that is lost: it is killed (kill -9) and
// started again after five minutes. It has to run where it may make networks:
// make chaos.
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
	lose := flags.String("lose", "be", "what is lost: be, one of the BEs, or fe, the only FE")
	cut := flags.Duration("cut", 0, "how long it is lost; 0 is a minute for a BE, five for the FE")
	after := flags.Duration("after", openPeriod+15*time.Second, "how long the cluster is read from after that")
	rate := flags.Int("rate", 40, "reads a second from each node")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *lose != "be" && *lose != "fe" {
		return fmt.Errorf("-lose %s: want be or fe", *lose)
	}
	if *cut == 0 {
		*cut = map[string]time.Duration{"be": time.Minute, "fe": 5 * time.Minute}[*lose]
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
	if *lose == "fe" {
		return loseFE(ctx, c, l, [3]time.Duration{*before, *cut, *after})
	}
	victim := c.bes[victimIndex]
	fmt.Printf("three BEs and an FE; %d reads a second from each BE, each of a block that it does not have; %s is cut off\n\n", *rate, victim.name)
	counts, err := l.countAll(ctx, []phase{
		{"before", *before, func() error { return nil }},
		{"cut off", *cut, func() error { return c.peers.cut(victim) }},
		{"healed", *after, func() error { return c.peers.heal(victim) }},
	})
	if err != nil {
		return err
	}
	l.stop()
	report(os.Stdout, counts)
	return verdict(counts)
}

// countAll counts phase by phase.
func (l *load) countAll(ctx context.Context, phases []phase) (counts []count, err error) {
	for _, p := range phases {
		if err := p.begin(); err != nil {
			return nil, err
		}
		n, err := l.count(ctx, p)
		if err != nil {
			return nil, err
		}
		counts = append(counts, n)
	}
	return counts, nil
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

// unharmed says which phase readers were hurt in.
func unharmed(counts []count) error {
	for _, c := range counts {
		if c.failed > 0 || c.wrong > 0 {
			return fmt.Errorf("%s: %d reads failed (the first: %v), %d brought wrong bytes", c.phase, c.failed, c.err, c.wrong)
		}
		if c.reads == 0 {
			return fmt.Errorf("%s: nothing was read", c.phase)
		}
	}
	return nil
}

// verdict says what is wrong.
func verdict(counts []count) error {
	if err := unharmed(counts); err != nil {
		return err
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
