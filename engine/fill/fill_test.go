package fill_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// told is a reply in short: a letter for each block.
func told(r *block.Reply) string {
	letters := map[block.Status]string{
		block.StatusData: "D", block.StatusNotFound: "-", block.StatusQueueTimeout: "q", block.StatusQueueFull: "Q",
		block.StatusFillRejected: "r", block.StatusFillTimeout: "t", block.StatusCancelled: "c",
		block.StatusGoingAway: "g", block.StatusUnsupported: "u", block.StatusFailed: "F", block.StatusFilling: "f",
	}
	var b strings.Builder
	for _, a := range r.Answers {
		b.WriteString(letters[a.Status])
	}
	return b.String()
}

// check compares the bytes of a reply with those of the version it names.
func (c *cluster) check(r *block.Reply, version block.Version) {
	c.t.Helper()
	for i := range r.Answers {
		a := &r.Answers[i]
		if a.Status != block.StatusData {
			continue
		}
		data := make([]byte, a.Lease.Len())
		if _, err := a.Lease.CopyAt(data, 0); err != nil {
			c.t.Error(err)
		}
		if string(data) != string(content(testObject(), version, int64(a.Index)*testBlock, len(data))) {
			c.t.Errorf("block %d is not of version %s", a.Index, version)
		}
	}
}

// ask sends one request with a time limit, checks and releases the reply, and
// returns it in short with the time it took.
func (c *cluster) ask(n *node, limit time.Duration, f *block.Fetch) (string, time.Duration) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	begin := time.Now()
	r := n.serve(ctx, f)
	took := time.Since(begin)
	c.check(r, "v1")
	text := told(r)
	r.Release()
	return text, took
}

func TestS31_FillReadsCachesAndReturns(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		if got, took := c.ask(n, time.Minute, request(block.NewRun(0, 4), false)); got != "----" || took != 0 || len(c.store.gets()) != 0 {
			t.Errorf("without the flag: %s in %v with %d GETs", got, took, len(c.store.gets()))
		}
		n.settings.EnablePeerServerCacheFill.Store(false)
		if got, took := c.ask(n, time.Minute, request(block.NewRun(0, 4), true)); got != "----" || took != 0 || len(c.store.gets()) != 0 {
			t.Errorf("switched off: %s in %v with %d GETs", got, took, len(c.store.gets()))
		}
		n.settings.EnablePeerServerCacheFill.Store(true)
		if got, took := c.ask(n, time.Minute, request(block.NewRun(0, 4), true)); got != "DDDD" || took != 40*time.Millisecond || len(c.store.gets()) != 1 {
			t.Errorf("a fill: %s in %v with %d GETs", got, took, len(c.store.gets()))
		}
		if got, took := c.ask(n, time.Minute, request(block.NewRun(0, 4), false)); got != "DDDD" || took != 0 {
			t.Errorf("afterwards: %s in %v", got, took)
		}
		// What is there is not read again, and the rest once. The job and the one who
		// waits for it may each start a part of it.
		if got, _ := c.ask(n, time.Minute, request(block.NewRun(2, 5), true)); got != "DDDDD" {
			t.Errorf("a part of it: %s", got)
		}
		for i := range uint64(7) {
			n := 0
			for _, get := range c.store.gets() {
				if get.Has(i) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("GETs %v: block %d came %d times, want once", c.store.gets(), i, n)
			}
		}
		// Past the end there is nothing to fill.
		if got, _ := c.ask(n, time.Minute, request(block.NewRun(18, 4), true)); got != "DD--" {
			t.Errorf("across the end: %s", got)
		}
		m := n.server.Metrics()
		if m.Requests != 6 || m.Success != 4 || m.Failed != 2 || m.FillRequested != 4 || m.FillSuccess != 3 {
			t.Errorf("%+v", m)
		}
	})
}

func TestS32_FillsBeyondTheLimitAreRejectedAtOnce(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		n.fills.SetLimit(2)
		c.store.set(func(s *store) { s.mu.after = time.Second })
		answers := make(chan string, 8)
		for i := range 8 {
			go func() {
				got, took := c.ask(n, time.Minute, request(block.NewRun(uint64(i), 1), true))
				answers <- fmt.Sprint(got, " ", took)
			}()
			synctest.Wait()
		}
		counts := map[string]int{}
		for range 8 {
			counts[<-answers]++
		}
		if counts["D 1s"] != 1 || counts["D 2s"] != 1 || counts["r 0s"] != 6 {
			t.Errorf("answers %v, want two fills and six rejected at once", counts)
		}
		if m := n.server.Metrics(); m.FillRejected != 6 || m.FillSuccess != 2 {
			t.Errorf("%+v", m)
		}
	})
}

func TestS33_OneTimeLimitForAllBlocksOfARequest(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		c.store.set(func(s *store) { s.mu.after = 2500 * time.Millisecond })
		// Three gaps of 2.5 s each: two are filled in time.
		run := block.Run{First: 0, Want: 0b10101}
		got, took := c.ask(n, time.Minute, request(run, true))
		if got != "DDt" || took != 6*time.Second {
			t.Errorf("%s after %v, want two blocks and a time-out after 6s", got, took)
		}
		n.settings.PeerServerCacheFillTimeoutMS.Store(1000)
		if got, took := c.ask(n, time.Minute, request(block.NewRun(9, 1), true)); got != "t" || took != time.Second {
			t.Errorf("%s after %v, want a time-out after 1s", got, took)
		}
		if m := n.server.Metrics(); m.FillTimeout != 2 || m.FillSuccess != 0 || m.FillRequested != 2 {
			t.Errorf("%+v", m)
		}
	})
}

func TestS33_FillGoesOnWithoutItsRequester(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		c.store.set(func(s *store) { s.mu.after = 2 * time.Second })
		if got, took := c.ask(n, 500*time.Millisecond, request(block.NewRun(0, 2), true)); got != "cc" || took != 500*time.Millisecond {
			t.Errorf("%s after %v", got, took)
		}
		if n.fills.InUse() != 1 {
			t.Error("the fill has let its slot go")
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if got, took := c.ask(n, time.Minute, request(block.NewRun(0, 2), false)); got != "DD" || took != 0 {
			t.Errorf("the next request: %s after %v, want what the fill has brought", got, took)
		}
		// One that takes too long is given up, on the wire too.
		c.store.set(func(s *store) { s.mu.after = time.Hour })
		if got, _ := c.ask(n, time.Second, request(block.NewRun(5, 1), true)); got != "c" {
			t.Errorf("%s", got)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n.fills.InUse() != 0 {
			t.Error("a fill outlives its time limit")
		}
		if m := n.server.Metrics(); m.FillSuccess != 1 || m.FillTimeout != 1 || m.FillRequested != 2 {
			t.Errorf("%+v: each fill once", m)
		}
	})
}

func TestS34_ConcurrentFillsAreOneGET(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		for _, first := range []uint64{0, 5} { // the first time the object is not known
			before := len(c.store.gets())
			answers := make(chan string, 30)
			for range 30 {
				go func() {
					got, _ := c.ask(n, time.Minute, request(block.NewRun(first, 1), true))
					answers <- got
				}()
			}
			for range 30 {
				if got := <-answers; got != "D" && got != "q" && got != "Q" {
					t.Errorf("answer %s", got)
				}
			}
			if got := len(c.store.gets()) - before; got != 1 {
				t.Errorf("%d GETs for one block, want 1", got)
			}
		}
	})
}

func TestPR34_TenThousandFillsLeaveAllSlotsFree(t *testing.T) {
	if testing.Short() {
		t.Skip("ten thousand fills take minutes under the race detector; the other tests of this file run there")
	}
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		n.engine.Settings.ObjectStorageGetMaxBlocks.Store(1) // nothing comes along
		const blocks = 1 << 14
		c.store.set(func(s *store) { s.mu.blocks = blocks })
		n.settings.PeerServerCacheFillTimeoutMS.Store(100)
		next := uint64(0)
		for round := range 2000 {
			end := []string{"success", "timeout", "error", "panic", "gone"}[round%5]
			c.store.set(func(s *store) {
				s.mu.after, s.mu.err, s.mu.panics = 10*time.Millisecond, nil, end == "panic"
				switch end {
				case "timeout":
					s.mu.after = time.Second
				case "error":
					s.mu.err = block.ErrThrottled
				}
			})
			done := make(chan string, 5)
			for range 5 {
				run, limit := block.NewRun(next%blocks, 1), time.Minute
				if end == "gone" {
					limit = 3 * time.Millisecond
				}
				next++
				go func() {
					got, _ := c.ask(n, limit, request(run, true))
					done <- got
				}()
			}
			for range 5 {
				got := <-done
				if want := map[string]string{"success": "D", "timeout": "t", "error": "r", "panic": "r", "gone": "c"}[end]; got != want {
					t.Errorf("a fill that ends by %s: %s, want %s", end, got, want)
				}
			}
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			if used := n.fills.InUse(); used != 0 {
				t.Fatalf("%d slots are held after fills that ended by %s", used, end)
			}
		}
		m := n.server.Metrics()
		if m.FillRequested != 10000 || m.FillSuccess+m.FillTimeout+m.FillFailed != 10000 || m.FillTimeout != 2000 || m.FillSuccess != 4000 {
			t.Errorf("%+v", m)
		}
		if free := 32 - n.fills.InUse(); free != 32 {
			t.Errorf("%d slots are free, want 32", free)
		}
	})
}

func TestPR22_AnotherVersionIsNotFound(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		ask := func(v block.Version, filling bool) (string, block.Version) {
			f := request(block.NewRun(0, 2), filling)
			f.Meta = block.UnknownMeta(v)
			if v != "" && v != block.Immutable {
				f.Meta = block.Meta{Size: 20 * testBlock, Version: v, ETag: string(v)}
			}
			r := n.serve(context.Background(), f)
			c.check(r, max(r.Meta.Version, "v1"))
			defer r.Release()
			return told(r), r.Meta.Version
		}
		if got, v := ask("", true); got != "DD" || v != "v1" {
			t.Errorf("any version: %s of %s, want v1", got, v)
		}
		if got, v := ask("v1", false); got != "DD" || v != "v1" {
			t.Errorf("v1: %s of %s", got, v)
		}
		// The object changes; this node does not know yet.
		c.store.set(func(s *store) { s.mu.version = "v2" })
		if got, _ := ask("v2", false); got != "--" {
			t.Errorf("v2 from a node that has v1: %s", got)
		}
		// Too old to tell that it is the present one: a reader that does not know the
		// version would take it for that.
		time.Sleep(2 * time.Second)
		if got, _ := ask("", false); got != "--" {
			t.Errorf("any version, from a node that has not looked for 2s: %s", got)
		}
		if got, v := ask("v1", false); got != "DD" || v != "v1" {
			t.Errorf("v1 by name: %s of %s: it is what was asked for", got, v)
		}
		if got, v := ask("v2", true); got != "DD" || v != "v2" {
			t.Errorf("v2 with fill: %s of %s", got, v)
		}
		if got, _ := ask("v1", true); got != "--" {
			t.Errorf("v1, which is gone, with fill: %s", got)
		}
	})
}

func TestS14_FilledReplyIsOfOneVersion(t *testing.T) {
	for _, known := range []block.Version{"", "v1"} {
		inCluster(t, 1, func(c *cluster) {
			n := c.nodes[0]
			ask := func(run block.Run) *block.Reply {
				f := request(run, true)
				f.Meta = block.UnknownMeta(known)
				if known != "" {
					f.Meta = block.Meta{Size: 20 * testBlock, Version: known, ETag: string(known)}
				}
				return n.serve(context.Background(), f)
			}
			r := ask(block.NewRun(2, 1))
			r.Release()
			c.store.set(func(s *store) { s.mu.version = "v2" })
			// Block 2 is here as v1, the others only as v2, in two gaps.
			r = ask(block.NewRun(0, 5))
			if got := told(r); strings.Contains(got, "D") {
				c.check(r, r.Meta.Version)
			}
			if r.Meta.Version == "v2" && r.Answers[2].Status == block.StatusData && known == "v1" {
				t.Error("v1 was asked for, v2 came")
			}
			r.Release()
		})
	}
}

// The node knew v1 when the request came, and has only v2 to give: the reply
// must say so.
func TestS14_FilledReplyNamesTheVersionOfItsBytes(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		f := request(block.NewRun(2, 1), true)
		f.Meta = block.UnknownMeta("")
		r := n.serve(context.Background(), f)
		r.Release()
		c.store.set(func(s *store) { s.mu.version = "v2" })
		f.Run = block.NewRun(5, 2)
		r = n.serve(context.Background(), f)
		defer r.Release()
		if got := told(r); got != "DD" || r.Meta.Version != "v2" {
			t.Errorf("%s of %q", got, r.Meta.Version)
		}
		c.check(r, r.Meta.Version)
	})
}

func TestPR22_BytesOfAnObjectOfUnknownSizeAreNotServed(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		c.ask(n, time.Minute, request(block.NewRun(0, 2), true))
		// Others push the object out of the table, but not out of the cache.
		for i := 0; i%10 != 0 || n.engine.Known(testObject(), block.Immutable) != nil || i == 0; i++ {
			o := testObject()
			o.Key += fmt.Sprint(i)
			n.engine.Read(context.Background(), &block.Read{Object: o, Version: block.Immutable, NoPeer: true}, make([]byte, 1))
		}
		if got, _ := c.ask(n, time.Minute, request(block.NewRun(0, 2), false)); got != "--" {
			t.Errorf("to a reader that does not know the size either: %s", got)
		}
		f := request(block.NewRun(0, 2), false)
		f.Meta.Size = 20 * testBlock
		if got, _ := c.ask(n, time.Minute, f); got != "DD" {
			t.Errorf("to a reader that knows it: %s", got)
		}
	})
}

func TestBlocksOfAnotherSizeAreNotServed(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		c.ask(n, time.Minute, request(block.NewRun(0, 2), true))
		f := request(block.NewRun(0, 2), true)
		f.BlockSize = 2 * testBlock
		if got, _ := c.ask(n, time.Minute, f); got != "uu" {
			t.Errorf("%s, want unsupported", got)
		}
	})
}

// An index whose offset overflows is past every end, not block 0 again.
func TestNoIndexIsTakenForAnother(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		for _, first := range []uint64{math.MaxInt64/testBlock - block.MaxRun + 1, math.MaxInt64 / testBlock, 1 << 63 / testBlock, math.MaxUint64/testBlock + 1, math.MaxUint64 - block.MaxRun} {
			if got, _ := c.ask(c.nodes[0], time.Minute, request(block.NewRun(first, 2), true)); got != "--" {
				t.Errorf("blocks from %d on: %s", first, got)
			}
		}
	})
}

func TestS44_QueueRefusals(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		r := n.serve(gone, request(block.NewRun(0, 2), true))
		if got := told(r); got != "cc" || len(c.store.gets()) != 0 {
			t.Errorf("a caller that has gone: %s with %d GETs", got, len(c.store.gets()))
		}
		hold := make(chan struct{})
		for range 4 {
			go n.queue.Do(context.Background(), func(context.Context) { <-hold })
		}
		synctest.Wait()
		if got, took := c.ask(n, time.Minute, request(block.NewRun(0, 2), true)); got != "qq" || took != 100*time.Millisecond {
			t.Errorf("a full pool: %s after %v, want a time-out after 100ms", got, took)
		}
		close(hold)
		m := n.server.Metrics()
		if m.Requests != 2 || m.Failed != 2 || m.QueueTimeout != 1 || m.FillRequested != 0 {
			t.Errorf("%+v", m)
		}
	})
}

func TestCloseEndsFillsAndRefusesNewOnes(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		n := c.nodes[0]
		c.ask(n, time.Minute, request(block.NewRun(0, 1), true))
		c.store.set(func(s *store) { s.mu.after = time.Hour })
		answer := make(chan string)
		go func() {
			got, _ := c.ask(n, time.Minute, request(block.NewRun(5, 2), true))
			answer <- got
		}()
		time.Sleep(time.Second)
		begin := time.Now()
		n.server.Close()
		if got := <-answer; got != "gg" || time.Since(begin) != 0 {
			t.Errorf("a fill under way: %s after %v", got, time.Since(begin))
		}
		if got, _ := c.ask(n, time.Minute, request(block.NewRun(0, 2), true)); got != "Dg" {
			t.Errorf("a new request: %s, want what is here and the rest refused", got)
		}
	})
}
