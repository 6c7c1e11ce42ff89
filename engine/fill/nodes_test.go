package fill_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

func TestSF06_TwoNodesNeverWaitForEachOther(t *testing.T) {
	for _, race := range []bool{true, false} {
		for _, filling := range []bool{true, false} {
			for _, warm := range []bool{true, false} { // warm: what the object is, is known
				inCluster(t, 2, func(c *cluster) {
					a, b := c.nodes[0], c.nodes[1]
					for _, n := range c.nodes {
						n.engine.Settings.EnablePeerS3Race.Store(race)
						if warm {
							n.read(c, 19)
						}
					}
					synctest.Wait()
					time.Sleep(3 * time.Second) // the look-ups that found nothing are over
					a.know(c, filling, b, a)
					b.know(c, filling, a)
					begin := time.Now()
					done := make(chan error, 40)
					for i := range 40 {
						go func() {
							_, err := c.nodes[i%2].read(c, i/2%10)
							done <- err
						}()
					}
					for range 40 {
						if err := <-done; err != nil {
							t.Errorf("race %v, fill %v: %v", race, filling, err)
						}
					}
					if took := time.Since(begin); took > 200*time.Millisecond {
						t.Errorf("race %v, fill %v, warm %v: both had their blocks after %v", race, filling, warm, took)
					}
					synctest.Wait()
					if a.asked.Load() != b.served.Load() || b.asked.Load() != a.served.Load() {
						t.Errorf("a asked %d times and b served %d; b asked %d, a served %d: somebody asked itself, or for a peer",
							a.asked.Load(), b.served.Load(), b.asked.Load(), a.served.Load())
					}
				})
			}
		}
	}
}

func TestSF06_ServingNeverAsksAPeer(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		a, b := c.nodes[0], c.nodes[1]
		b.know(c, true, a, c.nodes[2])
		a.know(c, true, b)
		c.ask(b, time.Minute, request(block.NewRun(0, 4), true))
		c.ask(b, time.Minute, request(block.NewRun(2, 8), true))
		if n := b.asked.Load(); n != 0 {
			t.Errorf("a node that fills for a peer asked %d peers", n)
		}
	})
}

func TestS30S31_ReaderIsServedByAFill(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		a, b := c.nodes[0], c.nodes[1]
		c.store.set(func(s *store) { s.mu.after = 15 * time.Millisecond })
		a.know(c, true, b)
		begin := time.Now()
		if src, err := a.read(c, 3); src != block.SourcePeer || err != nil || time.Since(begin) != 17*time.Millisecond {
			t.Errorf("from %v after %v (%v)", src, time.Since(begin), err)
		}
		if n := len(c.store.gets()); n != 1 {
			t.Errorf("%d GETs, want the fill's", n)
		}
		if got, _ := c.ask(b, time.Minute, request(block.NewRun(3, 1), false)); got != "D" {
			t.Errorf("the block is not cached where it was filled: %s", got)
		}
		if m := a.engine.Metrics(); m.PeerBlocks != 1 || m.StoreReads != 0 {
			t.Errorf("%+v", m)
		}
	})
}

// The fill of a packed file is one of its object's blocks; a server that can't
// fill costs the reader no more than object storage.
func TestS17PR26_PackedFilesAreFilled(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		a, b := c.nodes[0], c.nodes[1]
		a.know(c, true, b)
		read := func(off, size int64) block.Source {
			dst := make([]byte, size)
			_, src, err := a.engine.Read(context.Background(), &block.Read{
				Object: testObject(), Version: block.Immutable, Route: tablet(), Packed: &block.Slice{Offset: off, Size: size},
			}, dst)
			if err != nil || string(dst) != string(content(testObject(), "v1", off, int(size))) {
				t.Errorf("%d bytes at %d from %s: %v, or wrong bytes", size, off, src, err)
			}
			synctest.Wait()
			return src
		}
		if src := read(3*testBlock+70, 200); src != block.SourcePeer {
			t.Errorf("the first file came from %s", src)
		}
		if src := read(3*testBlock+270, 90); src != block.SourceLocal {
			t.Errorf("its neighbour in the block came from %s", src)
		}
		if runs := c.store.gets(); len(runs) != 1 || !runs[0].Has(3) {
			t.Errorf("GETs for %v, want the fill's", runs)
		}
		b.fills.SetLimit(0)
		if src := read(5*testBlock, 10); src != block.SourceStore {
			t.Errorf("without a fill the file came from %s", src)
		}
		if m := b.server.Metrics(); m.FillSuccess != 1 || m.FillRejected != 1 {
			t.Errorf("%+v", m)
		}
	})
}

func TestS32S33_RequesterFallsBack(t *testing.T) {
	for name, set := range map[string]func(n *node){
		"rejected":     func(n *node) { n.fills.SetLimit(0) },
		"switched off": func(n *node) { n.settings.EnablePeerServerCacheFill.Store(false) },
		"timed out":    func(n *node) { n.settings.PeerServerCacheFillTimeoutMS.Store(5) },
		"closed":       func(n *node) { n.server.Close() },
	} {
		inCluster(t, 2, func(c *cluster) {
			a, b := c.nodes[0], c.nodes[1]
			set(b)
			a.know(c, true, b)
			a.engine.Settings.ObjectStorageGetMaxBlocks.Store(1) // nothing comes along
			for i := range 5 {
				if src, err := a.read(c, i); src != block.SourceStore || err != nil {
					t.Errorf("%s: from %v (%v)", name, src, err)
				}
			}
			synctest.Wait()
			for _, v := range a.engine.Breakers.Show() {
				if v.State != "closed" || v.Failures != 0 {
					t.Errorf("%s: a fill that can't be done costs the peer its circuit: %+v", name, v)
				}
			}
		})
	}
}

// Object storage is down: a peer that tries to fill and can't must not lose its
// place, or nobody would ask for what it has.
func TestS06_DeadStoreLeavesWhatPeersHave(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		a, b := c.nodes[0], c.nodes[1]
		c.ask(b, time.Minute, request(block.NewRun(0, 8), true))
		a.know(c, true, b)
		c.store.set(func(s *store) { s.mu.after, s.mu.err = time.Millisecond, block.ErrThrottled })
		for i := range 8 {
			for lost := 10; lost < 14; lost++ {
				if _, err := a.read(c, lost); err == nil {
					t.Errorf("block %d came from nowhere", lost)
				}
			}
			if src, err := a.read(c, i); src != block.SourcePeer || err != nil {
				t.Errorf("block %d, which a peer has: from %v (%v)", i, src, err)
			}
		}
	})
}

func TestOB07_BooksOfBothSidesAgree(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		c.store.set(func(s *store) { s.mu.blocks = 400 })
		a, b, d := c.nodes[0], c.nodes[1], c.nodes[2]
		a.know(c, false, b, d)
		b.know(c, false, d, a)
		d.know(c, false, a, b)
		for i := range 400 {
			if _, err := c.nodes[i%3].read(c, i); err != nil {
				t.Error(err)
			}
			if _, err := c.nodes[(i+1)%3].read(c, i); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		var asked, brought, served, success, failed int64
		for _, n := range c.nodes {
			m, s := n.engine.Metrics(), n.server.Metrics()
			asked += m.PeerReads
			brought += m.SameGroupReads + m.CrossGroupReads
			served, success, failed = served+s.Requests, success+s.Success, failed+s.Failed
		}
		if asked != served || brought != success || served != success+failed {
			t.Errorf("requesters: %d calls, %d with data; servers: %d requests, %d with data, %d without", asked, brought, served, success, failed)
		}
	})
}
