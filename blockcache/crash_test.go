package blockcache

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"headstart/engine/block"
)

// change is one change of a file, as it went to the disk.
type change struct {
	name     string
	off      int64
	data     []byte // nil for a new length
	truncate bool
}

// journal records what is done to the files of a cache.
type journal struct {
	sync.Mutex
	changes []change
}

func (j *journal) add(c change) {
	j.Lock()
	defer j.Unlock()
	j.changes = append(j.changes, c)
}

type recorded struct {
	file
	name string
	j    *journal
}

func (f recorded) WriteAt(p []byte, off int64) (int, error) {
	f.j.add(change{name: f.name, off: off, data: bytes.Clone(p)})
	return f.file.WriteAt(p, off)
}

func (f recorded) Truncate(size int64) error {
	f.j.add(change{name: f.name, off: size, truncate: true})
	return f.file.Truncate(size)
}

// crashState lays out what a disk may hold after a crash, and says so.
type crashState struct {
	what    string
	changes []change
}

// crashStates makes the states of one point in the journal: all before it; the
// last change torn at a sector; any of the late changes lost, page by page, as
// a power cut leaves it that never heard of fsync.
func crashStates(all []change, at int, rng *rand.Rand) []crashState {
	done := all[:at]
	states := []crashState{{fmt.Sprintf("after change %d", at), done}}
	if at == 0 {
		return states
	}
	torn := done[at-1]
	if cut := rng.IntN(len(torn.data)/512+1) * 512; cut < len(torn.data) {
		torn.data = torn.data[:cut]
	}
	states = append(states, crashState{fmt.Sprintf("change %d torn", at), append(slices.Clone(done[:at-1]), torn)})
	lost := slices.Clone(done[:max(0, at-60)])
	for _, c := range done[len(lost):] {
		if c.truncate {
			lost = append(lost, c)
			continue
		}
		for i := 0; i < len(c.data); i += pageSize {
			if rng.IntN(3) > 0 {
				part := c.data[i:min(len(c.data), i+pageSize)]
				lost = append(lost, change{name: c.name, off: c.off + int64(i), data: part})
			}
		}
	}
	rng.Shuffle(min(8, len(lost)), func(i, j int) {
		i, j = len(lost)-1-i, len(lost)-1-j
		lost[i], lost[j] = lost[j], lost[i]
	})
	return append(states, crashState{fmt.Sprintf("change %d, late ones lost", at), lost})
}

func (s crashState) layOut(dir string) (err error) {
	files := map[string]*os.File{}
	for _, name := range []string{dataName, blocksName, objectsName} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		files[name] = f
		defer func() { err = errors.Join(err, f.Close()) }()
	}
	for _, c := range s.changes {
		if c.truncate {
			err = files[c.name].Truncate(c.off)
		} else {
			_, err = files[c.name].WriteAt(c.data, c.off)
		}
		if err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "headstart.lock"), []byte(dirMark), 0o600)
}

// At every fourth point (HEADSTART_CRASH=all: at every one) of a run that fills, evicts, drops, moves and clears, the
// machine stops. What is found then is right, and the cache works on in the
// space that it has.
func TestS53_CrashMatrix(t *testing.T) {
	const total, keys = 768 * kib, 60
	size := func(n int) int { return 1 + (n*n*977)%(64*kib) }
	var j journal
	o := options(t.TempDir(), total, 64*kib)
	o.open = func(dir *os.Root, name string) (file, error) {
		f, err := openDiskFile(dir, name)
		return recorded{f, name, &j}, err
	}
	c := open(t, o)
	rng := rand.New(rand.NewPCG(11, 12))
	for i := range 160 {
		n := rng.IntN(keys)
		offer(c, n, 0, size(n), block.Queue(n%queueCount))
		if i%9 == 8 {
			c.Drop(id(rng.IntN(keys), 0))
		}
		if i%3 == 0 {
			flush(t, c)
		}
		if i == 120 {
			if err := c.Clear(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	flush(t, c)
	if c.Metrics().MovedBytes == 0 {
		t.Error("no block was moved: the run does not try that")
	}
	_ = c.Close()

	states, found := 0, 0
	for at := 0; at <= len(j.changes); at++ {
		if at%4 != 0 && os.Getenv("HEADSTART_CRASH") != "all" {
			continue
		}
		for _, s := range crashStates(j.changes, at, rng) {
			states++
			found += tryCrash(t, s, total, keys, size)
		}
	}
	t.Logf("%d crash states of %d changes, %d blocks found again, no wrong byte", states, len(j.changes), found)
}

func tryCrash(t *testing.T, s crashState, total int64, keys int, size func(int) int) (found int) {
	dir, err := os.MkdirTemp(t.TempDir(), "crash")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := s.layOut(dir); err != nil {
		t.Fatal(err)
	}
	c, err := Open(options(dir, total, 64*kib))
	if err != nil {
		t.Fatalf("%s: %v", s.what, err)
	}
	defer func() { _ = c.Close() }()
	for n := range keys {
		if l, ok := c.Get(id(n, 0)); ok {
			found++
			if !bytes.Equal(bytesOf(t, &l), content(id(n, 0), size(n))) {
				t.Fatalf("%s: block %d is wrong", s.what, n)
			}
		}
	}
	flush(t, c)
	for n := range 16 {
		if !offer(c, 1000+n, 0, 64*kib, block.QueueNormal) {
			t.Fatalf("%s: no room for new blocks: %+v", s.what, c.Metrics())
		}
		flush(t, c)
	}
	invariants(t, c)
	v := c.volumes[0]
	v.mu.Lock()
	free, limit, live := v.mu.space.free(), int64(v.mu.space.limit), v.mu.bytes
	v.mu.Unlock()
	if held := limit - free; held*unit < live || held*unit > live+int64(c.Metrics().Blocks)*unit {
		t.Fatalf("%s: %d units held by %d bytes", s.what, held, live)
	}
	if m := c.Metrics(); m.Down != 0 || allocated(t, dir) > total {
		t.Fatalf("%s: %d bytes of disk of %d; %+v", s.what, allocated(t, dir), total, m)
	}
	return found
}
