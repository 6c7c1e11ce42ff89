package tpch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"headstart/bench/s3law"
)

// small is a workload of its own: 3 objects, 64 reads in 1 query.
func small() (*Trace, *Contents) {
	trace := &Trace{Objects: []Object{{"dir/a", 300_000}, {"dir/b", 200_000}, {"dir/c", 1000}}}
	q := Query{Name: "q1"}
	for i := range 64 {
		o := i % 3
		length := trace.Objects[o].Size / 4
		q.Reads = append(q.Reads, Read{Object: o, Offset: int64(i%4) * length, Length: length})
	}
	trace.Queries = []Query{q}
	return trace, Generate(trace.Objects, 5)
}

// node answers /read from the given handler's idea of the bytes.
func node(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func newReplay(t *testing.T, addr string, after func(int64)) *Replay {
	t.Helper()
	trace, contents := small()
	r, err := NewReplay(ReplayOptions{Trace: trace, Contents: contents, Bucket: "b",
		Nodes: []string{addr, addr, addr}, AfterRead: after})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// TestReplayThroughTheLaw reads through a node that holds nothing: each read is
// one GET at the S3 server, behind the law.
func TestReplayThroughTheLaw(t *testing.T) {
	trace, contents := small()
	var objects []s3law.Object
	for i, o := range trace.Objects {
		objects = append(objects, s3law.Object{Key: o.Key, Data: contents.Object(i)})
	}
	store, err := s3law.Start(s3law.Options{Bucket: "b", Objects: objects, Law: s3law.Law{Seed: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var tablets atomic.Int64
	addr := node(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		tablet, _ := strconv.ParseInt(q.Get("tablet_id"), 10, 64)
		tablets.Add(tablet)
		off, _ := strconv.ParseInt(q.Get("offset"), 10, 64)
		size, _ := strconv.ParseInt(q.Get("size"), 10, 64)
		get, _ := http.NewRequestWithContext(r.Context(), "GET", store.URL()+"/"+strings.TrimPrefix(q.Get("path"), "s3://"), nil)
		get.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+size-1))
		resp, err := http.DefaultClient.Do(get)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("X-Headstart-Source", "s3")
		_, _ = io.Copy(w, resp.Body)
	})
	var calls atomic.Int64
	replay := newReplay(t, addr, func(int64) { calls.Add(1) })
	reads := trace.Queries[0].Reads
	wall := replay.Run(t.Context(), "q1", reads)
	s := replay.Stats()
	if s.Reads != 64 || s.Errors != 0 || s.WrongBytes != 0 || s.Store != 64 || s.CheckedBytes != s.Bytes {
		t.Errorf("%+v", s)
	}
	if m := store.Metrics(); m.GETs != 64 || m.Bytes != s.Bytes {
		t.Errorf("%+v at the store, %d bytes read", m, s.Bytes)
	}
	if calls.Load() != 64 || tablets.Load() != 22*1+21*2+21*3 {
		t.Errorf("AfterRead called %d times, tablets sum up to %d", calls.Load(), tablets.Load())
	}
	// The law's draws bound the replay from below, whatever the machine does.
	law, floor := s3law.Law{Seed: 1}, time.Duration(0)
	for n := range uint64(64) {
		floor += law.FirstByte(n)
	}
	if floor /= ReaderCount; wall < floor {
		t.Errorf("64 reads took %v, the law alone takes %v with %d readers", wall, floor, ReaderCount)
	}
	if len(s.Latencies) != 64 || s.Quantile(0) != s.Latencies[0] || s.Quantile(1) != s.Latencies[63] {
		t.Errorf("%d latencies", len(s.Latencies))
	}
}

// TestReplaySeesFaults: each way in which a node can be wrong is counted, and
// the replay goes on.
func TestReplaySeesFaults(t *testing.T) {
	trace, contents := small()
	serve := func(w http.ResponseWriter, r *http.Request, source string, change func([]byte) []byte) {
		q := r.URL.Query()
		tablet, _ := strconv.Atoi(q.Get("tablet_id"))
		off, _ := strconv.ParseInt(q.Get("offset"), 10, 64)
		size, _ := strconv.ParseInt(q.Get("size"), 10, 64)
		if source != "" {
			w.Header().Set("X-Headstart-Source", source)
		}
		data := contents.Object(tablet - 1)[off : off+size]
		_, _ = w.Write(change(append([]byte(nil), data...)))
	}
	for _, tc := range []struct {
		name, source  string
		change        func([]byte) []byte
		errors, wrong int64
		says          string
	}{
		{"right", "peer", func(b []byte) []byte { return b }, 0, 0, ""},
		{"wrong byte", "local", func(b []byte) []byte { b[0] ^= 1; return b }, 0, 64, ""},
		{"no source", "", func(b []byte) []byte { return b }, 64, 0, "X-Headstart-Source"},
		{"short", "s3", func(b []byte) []byte { return b[1:] }, 64, 0, "bytes"},
		{"long", "s3", func(b []byte) []byte { return append(b, 0) }, 64, 0, "more than"},
	} {
		addr := node(t, func(w http.ResponseWriter, r *http.Request) { serve(w, r, tc.source, tc.change) })
		replay := newReplay(t, addr, nil)
		replay.Run(t.Context(), "q", trace.Queries[0].Reads)
		s := replay.Stats()
		if s.Reads != 64 || s.Errors != tc.errors || s.WrongBytes != tc.wrong {
			t.Errorf("%s: %+v", tc.name, s)
		}
		if (s.FirstError == nil) != (tc.says == "") || s.FirstError != nil && !strings.Contains(s.FirstError.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, s.FirstError)
		}
	}
}

func TestReplayNodeAnswersErrors(t *testing.T) {
	trace, _ := small()
	addr := node(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no tablet today", 500) })
	replay := newReplay(t, addr, nil)
	replay.Run(t.Context(), "q", trace.Queries[0].Reads)
	s := replay.Stats()
	if s.Errors != 64 || !strings.Contains(fmt.Sprint(s.FirstError), "no tablet today") {
		t.Errorf("%d errors, the first: %v", s.Errors, s.FirstError)
	}
}

// TestReplayEndsWithItsContext: a node that never answers does not hold it.
func TestReplayEndsWithItsContext(t *testing.T) {
	trace, _ := small()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr := node(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	replay := newReplay(t, addr, nil)
	replay.Run(ctx, "q", trace.Queries[0].Reads)
	if s := replay.Stats(); s.Reads > ReaderCount || s.Errors != s.Reads {
		t.Errorf("%+v", s)
	}
}

func TestReplayOptionsValidate(t *testing.T) {
	trace, contents := small()
	for _, o := range []ReplayOptions{
		{},
		{Trace: trace, Contents: contents, Nodes: make([]string, 3)},
		{Trace: trace, Contents: contents, Bucket: "b", Nodes: make([]string, 2)},
		{Trace: trace, Bucket: "b", Nodes: make([]string, 3)},
	} {
		if _, err := NewReplay(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestQuantileIsNearestRank(t *testing.T) {
	var s Stats
	if s.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	for i := range 200 {
		s.Latencies = append(s.Latencies, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{0.5: 100, 0.95: 190, 0.99: 198, 1: 200} {
		if got := s.Quantile(q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}
