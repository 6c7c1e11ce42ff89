package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// load reads from all BEs at a steady rate, whatever becomes of the reads.
type load struct {
	cluster *cluster
	cancel  context.CancelFunc
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		count
	}
}

// count is what was read in one phase.
type count struct {
	phase                string
	began                time.Time
	reads, failed, wrong int
	// err is the first failure.
	err error
	// fromPeers are reads of the whole cluster that a peer has served,
	// victimReads those of the node that is cut off.
	fromPeers, victimReads, victimFromPeers int
	// byVictim is what the victim has served, first… when that began and when it
	// got something itself; negative for never.
	byVictim                     int
	firstByVictim, firstOfVictim time.Duration
	took                         []time.Duration
}

func (c *count) at(percent int) time.Duration {
	if len(c.took) == 0 {
		return 0
	}
	return c.took[min(len(c.took)*percent/100, len(c.took)-1)].Round(100 * time.Microsecond)
}

// startLoad begins to read; stop ends it.
func startLoad(ctx context.Context, c *cluster, rate int) *load {
	l := &load{cluster: c}
	ctx, l.cancel = context.WithCancel(ctx)
	for i := range c.bes {
		l.running.Go(func() { l.readAll(ctx, i, rate) })
	}
	return l
}

func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}

// readAll reads from one BE.
func (l *load) readAll(ctx context.Context, node, rate int) {
	random := rand.New(rand.NewPCG(uint64(node), 1))
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var reads sync.WaitGroup
	defer reads.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		object, block := random.IntN(setObjects), random.IntN(objectSize/blockSize)
		if node == victimIndex {
			object += setObjects
		}
		reads.Go(func() { l.readOne(ctx, node, object, block) }) // ends with its read, which has a time-out
	}
}

// readOne lets a BE forget an object and reads a block of it.
func (l *load) readOne(ctx context.Context, node, object, block int) {
	c := l.cluster
	be := c.bes[node]
	err := c.forget(ctx, be, object)
	began := time.Now()
	var body []byte
	source := ""
	if err == nil {
		body, source, err = c.read(ctx, be, object, block)
	}
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := &l.mu.count
	n.reads++
	n.took = append(n.took, took)
	if node == victimIndex {
		n.victimReads++
	}
	switch {
	case err != nil:
		n.failed++
		if n.err == nil {
			n.err = fmt.Errorf("%s: %w", be.name, err)
		}
	case !bytes.Equal(body, c.data[block*blockSize:][:blockSize]):
		n.wrong++
	case source == "peer":
		n.fromPeers++
		if node == victimIndex {
			n.victimFromPeers++
			if n.firstOfVictim < 0 {
				n.firstOfVictim = time.Since(n.began)
			}
		}
	}
}

// count counts during one phase. A read belongs to the phase in which it ends.
func (l *load) count(ctx context.Context, p phase) (count, error) {
	victim := l.cluster.bes[victimIndex]
	first, err := l.cluster.served(ctx, victim)
	if err != nil {
		return count{}, err
	}
	l.mu.Lock()
	l.mu.count = count{phase: p.name, began: time.Now(), firstByVictim: -1, firstOfVictim: -1}
	l.mu.Unlock()
	end := time.NewTimer(p.lasts)
	defer end.Stop()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		last := false
		select {
		case <-ctx.Done():
			return count{}, ctx.Err()
		case <-end.C:
			tick.Stop()
			last = true
		case <-tick.C:
		}
		now, err := l.cluster.served(ctx, victim)
		if err != nil {
			return count{}, err
		}
		l.mu.Lock()
		n := &l.mu.count
		if n.byVictim = now - first; n.byVictim > 0 && n.firstByVictim < 0 {
			n.firstByVictim = time.Since(n.began)
		}
		out := *n
		l.mu.Unlock()
		if last {
			out.took = slices.Clone(out.took)
			slices.Sort(out.took)
			return out, nil
		}
	}
}
