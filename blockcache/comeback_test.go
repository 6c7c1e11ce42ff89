package blockcache

import (
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// hooked is a data file that asks before it does something.
type hooked struct {
	file
	read, punch func(off, n int64) error
}

func (f hooked) Resident([]byte) bool { return false }

func (f hooked) ReadAt(p []byte, off int64) (int, error) {
	if f.read != nil {
		if err := f.read(off, int64(len(p))); err != nil {
			return 0, err
		}
	}
	return f.file.ReadAt(p, off)
}

func (f hooked) Punch(off, n int64) error {
	if f.punch != nil {
		if err := f.punch(off, n); err != nil {
			return err
		}
	}
	return f.file.Punch(off, n)
}

// hook makes the data files of o ask h.
func hook(o Options, h hooked) Options {
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		if name == dataName && err == nil {
			return hooked{f, h.read, h.punch}, nil
		}
		return f, err
	}
	return o
}

// A disk that opens well and then does not answer, again and again, is left alone
// for longer each time, whoever has found out: a reader as well as the keeper.
func TestLC15_WhoHangsAgainIsLeftAloneForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		o := options(t.TempDir(), 8<<20, 64*kib)
		o.IOTimeout = 0
		c := open(t, hook(o, hooked{read: func(int64, int64) error {
			if slow.Load() {
				time.Sleep(2 * time.Second)
			}
			return nil
		}}))
		fillTen(c)
		flush(t, c)
		slow.Store(true)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if l, ok := c.Get(id(3, 0)); ok {
				_, _ = l.CopyAt(make([]byte, 64*kib), 0)
				l.Release()
			}
		}
		// Out after 1 s, and after 1, 2, 4, 8 and 16 s and a read each.
		if m := c.Metrics(); m.Outs > 7 {
			t.Errorf("taken out %d times in a minute", m.Outs)
		}
		slow.Store(false)
		time.Sleep(lastWait + time.Second)
		has(t, c, 4, 0, 64*kib)
		_ = c.Close()
	})
}
