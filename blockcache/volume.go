package blockcache

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// volume is the part of the cache that lies in one directory.
type volume struct {
	dir       string
	blockSize int64
	capacity  int64 // bytes of disk, for everything
	shares    [queueCount]int
	log       *slog.Logger
	index     *index
	count     *counters

	opener    opener
	set       *Settings
	diskUse   func(dir string) diskUse
	ioTimeout time.Duration
	// identity is the files, to be known again by.
	identity [fileCount]os.FileInfo
	// complaint is the keeper's: what it has logged last.
	complaint string

	lock                  *os.File
	data, blocks, objects file
	arena                 arena
	slots                 slotTable

	mu struct {
		sync.Mutex
		space   space
		policy  policy
		objects objectTable
		seq     uint64
		dying   int // slots out of the index that somebody still holds
		// reserved is how far the data file has disk blocks, in bytes; the writer
		// moves it. While the disk is full, ceiling is where the space ends, in
		// units; after fullUntil growing is tried again.
		reserved int64
		ceiling  uint32
		// yield is where the space ends because others need the disk, in units;
		// limited: they need all of it, and nothing is cached. capacity is the
		// volume's at most.
		yield    uint32
		limited  bool
		capacity int64
		// age is moved on ages times in the life of a TTL block.
		age       uint8
		fullUntil time.Time
		// full: it was said that the disk is full, and not yet that it has room again.
		full bool
		// trim: give disk blocks behind the frontier back as it moves.
		trim bool
		// closed: no more jobs; finished: the writer has gone, and the last lease
		// takes the files with it.
		closed, finished bool
		jobs             []job
		// bytes is what live blocks hold.
		bytes int64
		// wrong are the slots whose records were found to be no good, unerased those
		// whose records are to go when the directory is back.
		wrong, unerased []uint32
		// opened: there are files. down: they are not to be used.
		opened, down bool
	}

	// trouble counts failed reads and writes, and wanes. busySince is when the
	// writer began what it is doing, in Unix nanoseconds; 0 when it is idle.
	trouble, busySince atomic.Int64
	// cut is set by the writer when it finds the data file cut short, for good: a
	// reader may no longer conclude that a block which has died was merely evicted.
	cut atomic.Bool
	// epoch is moved on by turn: what was in memory an epoch ago is asked for again.
	// It starts at 1, because a region's begins at 0.
	epoch atomic.Uint32
	// coldReads bounds the reads that wait for the disk.
	coldReads chan struct{}

	// pending has the bytes of blocks that are not on disk yet.
	pending struct {
		sync.Mutex
		bufs map[uint32]*block.Buf
	}

	// wake tells the writer that jobs has grown; idle is closed when it has gone.
	wake chan struct{}
	idle chan struct{}
	// stop ends the keeper, kept is closed when it has gone.
	stop, kept chan struct{}
	// tried is closed when the keeper has tried to bring the volume up for the
	// first time, with firstErr.
	tried    chan struct{}
	firstErr error

	// checking keeps readers from verifying the same block side by side.
	checking [64]sync.Mutex
	scratch  *sync.Pool // *[scratchSize]byte
}

const (
	scratchSize  = 128 << 10
	maxColdReads = 256
	noYield      = 1<<32 - 1
)

func newVolume(p Path, o Options) *volume {
	v := &volume{
		dir: p.Dir, blockSize: o.blockSize(), capacity: p.TotalBytes, shares: p.shares(),
		log:  o.Logger,
		wake: make(chan struct{}, 1), idle: make(chan struct{}),
		stop: make(chan struct{}), kept: make(chan struct{}), tried: make(chan struct{}),
		opener: o.open, ioTimeout: o.IOTimeout, coldReads: make(chan struct{}, maxColdReads),
	}
	if v.opener == nil {
		v.opener = openDiskFile
	}
	if v.set = o.Settings; v.set == nil {
		v.set = NewSettings()
	}
	if v.diskUse = o.diskUse; v.diskUse == nil {
		v.diskUse = statDisk
	}
	if v.ioTimeout == 0 {
		v.ioTimeout = time.Second
	}
	if v.log == nil {
		v.log = slog.Default()
	}
	v.epoch.Store(1)
	v.mu.policy.slots = &v.slots
	v.mu.yield, v.mu.capacity = noYield, p.TotalBytes
	v.resetLocked()
	v.mu.policy.setShares(v.mu.space.limit, v.shares)
	v.mu.policy.setFillPercent(v.set.FillPercent.Load())
	v.pending.bufs = map[uint32]*block.Buf{}
	return v
}

// resetLocked makes the volume an empty one; no slot may be in use.
func (v *volume) resetLocked() {
	v.mu.space = space{slots: &v.slots, mayUse: v.mayUseSlot}
	v.mu.objects = newObjectTable()
	v.mu.ceiling, v.mu.fullUntil = maxSlots(v.capacity), time.Time{}
	v.mu.reserved, v.mu.trim, v.mu.full = 0, false, false
	v.fitLocked(0, 0)
}

// start starts the writer and the keeper, which brings the volume up first;
// close stops them. A directory that can't be used now is tried again; only one
// that belongs to somebody else is an error. One that takes longer than wait is
// not waited for.
func (v *volume) start(wait time.Duration) error {
	v.mu.down = true
	go v.write() // until close
	go v.keep()  // until close
	go v.turn()  // until close
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-v.tried:
		if errors.Is(v.firstErr, errLocked) || errors.Is(v.firstErr, ErrFormat) {
			v.close()
			return v.firstErr
		}
	case <-limit.C:
	}
	return nil
}

// metaBytes returns what the metadata of so many slots and cells takes on
// disk.
func metaBytes(slots, cells uint32) int64 {
	return 2*headerSize + pages(int64(slots)*recordSize) + pages(int64(cells)*cellSize)
}

const pageSize = 4096

func pages(n int64) int64 { return (n + pageSize - 1) &^ (pageSize - 1) }

// overhead is what the file system itself may add to the files of a volume:
// directory entries and extent trees.
func overhead(capacity int64) int64 { return 32<<10 + capacity>>11 }

// fitLocked moves the limit of the space to what the metadata leaves, and
// reports whether the space respects it already.
func (v *volume) fitLocked(slots, cells uint32) bool {
	total := v.mu.capacity - overhead(v.mu.capacity)
	left := (total - metaBytes(slots, cells)) &^ (pageSize - 1)
	used := v.usedLocked()
	// Some room for more metadata is kept while nothing lies there.
	spare := (total - metaBytes(slots+spareOf(slots), cells+spareOf(cells))) &^ (pageSize - 1)
	limit := uint32(max(0, spare, min(used, left)) / unit)
	v.mu.space.limit = min(limit, v.mu.ceiling, v.mu.yield)
	return used <= left
}

// spareOf returns how many slots or cells more than there are there should be
// room for.
func spareOf(n uint32) uint32 { return 64 + n/32 }

// usedLocked is where the data ends on disk, in bytes.
func (v *volume) usedLocked() int64 {
	return max(int64(v.mu.space.frontier)*unit, v.mu.reserved)
}

// crampedLocked reports whether data lies beyond the limit, or where metadata
// is about to need room.
func (v *volume) crampedLocked() bool {
	slots, cells := v.mu.space.high, v.mu.objects.high()
	left := v.mu.capacity - overhead(v.mu.capacity) - metaBytes(slots+spareOf(slots)/2, cells+spareOf(cells)/2)
	return v.usedLocked() > min(left, pages(int64(v.mu.space.limit)*unit))
}

func (v *volume) mayUseSlot(high uint32) bool {
	return high <= maxSlots(v.capacity) && v.fitLocked(high, v.mu.objects.high())
}

func (v *volume) mayUseCell(high uint32) bool { return v.fitLocked(v.mu.space.high, high) }

// maxSlots is how many tiles a file of that many bytes can have.
func maxSlots(capacity int64) uint32 { return uint32(capacity/unit) + 1 }

// takeLocked makes room for a block, if need be by evicting others, and returns
// its slot; 0 when all that could go is held. first is the block to evict before
// all others, 0 for none. Where the bytes will lie is for the writer to find.
func (v *volume) takeLocked(w wish, first uint32) uint32 {
	for v.mu.space.free() < int64(w.units) {
		n := first
		if n == 0 {
			v.mu.policy.ghosts.fit(int(v.mu.space.high))
			n = v.mu.policy.victim(w)
		}
		if n == 0 {
			return 0
		}
		v.evictLocked(n)
		first = 0
	}
	n := v.mu.space.promise(w.units)
	if n == 0 && len(v.mu.jobs) == 0 {
		v.pushLocked(job{kind: jobRoom})
	}
	return n
}

// evictLocked takes a block out that has to make room, and remembers it.
func (v *volume) evictLocked(n uint32) uint32 {
	v.count.evicted.Add(1)
	v.mu.policy.evicted(n)
	return v.retireLocked(n)
}

// retireLocked takes a block out of index and queue, and makes its space
// vacant unless somebody holds it; then the last holder does. It returns the
// vacant tile that came of it, 0 for none.
func (v *volume) retireLocked(n uint32) uint32 {
	s := v.slots.at(n)
	if !s.live() {
		return 0
	}
	h := hashID(s.id)
	v.index.remove(h, makeWord(h, v.slots.place(n)))
	v.mu.policy.remove(n)
	s.retire()
	v.mu.dying++
	v.mu.bytes -= int64(s.size)
	return v.reapLocked(n)
}

// reapLocked makes a dying slot vacant if nobody holds it.
func (v *volume) reapLocked(n uint32) uint32 {
	s := v.slots.at(n)
	if s.state.Load() != slotDying || v.slots.pinned(n) || !s.reaped() {
		return 0
	}
	v.mu.dying--
	v.mu.objects.release(keyOf(s.id))
	var hole uint32
	if s.start != nowhere {
		hole = v.mu.space.give(n)
	} else {
		v.mu.space.breakPromise(n)
	}
	if v.mu.dying == 0 {
		switch {
		case v.mu.finished:
			v.unmapLocked()
		case v.mu.trim:
			v.mu.trim = false
			v.pushLocked(job{kind: jobTrim})
		}
	}
	return hole
}

// unpin gives back what pin took; weight is what was added.
func (g *segment) unpin(token, weight uint64) {
	s, pins := g.both(uint32(token), uint32(token>>32))
	pins.Add(-weight)
	if s.state.Load() == slotDying {
		g.v.reap(slotOf(token))
	}
}

func (v *volume) reap(n uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reapLocked(n)
}

// token names a pin in a lease: the stripe above the slot's number.
func token(n, stripe uint32) uint64 { return uint64(stripe)<<32 | uint64(n) }

func slotOf(token uint64) uint32 { return uint32(token) }

// ReleaseLease implements block.Memory. It is unpin, without a call.
func (g *segment) ReleaseLease(token uint64) {
	s, pins := g.both(uint32(token), uint32(token>>32))
	pins.Add(^(onePin - 1))
	if s.state.Load() == slotDying {
		g.v.reap(slotOf(token))
	}
}

// LeaseResident reports whether a lent block is in memory, for Lease.Resident.
func (g *segment) LeaseResident(token uint64, lent []byte) bool {
	return g.v.arena.resident(int64(g.slots[token&segMask].start)*unit, len(lent), g.v.epoch.Load())
}

// drop takes the block out for good: its record goes too. The caller holds a
// pin. It reports whether the block was still there.
func (v *volume) drop(n uint32) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.slots.at(n)
	// While the directory is read its blocks have no place yet: what is wrong with
	// one is found again.
	if v.mu.closed || v.mu.down || s.state.Load() == slotDying {
		return false
	}
	v.pushLocked(job{kind: jobErase, list: []uint32{n}})
	v.retireLocked(n)
	return true
}

// lend makes l a lease of a pinned block.
func (h hold) lend(l *block.Lease) {
	l.Lend(h.seg, h.token, h.seg.v.arena.bytes(int64(h.s.start)*unit, int(h.s.size)), h.s.crc)
}

// leaseSlow lends a block that is not ready: one that is still being written
// from its buffer, one of before the restart after a look at its bytes. Without
// a lease it has let go of the pin.
func (at hold) leaseSlow() (l block.Lease, ok bool) {
	v, s, n := at.seg.v, at.s, slotOf(at.token)
	if s.state.Load() == slotPending {
		v.pending.Lock()
		b := v.pending.bufs[n]
		if b != nil {
			b.Retain()
		}
		v.pending.Unlock()
		if b != nil {
			at.seg.unpin(at.token, onePin)
			return b.Lease(), true
		}
	}
	if s.state.Load() == slotUnchecked {
		v.check(n)
	}
	if s.state.Load() == slotReady {
		at.lend(&l)
		return l, true
	}
	at.seg.unpin(at.token, onePin)
	return block.Lease{}, false
}

// unmapLocked closes the files, when nobody holds a byte of them.
func (v *volume) unmapLocked() {
	if !v.mu.opened {
		return
	}
	v.mu.opened = false
	err := errors.Join(v.arena.close(), v.data.Close(), v.blocks.Close(), v.objects.Close(), v.lock.Close())
	if err != nil {
		v.log.Warn("close cache directory", "dir", v.dir, "error", err)
	}
}

// close stops writer and keeper, lets go of all blocks and closes the files as
// soon as no lease is left. What waits is written as long as the disk gets on
// with it, for closeLimit at most. A disk that does not answer is not waited for.
func (v *volume) close() {
	v.mu.Lock()
	v.mu.closed = true
	v.mu.Unlock()
	close(v.stop)
	v.wakeWriter()
	ended := v.awaitEnd()
	v.mu.Lock()
	defer v.mu.Unlock()
	if !ended {
		v.log.Warn("cache directory does not answer, left open", "dir", v.dir)
		v.retireAllLocked()
		return
	}
	v.finishLocked()
}

// closeLimit is how long close writes what waits.
const closeLimit = 10 * time.Second

// awaitEnd waits for keeper and writer, and reports whether both have gone.
func (v *volume) awaitEnd() bool {
	select {
	case <-v.kept:
	case <-time.After(v.ioTimeout):
		return false
	}
	look := time.NewTicker(max(v.ioTimeout/8, time.Millisecond))
	defer look.Stop()
	limit := time.After(closeLimit)
	for {
		select {
		case <-v.idle:
			return true
		case <-limit: // what is out is not written, so the writer is through soon
			v.log.Warn("the disk is slow: blocks that wait to be written are given up", "dir", v.dir, "bytes", v.count.pending.Load())
			v.mu.Lock()
			v.retireAllLocked()
			v.mu.Unlock()
		case <-look.C:
			if busy := v.busySince.Load(); busy != 0 && time.Since(time.Unix(0, busy)) > v.ioTimeout {
				return false
			}
		}
	}
}

// finishLocked lets go of all blocks, and of the files with the last of them.
func (v *volume) finishLocked() {
	v.mu.dying++ // keeps the files open until all blocks are out
	v.mu.finished = true
	v.retireAllLocked()
	if v.mu.dying--; v.mu.dying == 0 {
		v.unmapLocked()
	}
}

// retireAllLocked empties the volume; held blocks go when they are released.
func (v *volume) retireAllLocked() {
	for v.mu.policy.fills.oldest != 0 {
		v.retireLocked(v.mu.policy.fills.oldest)
	}
	for i := range v.mu.policy.queues {
		q := &v.mu.policy.queues[i]
		for _, l := range [...]*list{&q.probation, &q.protected} {
			for l.oldest != 0 {
				v.retireLocked(l.oldest)
			}
		}
	}
}
