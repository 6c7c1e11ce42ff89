package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headstart/bench/s3law"
	"headstart/engine/block"
	"headstart/shards/placement"
)

// A tablet of the benchmark is one file of a few blocks.
const (
	scaleTablets = 300
	scaleBlocks  = 4
	scaleBlock   = 256 << 10
	scaleRead    = 64 << 10
	scaleReaders = 4
	scaleSteady  = 3 * time.Second
	scaleDip     = 12 * time.Second
)

// BenchmarkScaleOut adds a third BE to a group of two under load, with each
// balance type, and reports the dip: percentiles of reads before, while tablets
// move, and after, the GETs that object storage sees meanwhile, and how much the
// BE that is asked has itself. For peer_read_async_warmup there is a BE of
// another group beside them, without a File Cache: each of its reads is a hit of
// a peer, which is what the new BE's reads are held against (hit_…).
//
// Percentiles are of the reads of all runs together, other figures per run:
//
//	go test ./cmd/headstart -run '^$' -bench ScaleOut -benchtime 5x
func BenchmarkScaleOut(b *testing.B) {
	for _, kind := range []placement.BalanceType{placement.WithoutWarmup, placement.AsyncWarmup, placement.SyncWarmup} {
		b.Run(string(kind), func(b *testing.B) { benchScaleOut(b, kind, true) })
	}
	for _, race := range []bool{true, false} {
		b.Run(fmt.Sprintf("%s/race=%t", placement.PeerReadAsyncWarmup, race), func(b *testing.B) {
			benchScaleOut(b, placement.PeerReadAsyncWarmup, race)
		})
	}
}

func benchScaleOut(b *testing.B, kind placement.BalanceType, race bool) {
	sum := &scaleSum{reads: make(map[string]*reads), figures: make(map[string]float64)}
	for range b.N {
		one := &benchRun{B: b}
		newScaleOut(one, kind, race).run(sum)
		one.end()
	}
	sum.report(b)
}

// benchRun is one run of a benchmark, whose nodes end with it: the next one is to have
// the machine for itself.
type benchRun struct {
	*testing.B
	after []func()
}

// Cleanup implements testing.TB.
func (r *benchRun) Cleanup(f func()) { r.after = append(r.after, f) }

func (r *benchRun) end() {
	for _, f := range slices.Backward(r.after) {
		f()
	}
}

// scaleSum is what all runs have seen together, by phase and by figure.
type scaleSum struct {
	reads   map[string]*reads
	figures map[string]float64
}

// of returns the reads of a phase.
func (s *scaleSum) of(phase string) *reads {
	if s.reads[phase] == nil {
		s.reads[phase] = &reads{}
	}
	return s.reads[phase]
}

func (s *scaleSum) report(b *testing.B) {
	for _, phase := range []string{"before", "during", "after"} {
		r := s.of(phase)
		b.ReportMetric(ms(r.all, 99), phase+"_p99_ms")
		b.ReportMetric(ms(r.all, 99.9), phase+"_p99.9_ms")
		b.ReportMetric(100*float64(r.local)/float64(len(r.all)), phase+"_local_%")
	}
	if dip := s.of("during").hits; s.figures["hit_reads"] > 0 {
		b.ReportMetric(ms(dip, 99), "hit_p99_ms")
		b.ReportMetric(ms(s.of("observer before").hits, 99), "steady_p99_ms")
		b.ReportMetric(ms(dip, 99)/ms(s.of("observer before").hits, 99), "hit_p99_x")
		b.ReportMetric(ms(dip, 99)/ms(s.of("observer during").hits, 99), "hit_p99_beside_x")
		b.ReportMetric(100*s.figures["hit_GETs"]/s.figures["hit_reads"], "hit_GETs_%")
	}
	for name, sum := range s.figures {
		b.ReportMetric(sum/float64(b.N), name)
	}
	b.ReportMetric(0, "ns/op")
}

// scaleOut is a group of BEs whose readers go to whom the FE names.
type scaleOut struct {
	b    *benchRun
	kind placement.BalanceType
	race bool
	s3   *s3law.Server
	fe   *fe
	mu   sync.RWMutex
	bes  map[int]*be // by brpc_port
	// observer reads all from peers; nil unless peers are what is measured.
	observer *be
}

const scaleGroup = "cg_write_01"

func newScaleOut(b *benchRun, kind placement.BalanceType, race bool) *scaleOut {
	var objects []s3law.Object
	data := make([]byte, scaleBlocks*scaleBlock)
	for i := range scaleTablets {
		objects = append(objects, s3law.Object{Key: fmt.Sprintf("t/%d.dat", i), Data: data})
	}
	s3, err := s3law.Start(s3law.Options{Bucket: "b", Objects: objects})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s3.Close() })
	f, _ := startTestFE(b, map[string]string{"balance_type": string(kind)})
	s := &scaleOut{b: b, kind: kind, race: race, s3: s3, fe: f, bes: make(map[int]*be)}
	s.join(s.start(nil))
	s.join(s.start(nil))
	if kind == placement.PeerReadAsyncWarmup {
		s.observer = s.start(map[string]string{"compute_group_id": "cg_observer", "enable_file_cache": "false"})
	}
	return s
}

func (s *scaleOut) start(more map[string]string) *be {
	values := map[string]string{
		"file_cache_warmup_download_rate_limit_bytes_per_second": fmt.Sprint(s.warmUpRate()),
		"enable_cache_read_from_peer":                            "true", "warm_up_from_peer": "true", "enable_peer_s3_race": fmt.Sprint(s.race),
		"file_cache_each_block_size": fmt.Sprint(scaleBlock), "object_storage_get_max_blocks": "1",
		"s3_endpoint": s.s3.URL(), "enable_file_cache": "true",
		"file_cache_path": fmt.Sprintf(`[{"path":%q,"total_size":%d}]`, s.b.TempDir(), 2*scaleTablets*scaleBlocks*scaleBlock),
	}
	maps.Copy(values, more)
	return startTestBE(s.b, s.fe, values)
}

// warmUpRate is the default, but where peers are measured: there the warm-up is to
// leave most of the blocks to readers.
func (s *scaleOut) warmUpRate() int {
	if s.kind == placement.PeerReadAsyncWarmup {
		return 10 * mib
	}
	return 100 * mib
}

// join lets readers find a BE, and waits until the FE has.
func (s *scaleOut) join(n *be) {
	s.mu.Lock()
	s.bes[n.line.BrpcPort] = n
	s.mu.Unlock()
	db := openFE(s.b, s.fe, "root", "")
	until(s.b, db, "SHOW BACKENDS", func(l []string) bool { return len(l) >= len(s.bes) })
}

// serving returns the BE that serves a tablet for the group, as the FE says.
func (s *scaleOut) serving(tablet int) *be {
	holders, err := s.fe.directory.Lookup(context.Background(), []block.Route{block.TabletRoute(int64(tablet))})
	if err != nil {
		s.b.Errorf("tablet %d: %v", tablet, err)
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range holders[0] {
		if h.GroupID == scaleGroup {
			return s.bes[h.Addr.Port]
		}
	}
	s.b.Errorf("tablet %d is served by %v", tablet, holders[0])
	return nil
}

// read reads a part of a block.
func (s *scaleOut) read(n *be, tablet, index int) (block.Source, time.Duration) {
	dst := make([]byte, scaleRead)
	began := time.Now()
	_, src, err := n.engine.Read(context.Background(), &block.Read{
		Object: block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprintf("t/%d.dat", tablet)}, Version: block.Immutable,
		Route: block.TabletRoute(int64(tablet)), Offset: int64(index)*scaleBlock + rand.Int64N(scaleBlock-scaleRead),
	}, dst)
	if err != nil {
		s.b.Errorf("tablet %d: %v", tablet, err)
	}
	return src, time.Since(began)
}

// reads is what some readers have seen.
type reads struct {
	mu    sync.Mutex
	all   []time.Duration
	hits  []time.Duration // of peers
	local int
}

func (r *reads) note(src block.Source, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, took)
	switch src {
	case block.SourceLocal:
		r.local++
	case block.SourcePeer:
		r.hits = append(r.hits, took)
	}
}

// ms returns a percentile in milliseconds.
func ms(times []time.Duration, percent float64) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return float64(times[min(int(float64(len(times))*percent/100), len(times)-1)].Microseconds()) / 1000
}

// gets returns how many GETs the group has issued.
func (s *scaleOut) gets() (n int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, b := range s.bes {
		n += b.engine.Metrics().StoreReads
	}
	return n
}

// phase lets readers read for a while, all blocks about as often, each where the
// FE says. A third as many reads are the observer's: about as many as those that
// the third BE will serve.
func (s *scaleOut) phase(sum *scaleSum, name string, last time.Duration) {
	gets, end := s.gets(), time.Now().Add(last)
	var all sync.WaitGroup
	load := func(every time.Duration, to *reads, of func(tablet int) *be) {
		all.Go(func() { // ends with the phase
			pace := time.NewTicker(every) // what a reader does with what it has read
			defer pace.Stop()
			for time.Now().Before(end) {
				tablet := rand.IntN(scaleTablets)
				if n := of(tablet); n != nil {
					to.note(s.read(n, tablet, rand.IntN(scaleBlocks)))
				}
				<-pace.C
			}
		})
	}
	group, observer := sum.of(name), sum.of("observer "+name)
	for range scaleReaders {
		load(5*time.Millisecond, group, s.serving)
		if s.observer != nil {
			load(15*time.Millisecond, observer, func(int) *be { return s.observer })
		}
	}
	all.Wait()
	sum.figures[name+"_GETs"] += float64(s.gets() - gets)
}

// fill lets the BEs that serve the blocks cache all of them, and the observer
// know who they are. Object storage has no latency meanwhile.
func (s *scaleOut) fill() {
	s.s3.Enable(false)
	for tablet := range scaleTablets {
		for index := range scaleBlocks {
			n := s.serving(tablet)
			for src := block.SourceNone; src != block.SourceLocal; {
				if src, _ = s.read(n, tablet, index); src != block.SourceLocal {
					if err := n.cache.Flush(context.Background()); err != nil { // a busy disk may refuse a block
						s.b.Fatal(err)
					}
				}
			}
		}
		if s.observer != nil && !poll(func() bool { src, _ := s.read(s.observer, tablet, 0); return src == block.SourcePeer }) {
			s.b.Fatalf("the observer does not find tablet %d", tablet)
		}
	}
	s.s3.Enable(true)
}

func (s *scaleOut) run(sum *scaleSum) {
	s.fill()
	db := openFE(s.b, s.fe, "root", "")
	until(s.b, db, "SHOW TABLETS FROM 10001", func(l []string) bool { return len(l) > 0 })
	s.phase(sum, "before", scaleSteady)
	var third atomic.Pointer[be]
	go func() { // ends when it is registered
		n := s.start(nil)
		third.Store(n)
		s.join(n)
	}()
	s.phase(sum, "during", scaleDip)
	for _, line := range rows(s.b, db, "SHOW COMPUTE GROUPS") {
		if cells := strings.Split(line, "|"); cells[5] == scaleGroup && cells[8] != "FINISHED" && s.kind != placement.WithoutWarmup { // that one has no round
			s.b.Errorf("the round has not ended: %q", cells)
		}
	}
	s.phase(sum, "after", scaleSteady)
	n := third.Load()
	m := n.engine.Metrics()
	sum.figures["warm_GETs"] += float64(n.warm.Metrics().StoreBlocks)
	if s.observer != nil {
		sum.figures["hit_reads"] += float64(m.PeerReads)
		sum.figures["hit_GETs"] += float64(m.StoreReads)
	}
	for _, line := range rows(s.b, db, "SHOW BACKENDS") {
		if cells := strings.Split(line, "|"); cells[5] == strconv.Itoa(n.line.BrpcPort) {
			moved, _ := strconv.ParseFloat(cells[11], 64)
			sum.figures["moved"] += moved
		}
	}
}
