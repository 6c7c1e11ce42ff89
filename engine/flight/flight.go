// Package flight lets all readers of a block share one fetch. A flight is one
// block on its way; a Fetch drives the flights of one or more blocks.
//
// No reader owns a fetch: it runs in a context of its own and ends when its
// last waiter has left, so a reader that gives up never disturbs the others.
// A flight holds one reference to its result until its last waiter has left.
// The package starts no goroutine and reads nothing.
package flight

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"headstart/engine/block"
)

// ErrRetry tells waiters to look again: the fetch has ended without a word on
// their block (it panicked, or found that there was nothing left to fetch).
var ErrRetry = fmt.Errorf("the fetch ended without this block: %w", block.ErrBusy)

// Result is how a flight ends.
type Result struct {
	// Buf is the block; nil with Err.
	Buf *block.Buf
	// Index is the block's number: a flight that learns what an object is brings
	// whichever block comes first.
	Index uint64
	// Base is the id of block 0 of the version that such a flight has learned of.
	Base block.ID
	// Source, Peer and SameGroup say where the block came from.
	Source    block.Source
	Peer      block.Addr
	SameGroup bool
	// Shared: the flight has had other waiters too. Wait sets it.
	Shared bool
	// Took is the time from the start of the fetch to the block's arrival.
	Took time.Duration
	Err  error
}

// Table holds the flights under way.
type Table struct {
	flights *xsync.MapOf[block.ID, *Flight]
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{flights: xsync.NewMapOfWithHasher[block.ID, *Flight](hash)}
}

// hash folds an id, which is a hash already but for its index.
func hash(id block.ID, seed uint64) uint64 {
	return (id.Lo ^ seed ^ id.Index*0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93
}

// Len returns the number of flights under way.
func (t *Table) Len() int { return t.flights.Size() }

// Flight is one block on its way.
//
//	open ── last waiter leaves ──▶ over (abandoned)
//	  └──── Land ────────────────▶ over (landed)
//
// Only an open flight is in the table or can be joined. A carried one has a
// fetch that brings it along for nobody in particular: it stays open when its
// last waiter leaves, and only while it has waiters do they hold the fetch.
type Flight struct {
	table *Table
	id    block.ID
	done  chan struct{}

	mu struct {
		sync.Mutex
		waiters int
		carried bool
		over    bool
		fetch   *Fetch
		result  Result
		// shared: a second waiter has come; taken: one has seen the block.
		shared, taken bool
	}
}

// Join makes the caller a waiter of the flight of id. lead is true for the one
// caller who has to start the fetch: it must call Fetch.Lead and see to it that
// every flight lands. Each Join is ended by one Leave.
func (t *Table) Join(id block.ID) (f *Flight, lead bool) {
	for {
		f, joined := t.flights.LoadOrCompute(id, func() *Flight {
			f := &Flight{table: t, id: id, done: make(chan struct{})}
			f.mu.waiters = 1
			return f
		})
		if !joined {
			return f, true
		}
		if f.join() {
			return f, false
		}
		// It ended between the look-up and the join; its end removes it from the
		// table, so the next round finds another one or starts it.
		t.remove(f)
	}
}

func (f *Flight) join() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.over {
		return false
	}
	f.mu.shared = f.mu.shared || f.mu.waiters > 0
	f.mu.waiters++
	if f.mu.carried && f.mu.waiters == 1 {
		f.mu.fetch.Hold()
	}
	return true
}

// JoinOpen makes the caller a waiter of the flight of id if there is one, and
// returns nil otherwise: it never leads.
func (t *Table) JoinOpen(id block.ID) *Flight {
	if f, ok := t.flights.Load(id); ok && f.join() {
		return f
	}
	return nil
}

// Has reports whether there is a flight of id.
func (t *Table) Has(id block.ID) bool {
	_, ok := t.flights.Load(id)
	return ok
}

// Carry starts a flight of id that fetch brings along though nobody waits for
// it. It returns nil when the block has a flight already. The caller sees to it
// that it lands.
func (t *Table) Carry(id block.ID, fetch *Fetch) *Flight {
	f := &Flight{table: t, id: id, done: make(chan struct{})}
	f.mu.carried, f.mu.fetch = true, fetch
	if _, known := t.flights.LoadOrStore(id, f); known {
		return nil
	}
	return f
}

// remove takes f, and no later flight of the same block, out of the table.
func (t *Table) remove(f *Flight) {
	t.flights.Compute(f.id, func(old *Flight, loaded bool) (*Flight, bool) {
		return old, !loaded || old == f
	})
}

// ID returns the block's id.
func (f *Flight) ID() block.ID { return f.id }

// Done is closed when the flight is over.
func (f *Flight) Done() <-chan struct{} { return f.done }

// Wait waits for the end of the flight or of ctx. The result's Buf belongs to
// the flight until Leave: a waiter that wants to keep it retains it first.
func (f *Flight) Wait(ctx context.Context) (Result, error) {
	select {
	case <-f.done:
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.taken = true
	res := f.mu.result
	res.Shared = f.mu.shared
	return res, nil
}

// Leave ends the caller's wait. When the last waiter of an open flight leaves,
// the flight is over, unless it is carried, and its fetch has one interest less.
// Leave returns how many bytes have come in vain: those of the block when the
// last waiter leaves and none has seen it, else 0.
func (f *Flight) Leave() (spare int64) {
	f.mu.Lock()
	f.mu.waiters--
	last := f.mu.waiters == 0
	deserted := last && !f.mu.over
	if deserted && !f.mu.carried {
		f.mu.over = true
		f.mu.result = Result{Err: ErrRetry}
	}
	fetch, buf, carried, taken := f.mu.fetch, f.mu.result.Buf, f.mu.carried, f.mu.taken
	f.mu.Unlock()
	switch {
	case !last:
	case deserted:
		if !carried {
			f.table.remove(f)
			close(f.done)
		}
		if fetch != nil {
			fetch.Drop()
		}
	case buf != nil:
		if !taken {
			spare = int64(len(buf.Bytes()))
		}
		buf.Release()
	}
	return spare
}

// Land ends the flight with r and takes over r.Buf. It reports false, and has
// given r.Buf back, when the flight was over before.
func (f *Flight) Land(r Result) bool {
	f.mu.Lock()
	over, nobody := f.mu.over, f.mu.waiters == 0
	held := f.mu.fetch != nil && !nobody
	if !over {
		f.mu.over = true
		f.mu.result = r
	}
	fetch := f.mu.fetch
	f.mu.Unlock()
	if r.Buf != nil && (over || nobody) {
		r.Buf.Release()
	}
	if over {
		return false
	}
	// Removed first: whoever joins after the waiters have woken up must find the
	// cache, not a flight that is over.
	f.table.remove(f)
	close(f.done)
	if held {
		fetch.settle()
	}
	return true
}

// Fetch is the work behind some flights.
type Fetch struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		open int
	}
}

// NewFetch returns a fetch whose context carries the values of ctx but neither
// its deadline nor its cancellation.
func NewFetch(ctx context.Context) *Fetch {
	f := &Fetch{}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return f
}

// Context ends when nobody waits for any of the fetch's flights any more.
func (f *Fetch) Context() context.Context { return f.ctx }

// Hold adds an interest in the fetch that is no flight; Drop takes it back.
func (f *Fetch) Hold() {
	f.mu.Lock()
	f.mu.open++
	f.mu.Unlock()
}

// Lead makes f the fetch of fl, which the caller has joined as its leader.
func (f *Fetch) Lead(fl *Flight) {
	f.Hold()
	fl.mu.Lock()
	fl.mu.fetch = f
	over := fl.mu.over
	fl.mu.Unlock()
	if over {
		f.Drop()
	}
}

// Drop ends an interest of somebody who has given up. With the last one the
// fetch is cancelled.
func (f *Fetch) Drop() {
	if f.settle() == 0 {
		f.cancel()
	}
}

// settle ends an interest of somebody who has got what he wanted: what the fetch
// carries for others comes all the same.
func (f *Fetch) settle() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.open--
	return f.mu.open
}

// End cancels the fetch's context; for the goroutine that drives it, when all
// its flights have landed or it gives up.
func (f *Fetch) End() { f.cancel() }
