package blockcache

import (
	"time"

	"headstart/engine/block"
)

const (
	// chunk is how many slots are looked at, or blocks evicted, under one hold of
	// the lock.
	chunk = 512
	// ages is how many steps the life of a TTL block has.
	ages = 8
)

// upkeep is what the keeper does while the directory is in use.
type upkeep struct {
	grown time.Time     // when the age of the TTL blocks was last moved on
	scrub uint32        // the slot that the scrubber comes to next
	debt  int64         // bytes that it may read before its next pause, or has read too many
	busy  int64         // what the writer's busySince was at the last look
	looks time.Duration // how many looks have found it so
}

// tend runs every keepEvery.
func (v *volume) tend(u *upkeep) {
	if step := time.Duration(v.set.TTLSeconds.Load()) * time.Second / ages; step > 0 && time.Since(u.grown) >= step {
		u.grown = time.Now()
		v.expire()
	}
	v.mu.Lock()
	v.mu.policy.setFillPercent(v.set.FillPercent.Load())
	v.mu.Unlock()
	v.watch()
	u.debt = min(u.debt, 0) + v.set.ScrubBytesPerSecond.Load()*int64(keepEvery)/int64(time.Second)
	for looked := 0; u.debt > 0 && looked < 64*chunk; looked++ {
		select {
		case <-v.stop:
			return
		default:
		}
		u.scrub++
		n, done := v.scrubNext(u.scrub)
		if done {
			u.scrub = 0
			return
		}
		u.debt -= n
	}
}

// expire moves the age of the TTL blocks on by one, and makes those that are
// old enough NORMAL ones.
func (v *volume) expire() {
	v.mu.Lock()
	v.mu.age++
	v.mu.Unlock()
	for n := uint32(1); ; {
		v.mu.Lock()
		end := min(n+chunk, v.mu.space.high+1)
		for ; n < end; n++ {
			s := v.slots.at(n)
			if s.queue == block.QueueTTL && v.mu.age-s.born >= ages && s.live() {
				v.mu.policy.grownOld(n)
				v.count.expired.Add(1)
			}
		}
		done := n > v.mu.space.high
		v.mu.Unlock()
		if done {
			return
		}
	}
}

// scrubNext verifies the block of slot n, if it has one at rest, and returns
// how many bytes were read; done when there is no such slot.
func (v *volume) scrubNext(n uint32) (bytes int64, done bool) {
	v.mu.Lock()
	if n > v.mu.space.high || v.mu.down {
		v.mu.Unlock()
		return 0, true
	}
	s := v.slots.at(n)
	if !s.atRest() {
		v.mu.Unlock()
		return 0, false
	}
	const stripe = 1
	v.slots.pin(n, stripe).Add(onePin)
	v.mu.Unlock()
	bytes = int64(s.size)
	if v.verify(n) == nil {
		s.checked()
		v.count.scrubbed.Add(uint64(bytes))
	}
	v.slots.segment(n).unpin(token(n, stripe), onePin)
	return bytes, false
}

// watch compares the use of disk and capacity with the watermarks.
func (v *volume) watch() {
	disk := v.diskUse(v.dir)
	use := disk.percent()
	v.mu.Lock()
	v.limitLocked(use)
	enter, exit := v.set.EnterEvictPercent.Load(), v.set.ExitEvictPercent.Load()
	inAdvance := v.set.EvictInAdvance.Load()
	switch {
	case use >= enter && (inAdvance || v.mu.limited) && v.usedLocked() <= pages(int64(v.mu.yield)*unit):
		// A fiftieth at a time, and the next when that has been given back.
		v.mu.yield = v.mu.space.frontier - min(v.mu.space.frontier, max(v.mu.space.frontier/50, 1024))
	case use < exit && v.mu.yield < noYield:
		if grow := uint64(disk.total) / unit * uint64(exit-use) / 200; grow > 0 {
			v.mu.yield = uint32(min(uint64(v.mu.yield)+grow, noYield))
		}
	}
	v.fitLocked(v.mu.space.high, v.mu.objects.high())
	v.mu.Unlock()
	if inAdvance {
		v.evictAbove(enter, exit)
	}
	v.shrink()
}

// limitLocked enters and leaves disk-limit mode.
func (v *volume) limitLocked(use int64) {
	switch {
	case use >= v.set.EnterDiskLimitPercent.Load() && !v.mu.limited:
		v.mu.limited = true
		v.log.Warn("disk-limit mode: nothing more is cached", "dir", v.dir, "disk_percent", use)
	case use < v.set.ExitDiskLimitPercent.Load() && v.mu.limited:
		v.mu.limited = false
		v.log.Info("disk-limit mode is over", "dir", v.dir, "disk_percent", use)
	}
}

// evictAbove evicts until less than exit percent of the capacity is in use, if
// it is enter percent or more.
func (v *volume) evictAbove(enter, exit int64) {
	for percent := enter; ; percent = exit {
		v.mu.Lock()
		limit := int64(v.mu.space.limit)
		over := (limit-v.mu.space.free())*100 >= limit*percent
		for range chunk {
			if (limit-v.mu.space.free())*100 < limit*exit || !over || !v.evictOneLocked() {
				over = false
				break
			}
		}
		v.mu.Unlock()
		if !over {
			return
		}
	}
}

func (v *volume) evictOneLocked() bool {
	v.mu.policy.ghosts.fit(int(v.mu.space.high))
	n := v.mu.policy.victim(wish{})
	if n != 0 {
		v.evictLocked(n)
	}
	return n != 0
}

// shrink evicts what is above a limit that has come down, and has the writer
// give the disk blocks back.
func (v *volume) shrink() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for range 16 * chunk {
		if v.mu.space.free() >= 0 || !v.evictOneLocked() {
			break
		}
	}
	if v.crampedLocked() && len(v.mu.jobs) == 0 {
		v.pushLocked(job{kind: jobRoom})
	}
}

// resize changes what the volume may take of its disk, up to what it was
// opened with.
func (v *volume) resize(total int64) {
	v.mu.Lock()
	v.mu.capacity = total
	v.fitLocked(v.mu.space.high, v.mu.objects.high())
	v.mu.policy.setShares(uint32((total-overhead(total))/unit), v.shares)
	v.mu.Unlock()
	v.shrink()
}
