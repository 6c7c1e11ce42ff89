// Package blockcache keeps blocks in memory-mapped files and finds them again
// after a restart or a crash.
//
// It owns the mapped bytes: a Lease pins the slot of a block, and neither
// eviction nor Close takes bytes away from a lease. A hit takes no lock,
// allocates nothing and asks no clock. Writes happen behind: Offer never waits
// for the disk, and a failing disk costs hits, not answers. What was not
// verified is never lent: bytes of before a restart meet their checksum first.
// It never fetches anything.
package blockcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// errClosed: the cache is closed.
var errClosed = errors.New("the cache is closed")

// ErrNoPath: the cache has no such directory.
var ErrNoPath = errors.New("not a path of the cache")

// Entry says what a block is: it is kept beside the bytes, so that blocks and
// what is known of their objects survive a restart.
type Entry struct {
	Object block.Object
	Meta   block.Meta
	ID     block.ID
	Queue  block.Queue
	// Route is what the object was read for when its first block came. A tablet is
	// remembered, over restarts too; other routes are not.
	Route block.Route
	// Fill: the block was brought for another node, and counts against the quota
	// of fills (S35).
	Fill bool
}

// Path is one directory of the cache, usually on a disk of its own.
type Path struct {
	Dir string
	// TotalBytes bounds the disk blocks of all files in Dir together.
	TotalBytes int64
	// The shares of the four queues, in percent: what a queue may hold whatever
	// the others want; it may hold more while they don't. All zero means 40, 50,
	// 5 and 5.
	NormalPercent, TTLPercent, IndexPercent, DisposablePercent int
}

func (p Path) shares() [queueCount]int {
	s := [queueCount]int{p.NormalPercent, p.TTLPercent, p.IndexPercent, p.DisposablePercent}
	if s == [queueCount]int{} {
		return [queueCount]int{40, 50, 5, 5}
	}
	return s
}

// Options says what the cache is made of. Without Paths it holds nothing.
type Options struct {
	Paths []Path
	// BlockSize is the largest block in bytes, 0 for block.DefaultSize. Blocks
	// that were cached with another one are given up.
	BlockSize int64
	// WriteQueueBytes bounds the blocks that wait to be written; an Offer beyond
	// it is refused. 0 means 64 MiB.
	WriteQueueBytes int64
	// IOTimeout is how long the disk may keep a reader or the writer waiting
	// before it is taken out of use; 0 means 1 s.
	IOTimeout time.Duration
	// OpenWait is how long Open waits for directories whose files are still being
	// read: their blocks are misses until then. 0 means 10 s.
	OpenWait time.Duration
	// Settings may be shared with who changes them; nil means the defaults.
	Settings *Settings
	// Logger is nil for slog's default.
	Logger *slog.Logger

	// open is nil but in tests that put faults below the cache.
	open    opener
	diskUse func(dir string) diskUse
}

// maxPathBytes is what 32 bits of units can address.
const maxPathBytes = int64(1) << 32 * unit

// Validate reports the first thing that is wrong.
func (o Options) Validate() error {
	size := o.blockSize()
	if size < 1 || size > 1<<30 {
		return fmt.Errorf("block size %d: want 1 byte to 1 GiB", size)
	}
	if o.WriteQueueBytes < 0 {
		return fmt.Errorf("write queue of %d bytes: want 0 or more", o.WriteQueueBytes)
	}
	if o.IOTimeout < 0 || o.OpenWait < 0 {
		return fmt.Errorf("I/O timeout %v, open wait %v: want 0 or more", o.IOTimeout, o.OpenWait)
	}
	if len(o.Paths) > 255 {
		return fmt.Errorf("%d cache paths: want 255 at most", len(o.Paths))
	}
	for _, p := range o.Paths {
		least := overhead(p.TotalBytes) + metaBytes(1, maxCells) + pages(size)
		if p.TotalBytes < least || p.TotalBytes >= maxPathBytes {
			return fmt.Errorf("cache path %q: total size %d: want %d (one block and its metadata) to %d bytes",
				p.Dir, p.TotalBytes, least, maxPathBytes-1)
		}
		sum := 0
		for _, percent := range p.shares() {
			if percent < 0 {
				return fmt.Errorf("cache path %q: a share of %d percent", p.Dir, percent)
			}
			sum += percent
		}
		if sum > 100 {
			return fmt.Errorf("cache path %q: the shares of the queues are %d percent together", p.Dir, sum)
		}
	}
	return nil
}

func (o Options) blockSize() int64 {
	if o.BlockSize == 0 {
		return block.DefaultSize
	}
	return o.BlockSize
}

// Cache keeps blocks. All its methods may be called by many goroutines.
type Cache struct {
	index      *index
	segs       []atomic.Pointer[segment] // the slots of all volumes
	volumes    []*volume
	ends       []uint64 // where in the hash space each volume ends
	blockSize  int
	queueBytes int64
	count      counters
	closing    sync.Once
	closed     atomic.Bool
}

// Open brings the cache up with what its directories hold.
func Open(o Options) (*Cache, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("block cache: %w", err)
	}
	c := &Cache{blockSize: int(o.blockSize()), queueBytes: o.WriteQueueBytes}
	if c.queueBytes == 0 {
		c.queueBytes = 64 << 20
	}
	c.index = newIndex(func(w word) block.ID {
		return c.segs[w.place()>>segBits].Load().slots[w.place()&segMask].id
	})
	var total, sum int64
	for _, p := range o.Paths {
		total += p.TotalBytes
	}
	scratch := &sync.Pool{New: func() any { return new([scratchSize]byte) }}
	for _, p := range o.Paths {
		v := newVolume(p, o)
		v.index, v.count, v.scratch = c.index, &c.count, scratch
		sum += p.TotalBytes
		end, _ := bits.Div64(uint64(sum), 0, uint64(total)+1)
		c.volumes, c.ends = append(c.volumes, v), append(c.ends, end)
	}
	c.segs = newSlotTables(c.volumes)
	wait := o.OpenWait
	if wait == 0 {
		wait = 10 * time.Second
	}
	if err := c.start(wait); err != nil {
		return nil, fmt.Errorf("block cache: %w", err)
	}
	return c, nil
}

// start brings all volumes up, side by side.
func (c *Cache) start(wait time.Duration) error {
	started := make([]bool, len(c.volumes))
	errs := make([]error, len(c.volumes))
	var wg sync.WaitGroup
	for i, v := range c.volumes {
		wg.Go(func() { // ends by itself, with start
			err := v.start(wait)
			started[i] = err == nil
			if err != nil {
				errs[i] = fmt.Errorf("cache path %q: %w", v.dir, err)
			}
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err != nil {
		for i, v := range c.volumes {
			if started[i] {
				v.close()
			}
		}
	}
	return err
}

// AwaitLoaded waits until all directories have been read, which Open may not
// have waited for. One that can't be used now is not waited for.
func (c *Cache) AwaitLoaded(ctx context.Context) error {
	for _, v := range c.volumes {
		select {
		case <-v.tried:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// hold is a pin: while it lasts the slot is the block's that it was taken for.
type hold struct {
	seg   *segment
	s     *slot
	token uint64
}

// pin finds a block and pins its slot, adding weight to its pin word. Whoever
// calls gives the pin back; seg is nil when the block is not here.
func (c *Cache) pin(id block.ID, weight uint64) hold {
	h := hashID(id)
	shard := &c.index.shards[hashShard(h)]
	tag := hashTag(h)
again:
	t := shard.table.Load()
	for b := t.first(h); b != nil; b = t.next(b) {
		i := firstWord(h)
		for range bucketWords {
			i = nextWord(i)
			w := word(b.words[i].Load())
			if w.tag() != tag || w == 0 {
				continue
			}
			n, stripe := uint32(w), ownStripe()
			seg := c.segs[w.place()>>segBits].Load()
			s, pins := seg.both(n, stripe)
			// The add waits for its cache line, and what follows waits for the add:
			// so the other line is asked for before.
			s.state.Load()
			pins.Add(weight)
			// Eviction clears the word first and looks at the pins then: either it
			// sees ours or we see the word gone. While it is there the slot is this
			// block's, and with our pin it stays so.
			at := hold{seg, s, token(seg.first|n&segMask, stripe)}
			if word(b.words[i].Load()) != w {
				seg.unpin(at.token, weight)
				goto again
			}
			if s.id == id {
				return at
			}
			seg.unpin(at.token, weight)
		}
	}
	if shard.table.Load() != t { // it has grown, and the old table was emptied
		goto again
	}
	return hold{}
}

// Get lends the block out if the cache has it, and counts as a use of it.
func (c *Cache) Get(id block.ID) (l block.Lease, ok bool) {
	at := c.pin(id, oneHit)
	if at.seg == nil {
		c.count.misses[ownStripe()].Add(1)
		return l, false
	}
	if at.s.state.Load() == slotReady {
		at.lend(&l)
		return l, true
	}
	return at.leaseSlow()
}

// Peek is Get without an effect on what is evicted next.
func (c *Cache) Peek(id block.ID) (l block.Lease, ok bool) {
	at := c.pin(id, onePin)
	if at.seg == nil {
		return l, false
	}
	if at.s.state.Load() == slotReady {
		at.lend(&l)
		return l, true
	}
	return at.leaseSlow()
}

// Offer hands a block to the cache, which keeps a reference of its own to b
// until the bytes are on disk; reads are served from b meanwhile. It returns
// whether the cache has the block now. It never waits for the disk.
func (c *Cache) Offer(e *Entry, b *block.Buf) bool {
	size := len(b.Bytes())
	if size == 0 || size > c.blockSize || int(e.Queue) >= queueCount || len(c.volumes) == 0 {
		c.count.refused.Add(1)
		return false
	}
	if at := c.pin(e.ID, onePin); at.seg != nil {
		at.seg.unpin(at.token, onePin)
		return true
	}
	if !c.count.reserve(int64(size), c.queueBytes) {
		c.count.queueFull.Add(1)
		return false
	}
	h := hashID(e.ID)
	has, queued := c.volumeOf(h).offer(e, b, h)
	if !queued {
		c.count.pending.Add(-int64(size))
	}
	if !has {
		c.count.refused.Add(1)
	}
	return has
}

// volumeOf returns the volume that new blocks with this hash go to; volumes
// take part by their sizes.
func (c *Cache) volumeOf(h uint64) *volume {
	h *= 0x9E3779B97F4A7C15
	for i, end := range c.ends {
		if h < end {
			return c.volumes[i]
		}
	}
	return c.volumes[len(c.volumes)-1]
}

// Drop takes the block out, from the disk too, and reports whether it was
// there. Leases of it stay good.
func (c *Cache) Drop(id block.ID) bool {
	at := c.pin(id, onePin)
	if at.seg == nil {
		return false
	}
	dropped := at.seg.v.drop(slotOf(at.token))
	at.seg.unpin(at.token, onePin)
	return dropped
}

// DropObject drops all of the first so many blocks of an object's version. An
// object may claim to have any number of them: where that is more than the cache
// has at all, the cache's are looked through.
func (c *Cache) DropObject(base block.ID, blocks uint64) {
	most := uint64(0)
	for _, v := range c.volumes {
		most += v.highest()
	}
	if blocks > most {
		for _, v := range c.volumes {
			v.dropObject(base, blocks)
		}
		return
	}
	for i := range blocks {
		c.Drop(base.At(i))
	}
}

// Objects yields every object that the cache has blocks of and knows by name: its
// Object, Meta and Route. One that lies on several paths comes several times.
func (c *Cache) Objects(yield func(Entry) bool) {
	if c.closed.Load() {
		return
	}
	for _, v := range c.volumes {
		if !v.eachObject(yield) {
			return
		}
	}
}

// Clear drops all blocks and gives the disk space back. Blocks that are lent
// out are gone for new readers at once, and their space when they come back.
func (c *Cache) Clear(ctx context.Context) error {
	return c.all(func(v *volume) error { return v.clear(ctx) })
}

// Resize changes how much of its disk the directory may take, in bytes: up to
// what the cache was opened with. What is above goes at once, its disk blocks
// soon after.
func (c *Cache) Resize(dir string, total int64) error {
	for _, v := range c.volumes {
		if v.dir != dir {
			continue
		}
		if least := overhead(total) + metaBytes(1, maxCells) + pages(v.blockSize); total < least || total > v.capacity {
			return fmt.Errorf("cache path %q: %d bytes: want %d to %d; more takes a restart", dir, total, least, v.capacity)
		}
		v.resize(total)
		return nil
	}
	return fmt.Errorf("cache path %q: %w", dir, ErrNoPath)
}

// Flush waits until every block offered so far is on disk or given up.
func (c *Cache) Flush(ctx context.Context) error {
	return c.all(func(v *volume) error { return v.flush(ctx) })
}

// all runs f for every volume at the same time.
func (c *Cache) all(f func(*volume) error) error {
	errs := make([]error, len(c.volumes))
	var wg sync.WaitGroup
	for i, v := range c.volumes {
		wg.Go(func() { errs[i] = f(v) }) // ends by itself, with f
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close writes what waits and closes the files. Leases stay good; the last
// one takes the mapping with it. Nothing is found or taken any more.
func (c *Cache) Close() error {
	c.closing.Do(func() {
		c.closed.Store(true)
		_ = c.all(func(v *volume) error { v.close(); return nil })
	})
	return nil
}

// Disabled reports that the cache has no path: it holds nothing and never will.
func (c *Cache) Disabled() bool { return len(c.volumes) == 0 }
