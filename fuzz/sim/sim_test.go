// Package sim runs whole small clusters in virtual time, one for each seed: three
// BEs with their caches, an FE, object storage whose objects change, readers, and
// every fault there is. A seed fixes the load, the faults and when they happen;
// what runs first of two things at one moment is the scheduler's.
//
//	go test ./fuzz/sim                            some seeds
//	SIM_SEEDS=1000 go test ./fuzz/sim             a thousand
//	SIM_SEED=17 go test ./fuzz/sim                that one
package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine"
	"headstart/engine/block"
	"headstart/fuzz/fault"
	"headstart/shards/placement"
)

// span is how long the faults and the readers last.
const span = 20 * time.Second

// TestSimulation: no wrong byte, no hang, nothing left over.
func TestSimulation(t *testing.T) {
	first, count := fromEnv(t, "SIM_SEED", 1), fromEnv(t, "SIM_SEEDS", 12)
	if os.Getenv("SIM_SEED") != "" && os.Getenv("SIM_SEEDS") == "" {
		count = 1
	}
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newWorld(t, seed).run() })
		})
	}
}

func fromEnv(t *testing.T, key string, value uint64) uint64 {
	if text := os.Getenv(key); text != "" {
		var err error
		if value, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	return value
}

// world is one cluster and all that happens to it.
type world struct {
	t      *testing.T
	seed   uint64
	plan   *fault.Plan
	script script
	bucket *bucket
	fe     *placement.Directory
	nodes  []*node
	limits limits
	// tight: so few buffers that reads may be refused.
	tight bool
	// switched is what each of switches begins with.
	switched []int64
	lives    int
	dirs     int
	dir      string

	reads, failed atomic.Int64
	sum           engine.Metrics // of the lives that are over
	failures      struct {
		sync.Mutex
		n int
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, dir: t.TempDir()}
	rng := rand.New(rand.NewPCG(seed, 0))
	few := func(values ...int) int { return values[rng.IntN(len(values))] }
	w.tight = rng.IntN(6) == 0
	w.limits = limits{
		cacheBlocks: few(12, 40, 120), bufferBlocks: 4096, window: few(0, 4), objects: few(0, 2),
		races: 64, raceGets: 32, fills: 32, workers: few(1, 8), queue: few(0, 2, 64),
	}
	if w.tight {
		w.limits.bufferBlocks = 60
	}
	names := []string{"be-0", "be-1", "be-2"}
	w.plan = fault.NewPlan(seed, names, span)
	w.bucket = newBucket(w, rng)
	for _, s := range switches() {
		value := s.values[0]
		if rng.IntN(3) == 0 {
			value = s.values[rng.IntN(len(s.values))]
		}
		w.switched = append(w.switched, value)
	}
	groups := few(1, 2, 3)
	for i, name := range names {
		w.nodes = append(w.nodes, &node{
			w: w, name: name, group: fmt.Sprint("g", i%groups), dir: w.tempDir(), addr: block.Addr{Host: name, Port: 8060},
		})
	}
	var err error
	w.fe, err = placement.NewDirectory(t.Context(), ledger{}, placement.NewSettings(), placement.Options{})
	w.must(err)
	w.script = newScript(w, rng, span)
	t.Logf("again: SIM_SEED=%d go test ./fuzz/sim\n%+v, %d groups\nfaults:\n%sactions:\n%s", seed, w.limits, groups, w.plan, w.script)
	return w
}

// run lives through the seed: load and faults, then peace, then the end.
func (w *world) run() {
	for _, n := range w.nodes {
		n.start()
	}
	readers := make(chan struct{})
	var running sync.WaitGroup
	for i := range 9 {
		rng := rand.New(rand.NewPCG(w.seed, uint64(100+i)))
		running.Go(func() { w.reader(w.nodes[i%3], rng, span) }) // ends at span, or watch reports it
	}
	go func() { // ends with the readers
		running.Wait()
		close(readers)
	}()
	for _, a := range w.script {
		time.Sleep(a.at - w.now())
		a.do()
	}
	time.Sleep(span - w.now())
	w.watch(readers)
	for _, n := range w.nodes {
		if !n.up() {
			n.start()
		}
	}
	time.Sleep(15 * time.Second) // circuits, cooldowns and back-offs are over
	w.peace()
	for _, n := range w.nodes {
		n.end()
	}
	for _, n := range w.nodes { // a cache whose block somebody holds can't be opened
		n.start()
		n.end()
	}
	s := &w.sum
	w.t.Logf("%d reads, %d of them failed; blocks: %d local, %d from peers, %d from the store", w.reads.Load(), w.failed.Load(), s.LocalBlocks, s.PeerBlocks, s.StoreBlocks)
}

// watch waits for the readers, but not for ever.
func (w *world) watch(readers <-chan struct{}) {
	select {
	case <-readers:
	case <-time.After(2 * longest):
		stacks := make([]byte, 1<<20)
		w.fail("a reader hangs:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// peace: the faults are long over, so every node reads every object, whole and as
// it is now: nothing else is right any more, and nothing excuses a failure.
func (w *world) peace() {
	rng := rand.New(rand.NewPCG(w.seed, 3))
	for _, n := range w.nodes {
		l := n.enter()
		for _, o := range w.bucket.objects {
			for range 2 {
				r := read{l: l, node: n.name, o: o, size: 40 * blockSize}
				r.do(rng)
				if wrong := r.judge(w.plan, w.tight); wrong != "" {
					w.fail("in peace: %s: %s", &r, wrong)
				}
			}
		}
		l.leave()
	}
}

// now is the world's time.
func (w *world) now() time.Duration { return w.plan.Elapsed() }

// firstByte and transit are what a GET and one way to a peer take; what tells
// calls apart.
func (w *world) firstByte(what ...any) time.Duration {
	return 20*time.Millisecond + w.draw(40*time.Millisecond, what)
}

func (w *world) transit(what ...any) time.Duration {
	return 200*time.Microsecond + w.draw(time.Millisecond, what)
}

// draw returns less than limit, the same for the same seed, thing and time.
func (w *world) draw(limit time.Duration, what []any) time.Duration {
	h := fnv.New64a()
	fmt.Fprint(h, w.seed, w.now(), what)
	return time.Duration(h.Sum64() * 0x9e3779b97f4a7c15 >> 1 % uint64(limit))
}

func (w *world) nodeAt(a block.Addr) *node {
	for _, n := range w.nodes {
		if n.addr == a {
			return n
		}
	}
	w.fail("a call to %s, which is nobody", a)
	return w.nodes[0]
}

// tempDir returns a new folder.
func (w *world) tempDir() string {
	w.dirs++
	dir := fmt.Sprintf("%s/%d", w.dir, w.dirs)
	w.must(os.Mkdir(dir, 0o700))
	return dir
}

// must is for the world's own mishaps; for the goroutine of the test.
func (w *world) must(errs ...error) {
	w.t.Helper()
	for _, err := range errs {
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// fail reports what must not happen, the first few times.
func (w *world) fail(format string, args ...any) {
	w.failures.Lock()
	defer w.failures.Unlock()
	if w.failures.n++; w.failures.n <= 5 {
		w.t.Errorf("seed %d at %v: "+format, append([]any{w.seed, w.now()}, args...)...)
	}
}

// tally adds up what the lives have done.
func (w *world) tally(m engine.Metrics) {
	s := &w.sum
	s.LocalBlocks += m.LocalBlocks
	s.PeerBlocks += m.PeerBlocks
	s.StoreBlocks += m.StoreBlocks
}
