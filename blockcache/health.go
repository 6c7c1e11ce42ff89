package blockcache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The reasons for taking a directory out.
var (
	errSick     = errors.New("too many errors")
	errVanished = errors.New("the files are no longer in the directory")
	errDown     = errors.New("the cache directory is out of use")
)

const (
	// troubleLimit is how many failed reads and writes, halved once a keepEvery,
	// make a disk a sick one.
	troubleLimit = 8
	keepEvery    = 250 * time.Millisecond
	// A directory that is out is tried again after firstWait, then after twice
	// that, up to lastWait; who stays in for lastWait starts afresh.
	firstWait = time.Second
	lastWait  = 30 * time.Second
)

// readFailed and writeFault count an error of the disk.
func (v *volume) readFailed() {
	v.count.readErrors.Add(1)
	v.trouble.Add(1)
}

func (v *volume) writeFault() {
	v.count.writeErrors.Add(1)
	v.trouble.Add(1)
}

// hung tells that a read has waited too long.
func (v *volume) hung() { v.takeOut(errSlow) }

// takeOut stops the use of the directory: all its blocks are misses from here
// on, and offers are refused. What the files hold is found again when the
// directory comes back.
func (v *volume) takeOut(why error) {
	v.mu.Lock()
	if v.mu.closed || v.mu.down {
		v.mu.Unlock()
		return
	}
	v.mu.down = true
	v.retireAllLocked()
	v.mu.Unlock()
	v.count.outs.Add(1)
	v.log.Warn("cache directory taken out of use", "dir", v.dir, "reason", why)
}

// keep brings the volume up and looks after it until close.
func (v *volume) keep() {
	defer close(v.kept)
	if v.firstErr = v.bringUp(); v.firstErr != nil {
		v.complain(v.firstErr)
	}
	close(v.tried)
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	care := upkeep{grown: time.Now()}
	// out: the keeper knows that the directory is out. A reader may have done that.
	wait, retry, since, out := firstWait, time.Now(), time.Now(), v.isDown()
	for {
		select {
		case <-v.stop:
			return
		case <-tick.C:
		}
		if !v.isDown() {
			v.examine(&care)
			v.tend(&care)
		}
		if !v.isDown() {
			continue
		}
		if !out {
			out = true
			if time.Since(since) > lastWait {
				wait = firstWait
			}
			retry = time.Now().Add(wait)
		}
		if time.Now().Before(retry) || !v.shut() {
			continue
		}
		wait = min(2*wait, lastWait)
		if err := v.bringUp(); err != nil {
			v.complain(err)
			retry = time.Now().Add(wait)
			continue
		}
		since, out = time.Now(), false
	}
}

// turn moves the epoch on until close. The keeper does not: it may wait for the
// disk, and what is in memory must not count as known for that long.
func (v *volume) turn() {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-v.stop:
			return
		case <-tick.C:
			v.epoch.Add(1)
		}
	}
}

func (v *volume) isDown() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.down
}

// examine takes the directory out if there is a reason.
func (v *volume) examine(u *upkeep) {
	n := v.trouble.Load()
	v.trouble.Add(n/2 - n)
	busy := v.busySince.Load()
	if busy != u.busy {
		u.busy, u.looks = busy, 0
	}
	u.looks++
	switch {
	// The time alone would tell of a process that was stopped, too.
	case busy != 0 && time.Since(time.Unix(0, busy)) > v.ioTimeout && u.looks*keepEvery >= v.ioTimeout:
		v.takeOut(errSlow)
	case n >= troubleLimit:
		v.takeOut(errSick)
	case v.vanished():
		v.takeOut(errVanished)
	}
}

// vanished reports whether one of the directory's files is another one, or none:
// what is written there would be lost, or another process could come in.
func (v *volume) vanished() bool {
	for i, name := range fileNames() {
		now, err := os.Stat(filepath.Join(v.dir, name))
		if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(now, v.identity[i]) {
			return true
		}
	}
	return false
}

// shut closes the files of a volume that is out, as soon as nobody uses them,
// and reports whether they are closed.
func (v *volume) shut() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	// What the writer was asked for before is of the blocks that there were then.
	if v.mu.closed || v.mu.dying > 0 || len(v.mu.jobs) > 0 || v.busySince.Load() != 0 {
		return false
	}
	v.unmapLocked()
	return true
}

// bringUp opens the directory and starts using it.
func (v *volume) bringUp() error {
	v.mu.Lock()
	if v.mu.closed {
		v.mu.Unlock()
		return errClosed
	}
	v.resetLocked()
	v.mu.Unlock()
	root, err := openRoot(v.dir)
	if err != nil {
		return err
	}
	if err := errors.Join(v.open(root), root.Close()); err != nil {
		return err
	}
	v.trouble.Store(0)
	v.mu.Lock()
	v.mu.opened, v.mu.down = true, false
	v.pushLocked(job{kind: jobAdopt})
	v.pushLocked(job{kind: jobErase, list: v.mu.wrong})
	v.mu.wrong, v.mu.unerased = nil, nil
	blocks, bytes := v.mu.policy.blocks(), v.mu.bytes
	if v.mu.closed { // close has not waited for the files
		v.finishLocked()
	}
	v.mu.Unlock()
	v.complaint = ""
	v.log.Info("cache directory open", "dir", v.dir, "capacity", v.capacity, "blocks", blocks, "bytes", bytes)
	return nil
}

// complain logs why the directory can't be used, once for each reason.
func (v *volume) complain(err error) {
	if text := err.Error(); text != v.complaint {
		v.complaint = text
		v.log.Warn("cache directory can't be used", "dir", v.dir, "error", err)
	}
}

// beforeWrite looks whether the data file was cut short: writing would make it
// long again, and what was cut off would read as zeros. So the blocks that lay
// there go first, and all others are doubted: a write that was under way may
// have made the file longer than it was cut.
func (v *volume) beforeWrite() error {
	size, err := v.data.Size()
	if err != nil || size >= pages(v.capacity) {
		return err
	}
	v.cut.Store(true)
	v.mu.Lock()
	lost := 0
	for n := v.mu.space.last; n != 0; {
		s := v.slots.at(n)
		left := s.left
		switch {
		case s.state.Load() == slotPending, s.state.Load() == slotClaimed:
		case int64(s.start+s.units)*unit > size:
			v.retireLocked(n)
			lost++
		default:
			s.doubt()
		}
		n = left
	}
	v.mu.reserved = min(v.mu.reserved, size&^(pageSize-1))
	v.mu.Unlock()
	v.log.Warn("the data file was cut short", "dir", v.dir, "bytes", size, "blocks", lost)
	if err := v.data.Truncate(pages(v.capacity)); err != nil {
		return fmt.Errorf("make the data file whole: %w", err)
	}
	return nil
}
