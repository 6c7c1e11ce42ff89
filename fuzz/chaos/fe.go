package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

// found is how a tablet that nobody had read before the FE was lost was found at a
// peer again.
type found struct {
	// alive is how long it took until the FE handed all BEs out again, after all of
	// its start; peer how long until the tablet's block came from a peer.
	alive, peer time.Duration
}

// loseFE kills the FE while all BEs are read from, and starts it again: no read may
// fail, peers must be used all the time, and BEs have to find the FE by themselves.
func loseFE(ctx context.Context, c *cluster, l *load, lasts [3]time.Duration) error {
	fmt.Printf("three BEs and an FE; each BE reads blocks that it does not have; the FE is killed for %v\n\n", lasts[1])
	var back found
	counts, err := l.countAll(ctx, []phase{
		{"before", lasts[0], func() error { return nil }},
		{"no FE", lasts[1], func() error { return c.killFE(ctx) }},
		{"FE is back", lasts[2], func() (err error) { back, err = c.reviveFE(ctx); return err }},
	})
	if err != nil {
		return err
	}
	l.stop()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "phase\treads\tfailed\twrong\tfrom peers\tp50\tp99\tlongest\t")
	for _, n := range counts {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.1f %%\t%v\t%v\t%v\t\n", n.phase, n.reads, n.failed, n.wrong, 100*share(n.fromPeers, n.reads), n.at(50), n.at(99), n.at(100))
	}
	t.Flush()
	fmt.Printf("\nafter its start the FE hands all BEs out in %v; what was first read without it comes from a peer after %v\n",
		back.alive.Round(10*time.Millisecond), back.peer.Round(100*time.Millisecond))
	if err := unharmed(counts); err != nil {
		return err
	}
	before, without := share(counts[0].fromPeers, counts[0].reads), share(counts[1].fromPeers, counts[1].reads)
	if before < 0.5 || without < 0.9*before {
		return fmt.Errorf("peers serve %.0f %% of reads with an FE, %.0f %% without", 100*before, 100*without)
	}
	return nil
}

// killFE takes the FE away as a crash does. Then one BE reads a tablet that nobody
// has read, and another one, which nobody can tell.
func (c *cluster) killFE(ctx context.Context) error {
	if err := c.fe.cmd.Process.Kill(); err != nil {
		return err
	}
	c.fe.cmd.Wait() // killed: its error says no more
	for _, i := range []int{holderIndex, victimIndex} {
		_, source, err := c.read(ctx, c.bes[i], newsObject, 0)
		if err != nil {
			return err
		}
		if source != "s3" {
			return fmt.Errorf("a tablet that nobody knows is read by %s without an FE, from: %s", c.bes[i].name, source)
		}
	}
	return nil
}

// reviveFE starts the FE again, and waits until the BEs have found it.
func (c *cluster) reviveFE(ctx context.Context) (f found, err error) {
	if err := c.startFE(); err != nil {
		return f, err
	}
	began := time.Now()
	if err := c.awaitAlive(ctx); err != nil {
		return f, err
	}
	f.alive = time.Since(began)
	// Look-ups that have failed again and again pause for up to a minute.
	for limit := began.Add(90 * time.Second); time.Now().Before(limit); {
		if err := c.forget(ctx, c.bes[victimIndex], newsObject); err != nil {
			return f, err
		}
		_, source, err := c.read(ctx, c.bes[victimIndex], newsObject, 0)
		if err != nil {
			return f, err
		}
		if source == "peer" {
			f.peer = time.Since(began)
			return f, nil
		}
		select {
		case <-ctx.Done():
			return f, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	return f, fmt.Errorf("what was first read without an FE is not found at peers")
}
