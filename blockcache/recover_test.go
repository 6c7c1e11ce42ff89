package blockcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"headstart/engine/block"
)

// crashed returns a copy of the directory as a kill -9 would leave it: what
// was written is there, nothing was closed.
func crashed(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func objects(c *Cache) map[block.Object]block.Meta {
	all := make(map[block.Object]block.Meta)
	for e := range c.Objects {
		all[e.Object] = e.Meta
	}
	return all
}

func TestS53_WarmAfterCloseAndAfterKill(t *testing.T) {
	dir := t.TempDir()
	c := open(t, options(dir, 8<<20, 64*kib))
	for i := range 50 {
		offer(c, i, uint64(i)<<33, 1000*i+1, block.Queue(i%queueCount))
	}
	flush(t, c)
	want := c.Metrics()
	killed := crashed(t, dir)
	_ = c.Close()
	for _, dir := range []string{dir, killed} {
		c := open(t, options(dir, 8<<20, 64*kib))
		invariants(t, c)
		if got := c.Metrics(); got.Blocks != 50 || got.QueueBytes != want.QueueBytes || got.AllocatedBytes > want.AllocatedBytes {
			t.Errorf("after the restart: %+v\nbefore: %+v", got, want)
		}
		for i := range 50 {
			has(t, c, i, uint64(i)<<33, 1000*i+1)
		}
		known := objects(c)
		for i := range 50 {
			if known[object(i)] != meta(i) {
				t.Errorf("object %d: %+v, want %+v", i, known[object(i)], meta(i))
			}
		}
		for i := range 50 {
			offer(c, 100+i, 0, 64*kib, block.QueueNormal)
		}
		flush(t, c)
		has(t, c, 149, 0, 64*kib)
		invariants(t, c)
	}
}

func TestS53_RestartUnderEvictionServesNothingWrong(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 6 {
		c := open(t, options(dir, 2<<20, 64*kib))
		invariants(t, c)
		for range 300 {
			n := rng.IntN(400)
			offer(c, n, 0, 1+n*157, block.Queue(n%queueCount))
			if k := rng.IntN(400); k%7 == 0 {
				c.Drop(id(k, 0))
			}
		}
		flush(t, c)
		dir = crashed(t, dir)
		before := c.Metrics()
		_ = c.Close()
		c = open(t, options(dir, 2<<20, 64*kib))
		if got := c.Metrics(); got.Blocks < before.Blocks {
			t.Errorf("round %d: %d blocks before the kill, %d after", round, before.Blocks, got.Blocks)
		}
		for n := range 400 {
			if l, ok := c.Get(id(n, 0)); ok && !bytes.Equal(bytesOf(t, &l), content(id(n, 0), 1+n*157)) {
				t.Fatalf("block %d is wrong", n)
			}
		}
		invariants(t, c)
		_ = c.Close()
	}
}

func TestDroppedBlocksStayAway(t *testing.T) {
	dir := t.TempDir()
	c := open(t, options(dir, 4<<20, 64*kib))
	for i := range 10 {
		offer(c, 1, uint64(i), 10*kib, block.QueueNormal)
	}
	offer(c, 2, 0, 10*kib, block.QueueNormal)
	flush(t, c)
	c.DropObject(id(1, 0), 10)
	flush(t, c)
	_ = c.Close()
	c = open(t, options(dir, 4<<20, 64*kib))
	for i := range 10 {
		lacks(t, c, 1, uint64(i))
	}
	has(t, c, 2, 0, 10*kib)
	if known := objects(c); len(known) != 1 {
		t.Errorf("known objects: %v", known)
	}
}

// damage is what is done to the files of a cache that is down.
type damage func(t *testing.T, dir string)

func flip(name string, at int64) damage {
	return func(t *testing.T, dir string) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		_, err1 := f.ReadAt(b, at)
		b[0] ^= 0x10
		_, err2 := f.WriteAt(b, at)
		if err := errors.Join(err1, err2, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func resize(name string, size int64) damage {
	return func(t *testing.T, dir string) {
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(name string) damage {
	return func(t *testing.T, dir string) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// After each kind of damage what is left is right, and the cache works on.
func TestRR08_DamagedFilesGiveMissesNeverWrongBytes(t *testing.T) {
	for name, c := range map[string]struct {
		damage  damage
		left    int
		corrupt uint64
	}{
		"data: first byte of a block": {flip("headstart.data", 64*kib), 19, 1},
		"data: last byte of a block":  {flip("headstart.data", 64*kib-1), 19, 1},
		"data: middle of a block":     {flip("headstart.data", 70*kib), 19, 1},
		"data truncated to half":      {resize("headstart.data", 640*kib), 10, 10},
		"data truncated to 1 byte":    {resize("headstart.data", 1), 0, 20},
		"data gone":                   {remove("headstart.data"), 0, 20},
		"blocks: one record":          {flip("headstart.blocks", headerSize+70), 19, 0},
		"blocks torn":                 {resize("headstart.blocks", headerSize+5*recordSize+9), 5, 0},
		"blocks gone":                 {remove("headstart.blocks"), 0, 0},
		"objects gone":                {remove("headstart.objects"), 20, 0},
		"objects: one cell":           {flip("headstart.objects", headerSize+40), 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			k := open(t, options(dir, 4<<20, 64*kib))
			for i := range 20 {
				offer(k, i, 0, 64*kib, block.QueueNormal)
			}
			flush(t, k)
			_ = k.Close()
			c.damage(t, dir)
			k = open(t, options(dir, 4<<20, 64*kib))
			left := 0
			for range 2 {
				left = 0
				for i := range 20 {
					if l, ok := k.Get(id(i, 0)); ok {
						left++
						if !bytes.Equal(bytesOf(t, &l), content(id(i, 0), 64*kib)) {
							t.Fatalf("block %d is wrong", i)
						}
					}
				}
			}
			if m := k.Metrics(); left != c.left || m.Corrupt != c.corrupt {
				t.Errorf("%d blocks left, %d corrupt; want %d and %d", left, m.Corrupt, c.left, c.corrupt)
			}
			for i := range 20 {
				offer(k, i, 0, 64*kib, block.QueueNormal)
				has(t, k, i, 0, 64*kib)
			}
			flush(t, k)
			has(t, k, 7, 0, 64*kib)
			invariants(t, k)
		})
	}
}

func TestOtherFormatsAreRefusedAndLeftAlone(t *testing.T) {
	next := header{64 * kib}.encode()
	next[8]++
	binary.LittleEndian.PutUint32(next[12:], headerSum(next))
	for name, b := range map[string][]byte{
		"something else": bytes.Repeat([]byte("somebody's diary "), 500),
		"next version":   next,
		"short":          []byte("abc"),
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "headstart.blocks")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(options(dir, 4<<20, 64*kib)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: the file was changed (%v)", name, err)
		}
	}
}

// A header that is ours and damaged, wherever it is, costs what the file holds
// and nothing else: the cache starts, says so once, and works.
func TestS54_DamagedHeaderStartsEmpty(t *testing.T) {
	for name, damages := range map[string][]damage{
		"format":           {flip(blocksName, 8)},
		"checksum":         {flip(blocksName, 13)},
		"block size":       {flip(blocksName, 17)},
		"end of the page":  {flip(blocksName, headerSize-1)},
		"cut in the magic": {resize(blocksName, int64(len(magic)))},
		"cut in the page":  {resize(blocksName, 100)},
		"both files":       {flip(blocksName, 8), flip(objectsName, 8)},
		"objects":          {flip(objectsName, 16)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			k := open(t, options(dir, 4<<20, 64*kib))
			offer(k, 1, 0, 64*kib, block.QueueNormal)
			flush(t, k)
			_ = k.Close()
			for _, d := range damages {
				d(t, dir)
			}
			var log bytes.Buffer
			o := options(dir, 4<<20, 64*kib)
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			k = open(t, o)
			if got := bytes.Count(log.Bytes(), []byte("is damaged: the file starts empty")); got != len(damages) {
				t.Errorf("said %d times: %s", got, log.String())
			}
			if name == "objects" { // what a block is called is not needed to find it
				has(t, k, 1, 0, 64*kib)
				k.Drop(id(1, 0))
			}
			lacks(t, k, 1, 0)
			offer(k, 1, 0, 64*kib, block.QueueNormal)
			flush(t, k)
			_ = k.Close()
			log.Reset()
			k = open(t, o)
			has(t, k, 1, 0, 64*kib)
			if known := objects(k); known[object(1)] != meta(1) || bytes.Contains(log.Bytes(), []byte("damaged")) {
				t.Errorf("known objects %v; log %s", known, log.String())
			}
			invariants(t, k)
		})
	}
}

func TestBlockSizeAndCapacityMayChange(t *testing.T) {
	dir := t.TempDir()
	fill := func(c *Cache) {
		for i := range 30 {
			offer(c, i, 0, 60*kib, block.QueueNormal)
		}
		flush(t, c)
		_ = c.Close()
	}
	fill(open(t, options(dir, 4<<20, 64*kib)))
	c := open(t, options(dir, 1<<20, 64*kib)) // smaller
	invariants(t, c)
	if m := c.Metrics(); m.Blocks < 12 || m.Blocks > 16 || allocated(t, dir) > 1<<20 {
		t.Errorf("%d blocks, %d bytes of disk in a cache of 1 MiB", m.Blocks, allocated(t, dir))
	}
	fill(c)
	c = open(t, options(dir, 8<<20, 64*kib)) // larger
	if m := c.Metrics(); m.Blocks < 12 || m.Blocks > 17 {
		t.Errorf("%d blocks after growing", m.Blocks)
	}
	invariants(t, c)
	fill(c)
	c = open(t, options(dir, 8<<20, 128*kib)) // blocks are cut in another way
	lacks(t, c, 29, 0)
	fill(c)
	c = open(t, options(dir, 8<<20, 128*kib))
	has(t, c, 29, 0, 60*kib)
}

func TestRR01_StrangersInTheDirectoryAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "lost+found"), 0o700),
		os.WriteFile(filepath.Join(dir, ".DS_Store"), []byte("x"), 0o600),
		os.WriteFile(filepath.Join(dir, "headstart.blocks.old"), nil, 0o600),
		os.Symlink("loop", filepath.Join(dir, "loop")),
	); err != nil {
		t.Fatal(err)
	}
	c := open(t, options(dir, 4<<20, 64*kib))
	offer(c, 1, 0, 100, block.QueueNormal)
	flush(t, c)
	_ = c.Close()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4+4 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestOneProcessPerDirectory(t *testing.T) {
	dir := t.TempDir()
	c := open(t, options(dir, 4<<20, 64*kib))
	if _, err := Open(options(dir, 4<<20, 64*kib)); !errors.Is(err, errLocked) {
		t.Errorf("second Open: %v", err)
	}
	_ = c.Close()
	_ = open(t, options(dir, 4<<20, 64*kib)).Close()
}

func TestS50_SeveralPathsShareTheBlocks(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	o := Options{BlockSize: 64 * kib, Logger: quiet(), Paths: []Path{
		{Dir: dirs[0], TotalBytes: 8 << 20}, {Dir: dirs[1], TotalBytes: 24 << 20},
	}}
	c := open(t, o)
	for i := range 300 {
		offer(c, i, 0, 64*kib, block.QueueNormal)
	}
	flush(t, c)
	if a, b := allocated(t, dirs[0]), allocated(t, dirs[1]); a < 3<<20 || b < 2*a || a > 8<<20 || b > 24<<20 {
		t.Errorf("%d and %d bytes of disk", a, b)
	}
	_ = c.Close()
	c = open(t, o)
	invariants(t, c)
	for i := range 300 {
		if l, ok := c.Get(id(i, 0)); ok {
			l.Release()
		}
	}
	if m := c.Metrics(); m.Hits < 290 || m.Corrupt != 0 {
		t.Errorf("%+v", m)
	}
}
