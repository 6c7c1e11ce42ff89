package placement

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// TabletBucket is the tablets of one bucket as the store keeps them: for each
// tablet, in the order of their ids, the distance to the one before it and the
// day on which it was last asked for, both as uvarints.
type TabletBucket struct {
	Index int
	Data  []byte
}

// known is the tablets that the FE has been asked for: what there is to warm
// up and to count. It names no backends: the rank says who serves a tablet. A
// tablet costs ten bytes and the slack of two slices. It is safe for
// concurrent use; a bucket is locked for a moment, and there are many.
type known struct {
	max           int64
	size, refused atomic.Int64
	buckets       [BucketCount]knownBucket
}

type knownBucket struct {
	mu struct {
		sync.Mutex
		// ids is sorted; days is parallel to it.
		ids  []uint64
		days []uint16
		// unsaved is set while the store has another bucket than this one.
		unsaved bool
	}
}

// day numbers the days since 1970: all that is kept of when a tablet was
// asked for, so that a tablet in use is written once a day.
func day(t time.Time) uint16 { return uint16(t.Unix() / 86400) }

// note makes the tablet of key known. Beyond the bound it is not: it is served
// all the same, but moves without being warmed up.
func (k *known) note(id, key uint64, today uint16) {
	b := &k.buckets[bucketOf(key)]
	b.mu.Lock()
	defer b.mu.Unlock()
	k.noteLocked(b, id, today, true)
}

// noteLocked reports whether the tablet is known afterwards.
func (k *known) noteLocked(b *knownBucket, id uint64, today uint16, unsaved bool) bool {
	at, found := slices.BinarySearch(b.mu.ids, id)
	switch {
	case found && b.mu.days[at] >= today:
		return true
	case found:
		b.mu.days[at] = today
	case k.size.Add(1) > k.max:
		k.size.Add(-1)
		k.refused.Add(1)
		return false
	default:
		b.mu.ids = slices.Insert(b.mu.ids, at, id)
		b.mu.days = slices.Insert(b.mu.days, at, today)
	}
	b.mu.unsaved = b.mu.unsaved || unsaved
	return true
}

// appendIDs appends the tablets of a bucket.
func (k *known) appendIDs(to []uint64, bucket int) []uint64 {
	b := &k.buckets[bucket]
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(to, b.mu.ids...)
}

// unsaved returns the buckets that the store has to be told of, and takes
// them for saved.
func (k *known) unsaved() []TabletBucket {
	var all []TabletBucket
	for i := range k.buckets {
		b := &k.buckets[i]
		b.mu.Lock()
		if b.mu.unsaved {
			all = append(all, TabletBucket{Index: i, Data: b.encodeLocked()})
			b.mu.unsaved = false
		}
		b.mu.Unlock()
	}
	return all
}

// saveAgain takes back that buckets are saved.
func (k *known) saveAgain(failed []TabletBucket) {
	for _, tb := range failed {
		b := &k.buckets[tb.Index]
		b.mu.Lock()
		b.mu.unsaved = true
		b.mu.Unlock()
	}
}

func (b *knownBucket) encodeLocked() []byte {
	data := make([]byte, 0, 4*len(b.mu.ids))
	last := uint64(0)
	for i, id := range b.mu.ids {
		data = binary.AppendUvarint(data, id-last)
		data = binary.AppendUvarint(data, uint64(b.mu.days[i]))
		last = id
	}
	return data
}

// merge takes over what the store has: what this FE has saved before, or
// another one now. A bucket that knows more than the store is saved again, so
// that of two FEs that save at the same time neither wipes out the other.
func (k *known) merge(tb TabletBucket) error {
	ids, days, err := decodeTablets(tb)
	if err != nil {
		return err
	}
	b := &k.buckets[tb.Index]
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, id := range ids {
		k.noteLocked(b, id, days[i], false)
	}
	if len(b.mu.ids) > len(ids) {
		b.mu.unsaved = true
	}
	return nil
}

func decodeTablets(tb TabletBucket) (ids []uint64, days []uint16, err error) {
	if tb.Index < 0 || tb.Index >= BucketCount {
		return nil, nil, fmt.Errorf("tablets of bucket %d: there are %d buckets", tb.Index, BucketCount)
	}
	last, data := uint64(0), tb.Data
	for len(data) > 0 {
		step, n := binary.Uvarint(data)
		seen, m := binary.Uvarint(data[max(n, 0):])
		id := last + step
		if n <= 0 || m <= 0 || seen > 1<<16-1 || id < last || bucketOf(keyOf(block.Route{Kind: block.RouteTablet, ID: id})) != tb.Index {
			return nil, nil, fmt.Errorf("tablets of bucket %d: byte %d of %d makes no sense", tb.Index, len(tb.Data)-len(data), len(tb.Data))
		}
		ids, days = append(ids, id), append(days, uint16(seen))
		last, data = id, data[n+m:]
	}
	return ids, days, nil
}

// expire forgets the tablets that were last asked for before a day.
func (k *known) expire(before uint16) {
	for i := range k.buckets {
		b := &k.buckets[i]
		b.mu.Lock()
		kept := 0
		for j, seen := range b.mu.days {
			if seen >= before {
				b.mu.ids[kept], b.mu.days[kept] = b.mu.ids[j], seen
				kept++
			}
		}
		if dropped := len(b.mu.ids) - kept; dropped > 0 {
			b.mu.ids, b.mu.days = b.mu.ids[:kept], b.mu.days[:kept]
			b.mu.unsaved = true
			k.size.Add(-int64(dropped))
		}
		b.mu.Unlock()
	}
}
