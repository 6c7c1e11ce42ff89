package blockcache

import "sync/atomic"

// counters are written by whoever sees the event. Hits are not among them:
// they are the high bits of the pin words.
type counters struct {
	// misses are by stripe, because every core may miss at once.
	misses                            [stripes]stripedCounter
	refused, queueFull, noRoom        atomic.Uint64
	evicted, corrupt, moved, outs     atomic.Uint64
	expired, scrubbed                 atomic.Uint64
	readErrors, writeErrors, diskFull atomic.Uint64
	// pending is bytes that wait to be written.
	pending atomic.Int64
}

// reserve adds n to pending unless that makes it more than bound.
func (c *counters) reserve(n, bound int64) bool {
	for {
		was := c.pending.Load()
		if was+n > bound {
			return false
		}
		if c.pending.CompareAndSwap(was, was+n) {
			return true
		}
	}
}

// stripedCounter has a cache line to itself.
type stripedCounter struct {
	atomic.Uint64
	_ [56]byte
}

// Metrics is a snapshot of what the cache has done and holds.
type Metrics struct {
	// Hits and Misses are of Get.
	Hits, Misses uint64
	// Refused counts offers that were not taken, QueueFull and NoRoom those among
	// them that met the bound of waiting bytes or found every block held.
	Refused, QueueFull, NoRoom uint64
	// Evicted counts blocks that made room, Corrupt blocks dropped because their
	// bytes were wrong. MovedBytes were copied within a file to make a place.
	Evicted, Corrupt, MovedBytes uint64
	// Expired counts TTL blocks that became NORMAL ones, ScrubbedBytes what the
	// scrubber has read and found right.
	Expired, ScrubbedBytes uint64
	// ReadErrors and WriteErrors are of the disk, DiskFull those writes that
	// found no space.
	ReadErrors, WriteErrors, DiskFull uint64
	// Outs counts how often a directory was taken out of use, Down those that are
	// out now.
	Outs uint64
	Down int
	// Limited counts directories that take nothing because their disk is full.
	Limited int
	// Blocks and Bytes are held now; PendingBytes of them are not on disk yet.
	Blocks              int
	Bytes, PendingBytes int64
	// CapacityBytes is configured; AllocatedBytes of disk are in use, metadata
	// included.
	CapacityBytes, AllocatedBytes int64
	// FillBlocks and FillBytes are what was brought for other nodes, bytes of disk;
	// they are in no queue.
	FillBlocks int
	FillBytes  int64
	// QueueBlocks and QueueBytes are what each queue holds, in the order of
	// block.Queue; bytes of disk.
	QueueBlocks [queueCount]int
	QueueBytes  [queueCount]int64
}

// Metrics returns a snapshot. It looks at every slot.
func (c *Cache) Metrics() Metrics {
	m := Metrics{
		Refused:   c.count.refused.Load(),
		QueueFull: c.count.queueFull.Load(), NoRoom: c.count.noRoom.Load(),
		Evicted: c.count.evicted.Load(), Corrupt: c.count.corrupt.Load(),
		ReadErrors: c.count.readErrors.Load(), WriteErrors: c.count.writeErrors.Load(),
		DiskFull: c.count.diskFull.Load(), MovedBytes: c.count.moved.Load(), PendingBytes: c.count.pending.Load(), Outs: c.count.outs.Load(),
		Expired: c.count.expired.Load(), ScrubbedBytes: c.count.scrubbed.Load(),
	}
	for i := range c.count.misses {
		m.Misses += c.count.misses[i].Load()
	}
	m.Refused += m.QueueFull
	for _, v := range c.volumes {
		v.addTo(&m)
	}
	return m
}

func (v *volume) addTo(m *Metrics) {
	v.mu.Lock()
	high := v.mu.space.high
	if v.mu.down {
		m.Down++
	}
	if v.mu.limited {
		m.Limited++
	}
	m.Bytes += v.mu.bytes
	m.CapacityBytes += v.mu.capacity
	m.AllocatedBytes += v.mu.reserved + metaBytes(high, v.mu.objects.high())
	m.Blocks += v.mu.policy.fills.blocks
	m.FillBlocks += v.mu.policy.fills.blocks
	m.FillBytes += int64(v.mu.policy.fills.units) * unit
	for i := range v.mu.policy.queues {
		q := &v.mu.policy.queues[i]
		m.Blocks += q.blocks()
		m.QueueBlocks[i] += q.blocks()
		m.QueueBytes[i] += int64(q.units()) * unit
	}
	v.mu.Unlock()
	for n := uint32(1); n <= high; n++ {
		m.Hits += v.slots.hits(n)
	}
}
