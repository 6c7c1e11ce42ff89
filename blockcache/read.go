package blockcache

import (
	"errors"
	"fmt"
	"io"
	"time"

	"headstart/engine/block"
)

// errSlow: the disk did not answer in time. errCut: the file was cut short.
var (
	errSlow = errors.New("the disk does not answer")
	errCut  = errors.New("the file was cut short")
)

// CopyLease implements block.Memory. What is in memory is copied out of the
// mapping; what is cold comes from the disk and is verified as a whole.
func (g *segment) CopyLease(token uint64, lent []byte, off int, dst []byte) (got int, err error) {
	v, s, n := g.v, &g.slots[token&segMask], slotOf(token)
	dst = dst[:min(len(dst), len(lent)-off)]
	if len(dst) == 0 {
		return 0, nil
	}
	start, epoch := int64(s.start)*unit, v.epoch.Load()
	if from := start + int64(off); v.arena.resident(from, len(dst), epoch) {
		witness, whole := from+int64(len(dst))-1, false
		if tail := g.tail[token&segMask].Load(); tail > 1 {
			witness = start + int64(tail) - 2
		}
		got, whole, err = v.arena.copy(dst, from, witness, epoch)
		if !whole && err == nil {
			err = v.vouch(n, lent)
		}
	} else {
		got, err = v.copyCold(n, off, dst)
	}
	if err != nil {
		err = v.copyFailed(n, err)
	}
	return got, err
}

// copyFailed counts what has kept a block from being copied, and gives it up.
func (v *volume) copyFailed(n uint32, err error) error {
	switch {
	case errors.Is(err, block.ErrBusy): // too many wait for the disk: the block is as good as before
		return err
	case errors.Is(err, errCut), errors.Is(err, block.ErrCorrupt):
		v.count.readErrors.Add(1)
	default:
		v.readFailed()
	}
	v.drop(n)
	return fmt.Errorf("read a cached block of %s: %w", v.dir, err)
}

// vouch tells whether bytes that were copied out of a lent block, the last of them
// a zero, were there: they were if the block's last byte that is not zero still is.
// The first copy that needs to know finds out which that is.
func (v *volume) vouch(n uint32, lent []byte) error {
	s, known, epoch := v.slots.at(n), v.slots.tail(n), v.epoch.Load()
	start, tail := int64(s.start)*unit, known.Load()
	switch {
	case tail == 1:
		return nil
	case tail == 0:
		if v.arena.resident(start, len(lent), epoch) {
			tail = v.arena.tailOf(lent)
		}
	case v.arena.resident(start+int64(tail)-2, 1, epoch):
		var last [1]byte
		at := start + int64(tail) - 2
		if _, there, err := v.arena.copy(last[:], at, at, epoch); there || err != nil {
			return err
		}
	}
	err := v.stillThere(n, s)
	if err == nil && tail != 0 { // so it is the block's, and not that of a cut
		known.Store(tail)
	}
	return err
}

// copyCold copies from a cold block, by a goroutine that may wait for the disk
// longer than the caller does. All of the block is read for a part of it too, and
// what is copied is what the checksum was made of: a disk may answer the next
// question differently.
func (v *volume) copyCold(n uint32, off int, dst []byte) (got int, err error) {
	s, sum, at := v.slots.at(n), checksum{}, 0
	err = v.readCold(int64(s.start)*unit, int(s.size), func(p []byte) {
		sum.add(p)
		if skip := off + got - at; got < len(dst) && skip < len(p) {
			got += copy(dst[got:], p[skip:])
		}
		at += len(p)
	})
	if err == nil && sum.crc != s.crc {
		err = block.ErrCorrupt
		if v.drop(n) {
			v.count.corrupt.Add(1)
		}
	}
	return got, err
}

// stillThere tells whether bytes that were copied out of a lent block were there
// when they were copied. Where the file was cut short they may have been zeros.
// Either it still is short: then the block lies before its end and has the right
// checksum, or is lost. Or the writer has doubted or retired all blocks before it
// made the file long again; one that was merely evicted since fares no worse
// than a miss.
func (v *volume) stillThere(n uint32, s *slot) error {
	size, err := v.data.Size()
	state := s.state.Load()
	switch {
	case err != nil:
		return err
	case int64(s.start)*unit+int64(s.size) > size, state == slotDying && v.cut.Load():
		return errCut
	case size < pages(v.capacity), state == slotUnchecked:
		return v.verify(n)
	}
	return nil
}

// piece is a part of a cold read: a scratch buffer, which goes back to the
// pool, and how much of it counts.
type piece struct {
	buf *[scratchSize]byte
	n   int
	err error
}

// patience is how many parts the time limit of a read has.
const patience = 8

// receive waits for a piece. ok is false when patience ticks have come before it.
// They are counted, and not the time, because a process that is stopped or does not
// get a processor for a while finds its limit passed and the disk's answer unread: a
// ticker drops what it can't deliver, and between two ticks whoever has the answer
// gets his turn.
func receive(pieces <-chan piece, tick <-chan time.Time) (p piece, ok bool) {
	for range patience {
		select {
		case p = <-pieces:
			return p, true
		case <-tick:
		}
	}
	select {
	case p = <-pieces: // the disk was in time, but there was no processor to see it
		return p, true
	default:
		return p, false
	}
}

// readCold reads n bytes of the data file and hands them to each in pieces. A
// disk that keeps it waiting for a piece longer than it may is given up: the
// goroutine ends when the disk answers, whenever that is.
func (v *volume) readCold(off int64, n int, each func([]byte)) error {
	select {
	case v.coldReads <- struct{}{}:
	default:
		return block.ErrBusy
	}
	pieces, stop := make(chan piece, 1), make(chan struct{})
	defer close(stop)
	// The file is taken along: a late answer may come when v has others.
	go v.readPieces(v.data, off, n, pieces, stop) // until n bytes, an error, or stop
	part := max(v.ioTimeout/patience, 1)
	limit := time.NewTicker(part)
	defer limit.Stop()
	for n > 0 {
		p, ok := receive(pieces, limit.C)
		if !ok {
			v.hung()
			return errSlow
		}
		if p.err == nil {
			each(p.buf[:p.n])
			n -= p.n
		}
		v.scratch.Put(p.buf)
		if p.err != nil {
			return p.err
		}
		limit.Reset(part)
	}
	return nil
}

func (v *volume) readPieces(data file, off int64, n int, pieces chan<- piece, stop <-chan struct{}) {
	defer func() { <-v.coldReads }()
	for n > 0 {
		p := piece{buf: v.scratch.Get().(*[scratchSize]byte)}
		p.n, p.err = data.ReadAt(p.buf[:min(n, scratchSize)], off)
		if p.n == min(n, scratchSize) {
			p.err = nil
		} else if p.err == io.EOF {
			p.err = errCut
		}
		off, n = off+int64(p.n), n-p.n
		select {
		case pieces <- p:
		case <-stop:
			return
		}
		if p.err != nil {
			return
		}
	}
}

// check verifies the bytes of an unchecked slot; wrong ones cost the block.
func (v *volume) check(n uint32) {
	mu := &v.checking[n%uint32(len(v.checking))]
	mu.Lock()
	defer mu.Unlock()
	s := v.slots.at(n)
	if s.state.Load() == slotUnchecked && v.verify(n) == nil {
		s.checked()
	}
}

// verify reads the block of a pinned slot and compares its checksum; a block
// that is wrong or can't be read is dropped, and counted once.
func (v *volume) verify(n uint32) error {
	s, sum := v.slots.at(n), checksum{}
	off := int64(s.start) * unit
	err := v.readCold(off, int(s.size), func(p []byte) {
		sum.add(p)
		v.arena.wrote(off, p)
		off += int64(len(p))
	})
	if err == nil && sum.crc != s.crc || errors.Is(err, errCut) {
		err = block.ErrCorrupt
	}
	if err == nil || errors.Is(err, block.ErrBusy) || !v.drop(n) {
		return err // right, not looked at, or dropped and counted by somebody else
	}
	if err == block.ErrCorrupt {
		v.count.corrupt.Add(1)
	} else {
		v.readFailed()
	}
	return err
}
