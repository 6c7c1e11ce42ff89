//go:build !race

package fill_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// The cache's file is cut short under the running node: what is gone is not
// found, the rest is served, and nothing dies. A race build lends copies, which
// don't notice.
func TestLC10_PeersAreNotToldOfBytesThatAreGone(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		if got, _ := c.ask(n, time.Minute, request(block.NewRun(0, 16), true)); got != "DDDDDDDDDDDDDDDD" {
			t.Fatalf("filled: %s", got)
		}
		synctest.Wait()
		if err := n.cache.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		cut := false
		for _, name := range n.files(t) {
			if info, err := os.Stat(name); err == nil && info.Size() > 1<<20 {
				cut = true
				if err := os.Truncate(name, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !cut {
			t.Fatal("there is no file to cut")
		}
		for range 2 {
			if got, _ := c.ask(n, time.Minute, request(block.NewRun(0, 16), false)); got != "----------------" {
				t.Errorf("after the cut: %s", got)
			}
		}
	})
}

// files are those of the node's cache.
func (n *node) files(t *testing.T) []string {
	names, err := filepath.Glob(filepath.Join(n.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// What is there is served without a thought of what is not.
func TestBP09_WhatIsThereCostsNoMore(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		n.read(c, 0)
		synctest.Wait()
		f, reply, from := request(block.NewRun(0, 1), false), &block.Reply{}, block.Node{ID: "x"}
		if allocs := testing.AllocsPerRun(100, func() {
			n.server.ServeBlocks(t.Context(), from, f, reply)
			if len(reply.Answers) != 1 || reply.Answers[0].Status != block.StatusData {
				t.Fatal(told(reply))
			}
			reply.Release()
		}); allocs > 1 { // the queue's closure
			t.Errorf("%v allocations to serve a block that is there", allocs)
		}
	})
}
