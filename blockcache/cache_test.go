package blockcache

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"headstart/engine/block"
)

const kib = 1 << 10

func TestS50_DisabledCacheHoldsNothing(t *testing.T) {
	c := open(t, Options{})
	if offer(c, 1, 0, 100, block.QueueNormal) {
		t.Error("a cache without paths took a block")
	}
	lacks(t, c, 1, 0)
	flush(t, c)
	if err := c.Clear(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestS50_OptionsAreChecked(t *testing.T) {
	ok := Path{Dir: t.TempDir(), TotalBytes: 4 << 20}
	for name, change := range map[string]func(*Options){
		"negative block size": func(o *Options) { o.BlockSize = -1 },
		"negative queue":      func(o *Options) { o.WriteQueueBytes = -1 },
		"path too small":      func(o *Options) { o.Paths[0].TotalBytes = 1 << 20 },
		"shares over 100":     func(o *Options) { o.Paths[0].NormalPercent, o.Paths[0].TTLPercent = 60, 50 },
		"negative share":      func(o *Options) { o.Paths[0].IndexPercent = -1 },
	} {
		o := Options{Paths: []Path{ok}, Logger: quiet()}
		change(&o)
		if c, err := Open(o); err == nil {
			t.Errorf("%s: no error", name)
			_ = c.Close()
		}
	}
}

func TestS01_OfferedBlockIsFoundAtOnceAndLater(t *testing.T) {
	dir := t.TempDir()
	c := open(t, options(dir, 4<<20, 64*kib))
	sizes := []int{1, 1023, 1024, 1025, 64*kib - 1, 64 * kib}
	for i, size := range sizes {
		if !offer(c, i, 7, size, block.QueueNormal) {
			t.Fatalf("block of %d bytes refused", size)
		}
		has(t, c, i, 7, size)
	}
	flush(t, c)
	for i, size := range sizes {
		has(t, c, i, 7, size)
		l, ok := c.Peek(id(i, 7))
		if !ok {
			t.Fatalf("Peek misses block %d", i)
		}
		part := make([]byte, size)
		if n, err := l.CopyAt(part, size/2); err != nil || !bytes.Equal(part[:n], content(id(i, 7), size)[size/2:]) {
			t.Errorf("CopyAt from the middle of block %d: %d bytes, %v", i, n, err)
		}
		l.Release()
	}
	if offer(c, 9, 0, 64*kib+1, block.QueueNormal) || offer(c, 9, 0, 0, block.QueueNormal) {
		t.Error("a block that is too large, or empty, was taken")
	}
	invariants(t, c)
	if m := c.Metrics(); m.Hits != uint64(2*len(sizes)) || m.Blocks != len(sizes) || m.Refused != 2 {
		t.Errorf("metrics: %+v", m)
	}
}

func TestS52_CapacityIsNeverExceeded(t *testing.T) {
	dir := t.TempDir()
	const total = 3 << 20
	c := open(t, options(dir, total, 64*kib))
	for i := range 400 {
		if !offer(c, i, uint64(i), 1+i*163%(64*kib), block.Queue(i%queueCount)) {
			t.Fatalf("block %d refused", i)
		}
		has(t, c, i, uint64(i), 1+i*163%(64*kib))
		if i%20 == 0 {
			flush(t, c)
			if got := allocated(t, dir); got > total {
				t.Fatalf("after %d blocks %d bytes of disk are in use, capacity %d", i+1, got, total)
			}
		}
	}
	invariants(t, c)
	if m := c.Metrics(); m.Evicted == 0 || m.Bytes < total*7/10 {
		t.Errorf("evicted %d, %d bytes live of %d", m.Evicted, m.Bytes, total)
	}
}

// Covers S52: a held block is not evicted, and there is always a victim while
// one is not held.
func TestLC05_HeldBlocksOutliveEviction(t *testing.T) {
	c := open(t, options(t.TempDir(), 4*64*kib+64*kib, 64*kib))
	offer(c, 0, 0, 64*kib, block.QueueNormal)
	flush(t, c)
	held, ok := c.Get(id(0, 0))
	if !ok {
		t.Fatal("not there")
	}
	for i := 1; i < 50; i++ {
		if !offer(c, i, 0, 64*kib, block.QueueNormal) {
			t.Fatalf("no room for block %d", i)
		}
		flush(t, c)
	}
	if !c.Drop(id(0, 0)) || c.Drop(id(0, 0)) {
		t.Error("Drop of a held block: want once")
	}
	lacks(t, c, 0, 0)
	for i := 50; i < 99; i++ {
		offer(c, i, 0, 64*kib, block.QueueNormal)
		flush(t, c)
	}
	if !bytes.Equal(held.Raw(), content(id(0, 0), 64*kib)) {
		t.Error("the bytes of a lease have changed")
	}
	invariants(t, c)
	bytesOf(t, &held)
	invariants(t, c)
	if v := c.volumes[0]; v.mu.dying != 0 {
		t.Errorf("%d dying slots after the last release", v.mu.dying)
	}
}

func TestS52_AllBlocksHeldRefusesInsteadOfEvicting(t *testing.T) {
	c := open(t, options(t.TempDir(), 4*64*kib+64*kib, 64*kib))
	var leases []block.Lease
	for i := range 8 {
		if !offer(c, i, 0, 64*kib, block.QueueNormal) {
			break
		}
		flush(t, c)
		l, _ := c.Get(id(i, 0))
		leases = append(leases, l)
	}
	if n := len(leases); n < 3 || n > 4 {
		t.Fatalf("%d blocks in a cache of 4", n)
	}
	if m := c.Metrics(); m.NoRoom != 1 {
		t.Errorf("NoRoom is %d", m.NoRoom)
	}
	for i := range leases {
		if !bytes.Equal(bytesOf(t, &leases[i]), content(id(i, 0), 64*kib)) {
			t.Errorf("block %d is wrong", i)
		}
	}
	if !offer(c, 20, 0, 64*kib, block.QueueNormal) {
		t.Error("refused though nothing is held any more")
	}
}

func TestS43_PeekDoesNotKeepABlockGetDoes(t *testing.T) {
	c := open(t, options(t.TempDir(), 8*64*kib+64*kib, 64*kib))
	for i := range 4 {
		offer(c, i, 0, 64*kib, block.QueueNormal)
	}
	for range 6 {
		has(t, c, 0, 0, 64*kib)
		if l, ok := c.Peek(id(1, 0)); ok {
			l.Release()
		}
		for i := 4; i < 13; i++ {
			offer(c, i, 0, 64*kib, block.QueueNormal)
			flush(t, c)
		}
	}
	has(t, c, 0, 0, 64*kib)
	lacks(t, c, 1, 0)
}

func TestS51_EveryQueueKeepsItsShare(t *testing.T) {
	c := open(t, options(t.TempDir(), 4<<20, 64*kib))
	for q := range queueCount {
		for i := range 100 {
			offer(c, 1000*q+i, 0, 16*kib, block.Queue(q))
			flush(t, c)
		}
	}
	m, limit := c.Metrics(), int64(c.volumes[0].mu.space.limit)*unit
	for q, percent := range (Path{}).shares() {
		if q == int(block.QueueTTL) {
			percent = 30 // there were no more
		}
		if got := m.QueueBytes[q]; got < limit*int64(percent)/100-64*kib {
			t.Errorf("queue %d holds %d bytes, less than its share of %d %%", q, got, percent)
		}
	}
	invariants(t, c)
}

func TestLC01_ClearGivesSpaceBack(t *testing.T) {
	dir := t.TempDir()
	c := open(t, options(dir, 8<<20, 64*kib))
	empty := allocated(t, dir)
	for i := range 80 {
		offer(c, i, 0, 64*kib, block.QueueNormal)
		has(t, c, i, 0, 64*kib)
	}
	flush(t, c)
	held, _ := c.Get(id(79, 0))
	if err := c.Clear(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i := range 80 {
		lacks(t, c, i, 0)
	}
	if !bytes.Equal(bytesOf(t, &held), content(id(79, 0), 64*kib)) {
		t.Error("a lease lost its bytes by Clear")
	}
	flush(t, c)
	if got := allocated(t, dir); got > empty+64*kib {
		t.Errorf("%d bytes of disk after Clear, %d before the first block", got, empty)
	}
	invariants(t, c)
	offer(c, 1, 1, 64*kib, block.QueueNormal)
	flush(t, c)
	has(t, c, 1, 1, 64*kib)
	_ = c.Close()
	c = open(t, options(dir, 8<<20, 64*kib))
	lacks(t, c, 3, 0)
	has(t, c, 1, 1, 64*kib)
}

func TestLC02_FilesDoNotGrowWithObjects(t *testing.T) {
	dir := t.TempDir()
	c := open(t, options(dir, 1<<20, 4*kib))
	for i := range 5000 {
		offer(c, i, 0, 4*kib, block.QueueNormal)
	}
	flush(t, c)
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 4 {
		t.Errorf("files: %v, %v", names, err)
	}
	invariants(t, c)
}

func TestOfferBeyondTheWriteQueueIsRefused(t *testing.T) {
	gate := make(chan struct{})
	o := options(t.TempDir(), 8<<20, 64*kib)
	o.WriteQueueBytes = 3 * 64 * kib
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return &gatedFile{file: f, gate: gate}, err
	}
	c := open(t, o)
	for i := range 3 {
		if !offer(c, i, 0, 64*kib, block.QueueNormal) {
			t.Fatalf("block %d refused", i)
		}
	}
	if offer(c, 3, 0, 64*kib, block.QueueNormal) {
		t.Error("taken beyond the bound")
	}
	has(t, c, 2, 0, 64*kib)
	if m := c.Metrics(); m.QueueFull != 1 || m.PendingBytes != 3*64*kib {
		t.Errorf("metrics: %+v", m)
	}
	close(gate)
	flush(t, c)
	if !offer(c, 3, 0, 64*kib, block.QueueNormal) {
		t.Error("refused though the queue is empty")
	}
	flush(t, c)
	has(t, c, 0, 0, 64*kib)
}

// gatedFile holds writes of blocks back until its gate is closed.
type gatedFile struct {
	file
	gate <-chan struct{}
}

func (f *gatedFile) WriteAt(p []byte, off int64) (int, error) {
	if len(p) >= kib && off != 0 || len(p) > headerSize {
		<-f.gate
	}
	return f.file.WriteAt(p, off)
}

func TestBuffersAreGivenBack(t *testing.T) {
	c := open(t, options(t.TempDir(), 4<<20, 64*kib))
	freed := make(chan *block.Buf, 1)
	e := &Entry{Object: object(1), Meta: meta(1), ID: id(1, 0)}
	b := block.NewBuf(content(e.ID, 64*kib), func(b *block.Buf) { freed <- b })
	b.Seal()
	for range 2 {
		if !c.Offer(e, b) {
			t.Fatal("refused")
		}
	}
	b.Release()
	flush(t, c)
	select {
	case <-freed:
	default:
		t.Error("the cache keeps the buffer of a block that is on disk")
	}
}

func TestCloseKeepsLeasesGood(t *testing.T) {
	c := open(t, options(t.TempDir(), 4<<20, 64*kib))
	offer(c, 1, 0, 64*kib, block.QueueNormal)
	flush(t, c)
	l, ok := c.Get(id(1, 0))
	if !ok {
		t.Fatal("not there")
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	lacks(t, c, 1, 0)
	if offer(c, 2, 0, 64*kib, block.QueueNormal) {
		t.Error("a closed cache took a block")
	}
	if !bytes.Equal(bytesOf(t, &l), content(id(1, 0), 64*kib)) {
		t.Error("wrong bytes after Close")
	}
	if err := c.Clear(context.Background()); !errors.Is(err, errClosed) {
		t.Errorf("Clear after Close: %v", err)
	}
}

func TestHitsDoNotAllocate(t *testing.T) {
	c := open(t, options(t.TempDir(), 4<<20, 64*kib))
	offer(c, 1, 0, 64*kib, block.QueueNormal)
	flush(t, c)
	there, missing := id(1, 0), id(1, 1)
	if n := testing.AllocsPerRun(1000, func() {
		l, _ := c.Get(there)
		l.Release()
		l, _ = c.Peek(there)
		l.Release()
		_, _ = c.Get(missing)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
