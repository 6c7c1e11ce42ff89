package fill_test

import (
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

// storm lets readers of three nodes that know each other, the last of which is
// the fill group, start at the same moment: reader i reads block i modulo blocks
// on the node whose turn it then is. All get their bytes.
func (c *cluster) storm(readers, blocks int) (took time.Duration) {
	for i, n := range c.nodes {
		group := "filler"
		n.engine.Settings.PeerCacheFillComputeGroupID.Store(&group)
		var list []shards.Candidate
		for k := range c.nodes {
			other := c.nodes[(i+k)%len(c.nodes)]
			candidate := shards.Candidate{Addr: other.addr, GroupID: "cg"}
			if other == c.nodes[len(c.nodes)-1] {
				candidate.GroupID = group
			}
			list = append(list, candidate)
		}
		if !n.engine.Table.BeginLookup(tablet()) {
			c.t.Fatal("a look-up is under way")
		}
		n.engine.Table.EndLookup(tablet(), list, nil)
	}
	begin := time.Now()
	done := make(chan error, readers)
	for i := range readers {
		go func() { // ends with its read
			_, err := c.nodes[i/blocks%len(c.nodes)].read(c, i%blocks)
			done <- err
		}()
	}
	for range readers {
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	}
	took = time.Since(begin)
	synctest.Wait()
	return took
}

func TestS38_ManyReadersOfColdBlocksCostOneGETEach(t *testing.T) {
	for _, load := range []struct {
		name            string
		readers, blocks int
		known           bool // what the object is, is known to the nodes
	}{
		{"one block", 10_000, 1, true},
		{"one block of an unknown object", 10_000, 1, false},
		{"16 blocks", 3_000, 16, true},
		{"blocks far apart", 3_000, 19, true},
	} {
		if testing.Short() {
			load.readers /= 20
		}
		inCluster(t, 3, func(c *cluster) {
			if load.known {
				for _, n := range c.nodes {
					n.read(c, 19)
				}
				synctest.Wait()
				time.Sleep(time.Minute) // the look-ups that found nothing are over
			}
			for _, n := range c.nodes {
				n.engine.Settings.ObjectStorageGetMaxBlocks.Store(1) // nothing comes along
			}
			before := len(c.store.gets())
			took := c.storm(load.readers, load.blocks)
			gets := c.store.gets()[before:]
			times := map[uint64]int{}
			for _, run := range gets {
				for i := range uint64(block.MaxRun) {
					if run.Has(run.First + i) {
						times[run.First+i]++
					}
				}
			}
			for index := range uint64(load.blocks) {
				if times[index] != 1 {
					t.Errorf("%s: block %d was read %d times", load.name, index, times[index])
				}
			}
			if len(gets) > load.blocks || took > 50*time.Millisecond {
				t.Errorf("%s: %d GETs in %v, want one a block at most, and 42ms: %v", load.name, len(gets), took, gets)
			}
		})
	}
}
