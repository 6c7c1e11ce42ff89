package objstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// The moments at which a read is given up, and the two ways of doing it: the
// GET ends on the wire at once, and whoever waits gets an answer at once.
func TestS08_GivenUpReadIsCutOffOnTheWire(t *testing.T) {
	for _, c := range []givenUp{
		{name: "before the headers", fault: func(_ *fakeS3, _ http.ResponseWriter, r *http.Request) { hang(r) }},
		{name: "in the first block", open: true, fault: func(f *fakeS3, w http.ResponseWriter, r *http.Request) {
			partial(w, 0, 16*blockSize, 16*blockSize)
			f.send(w, r, content("k", 0, 0, 100))
			flush(w)
			hang(r)
		}},
		{name: "in the third block", open: true, blocks: 2, fault: func(f *fakeS3, w http.ResponseWriter, r *http.Request) {
			partial(w, 0, 16*blockSize, 16*blockSize)
			f.send(w, r, content("k", 0, 0, 2*blockSize+100))
			flush(w)
			hang(r)
		}},
		{name: "in a back-off", fault: func(_ *fakeS3, w http.ResponseWriter, _ *http.Request) {
			replyError(w, http.StatusServiceUnavailable, "SlowDown")
		}},
	} {
		t.Run(c.name+", by context", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, true) })
		})
		if c.open {
			t.Run(c.name+", by Close", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { c.run(t, false) })
			})
		}
	}
}

// givenUp is a read that comes to a halt after some blocks. open means that
// there is a stream by then.
type givenUp struct {
	name   string
	fault  func(f *fakeS3, w http.ResponseWriter, r *http.Request)
	open   bool
	blocks int
}

func (c *givenUp) run(t *testing.T, byContext bool) {
	fake := newFake(t)
	o := fake.put("k", fakeObject{size: 16 * blockSize})
	fake.onGet(func(_ int64, w http.ResponseWriter, r *http.Request) bool {
		c.fault(fake, w, r)
		return true
	})
	s := fake.store(Options{DrainBytes: blockSize})
	errLost := errors.New("the other leg has won")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var err error
	var st block.Stream
	var blocks int
	done := make(chan struct{})
	go func() { // ends when the read is given up
		defer close(done)
		if st, err = s.Fetch(ctx, fetch(o, 0, 16)); err != nil {
			return
		}
		for {
			var p block.Piece
			if p, err = st.Next(); err != nil {
				return
			}
			p.Buf.Release()
			blocks++
		}
	}()
	synctest.Wait()
	start := time.Now()
	if byContext {
		cancel(errLost)
	} else {
		st.Close()
	}
	<-done
	synctest.Wait()
	if !errors.Is(err, context.Canceled) || errors.Is(err, errLost) != byContext || blocks != c.blocks {
		t.Errorf("%v after %d blocks", err, blocks)
	}
	if time.Since(start) != 0 || fake.inFlight.Load() != 0 || fake.gets.Load() != 1 || s.Metrics().InFlight != 0 {
		t.Errorf("after %v %d requests are under way, %d GETs, metrics %+v", time.Since(start), fake.inFlight.Load(), fake.gets.Load(), s.Metrics())
	}
}

func TestS08_DeadlineOfTheCallerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 5})
		fake.onGet(func(_ int64, _ http.ResponseWriter, r *http.Request) bool { hang(r); return true })
		ctx, cancel := context.WithTimeout(t.Context(), 77*time.Millisecond)
		defer cancel()
		s := fake.store(Options{})
		start := time.Now()
		_, _, err := get(ctx, t, s, fetch(o, 0, 1))
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 77*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		if _, _, err := get(ctx, t, s, fetch(o, 0, 1)); !errors.Is(err, context.DeadlineExceeded) || fake.gets.Load() != 1 {
			t.Errorf("with a context that has ended: %v, %d GETs", err, fake.gets.Load())
		}
	})
}

// Little is missing when the stream is closed: the rest is read, for a moment,
// and the connection is used again. With more missing, or a rest that does not
// come, the connection is closed.
func TestS08_ConnectionSurvivesWhenLittleIsMissing(t *testing.T) {
	for _, c := range []leftover{
		{"rest comes", 4 * blockSize, false, false, true},
		{"rest comes, closed in Next", 4 * blockSize, false, true, true},
		{"too much is missing", 4*blockSize - 1, false, false, false},
		{"draining is off", -1, false, false, false},
		{"rest does not come", 4 * blockSize, true, false, false},
		{"rest does not come, closed in Next", 4 * blockSize, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) { synctest.Test(t, c.run) })
	}
}

// leftover is a reply of 6 blocks that is given up after 2.
type leftover struct {
	name    string
	drain   int64
	stalled bool // the last byte does not come
	inNext  bool // closed while Next waits
	reused  bool
}

func (c *leftover) run(t *testing.T) {
	const size = 6 * blockSize
	fake := newFake(t)
	o := fake.put("k", fakeObject{size: size})
	more := make(chan struct{})
	fake.onGet(func(n int64, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			c.reply(fake, w, r, more)
		}
		return n == 1
	})
	s := fake.store(Options{DrainBytes: c.drain})
	st, err := s.Fetch(t.Context(), fetch(o, 0, 6))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p, err := st.Next()
		if err != nil {
			t.Fatal(err)
		}
		p.Buf.Release()
	}
	var wg sync.WaitGroup
	if c.inNext {
		wg.Go(func() {
			if _, err := st.Next(); !errors.Is(err, errClosed) {
				t.Errorf("Next: %v", err)
			}
		})
		synctest.Wait()
	}
	start := time.Now()
	st.Close()
	if took := time.Since(start); took != 0 {
		t.Errorf("Close has waited %v", took)
	}
	close(more)
	wg.Wait()
	time.Sleep(drainTime)
	synctest.Wait()
	m := s.Metrics()
	if m.InFlight != 0 || c.reused != (m.Aborted == 0) || c.reused != (m.Discarded == size-2*blockSize) {
		t.Errorf("metrics %+v", m)
	}
	data, _, err := get(t.Context(), t, s, fetch(o, 1, 1))
	if err != nil || !bytes.Equal(data, content("k", 0, blockSize, 2*blockSize)) || c.reused != (fake.accepts.Load() == 1) {
		t.Errorf("next read: %v, %d connections", err, fake.accepts.Load())
	}
}

// reply sends two blocks, and the rest when more is closed.
func (c *leftover) reply(f *fakeS3, w http.ResponseWriter, r *http.Request, more <-chan struct{}) {
	const size = 6 * blockSize
	partial(w, 0, size, size)
	f.send(w, r, content("k", 0, 0, 2*blockSize))
	flush(w)
	select {
	case <-more:
	case <-r.Context().Done():
		return
	}
	f.send(w, r, content("k", 0, 2*blockSize, size-1))
	flush(w)
	if c.stalled {
		hang(r)
	}
	f.send(w, r, content("k", 0, size-1, size))
}

// longLived is a context that outlives its reads and counts who listens to it.
type longLived struct {
	context.Context
	never     chan struct{}
	listeners atomic.Int64
}

func (c *longLived) Done() <-chan struct{} { return c.never }

func (c *longLived) AfterFunc(func()) (stop func() bool) {
	c.listeners.Add(1)
	return func() bool { c.listeners.Add(-1); return true }
}

func TestOS16_ReadLeavesNothingInItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 16 * blockSize})
		s := fake.store(Options{})
		ctx := &longLived{Context: t.Context(), never: make(chan struct{})}
		st, err := s.Fetch(ctx, fetch(o, 0, 16))
		if err != nil || ctx.listeners.Load() == 0 {
			t.Fatalf("%v, %d listeners: the test tests nothing", err, ctx.listeners.Load())
		}
		st.Close()
		if _, _, err := get(ctx, t, s, fetch(o, 0, 16)); err != nil {
			t.Error(err)
		}
		if _, _, err := get(ctx, t, s, fetch(block.Object{Bucket: "bucket", Key: "missing"}, 0, 16)); !errors.Is(err, block.ErrNotFound) {
			t.Error(err)
		}
		if n := ctx.listeners.Load(); n != 0 {
			t.Errorf("%d listeners are left", n)
		}
	})
}

// Close may come at any moment from another goroutine: what Next hands out is
// whole, what it does not is given back.
func TestS08_CloseAtAnyMoment(t *testing.T) {
	fake := newFakeTCP(t)
	o := fake.put("k", fakeObject{size: 16 * blockSize})
	s := fake.store(Options{DrainBytes: 4 * blockSize})
	for i := range 300 {
		st, err := s.Fetch(t.Context(), fetch(o, 0, 16))
		if err != nil {
			t.Fatal(err)
		}
		reached, closed := make(chan struct{}), make(chan struct{})
		go func() { // ends at once when Next has got there
			defer close(closed)
			<-reached
			st.Close()
		}()
		for n := int64(0); ; n++ {
			if n == int64(i%17) {
				close(reached)
			}
			p, err := st.Next()
			if err != nil {
				if err != io.EOF && !errors.Is(err, errClosed) {
					t.Errorf("round %d: %v", i, err)
				}
				if n < int64(i%17) {
					t.Errorf("round %d: ended before block %d", i, n)
				}
				break
			}
			if !bytes.Equal(p.Buf.Bytes(), content("k", 0, n*blockSize, (n+1)*blockSize)) {
				t.Errorf("round %d: wrong bytes in block %d", i, n)
			}
			p.Buf.Release()
		}
		<-closed
	}
	waitFor(t, "all places are free", func() bool { return s.Metrics().InFlight == 0 })
}
