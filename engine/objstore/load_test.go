package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// 256 readers that come back as soon as they have failed, ten seconds of
// SlowDown, and then the time until the store is used as before.
func TestOS11_ThrottlingSlowsAllDownAndRecovers(t *testing.T) {
	const (
		readers, places = 256, 64
		outage          = 10 * time.Second
		serviceTime     = 100 * time.Millisecond
		normal          = int64(places * (time.Second / serviceTime))
	)
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 100})
		start := time.Now()
		var perSecond [20]atomic.Int64
		fake.onGet(func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
			since := time.Since(start)
			perSecond[since/time.Second].Add(1)
			time.Sleep(serviceTime)
			if since < outage {
				replyError(w, http.StatusServiceUnavailable, "SlowDown")
			}
			return since < outage
		})
		s := fake.store(Options{MaxInFlight: places})
		var served, refused atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), outage+6*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range readers {
			wg.Go(func() {
				for ctx.Err() == nil {
					switch _, _, err := get(ctx, t, s, fetch(o, 0, 1)); {
					case err == nil:
						served.Add(1)
					case errors.Is(err, block.ErrThrottled):
						refused.Add(1)
					case ctx.Err() == nil:
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		var got [16]int64
		for i := range got {
			got[i] = perSecond[i].Load()
		}
		t.Logf("GETs a second: %v; %d served, %d refused", got, served.Load(), refused.Load())
		// Those that wait for a place when the first refusal comes are sent yet.
		if got[0] > 2*readers || got[1] > got[0]/4 || got[2] > 10 || got[9] > 10 {
			t.Errorf("GETs a second %v: not bounded, or not falling", got)
		}
		// A caller that fails must have waited: refusals are as slow as the store.
		if n := refused.Load(); n > readers*int64(outage/(maxPaced/2)) || n == 0 {
			t.Errorf("%d refusals", n)
		}
		if got[15] < normal*95/100 {
			t.Errorf("GETs a second %v: not recovered within 5 s", got)
		}
		if m := s.Metrics(); m.Errors[ReasonShed] == 0 || m.Errors[ReasonThrottled] == 0 {
			t.Errorf("metrics %+v", m)
		}
	})
}

// One refusal among many replies, as S3 gives it now and then, must cost next
// to nothing.
func TestOS11_OneRefusalIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 100})
		fake.onGet(func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n == 5 {
				replyError(w, http.StatusServiceUnavailable, "SlowDown")
			}
			return n == 5
		})
		s := fake.store(Options{})
		start := time.Now()
		for range 100 {
			if _, _, err := get(t.Context(), t, s, fetch(o, 0, 1)); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took > firstBackoff+2*minGap || s.pacer.on.Load() {
			t.Errorf("took %v, the pacer is on: %v", took, s.pacer.on.Load())
		}
	})
}

// The gap grows once for all refusals of one moment, doubles up to its bound,
// and halves with each request that is served, found or not.
func TestOS11_PacerLaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		var got []time.Duration
		for range 8 {
			for range 50 {
				p.refused()
			}
			got = append(got, p.mu.gap/time.Millisecond)
			time.Sleep(raiseEvery)
		}
		for p.on.Load() {
			p.served()
			got = append(got, p.mu.gap/time.Millisecond)
		}
		if want := "[5ns 10ns 20ns 40ns 80ns 160ns 320ns 320ns 160ns 80ns 40ns 20ns 10ns 5ns 0s]"; fmt.Sprint(got) != want {
			t.Errorf("gaps in ms %v, want %v", got, want)
		}
		fake := newFake(t)
		s := fake.store(Options{})
		s.pacer.refused()
		_, err := s.Head(t.Context(), block.Object{Bucket: "bucket", Key: "missing"})
		if !errors.Is(err, block.ErrNotFound) || s.pacer.on.Load() {
			t.Errorf("%v; the pacer is on: %v", err, s.pacer.on.Load())
		}
	})
}

func TestOS17_GateBoundsRequestsAndLetsGo(t *testing.T) {
	const limit = 32
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 100})
		fake.onGet(func(int64, http.ResponseWriter, *http.Request) bool {
			time.Sleep(time.Second)
			return false
		})
		s := fake.store(Options{MaxInFlight: limit})
		var wg sync.WaitGroup
		for range limit {
			wg.Go(func() {
				if _, _, err := get(t.Context(), t, s, fetch(o, 0, 1)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for range 10 {
			wg.Go(func() {
				start := time.Now()
				_, _, err := get(ctx, t, s, fetch(o, 0, 1))
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 100*time.Millisecond {
					t.Errorf("%v after %v", err, took)
				}
			})
		}
		synctest.Wait()
		if m := s.Metrics(); m.InFlight != limit || m.Waiting != 10 || m.Waits != 10 {
			t.Errorf("metrics %+v", m)
		}
		wg.Wait()
		m := s.Metrics()
		if fake.gets.Load() != limit || fake.maxInFlight.Load() != limit {
			t.Errorf("%d GETs, %d at once", fake.gets.Load(), fake.maxInFlight.Load())
		}
		if m.InFlight != 0 || m.Waiting != 0 || m.Waited != time.Second || m.Errors[ReasonCancelled] != 10 {
			t.Errorf("metrics %+v", m)
		}
	})
}

// A stream that is not read to its end holds its place only until Close.
func TestOS17_CloseGivesThePlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 1 << 20})
		s := fake.store(Options{MaxInFlight: 1})
		for range 3 {
			st, err := s.Fetch(t.Context(), fetch(o, 0, 16))
			if err != nil {
				t.Fatal(err)
			}
			p, err := st.Next()
			if err != nil {
				t.Fatal(err)
			}
			p.Buf.Release()
			st.Close()
			st.Close() // once more does no harm
			if _, err := st.Next(); !errors.Is(err, errClosed) {
				t.Errorf("Next after Close: %v", err)
			}
		}
	})
}

// 2000 reads, 64 at once; in the second half every other one is a loser that is
// given up at some moment. What that costs is a connection, unless little was
// missing.
func TestOS13_ConnectionsAreReused(t *testing.T) {
	// net/http may open a connection while another one is just becoming free.
	const reads, places, blocks, margin = 1000, 64, 8, 16
	for _, losers := range []bool{false, true} {
		fake := newFakeTCP(t)
		o := fake.put("k", fakeObject{size: blocks * blockSize})
		s := fake.store(Options{MaxInFlight: places, DrainBytes: 2 * blockSize})
		before := openFiles(t)
		openAll(t, s, o, places)
		warm := fake.accepts.Load()
		var next atomic.Int64
		var wg sync.WaitGroup
		for range places {
			wg.Go(func() {
				for i := next.Add(1); i <= reads; i = next.Add(1) {
					if losers && i%2 == 0 {
						lose(t, s, fetch(o, 0, blocks), int(i)%blocks)
					} else if data, _, err := get(t.Context(), t, s, fetch(o, 0, blocks)); err != nil || !bytes.Equal(data, content("k", 0, 0, blocks*blockSize)) {
						t.Errorf("read %d: %d bytes, %v", i, len(data), err)
					}
				}
			})
		}
		wg.Wait()
		waitFor(t, "drained replies have ended", func() bool { return s.Metrics().InFlight == 0 })
		m, opened := s.Metrics(), uint64(fake.accepts.Load()-warm)
		t.Logf("losers %v: %d connections, then %d more for %d reads; %d were cut, %d bytes read in vain", losers, warm, opened, reads, m.Aborted, m.Discarded)
		if opened > margin+m.Aborted || m.Dials != uint64(warm)+opened {
			t.Errorf("losers %v: %d more connections, metrics %+v", losers, opened, m)
		}
		if losers != (m.Aborted > 0) || losers != (m.Discarded > 0) {
			t.Errorf("losers %v: metrics %+v", losers, m)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		waitFor(t, "files are closed", func() bool { return openFiles(t) <= before+8 })
	}
}

// openAll reads with all places at the same time, so that each has a
// connection.
func openAll(t *testing.T, s *Store, o block.Object, places int) {
	t.Helper()
	var streams []block.Stream
	for range places {
		st, err := s.Fetch(t.Context(), fetch(o, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
	}
	for _, st := range streams {
		if _, _, err := readAll(t, st); err != nil {
			t.Fatal(err)
		}
	}
}

// lose gives a read up after some blocks.
func lose(t *testing.T, s *Store, f *block.Fetch, blocks int) {
	t.Helper()
	st, err := s.Fetch(t.Context(), f)
	if err != nil {
		t.Error(err)
		return
	}
	defer st.Close()
	for range blocks {
		p, err := st.Next()
		if err != nil {
			t.Error(err)
			return
		}
		p.Buf.Release()
	}
}

// openFiles counts the descriptors of the process; 0 where that is not known.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Hours of reads with faults in a bubble: it ends only when no goroutine is
// left, and nothing of the store may be.
func TestOS16_FaultsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 8 * blockSize})
		fake.onGet(func(n int64, w http.ResponseWriter, r *http.Request) bool {
			switch n % 11 {
			case 0:
				replyError(w, http.StatusInternalServerError, "InternalError")
			case 3:
				replyError(w, http.StatusServiceUnavailable, "SlowDown")
			case 5:
				panic(http.ErrAbortHandler)
			case 7:
				w.Header().Set("ETag", `"v0"`)
				partial(w, 0, 8*blockSize, 8*blockSize)
				flush(w)
				hang(r)
			default:
				return false
			}
			return true
		})
		s := fake.store(Options{Attempts: 2})
		for i := range 1000 {
			time.Sleep(10 * time.Second)
			if data, _, err := get(t.Context(), t, s, fetch(o, 0, 8)); err != nil || !bytes.Equal(data, content("k", 0, 0, 8*blockSize)) {
				t.Errorf("read %d: %d bytes, %v", i, len(data), err)
			}
		}
		if m := s.Metrics(); m.InFlight != 0 || m.Retries == 0 {
			t.Errorf("metrics %+v", m)
		}
	})
}
