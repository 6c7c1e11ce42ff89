package engine

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"headstart/bench/latency"
	"headstart/blockcache"
	"headstart/engine/block"
	"headstart/engine/object"
	"headstart/engine/profile"
	"headstart/engine/timeline"
)

// hitEngine has an object of MaxRun blocks in its cache, and timelines on.
func hitEngine(tb testing.TB) (*Engine, *block.Read) {
	tb.Helper()
	cache, err := blockcache.Open(blockcache.Options{
		Logger: slog.New(slog.DiscardHandler), BlockSize: testBlock, Paths: []blockcache.Path{{Dir: tb.TempDir(), TotalBytes: 4 << 20}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	e, err := New(Options{
		Cache: cache, Origin: &world{}, Profiles: profile.New(10), Timelines: timeline.New(10), Settings: NewSettings(), BlockSize: testBlock,
	})
	if err != nil {
		tb.Fatal(err)
	}
	e.Timelines.ThresholdMS.Store(0)
	e.Timelines.SamplePerMillion.Store(1_000_000)
	tb.Cleanup(func() {
		e.Close()
		if err := cache.Close(); err != nil {
			tb.Error(err)
		}
	})
	o := testObject()
	known := e.objects.Learn(object.KeyOf(o, block.Immutable), block.Meta{Size: block.MaxRun * testBlock, Version: block.Immutable}, time.Now())
	for i := range uint64(block.MaxRun) {
		buf := block.NewBuf(content(o, "v1", int64(i)*testBlock, testBlock), nil)
		buf.Seal()
		cache.Offer(&blockcache.Entry{Object: o, Meta: known.Meta, ID: known.Base.At(i)}, buf)
		buf.Release()
	}
	if err := cache.Flush(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return e, &block.Read{Object: o, Version: block.Immutable, Route: tablet()}
}

// BenchmarkCostOfBookkeeping reads 64 bytes of a block that is there, and sixteen
// whole ones, with and without books, in turns, and reports the median of each
// and of their difference, per block: "books" with a query's profile, "anonymous" without one, and
// "resolved" with the profile at hand, as a request has it that reads on. read is
// the whole of Read. Timelines are on, for every read that misses.
func BenchmarkCostOfBookkeeping(b *testing.B) {
	b.Run("one block", func(b *testing.B) { costOfBookkeeping(b, 64, 1) })
	b.Run("sixteen blocks", func(b *testing.B) { costOfBookkeeping(b, block.MaxRun*testBlock, block.MaxRun) })
}

func costOfBookkeeping(b *testing.B, size int64, blocks float64) {
	const batch = 1000
	e, anonymous := hitEngine(b)
	anonymous.Size = size
	named := *anonymous
	named.QueryID = "a7f3c1d2e9b84f06-0123456789abcdef"
	query := e.Profiles.Get(named.QueryID)
	dst := make([]byte, anonymous.Size)
	local := func(req *block.Read) func() bool {
		return func() bool {
			n, _, done := e.readLocal(req, dst, true)
			return done && n == len(dst)
		}
	}
	ways := []struct {
		name string
		hit  func() bool
	}{
		{"bare", func() bool {
			known, rng := e.locate(anonymous)
			n, _ := e.copyBlocks(anonymous, known, rng, dst)
			return n == len(dst)
		}},
		{"anonymous", local(anonymous)},
		{"resolved", func() bool {
			known, rng := e.locate(anonymous)
			n, blocks := e.copyBlocks(anonymous, known, rng, dst)
			e.count.local.Add(1, blocks, int64(n))
			query.AddLocal(block.KindData, blocks, int64(n))
			return n == len(dst)
		}},
		{"books", local(&named)},
		{"read", func() bool {
			n, src, err := e.Read(context.Background(), &named, dst)
			return n == len(dst) && src == block.SourceLocal && err == nil
		}},
	}
	times, costs := make([][]float64, len(ways)), make([][]float64, len(ways))
	for b.Loop() {
		for w := range ways {
			hit, began := ways[w].hit, time.Now()
			for range batch {
				if !hit() {
					b.Fatal("no hit")
				}
			}
			times[w] = append(times[w], float64(time.Since(began).Nanoseconds())/batch/blocks)
		}
		for w := range ways {
			at := len(times[w]) - 1
			costs[w] = append(costs[w], times[w][at]-times[0][at])
		}
	}
	for w := range ways {
		b.ReportMetric(median(times[w]), ways[w].name+"-ns")
		if w > 0 {
			b.ReportMetric(median(costs[w]), ways[w].name+"-more-ns")
		}
	}
	oneRead(b, ways[len(ways)-1].hit, median(times[len(ways)-1])*blocks)
}

// oneRead reports what one whole Read costs as the cost of an operation: the loop
// goes round by round.
func oneRead(b *testing.B, whole func() bool, ns float64) {
	const batch = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range batch {
		whole()
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(ns, "ns/op")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/batch, "B/op")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/batch, "allocs/op")
	latency.ReportEach(b, func() { whole() })
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
