package blockcache

import (
	"testing"
	"testing/synctest"
	"time"
)

// A reader that has slept through its time limit with the rest of the process takes
// what the disk has answered: it finds one tick, however long that was.
func TestPauseIsNotTheDisks(t *testing.T) {
	for ticks := range patience + 1 {
		synctest.Test(t, func(t *testing.T) {
			pieces, tick := make(chan piece, 1), make(chan time.Time)
			go func() {
				for range ticks {
					tick <- time.Time{}
				}
				if ticks < patience {
					pieces <- piece{n: 7}
				}
			}()
			if p, ok := receive(pieces, tick); ok != (p.n == 7) || ok != (ticks < patience) {
				t.Fatalf("the answer behind %d ticks: %v, taken: %v", ticks, p.n, ok)
			}
		})
	}
}

// A writer that was stopped with the rest of the process has been at one step for
// long, and its disk is fine; one that stays there is given up.
func TestLC15_PausedWriterIsNotAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sickness
		c := open(t, sickOptions(t, &s))
		fillTen(c)
		flush(t, c)
		v := c.volumes[0]
		for _, goesOn := range []bool{true, false} {
			v.busySince.Store(time.Now().Add(-time.Hour).UnixNano())
			time.Sleep(2 * keepEvery)
			if goesOn {
				v.busySince.Store(0)
			}
			time.Sleep(time.Second)
			if m := c.Metrics(); m.Outs == 0 != goesOn {
				t.Errorf("goes on: %v: taken out of use %d times", goesOn, m.Outs)
			}
			if goesOn {
				for i := range 10 {
					has(t, c, i, 0, 64*kib)
				}
			}
		}
		v.busySince.Store(0)
		_ = c.Close()
	})
}

// What the kernel has said of memory does not count for longer because the keeper
// waits for the disk.
func TestLC15_AnswersGrowOldBesideAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		o := options(t.TempDir(), 8<<20, 64*kib)
		o.diskUse = func(string) diskUse {
			<-hang
			return diskUse{}
		}
		c := open(t, o)
		time.Sleep(keepEvery + 1) // the keeper hangs
		before := c.volumes[0].epoch.Load()
		time.Sleep(4 * keepEvery)
		if now := c.volumes[0].epoch.Load(); now != before+4 {
			t.Errorf("%d epochs in the time of 4", now-before)
		}
		close(hang)
		_ = c.Close()
	})
}
