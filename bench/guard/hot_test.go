//go:build linux && amd64 && !race

package guard

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/plan"
	"headstart/engine/profile"
	"headstart/pools"
	"headstart/shards"
)

const blockSize = 4 << 10

// hot adds the paths that a hit takes. An atomic operation here is one that every
// reader of the block, the tablet or the node does: one more is a line that cores
// fight for.
func hot(all map[string]path) {
	all["cache hit"] = path{childCacheHit, Counts{Instructions: 360, Locked: 2}}
	// A call may take longer while it is counted than the quarter of a second for which
	// the kernel's word on pages holds, so that it asks again: some 600 instructions,
	// since what it hears is kept for whole regions.
	all["cache copy"] = path{childCacheCopy, Counts{Instructions: 1600, Locked: 5, SystemCalls: 1}}
	all["engine hit"] = path{childEngineHit, Counts{Instructions: 2950, Locked: 6, SystemCalls: 1}}
	all["candidates"] = path{childCandidates, Counts{Instructions: 250}}
	all["token"] = path{childToken, Counts{Instructions: 65, Locked: 2}}
	all["tally"] = path{childTally, Counts{Instructions: 65, Locked: 1}}
	all["range"] = path{childRange, Counts{Instructions: 20}}
	all["growth used"] = path{childGrowthUsed, Counts{Instructions: 50}}
	// Of a call to a peer, not of a hit: it begins and ends at a time.
	all["circuit"] = path{childCircuit, Counts{Instructions: 1200, Locked: 3, Clocks: 3}}
}

// TestHotPathsExecuteNoMoreThanTheyDid: no lock, no system call and no look at the
// clock on the way of a hit, and no more instructions than there were.
func TestHotPathsExecuteNoMoreThanTheyDid(t *testing.T) {
	all := make(map[string]path)
	hot(all)
	for name, p := range all {
		t.Run(name, func(t *testing.T) {
			c := counted(t, name)
			t.Logf("%+v", c)
			if c.Instructions > p.limit.Instructions || c.Locked > p.limit.Locked || c.SystemCalls > p.limit.SystemCalls || c.Clocks > p.limit.Clocks {
				t.Errorf("executes %+v, at most %+v; if it has to be more, say why beside the limit", c, p.limit)
			}
		})
	}
}

// must ends a child that could not be set up; the parent says so.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(5)
	}
}

func theObject() block.Object { return block.Object{Store: "s3", Bucket: "b", Key: "k"} }

// openCache holds one block, which is resident.
func openCache() (*blockcache.Cache, block.ID) {
	c, err := blockcache.Open(blockcache.Options{
		Logger: slog.New(slog.DiscardHandler), BlockSize: blockSize, IOTimeout: time.Minute,
		Paths: []blockcache.Path{{Dir: os.Getenv("HEADSTART_GUARD_DIR"), TotalBytes: 4 << 20}},
	})
	must(err)
	id := block.BaseID(theObject(), block.Immutable).At(0)
	data := make([]byte, blockSize)
	data[blockSize-1] = 1
	buf := block.NewBuf(data, nil)
	buf.Seal()
	c.Offer(&blockcache.Entry{Object: theObject(), Meta: theMeta(), ID: id}, buf)
	buf.Release()
	must(c.Flush(context.Background()))
	return c, id
}

func theMeta() block.Meta { return block.Meta{Size: blockSize, Version: block.Immutable} }

func childCacheHit() {
	c, id := openCache()
	Child(func() {
		l, ok := c.Get(id)
		if !ok {
			os.Exit(6)
		}
		l.Release()
	})
}

func childCacheCopy() {
	c, id := openCache()
	dst := make([]byte, 1<<10)
	Child(func() {
		l, ok := c.Get(id)
		if !ok {
			os.Exit(6)
		}
		if n, err := l.CopyAt(dst, blockSize-len(dst)); n != len(dst) || err != nil {
			os.Exit(6)
		}
		l.Release()
	})
}

// nowhere is object storage that has one object, once.
type nowhere struct{ block.Store }

// Head implements engine.Origin.
func (nowhere) Head(context.Context, block.Object) (block.Meta, error) { return theMeta(), nil }

// Fetch implements block.Store.
func (nowhere) Fetch(context.Context, *block.Fetch) (block.Stream, error) { return &once{}, nil }

// once is the stream of its block.
type once struct{ over bool }

// Next implements block.Stream.
func (s *once) Next() (block.Piece, error) {
	if s.over {
		return block.Piece{}, context.Canceled
	}
	s.over = true
	data := make([]byte, blockSize)
	data[blockSize-1] = 1
	buf := block.NewBuf(data, nil)
	buf.Seal()
	return block.Piece{Index: 0, Status: block.StatusData, Buf: buf}, nil
}

// Meta implements block.Stream.
func (*once) Meta() block.Meta { return theMeta() }

// Close implements block.Stream.
func (*once) Close() {}

func childEngineHit() {
	c, _ := openCache()
	e, err := engine.New(engine.Options{
		Cache: c, Origin: nowhere{}, Profiles: profile.New(10), Settings: engine.NewSettings(), BlockSize: blockSize,
	})
	must(err)
	req := &block.Read{Object: theObject(), Version: block.Immutable, Route: block.TabletRoute(1), Size: 64}
	dst, ctx := make([]byte, 64), context.Background()
	if _, _, err := e.Read(ctx, req, dst); err != nil {
		must(err)
	}
	Child(func() {
		if n, src, err := e.Read(ctx, req, dst); n != 64 || src != block.SourceLocal || err != nil {
			os.Exit(6)
		}
	})
}

func childCandidates() {
	coarse := new(atomic.Int64)
	coarse.Store(time.Now().UnixMilli())
	s := shards.NewSettings()
	table := shards.NewTable(shards.Options{CoarseMS: coarse}, s, shards.NewBreakers(s))
	route := block.TabletRoute(7)
	table.BeginLookup(route)
	table.EndLookup(route, []shards.Candidate{{Addr: block.Addr{Host: "10.0.0.1", Port: 8060}, GroupID: "g"}}, nil)
	Child(func() {
		if table.Candidates(route).Len() != 1 {
			os.Exit(6)
		}
	})
}

func childToken() {
	tokens := pools.NewTokens(1)
	Child(func() {
		if !tokens.TryAcquire() {
			os.Exit(6)
		}
		tokens.Release()
	})
}

func childTally() {
	var tally profile.Tally
	Child(func() { tally.Add(1, 1, 4096) })
}

func childRange() {
	Child(func() {
		if r, ok := plan.Clamp(blockSize, 5000, 9000, 1<<30); !ok || r.Count != 3 {
			os.Exit(6)
		}
	})
}

func childGrowthUsed() {
	g, id := plan.NewGrowth(), block.BaseID(theObject(), block.Immutable)
	Child(func() { g.Used(id, 3) })
}

func childCircuit() {
	peers, addr := shards.NewBreakers(shards.NewSettings()), block.Addr{Host: "10.0.0.1", Port: 8060}
	Child(func() {
		ticket, ok := peers.Allow(addr)
		if !ok {
			os.Exit(6)
		}
		peers.Observe(addr, time.Millisecond)
		ticket.Done(block.OutcomeHit)
	})
}
