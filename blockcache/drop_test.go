package blockcache

import (
	"math/rand/v2"
	"os"
	"testing"

	"headstart/engine/block"
)

// What an object says of its size is no measure of the work: a reply may name any.
func TestDropObjectOfAnySize(t *testing.T) {
	dir := t.TempDir()
	c := open(t, options(dir, 4<<20, 64*kib))
	for i := range 20 {
		offer(c, i%2, uint64(i), 10*kib, block.QueueNormal)
	}
	flush(t, c)
	held, ok := c.Get(id(0, 4))
	if !ok {
		t.Fatal("not there")
	}
	c.DropObject(id(0, 0), 1<<50)
	if got := string(bytesOf(t, &held)); got != string(content(id(0, 4), 10*kib)) {
		t.Error("a lease has lost its bytes")
	}
	held.Release()
	flush(t, c)
	invariants(t, c)
	_ = c.Close()
	c = open(t, options(dir, 4<<20, 64*kib))
	for i := range 20 {
		if i%2 == 0 {
			lacks(t, c, 0, uint64(i))
		} else {
			has(t, c, 1, uint64(i), 10*kib)
		}
	}
}

// watched tells of each record that is written.
type watched struct {
	file
	tell func(record)
}

func (f watched) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.file.WriteAt(p, off)
	var r record
	if r.decode(p) {
		f.tell(r)
	}
	return n, err
}

// A block that is dropped while it is moved does not come back with a restart.
func TestDroppedOnTheMoveStaysAway(t *testing.T) {
	dir := t.TempDir()
	o := options(dir, 2<<20, 64*kib)
	var c *Cache
	written, dropped := map[block.ID]bool{}, map[block.ID]bool{}
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return watched{f, func(r record) {
			if written[r.id] && c.Drop(r.id) {
				dropped[r.id] = true
			}
			written[r.id] = true
		}}, err
	}
	c = open(t, o)
	rng := rand.New(rand.NewPCG(5, 6))
	for i := 0; len(dropped) == 0; i++ {
		if i == 10_000 {
			t.Fatal("no block is moved")
		}
		offer(c, i, 0, 1+rng.IntN(1+i*32)%(64*kib), block.QueueNormal)
		flush(t, c)
	}
	flush(t, c)
	invariants(t, c)
	_ = c.Close()
	c = open(t, options(dir, 2<<20, 64*kib))
	for id := range dropped {
		if c.Has(id) {
			t.Errorf("%v is back", id)
		}
	}
}

// Records are numbered as they are written: of two that name the same bytes the
// younger one is right, so a block that waited while others were moved must not
// be older than what it was written over.
func TestRecordsAreNumberedAsTheyAreWritten(t *testing.T) {
	o := options(t.TempDir(), 2<<20, 64*kib)
	var last uint64
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return watched{f, func(r record) {
			if r.seq <= last {
				t.Errorf("number %d is written behind number %d", r.seq, last)
			}
			last = r.seq
		}}, err
	}
	c := open(t, o)
	rng := rand.New(rand.NewPCG(5, 6))
	for i := 0; i < 2000 || c.Metrics().MovedBytes == 0; i++ {
		if i == 50_000 {
			t.Fatal("no block is moved")
		}
		offer(c, i, 0, mix(rng, kib, 64*kib), block.QueueNormal)
		if rng.IntN(50) == 0 { // some wait for many others, some for few
			flush(t, c)
		}
	}
	_ = c.Close()
}
