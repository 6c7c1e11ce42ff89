package fill_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

// roundTrip is what a call of one node to another takes in a cluster.
const roundTrip = 2 * time.Millisecond

// filed returns one of several objects, each of which is a tablet of its own.
func filed(n int) (block.Object, block.Route) {
	return block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprintf("data/t%d/segment.dat", n)}, block.TabletRoute(int64(100 + n))
}

// scan reads blocks of an object and reports the source of the first.
func (n *node) scan(c *cluster, object, first, blocks int) (block.Source, error) {
	o, route := filed(object)
	dst := make([]byte, blocks*testBlock)
	at := int64(first) * testBlock
	_, src, err := n.engine.Read(context.Background(), &block.Read{Object: o, Version: block.Immutable, Route: route, Offset: at}, dst)
	if err == nil && string(dst) != string(content(o, "v1", at, len(dst))) {
		c.t.Errorf("object %d, block %d: wrong bytes", object, first)
	}
	return src, err
}

// names makes holder the one candidate of an object's tablet.
func (n *node) names(c *cluster, object int, holder *node) {
	_, route := filed(object)
	if !n.engine.Table.BeginLookup(route) {
		c.t.Fatal("a look-up is under way")
	}
	n.engine.Table.EndLookup(route, []shards.Candidate{{Addr: holder.addr, GroupID: "cg"}}, nil)
}

// A read of 64 blocks is one round trip and not one for each run or each peer,
// whether one peer has them all or eight have eight each; and two of them at
// once don't wait for each other.
func TestBP11_WideReadsAreOneRoundTrip(t *testing.T) {
	const peers, blocks = 8, 64
	inCluster(t, peers+2, func(c *cluster) {
		readers, holders := c.nodes[:2], c.nodes[2:]
		c.store.set(func(s *store) { s.mu.blocks = blocks })
		for object := range peers + 1 {
			holder := holders[object%peers]
			if _, err := holder.scan(c, object, 0, blocks); err != nil {
				t.Fatal(err)
			}
			for _, r := range readers {
				r.names(c, object, holder)
			}
		}
		synctest.Wait()
		gets := len(c.store.gets())
		// wide runs reads of all readers at once and returns how long each reader
		// took for all of its own.
		wide := func(read func(r *node) []error) (took []time.Duration) {
			begin := time.Now()
			ended := make(chan time.Duration, len(readers))
			for _, r := range readers {
				go func() { // ends with its reads
					for _, err := range read(r) {
						if err != nil {
							t.Error(err)
						}
					}
					ended <- time.Since(begin)
				}()
			}
			for range readers {
				took = append(took, <-ended)
			}
			return took
		}
		spread := wide(func(r *node) []error {
			errs := make(chan error, peers)
			for object := range peers {
				go func() { _, err := r.scan(c, object, object*8, 8); errs <- err }() // ends with its read
			}
			var all []error
			for range peers {
				all = append(all, <-errs)
			}
			return all
		})
		one := wide(func(r *node) []error { _, err := r.scan(c, peers, 0, blocks); return []error{err} })
		for what, took := range map[string][]time.Duration{"eight peers": spread, "one peer": one} {
			for _, d := range took {
				if d > 2*roundTrip {
					t.Errorf("%s: 64 blocks took %v, a round trip %v", what, d, roundTrip)
				}
			}
		}
		if n := len(c.store.gets()) - gets; n != 0 {
			t.Errorf("%d GETs for what peers have", n)
		}
	}, func(c *cluster) { c.maxObjects = 100 })
}

// All that peers ask for goes through their pool, and nothing else does: when
// peers have filled it, the node's own readers don't feel it, and when its
// readers wait for object storage, peers are served.
func TestS40_PeerReadsGoThroughTheirPoolAndNothingElseDoes(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		c.ask(n, time.Minute, request(block.NewRun(0, 4), true))
		before := n.queue.Metrics().Done
		for range 50 {
			if got, took := c.ask(n, time.Minute, request(block.NewRun(0, 4), false)); got != "DDDD" || took != 0 {
				t.Fatalf("%s after %v", got, took)
			}
		}
		if done := n.queue.Metrics().Done - before; done != 50 {
			t.Errorf("50 requests of peers were %d tasks of their pool", done)
		}
		hold := make(chan struct{})
		for range 4 + 16 { // its workers and its queue
			go n.queue.Do(context.Background(), func(context.Context) { <-hold }) // ends with hold
		}
		synctest.Wait()
		if got, took := c.ask(n, time.Minute, request(block.NewRun(0, 1), false)); got != "Q" || took != 0 {
			t.Errorf("a full pool says %s after %v", got, took)
		}
		begin := time.Now()
		if src, err := n.read(c, 1); src != block.SourceLocal || err != nil || time.Since(begin) != 0 {
			t.Errorf("its own reader, of what is here: %v after %v (%v)", src, time.Since(begin), err)
		}
		if src, err := n.read(c, 9); src != block.SourceStore || err != nil || time.Since(begin) != 40*time.Millisecond {
			t.Errorf("its own reader, of what is not: %v after %v (%v)", src, time.Since(begin), err)
		}
		close(hold)
		synctest.Wait()

		c.store.set(func(s *store) { s.mu.after, s.mu.blocks = time.Hour, 4000 })
		ctx, cancel := context.WithCancel(context.Background())
		for i := range 200 {
			go n.engine.Read(ctx, &block.Read{ // ends with cancel
				Object: testObject(), Version: block.Immutable, Route: tablet(), Offset: int64(i+20) * 16 * testBlock, NoPeer: true,
			}, make([]byte, 10))
		}
		synctest.Wait()
		if got, took := c.ask(n, time.Minute, request(block.NewRun(0, 4), false)); got != "DDDD" || took != 0 {
			t.Errorf("while readers wait for object storage: %s after %v", got, took)
		}
		cancel()
	})
}
