package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"headstart/blockcache"
	"headstart/engine/block"
)

// perObject is how many blocks an object has.
const perObject = 64

// plan is a run: a cache with room for so many blocks of one size.
type plan struct {
	blocks, size int
	// waiting is how many blocks may wait to be written.
	waiting int
	load    time.Duration
}

func (p plan) options(dir string) blockcache.Options {
	need := int64(p.blocks) * int64(p.size)
	return blockcache.Options{
		Paths:     []blockcache.Path{{Dir: dir, TotalBytes: need + need/64 + int64(p.blocks)*80 + 4<<20}},
		BlockSize: int64(p.size), Logger: slog.New(slog.DiscardHandler),
		WriteQueueBytes: int64(p.waiting) * int64(p.size), IOTimeout: time.Minute, // a disk may be as slow as it is
	}
}

func object(n int) block.Object {
	return block.Object{Store: "s3", Bucket: "b", Key: fmt.Sprint("restart/", n/perObject)}
}

func id(n int) block.ID { return block.BaseID(object(n), "v").At(uint64(n % perObject)) }

// write lays the content of block n into b: its number and the place, again and
// again.
func write(b []byte, n int) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(n)<<24|uint64(i))
	}
}

// beVictim fills the cache in dir, then reads and writes until it is killed. It
// prints a number each time that this changes: the blocks that are complete.
func (p plan) beVictim(dir string, out io.Writer) error {
	c, err := blockcache.Open(p.options(dir))
	if err != nil {
		return err
	}
	w := victim{plan: p, cache: c, next: new(atomic.Int64)}
	for int(w.next.Load()) < p.blocks {
		w.offer()
		if w.next.Load()%int64(p.waiting/4) == 0 {
			if err := c.Flush(context.Background()); err != nil {
				return err
			}
		}
	}
	if err := c.Flush(context.Background()); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "loaded"); err != nil {
		return err
	}
	for range 2 {
		go w.read()  // until the kill
		go w.write() // until the kill
	}
	for {
		m := c.Metrics()
		if _, err := fmt.Fprintln(out, m.Blocks-int(m.PendingBytes)/p.size); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

type victim struct {
	plan
	cache *blockcache.Cache
	next  *atomic.Int64
}

// offer offers the next block.
func (w *victim) offer() {
	n := int(w.next.Add(1)) - 1
	data := make([]byte, w.size)
	write(data, n)
	b := block.NewBuf(data, nil)
	b.Seal()
	defer b.Release()
	w.cache.Offer(&blockcache.Entry{Object: object(n), Meta: block.Meta{Version: "v", Size: perObject * int64(w.size)}, ID: id(n)}, b)
}

func (w *victim) write() {
	for {
		w.offer()
	}
}

func (w *victim) read() {
	dst := make([]byte, w.size)
	for {
		n := rand.IntN(int(w.next.Load()))
		if l, ok := w.cache.Get(id(n)); ok {
			_, _ = l.CopyAt(dst, 0)
			l.Release()
		}
	}
}

// lastTold reads what the victim prints, kills it some time after it has told the
// first number, and returns the last one.
func lastTold(out io.Reader, load time.Duration, kill func() error) (last int, err error) {
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "loaded" {
		return 0, errors.Join(fmt.Errorf("the victim says %q", lines.Text()), lines.Err(), kill())
	}
	var timer *time.Timer
	for lines.Scan() {
		if _, err := fmt.Sscan(lines.Text(), &last); err != nil {
			return 0, errors.Join(err, kill())
		}
		if timer == nil {
			timer = time.AfterFunc(load, func() { _ = kill() })
			defer timer.Stop()
		}
	}
	return last, lines.Err()
}

// result is what was found after the kill.
type result struct {
	first, live         time.Duration // since Open was called
	complete, usable    int
	objects, held       int
	wrong               int
	allocated, capacity int64
}

func (r result) String() string {
	return fmt.Sprintf("first hit %.1f ms after the start, all %d blocks known after %.1f ms; complete at the kill %d, usable %d (%.3f %%), "+
		"wrong %d; %d objects; %d bytes of disk of %d",
		r.first.Seconds()*1e3, r.held, r.live.Seconds()*1e3, r.complete, r.usable,
		100*float64(r.usable)/float64(r.complete), r.wrong, r.objects, r.allocated, r.capacity)
}

func (r result) verdict() error {
	if r.wrong > 0 || r.usable*1000 < r.complete*999 || r.allocated > r.capacity {
		return errors.New("not what was promised")
	}
	return nil
}

// look opens the cache, asks for blocks from the first moment on, and then
// compares all that are there.
func (p plan) look(dir string, complete int) (r result, err error) {
	r.complete = complete
	o := p.options(dir)
	o.OpenWait = time.Nanosecond // as a node that has its listener already
	start := time.Now()
	c, err := blockcache.Open(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var wait sync.WaitGroup
	wait.Go(func() { // ends when all is read
		err = c.AwaitLoaded(context.Background())
		r.live = time.Since(start)
	})
	r.first = p.firstHit(c, start)
	wait.Wait()
	if err != nil {
		return r, err
	}
	m := c.Metrics()
	r.held, r.allocated, r.capacity = m.Blocks, m.AllocatedBytes, m.CapacityBytes
	for range c.Objects {
		r.objects++
	}
	got, want := make([]byte, p.size), make([]byte, p.size)
	// Newer blocks than these there are none: the victim can't write a million.
	for n := 0; n < p.blocks+1<<20 && r.usable+r.wrong < r.held; n++ {
		l, ok := c.Peek(id(n))
		if !ok {
			continue
		}
		write(want, n)
		if k, err := l.CopyAt(got, 0); err != nil || k != p.size {
			l.Release()
			continue
		}
		l.Release()
		if r.usable++; !bytes.Equal(got, want) {
			r.usable--
			r.wrong++
		}
	}
	return r, nil
}

// firstHit asks for random blocks as readers do, until one is there.
func (p plan) firstHit(c *blockcache.Cache, start time.Time) time.Duration {
	dst := make([]byte, p.size)
	for time.Since(start) < time.Minute {
		if l, ok := c.Get(id(rand.IntN(p.blocks))); ok {
			_, err := l.CopyAt(dst, 0)
			l.Release()
			if err == nil {
				break
			}
		}
		time.Sleep(100 * time.Microsecond) // readers that miss go elsewhere
	}
	return time.Since(start)
}
