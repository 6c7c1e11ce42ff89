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
