package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"headstart/bench/s3law"
	"headstart/engine/block"
	"headstart/shards/placement"
)

const (
	scaleTablets = 200
	scaleReaders = 8
	scalePhase   = 6 * time.Second
)

// BenchmarkScaleOut adds a third BE to a group of two under load, with each
// balance type, and reports the dip: the 99.9th percentile of reads before, while
// tablets move, and after, the GETs that object storage sees meanwhile, and how much the
// BE that is asked has itself.
//
//	go test ./cmd/headstart -run '^$' -bench ScaleOut -benchtime 1x
func BenchmarkScaleOut(b *testing.B) {
	for _, kind := range []placement.BalanceType{placement.WithoutWarmup, placement.AsyncWarmup, placement.SyncWarmup, placement.PeerReadAsyncWarmup} {
		b.Run(string(kind), func(b *testing.B) {
			for range b.N {
				newScaleOut(b, kind).run()
			}
		})
	}
}

// scaleOut is a group of BEs whose readers go to whom the FE names.
type scaleOut struct {
	b   *testing.B
	s3  *s3law.Server
	fe  *fe
	mu  sync.RWMutex
	bes map[int]*be // by brpc_port
}

func newScaleOut(b *testing.B, kind placement.BalanceType) *scaleOut {
	var objects []s3law.Object
	for i := range scaleTablets {
		objects = append(objects, s3law.Object{Key: fmt.Sprintf("t/%d.dat", i), Data: make([]byte, mib)})
	}
	s3, err := s3law.Start(s3law.Options{Bucket: "b", Objects: objects})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s3.Close() })
	f, _ := startTestFE(b, map[string]string{"balance_type": string(kind)})
	s := &scaleOut{b: b, s3: s3, fe: f, bes: make(map[int]*be)}
	s.add()
	s.add()
	return s
}

func (s *scaleOut) add() {
	n := cachingBE(s.b, s.fe, s.s3, map[string]string{
		"enable_cache_read_from_peer": "true", "warm_up_from_peer": "true", "enable_peer_s3_race": "true",
	})
	s.mu.Lock()
	s.bes[n.line.BrpcPort] = n
	s.mu.Unlock()
	db := openFE(s.b, s.fe, "root", "")
	until(s.b, db, "SHOW BACKENDS", alive(len(s.bes)))
}

// read reads 64 KiB of a tablet where the FE says that it is.
func (s *scaleOut) read(tablet int) (block.Source, time.Duration) {
	route := block.TabletRoute(int64(tablet))
	holders, err := s.fe.directory.Lookup(context.Background(), []block.Route{route})
	if err != nil || len(holders[0]) != 1 {
		s.b.Errorf("tablet %d is served by %v (%v)", tablet, holders, err)
		return block.SourceNone, 0
	}
	s.mu.RLock()
	n := s.bes[holders[0][0].Addr.Port]
	s.mu.RUnlock()
	dst := make([]byte, 64<<10)
	began := time.Now()
	_, src, err := n.engine.Read(context.Background(), &block.Read{
		Object: block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprintf("t/%d.dat", tablet)}, Version: block.Immutable, Route: route,
		Offset: rand.Int64N(mib - 64<<10),
	}, dst)
	if err != nil {
		s.b.Errorf("tablet %d: %v", tablet, err)
	}
	return src, time.Since(began)
}

// phase reads for a while, each tablet about as often, and returns the
// 99.9th percentile and the share of reads that were local.
func (s *scaleOut) phase(last time.Duration) (p999 time.Duration, local float64, gets int64) {
	before, end := s.s3.Metrics().GETs, time.Now().Add(last)
	var all sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	hits := 0
	for range scaleReaders {
		all.Go(func() { // ends with the phase
			pace := time.NewTicker(5 * time.Millisecond) // what a reader does with what it has read
			defer pace.Stop()
			for time.Now().Before(end) {
				src, d := s.read(rand.IntN(scaleTablets))
				mu.Lock()
				took = append(took, d)
				if src == block.SourceLocal {
					hits++
				}
				mu.Unlock()
				<-pace.C
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took[len(took)*999/1000], float64(hits) / float64(len(took)), s.s3.Metrics().GETs - before
}

func (s *scaleOut) run() {
	s.s3.Enable(false)
	for tablet := range scaleTablets { // both have theirs, and know each other
		s.read(tablet)
	}
	s.s3.Enable(true)
	until(s.b, openFE(s.b, s.fe, "root", ""), "SHOW TABLETS FROM 10001", func(l []string) bool { return len(l) > 0 })
	p999, local, _ := s.phase(2 * time.Second)
	s.b.ReportMetric(float64(p999.Microseconds())/1000, "p99.9_before_ms")
	s.b.ReportMetric(100*local, "local_before_%")
	go s.add() // ends when it is registered
	p999, local, gets := s.phase(scalePhase)
	s.b.ReportMetric(float64(p999.Microseconds())/1000, "p99.9_during_ms")
	s.b.ReportMetric(100*local, "local_during_%")
	s.b.ReportMetric(float64(gets), "GETs_during")
	state := strings.Split(rows(s.b, openFE(s.b, s.fe, "root", ""), "SHOW COMPUTE GROUPS")[0], "|")
	if state[8] != "FINISHED" && !strings.Contains(state[4], string(placement.WithoutWarmup)) { // that one has no round
		s.b.Errorf("the round has not ended: %q", state)
	}
	p999, local, _ = s.phase(2 * time.Second)
	s.b.ReportMetric(float64(p999.Microseconds())/1000, "p99.9_after_ms")
	s.b.ReportMetric(100*local, "local_after_%")
	moved, _ := s.fe.directory.TabletsOf(10003, scaleTablets)
	s.b.ReportMetric(float64(len(moved)), "moved")
	s.b.ReportMetric(0, "ns/op")
}
