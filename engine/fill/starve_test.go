package fill_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/engine/fill"
	"headstart/pools"
)

// TestPR25_PeersDoNotStarveOtherWork: the disk is slow, so that all workers of the
// pool for peers hang and 5,000 requests wait behind them. The node's own readers
// notice nothing, and the requests are turned away in time.
func TestPR25_PeersDoNotStarveOtherWork(t *testing.T) {
	const requests, workers = 5000, 4
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		queue, err := pools.NewQueue(pools.QueueOptions{Name: "slow", Workers: workers, MaxQueue: requests, Timeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		server := fill.NewServer(fill.Options{Engine: n.engine, Cache: n.cache, Settings: n.settings, Queue: queue, Fills: n.fills})
		read := func(index int) string {
			begin := time.Now()
			src, err := n.read(c, index)
			if err != nil {
				t.Error(err)
			}
			return fmt.Sprint(src, " in ", time.Since(begin))
		}
		n.engine.Settings.ObjectStorageGetMaxBlocks.Store(1)
		read(0)
		hit, miss := read(0), read(1)

		slow := make(chan error, workers)
		for range workers {
			go func() {
				slow <- queue.DoFor(context.Background(), "", func(context.Context) { time.Sleep(10 * time.Second) })
			}()
		}
		synctest.Wait()
		answers := make(chan string, requests)
		for range requests {
			go func() {
				begin := time.Now()
				reply := &block.Reply{}
				server.ServeBlocks(context.Background(), block.Node{ID: "x", GroupID: "g"}, request(block.NewRun(0, 1), false), reply)
				answers <- fmt.Sprint(told(reply), " in ", time.Since(begin))
				reply.Release()
			}()
		}
		synctest.Wait()
		if got := queue.Metrics().Depth; got != requests {
			t.Errorf("%d requests wait, want all of %d", got, requests)
		}
		for i := range 50 {
			if again := read(0); again != hit {
				t.Errorf("a hit: %s, before %s", again, hit)
			}
			if i < 2 { // 80 ms, while they wait
				if again := read(2 + i); again != miss {
					t.Errorf("a miss: %s, before %s", again, miss)
				}
			}
		}
		counts := map[string]int{}
		for range requests {
			counts[<-answers]++
		}
		if counts["q in 100ms"] != requests {
			t.Errorf("answers %v, want all turned away after 100ms", counts)
		}
		for range workers {
			if err := <-slow; err != nil {
				t.Error(err)
			}
		}
		server.Close()
		if err := queue.Close(); err != nil {
			t.Error(err)
		}
	})
}
