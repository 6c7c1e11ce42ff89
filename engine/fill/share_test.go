package fill_test

import (
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

// A node promises what it is reading from object storage already, whoever asks
// and whether or not it has a slot for fills, and starts nothing for that.
func TestBP09_S38_WhatIsBeingReadIsPromised(t *testing.T) {
	for _, filling := range []bool{false, true} {
		inCluster(t, 1, func(c *cluster) {
			n := c.nodes[0]
			n.engine.Settings.ObjectStorageGetMaxBlocks.Store(1)
			n.read(c, 19)
			n.fills.SetLimit(0)
			before := len(c.store.gets())
			go n.read(c, 5) // ends 40 ms later
			time.Sleep(10 * time.Millisecond)
			ask, missing := request(block.NewRun(4, 2), filling), "-f"
			if ask.Wait = false; filling {
				missing = "rf"
			}
			if got, took := c.ask(n, time.Minute, ask); got != missing || took != 0 {
				t.Errorf("fill %v: %s in %v, want %s at once", filling, got, took, missing)
			}
			ask.Wait = true
			if got, took := c.ask(n, time.Minute, ask); got != missing[:1]+"D" || took != 30*time.Millisecond {
				t.Errorf("fill %v: who waits gets %s in %v", filling, got, took)
			}
			go n.read(c, 6)
			time.Sleep(10 * time.Millisecond)
			ask.Run = block.NewRun(6, 1)
			if got, took := c.ask(n, 7*time.Millisecond, ask); got != "t" || took != 7*time.Millisecond {
				t.Errorf("fill %v: who waits no longer gets %s in %v", filling, got, took)
			}
			n.settings.EnablePeerServerCacheFill.Store(false)
			if got, took := c.ask(n, time.Minute, ask); got != "-" || took != 0 {
				t.Errorf("fill %v: switched off: %s in %v", filling, got, took)
			}
			synctest.Wait()
			if n, want := len(c.store.gets())-before, 2; n != want {
				t.Errorf("fill %v: %d GETs, want %d", filling, n, want)
			}
		})
	}
}

// A request whose blocks are fills of others and GETs of this node's readers waits
// for all of them together no longer than for one.
func TestS33_BP09_OneTimeLimitForFillsAndShares(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		n.engine.Settings.ObjectStorageGetMaxBlocks.Store(1)
		n.read(c, 19)
		n.fills.SetLimit(1)
		c.store.set(func(s *store) { s.mu.after = time.Minute })
		go n.read(c, 5)
		go c.ask(n, time.Minute, request(block.NewRun(4, 1), true)) // takes the slot
		time.Sleep(time.Second)
		got, took := c.ask(n, time.Minute, request(block.NewRun(4, 2), true))
		if limit := time.Duration(n.settings.PeerServerCacheFillTimeoutMS.Load()) * time.Millisecond; took > limit {
			t.Errorf("%s after %v, at most %v is allowed", got, took, limit)
		}
		c.store.set(func(s *store) { s.mu.after = 0 })
	})
}

// cool puts the tablet of n into its cooldown, by reads of five blocks that
// nobody has.
func (c *cluster) cool(n *node, from int) {
	c.t.Helper()
	for i := range 5 {
		n.read(c, from+i)
	}
	synctest.Wait()
	if s := n.engine.Table.Candidates(tablet()).State(); s != shards.Cooldown {
		c.t.Fatalf("the tablet is in state %v, not in cooldown", s)
	}
}

// A GET that is late asks the candidates again, in the cooldown of S25 too: one
// of them has the block by now, or comes by it while the GET is still late.
func TestBP09_S25_ALateGETAsksThePeersAgain(t *testing.T) {
	for filledAt, got := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 252 * time.Millisecond,
		300 * time.Millisecond: 504 * time.Millisecond,
	} {
		inCluster(t, 2, func(c *cluster) {
			a, b := c.nodes[0], c.nodes[1]
			a.engine.Settings.ObjectStorageGetMaxBlocks.Store(1)
			a.know(c, false, b)
			b.read(c, 19)
			c.cool(a, 0)
			c.store.set(func(s *store) { s.mu.after = 2 * time.Second })
			begin := time.Now()
			go func() { // ends long before the read does
				time.Sleep(filledAt)
				c.store.set(func(s *store) { s.mu.after = time.Millisecond })
				b.read(c, 7)
			}()
			src, err := a.read(c, 7)
			if took := time.Since(begin); src != block.SourcePeer || err != nil || took != got {
				t.Errorf("filled at %v: from %s after %v (%v), want a peer's after %v", filledAt, src, took, err, got)
			}
			synctest.Wait()
			if s := a.engine.Table.Candidates(tablet()).State(); s != shards.Ready {
				t.Errorf("a peer has had a block, and the tablet is in state %v", s)
			}
			if m := a.engine.Metrics(); m.LateGETs != 1 || m.Hedges != 0 {
				t.Errorf("%d late GETs, %d hedges", m.LateGETs, m.Hedges)
			}
		})
	}
}

// Two nodes whose late GETs wait for each other's: the first one that object
// storage answers is both nodes'; when it answers neither, neither waits on.
func TestBP09_SF06_LateGETsOfTwoNodesEnd(t *testing.T) {
	for _, fails := range []error{nil, block.ErrThrottled} {
		inCluster(t, 2, func(c *cluster) {
			for _, n := range c.nodes {
				n.engine.Settings.ObjectStorageGetMaxBlocks.Store(1)
				n.know(c, false, c.nodes[0], c.nodes[1])
			}
			c.cool(c.nodes[0], 0)
			c.cool(c.nodes[1], 10)
			begin, done := time.Now(), make(chan error, 2)
			for i, n := range c.nodes {
				c.store.set(func(s *store) { s.mu.after, s.mu.err = time.Duration(i+1)*time.Second, fails })
				go func() {
					_, err := n.read(c, 7)
					done <- err
				}()
				time.Sleep(10 * time.Millisecond)
			}
			for range c.nodes {
				if err := <-done; (err == nil) != (fails == nil) {
					t.Errorf("object storage says %v, the reader gets %v", fails, err)
				}
			}
			took, most := time.Since(begin), 1010*time.Millisecond
			if fails != nil {
				most = 2020 * time.Millisecond
			}
			if took > most {
				t.Errorf("object storage says %v: both had their answer after %v", fails, took)
			}
		})
	}
}
