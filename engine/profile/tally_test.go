package profile

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTallyLosesNothing(t *testing.T) {
	const callers, calls = 8, 20_000
	var tally Tally
	var want struct{ reads, blocks, bytes atomic.Int64 }
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() { // ends by itself
			random := rand.New(rand.NewPCG(uint64(c), 1))
			for range calls {
				reads, blocks, bytes := random.Int64N(2), random.Int64N(20), random.Int64N(1<<20)
				if random.IntN(100) == 0 {
					bytes = 1 << 40 // by far too much for the word
				}
				tally.Add(reads, blocks, bytes)
				want.reads.Add(reads)
				want.blocks.Add(blocks)
				want.bytes.Add(bytes)
			}
		})
	}
	done := make(chan struct{})
	go func() { // ends with the callers
		all.Wait()
		close(done)
	}()
	var last Sums
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		now := tally.Sums()
		if now.Reads < last.Reads || now.Blocks < last.Blocks || now.Bytes < last.Bytes {
			t.Fatalf("%+v came after %+v", now, last)
		}
		last = now
	}
	if w := (Sums{want.reads.Load(), want.blocks.Load(), want.bytes.Load()}); last != w {
		t.Errorf("%+v, want %+v", last, w)
	}
}

func TestTallyHoldsItsLargestSteps(t *testing.T) {
	for _, step := range []Sums{{mostReads, 0, 0}, {0, mostBlocks, 0}, {0, 0, mostBytes}, {mostReads, mostBlocks, mostBytes}} {
		var tally Tally
		const times = 10_000
		for range times {
			tally.Add(step.Reads, step.Blocks, step.Bytes)
		}
		if got, want := tally.Sums(), (Sums{times * step.Reads, times * step.Blocks, times * step.Bytes}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	var tally Tally
	if n := testing.AllocsPerRun(100, func() { tally.Add(1, 1, 1<<20) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
