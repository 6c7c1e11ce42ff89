package blockcache

import (
	"context"
	"errors"
	"syscall"
	"time"

	"headstart/engine/block"
)

// jobKind is what the writer of a volume can be asked for.
type jobKind uint8

const (
	jobWrite jobKind = iota
	jobErase         // the records of the slots of list
	jobClear         // all records
	jobTrim          // disk blocks behind the frontier
	jobFlush         // nothing: jobs are done in order
	jobRoom          // nothing but what follows each batch: room for metadata
	jobAdopt         // the disk blocks of a directory that was just read
)

// job is one order to the writer. Its memory is the writer's.
type job struct {
	kind  jobKind
	n     uint32
	seq   uint64
	buf   *block.Buf
	entry Entry
	list  []uint32
	done  chan<- error // for jobClear and jobFlush; has room for one
}

// reserveStep is how far ahead disk blocks are reserved, in bytes; fullRetry
// is how long a full disk is left alone.
const (
	reserveStep = 16 << 20
	fullRetry   = time.Second
)

// offer takes a block in if there is room, and leaves the writing to the
// writer. It reports whether the cache has the block now, and whether the writer
// will take its bytes out of what is pending.
func (v *volume) offer(e *Entry, b *block.Buf, h uint64) (has, queued bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.closed || v.mu.down || v.mu.limited {
		return false, false
	}
	v.liftCeilingLocked()
	w := wish{units: unitsOf(len(b.Bytes())), queue: e.Queue, fill: e.Fill}
	protect, victim := v.mu.policy.admit(h, w)
	n := v.takeLocked(w, victim)
	if n == 0 {
		v.count.noRoom.Add(1)
		return false, false
	}
	s := v.slots.at(n)
	s.id, s.size, s.crc, s.queue, s.born = e.ID, uint32(len(b.Bytes())), b.CRC(), e.Queue, v.mu.age
	v.slots.tail(n).Store(0)
	s.state.Store(slotPending)
	v.slots.pin(n, 0).Add(onePin) // the writer's
	v.setPending(n, b.Retain())
	if _, ok := v.index.put(e.ID, h, makeWord(h, v.slots.place(n))); !ok {
		// Somebody else offered it meanwhile.
		v.setPending(n, nil)
		b.Release()
		v.slots.letGo(n)
		s.state.Store(slotVacant)
		v.mu.space.breakPromise(n)
		return true, false
	}
	if e.Fill {
		v.mu.policy.insertFill(n)
	} else {
		v.mu.policy.insert(n, protect)
	}
	v.mu.objects.hold(keyOf(e.ID), 1)
	v.mu.bytes += int64(s.size)
	v.pushLocked(job{kind: jobWrite, n: n, buf: b, entry: *e})
	return true, true
}

// setPending sets or, with nil, forgets the bytes of a block on its way.
func (v *volume) setPending(n uint32, b *block.Buf) {
	v.pending.Lock()
	defer v.pending.Unlock()
	if b == nil {
		delete(v.pending.bufs, n)
	} else {
		v.pending.bufs[n] = b
	}
}

func (v *volume) pushLocked(j job) {
	v.mu.jobs = append(v.mu.jobs, j)
	v.wakeWriter()
}

func (v *volume) wakeWriter() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// write is the writer: the one goroutine that changes the files of the volume.
// It ends when the volume is closed and all jobs are done.
func (v *volume) write() {
	defer close(v.idle)
	var batch []job
	for {
		v.mu.Lock()
		batch, v.mu.jobs = v.mu.jobs, batch[:0]
		closed := v.mu.closed
		if len(batch) > 0 { // under the lock: who sees no jobs and nobody busy knows that nothing is left
			v.getsOn()
		}
		v.mu.Unlock()
		if len(batch) == 0 {
			if closed {
				return
			}
			<-v.wake
			continue
		}
		for i := range batch {
			v.getsOn()
			v.do(&batch[i], v.isDown())
			batch[i] = job{}
		}
		if !v.isDown() {
			v.giveMetadataRoom()
		}
		v.busySince.Store(0)
	}
}

// getsOn notes that the writer is at its next step: a disk that keeps it there
// does not answer.
func (v *volume) getsOn() { v.busySince.Store(time.Now().UnixNano()) }

// do carries out an order; with the directory out of use it only settles it.
func (v *volume) do(j *job, down bool) {
	switch j.kind {
	case jobWrite:
		v.writeBlock(j)
	case jobErase:
		if down {
			v.mu.Lock()
			v.mu.unerased = append(v.mu.unerased, j.list...)
			v.mu.Unlock()
			break
		}
		v.erase(j.list)
	case jobClear:
		if down {
			j.done <- errDown
			break
		}
		j.done <- errors.Join(v.forget(), v.trimReserved())
	case jobTrim:
		if down {
			break
		}
		if err := v.trimReserved(); err != nil {
			v.writeFault()
		}
	case jobAdopt:
		if down {
			break
		}
		if err := v.adoptData(); err != nil {
			v.writeFault()
		}
	case jobFlush:
		j.done <- nil
	}
}

func recordOffset(n uint32) int64 { return headerSize + int64(n-1)*recordSize }

// writeBlock brings a block to disk: bytes, description of the object, record.
func (v *volume) writeBlock(j *job) {
	s := v.slots.at(j.n)
	// A block that was dropped on its way is not written: a record would bring
	// it back after a restart.
	if s.state.Load() == slotPending {
		err := v.store(j, s)
		if err == nil {
			s.written()
		} else {
			v.writeFailed(j.n, err)
		}
	}
	v.setPending(j.n, nil)
	v.count.pending.Add(-int64(len(j.buf.Bytes())))
	j.buf.Release()
	v.slots.segment(j.n).unpin(token(j.n, 0), onePin)
}

func (v *volume) writeFailed(n uint32, err error) {
	if err == errNoRoom {
		v.count.noRoom.Add(1)
	} else if full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT); full {
		v.count.writeErrors.Add(1)
	} else {
		v.writeFault()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.retireLocked(n)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		v.count.diskFull.Add(1)
		if !v.mu.full {
			v.mu.full = true
			v.log.Warn("the disk is full: the cache works on in the space that it has", "dir", v.dir, "bytes", v.mu.reserved)
		}
		v.mu.fullUntil = time.Now().Add(fullRetry)
		v.setCeilingLocked(uint32(v.mu.reserved / unit))
	}
}

func (v *volume) setCeilingLocked(units uint32) {
	v.mu.ceiling = units
	v.fitLocked(v.mu.space.high, v.mu.objects.high())
}

// liftCeilingLocked lets the space grow again some time after the disk was
// full.
func (v *volume) liftCeilingLocked() {
	if !v.mu.fullUntil.IsZero() && time.Now().After(v.mu.fullUntil) {
		v.mu.fullUntil = time.Time{}
		v.setCeilingLocked(maxSlots(v.capacity))
	}
}

func (v *volume) store(j *job, s *slot) error {
	if !v.place(j.n) {
		return errNoRoom
	}
	// Numbers go by the order of writing: what had these bytes before is older,
	// moved while j waited or not.
	v.mu.Lock()
	v.mu.seq++
	j.seq = v.mu.seq
	v.mu.Unlock()
	if err := v.beforeWrite(); err != nil {
		return err
	}
	off := int64(s.start) * unit
	if err := v.reserve(off + int64(s.units)*unit); err != nil {
		return err
	}
	if _, err := v.data.WriteAt(j.buf.Bytes(), off); err != nil {
		return err
	}
	v.arena.wrote(off, j.buf.Bytes())
	if err := v.writeObject(j); err != nil {
		return err
	}
	return v.writeRecord(j.n, s, j.seq)
}

// writeRecord makes a block that is on disk known there.
func (v *volume) writeRecord(n uint32, s *slot, seq uint64) error {
	v.mu.Lock()
	r := record{seq: seq, id: s.id, start: s.start, size: s.size, crc: s.crc, queue: s.queue, fill: s.where == inFills}
	v.mu.Unlock()
	var b [recordSize]byte
	r.encode(&b)
	_, err := v.blocks.WriteAt(b[:], recordOffset(n))
	return err
}

// erase makes a restart forget the blocks of some slots.
func (v *volume) erase(list []uint32) {
	end, err := v.blocks.Size()
	for _, n := range list {
		if err == nil && recordOffset(n) >= end || v.slots.atRest(n) {
			continue // there is no such record, or it is of a block that was moved there since
		}
		v.getsOn()
		if err := v.eraseRecord(n); err != nil {
			v.writeFault()
		}
	}
}

// eraseRecord makes a restart forget a block.
func (v *volume) eraseRecord(n uint32) error {
	var none [recordSize]byte
	_, err := v.blocks.WriteAt(none[:], recordOffset(n))
	return err
}

// reserve makes disk blocks exist up to end, and some more while there is
// plenty.
func (v *volume) reserve(end int64) error {
	v.mu.Lock()
	from, limit := v.mu.reserved, int64(v.mu.space.limit)*unit
	v.mu.Unlock()
	if end <= from {
		return nil
	}
	end = pages(end)
	if more := end + reserveStep; more+reserveStep < limit && v.data.Reserve(from, more-from) == nil {
		end = more
	} else if err := v.data.Reserve(from, end-from); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.reserved = end
	if v.mu.full {
		v.mu.full = false
		v.log.Info("the disk has room again", "dir", v.dir, "bytes", end)
	}
	return nil
}

// writeObject describes the object of a block, unless an earlier block has
// done so.
func (v *volume) writeObject(j *job) error {
	key := keyOf(j.entry.ID)
	v.mu.Lock()
	known := v.mu.objects.byKey[key].cells != 0
	v.mu.Unlock()
	if known {
		return nil
	}
	text := describe(&j.entry)
	parts := (len(text) + cellPayload - 1) / cellPayload
	if parts > maxCells {
		return errors.New("the description of the object is too long")
	}
	v.mu.Lock()
	chain := v.mu.objects.take(parts, v.mayUseCell)
	ref := v.mu.objects.byKey[key]
	ref.cells = chain
	v.mu.objects.byKey[key] = ref
	v.mu.Unlock()
	if chain == 0 {
		return errNoCell
	}
	at := chain
	for i := range parts {
		c := cell{seq: j.seq, key: key, part: uint8(i), parts: uint8(parts)}
		c.payload = text[i*cellPayload : min((i+1)*cellPayload, len(text))]
		var b [cellSize]byte
		c.encode(&b)
		if _, err := v.objects.WriteAt(b[:], cellOffset(at)); err != nil {
			v.forgetCells(key)
			return err
		}
		v.mu.Lock()
		at = v.mu.objects.next[at]
		v.mu.Unlock()
	}
	return nil
}

// errNoRoom: no place in the file could be made for a block.
var errNoRoom = errors.New("no room")

var errNoCell = errors.New("no room for the description of an object")

func cellOffset(c uint32) int64 { return headerSize + int64(c-1)*cellSize }

// forgetCells lets the next block of an object describe it again.
func (v *volume) forgetCells(key objectKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	ref := v.mu.objects.byKey[key]
	v.mu.objects.freeChain(ref.cells)
	ref.cells = 0
	v.mu.objects.byKey[key] = ref
}

// forget takes all records off the disk.
func (v *volume) forget() error {
	v.mu.Lock()
	for key, ref := range v.mu.objects.byKey {
		v.mu.objects.freeChain(ref.cells)
		ref.cells = 0
		v.mu.objects.byKey[key] = ref
	}
	v.mu.Unlock()
	return errors.Join(v.blocks.Truncate(headerSize), v.objects.Truncate(headerSize))
}

// trimReserved gives the disk blocks behind the frontier back.
func (v *volume) trimReserved() error {
	v.mu.Lock()
	end := v.mu.reserved
	v.mu.Unlock()
	return v.trim(end)
}

// trim is trimReserved where there may be disk blocks up to end.
func (v *volume) trim(end int64) error {
	v.mu.Lock()
	data := pages(int64(v.mu.space.frontier) * unit)
	v.mu.Unlock()
	if data >= end {
		return nil
	}
	var err error
	for err == nil && end > data {
		from := max(data, end-diskStep)
		v.getsOn()
		if err = v.data.Punch(from, end-from); err == nil {
			end = from
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.reserved = end
	return err
}

// clear drops all blocks, from the disk too.
func (v *volume) clear(ctx context.Context) error {
	select {
	case <-v.tried: // what a start has not read yet would come back
	case <-v.stop:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	v.mu.Lock()
	if v.mu.closed {
		v.mu.Unlock()
		return errClosed
	}
	v.retireAllLocked()
	v.mu.trim = v.mu.dying > 0
	done := make(chan error, 1)
	v.pushLocked(job{kind: jobClear, done: done})
	v.mu.Unlock()
	return wait(ctx, done)
}

// flush waits until all that was offered is on disk.
func (v *volume) flush(ctx context.Context) error {
	v.mu.Lock()
	if v.mu.closed {
		v.mu.Unlock()
		return nil
	}
	done := make(chan error, 1)
	v.pushLocked(job{kind: jobFlush, done: done})
	v.mu.Unlock()
	return wait(ctx, done)
}

func wait(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
