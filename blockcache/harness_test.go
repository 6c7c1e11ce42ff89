package blockcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"headstart/engine/block"
)

// object returns a made-up object by number.
func object(n int) block.Object {
	return block.Object{Store: block.DefaultStore, Bucket: "test", Key: fmt.Sprintf("data/object-%d.parquet", n)}
}

func meta(n int) block.Meta {
	return block.Meta{
		Size: int64(n+1) << 20, Version: "v1", ETag: fmt.Sprintf("etag-%d", n),
		Modified: time.Unix(1700000000+int64(n), 5).UTC(), ContentType: "binary/octet-stream",
	}
}

func id(n int, index uint64) block.ID { return block.BaseID(object(n), "v1").At(index) }

// content is what a block must hold: its id and the offset, again and again.
func content(id block.ID, size int) []byte {
	b := make([]byte, 0, size+32)
	for off := 0; off < size; off += 32 {
		b = binary.LittleEndian.AppendUint64(b, id.Hi)
		b = binary.LittleEndian.AppendUint64(b, id.Lo)
		b = binary.LittleEndian.AppendUint64(b, id.Index)
		b = binary.LittleEndian.AppendUint64(b, uint64(off)|uint64(size)<<32)
	}
	return b[:size]
}

func newBuf(id block.ID, size int) *block.Buf {
	b := block.NewBuf(content(id, size), nil)
	b.Seal()
	return b
}

// offer offers a block and reports what the cache said.
func offer(c *Cache, n int, index uint64, size int, q block.Queue) bool {
	e := &Entry{Object: object(n), Meta: meta(n), ID: id(n, index), Queue: q}
	b := newBuf(e.ID, size)
	defer b.Release()
	return c.Offer(e, b)
}

// bytesOf copies a lease and gives it back.
func bytesOf(t testing.TB, l *block.Lease) []byte {
	t.Helper()
	defer l.Release()
	got := make([]byte, l.Len())
	if n, err := l.CopyAt(got, 0); n != len(got) || err != nil {
		t.Fatalf("CopyAt: %d of %d bytes, %v", n, len(got), err)
	}
	if block.Checksum(got) != l.CRC() {
		t.Fatalf("bytes do not match the checksum of the lease")
	}
	return got
}

// has fails unless the cache holds the block with the right bytes.
func has(t testing.TB, c *Cache, n int, index uint64, size int) {
	t.Helper()
	l, ok := c.Get(id(n, index))
	if !ok {
		t.Fatalf("block %d/%d is not there", n, index)
	}
	if !bytes.Equal(bytesOf(t, &l), content(id(n, index), size)) {
		t.Fatalf("block %d/%d has wrong bytes", n, index)
	}
}

func lacks(t testing.TB, c *Cache, n int, index uint64) {
	t.Helper()
	if l, ok := c.Get(id(n, index)); ok {
		l.Release()
		t.Fatalf("block %d/%d is still there", n, index)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// options are those of a cache with one path of the given size.
func options(dir string, total, blockSize int64) Options {
	o := Options{Paths: []Path{{Dir: dir, TotalBytes: total}}, BlockSize: blockSize, Logger: quiet()}
	o.IOTimeout, o.OpenWait = time.Minute, time.Minute // how slow this disk is does not matter
	o.Settings = NewSettings()
	o.Settings.ScrubBytesPerSecond.Store(0)
	o.diskUse = func(string) diskUse { return diskUse{} }
	return o
}

func open(t testing.TB, o Options) *Cache {
	t.Helper()
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func flush(t testing.TB, c *Cache) {
	t.Helper()
	if err := c.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// allocated returns the bytes of disk that a directory's files take.
func allocated(t testing.TB, dir string) int64 {
	t.Helper()
	var sum int64
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		sum += st.Blocks * 512
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// invariants fails unless index, queues, tiles and gauges say the same. No
// Offer may be under way.
func invariants(t testing.TB, c *Cache) {
	t.Helper()
	blocks := 0
	for _, v := range c.volumes {
		blocks += invariantsOf(t, c, v)
	}
	if n := c.index.len(); n != blocks {
		t.Fatalf("%d blocks in the index, %d in the queues", n, blocks)
	}
}

// invariantsOf waits until the writer has nothing to do. The lock goes even when
// a check ends the test: Close needs it.
func invariantsOf(t testing.TB, c *Cache, v *volume) int {
	t.Helper()
	flush(t, c)
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.busySince.Load() != 0 || len(v.mu.jobs) > 0 {
		v.mu.Unlock()
		runtime.Gosched()
		v.mu.Lock()
	}
	return invariantsLocked(t, v)
}

func invariantsLocked(t testing.TB, v *volume) (blocks int) {
	t.Helper()
	p := &v.mu.space
	live, dying, size := map[uint32]bool{}, 0, int64(0)
	refs := map[objectKey]uint32{}
	at, prev, tiles, spare, unplaced := uint32(0), uint32(0), map[uint32]bool{}, uint64(0), uint64(0)
	for n := p.last; n != 0; n = v.slots.at(n).left {
		prev = n
	}
	for n := prev; n != 0; n = v.slots.at(n).right {
		s := v.slots.at(n)
		if s.start != at || s.units == 0 {
			t.Fatalf("tile %d starts at %d, want %d (%d units)", n, s.start, at, s.units)
		}
		at += s.units
		tiles[n] = true
		switch s.state.Load() {
		case slotPending, slotUnchecked, slotReady:
			live[n] = true
			size += int64(s.size)
			refs[keyOf(s.id)]++
		case slotDying:
			dying++
			refs[keyOf(s.id)]++
		case slotVacant:
			spare += uint64(s.units)
		case slotClaimed:
			t.Fatalf("tile %d is still claimed", n)
		}
	}
	for n := uint32(1); n <= p.high; n++ {
		if s := v.slots.at(n); !tiles[n] && s.state.Load() != slotVacant {
			unplaced += uint64(s.units)
			refs[keyOf(s.id)]++
			if s.state.Load() == slotDying {
				dying++
			} else {
				live[n] = true
				size += int64(s.size)
			}
		}
	}
	if spare != p.spare || unplaced != p.unplaced {
		t.Fatalf("%d units vacant (gauge %d), %d unplaced (gauge %d)", spare, p.spare, unplaced, p.unplaced)
	}
	if at != p.frontier || p.frontier > p.limit {
		t.Fatalf("tiles end at %d, frontier %d, limit %d", at, p.frontier, p.limit)
	}
	if dying != v.mu.dying || size != v.mu.bytes || len(refs) != len(v.mu.objects.byKey) {
		t.Fatalf("dying %d (gauge %d), bytes %d (gauge %d), objects %d (table %d)",
			dying, v.mu.dying, size, v.mu.bytes, len(refs), len(v.mu.objects.byKey))
	}
	return queuedLocked(t, v, live)
}

// queuedLocked counts the blocks in the queues, each of which holds live blocks
// of its own and no others; together they hold all.
func queuedLocked(t testing.TB, v *volume, live map[uint32]bool) (blocks int) {
	t.Helper()
	for n := v.mu.policy.fills.newest; n != 0; n = v.slots.at(n).next {
		if !live[n] || v.slots.at(n).where != inFills {
			t.Fatalf("slot %d is among the fills, but is none", n)
		}
		delete(live, n)
		blocks++
	}
	if blocks != v.mu.policy.fills.blocks {
		t.Fatalf("%d fills (gauge %d)", blocks, v.mu.policy.fills.blocks)
	}
	for i := range v.mu.policy.queues {
		q, count, units := &v.mu.policy.queues[i], 0, uint64(0)
		for _, l := range [...]*list{&q.probation, &q.protected} {
			for n := l.newest; n != 0; n = v.slots.at(n).next {
				if !live[n] || v.mu.policy.listOf(v.slots.at(n)) != l {
					t.Fatalf("slot %d is in queue %d, but holds no block of it", n, i)
				}
				delete(live, n)
				count++
				units += uint64(v.slots.at(n).units)
			}
		}
		if count != q.blocks() || units != q.units() {
			t.Fatalf("queue %d: %d blocks (gauge %d), %d units (gauge %d)", i, count, q.blocks(), units, q.units())
		}
		blocks += count
	}
	if len(live) != 0 {
		t.Fatalf("%d blocks are in no queue", len(live))
	}
	return blocks
}

// len returns the number of entries.
func (x *index) len() int {
	n := 0
	for i := range x.shards {
		s := &x.shards[i]
		s.mu.Lock()
		n += s.mu.count
		s.mu.Unlock()
	}
	return n
}
