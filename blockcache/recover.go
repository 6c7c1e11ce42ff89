package blockcache

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
)

// scanSize is how much metadata is read at once, in bytes: a whole number of
// records and cells.
const scanSize = 256 << 10

// The names of a volume's files.
const (
	lockName    = "headstart.lock"
	dataName    = "headstart.data"
	blocksName  = "headstart.blocks"
	objectsName = "headstart.objects"
)

// fileCount is how many files there are, dataFile the place of the data file
// among their names.
const (
	fileCount = 4
	dataFile  = 1
)

func fileNames() [fileCount]string {
	return [fileCount]string{lockName, dataName, blocksName, objectsName}
}

// open brings the files of the volume up and puts what they hold into the
// index.
func (v *volume) open(root *os.Root) error {
	var err error
	if v.lock, err = lockDir(root, v.identity[dataFile]); err != nil {
		return err
	}
	v.data, v.blocks, v.objects = nil, nil, nil
	for _, f := range []struct {
		name string
		file *file
	}{{dataName, &v.data}, {blocksName, &v.blocks}, {objectsName, &v.objects}} {
		if *f.file, err = v.opener(root, f.name); err != nil {
			return v.abandon(err)
		}
	}
	for i, name := range fileNames() {
		if v.identity[i], err = root.Stat(name); err != nil {
			return v.abandon(err)
		}
	}
	if err := v.readHeaders(); err != nil {
		return v.abandon(err)
	}
	size := pages(v.capacity)
	// Who sets the length that is set already waits for the file system's journal.
	if have, err := v.data.Size(); err != nil || have != size {
		if err = errors.Join(err, v.data.Truncate(size)); err != nil {
			return v.abandon(err)
		}
	}
	if v.arena, err = newArena(v.data, size); err != nil {
		return v.abandon(err)
	}
	if err := v.recover(); err != nil {
		// Readers may hold blocks already: shut closes the files when none does.
		v.mu.Lock()
		v.retireAllLocked()
		v.mu.opened = true
		v.mu.Unlock()
		return err
	}
	return nil
}

// abandon closes what open has opened.
func (v *volume) abandon(err error) error {
	for _, f := range [...]file{v.data, v.blocks, v.objects} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return errors.Join(err, v.lock.Close())
}

// readHeaders checks that the metadata is ours and was written with the same
// block size; blocks of another size can't be named any more and are given up,
// and so is a file whose header is damaged.
func (v *volume) readHeaders() error {
	for _, f := range [...]struct {
		file
		name string
	}{{v.blocks, blocksName}, {v.objects, objectsName}} {
		b := make([]byte, headerSize)
		n, err := f.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return err
		}
		h, err := decodeHeader(b[:n])
		switch {
		case errors.Is(err, errDamaged):
			v.log.Warn("the header of a cache file is damaged: the file starts empty", "dir", v.dir, "file", f.name)
		case err != nil:
			return fmt.Errorf("%s: %w", f.name, err)
		case h.blockSize == v.blockSize:
			continue
		case h.blockSize != 0:
			v.log.Info("the block size has changed: the file starts empty",
				"dir", v.dir, "file", f.name, "was", h.blockSize, "now", v.blockSize)
		}
		if err := v.startEmpty(f); err != nil {
			return err
		}
	}
	return nil
}

// startEmpty makes a metadata file one without content.
func (v *volume) startEmpty(f file) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt(header{v.blockSize}.encode(), 0); err != nil {
		return err
	}
	return f.Sync()
}

// scan calls each with the pieces of a metadata file, numbered from 1: those of
// the first part of every so many parts of the file, and so on from there.
func scan(f file, size int, part, parts int64, each func(n uint32, b []byte)) error {
	buf := make([]byte, scanSize)
	for ; ; part += parts {
		got, err := f.ReadAt(buf, headerSize+part*scanSize)
		if err != nil && err != io.EOF {
			return err
		}
		n := uint32(part*scanSize/int64(size)) + 1
		for b := buf[:got]; len(b) >= size; b = b[size:] {
			each(n, b[:size])
			n++
		}
		if err == io.EOF {
			return nil
		}
		runtime.Gosched() // readers want a processor too, and what there is already
	}
}

// recover fills an empty volume from its files. The lock is taken when they have
// been read; most blocks are found from the moment on that their record was.
func (v *volume) recover() error {
	list, good, err := v.readRecords()
	cells, cerr := scanCells(v.objects)
	// Also when not all could be read: readers may have blocks already, and who
	// lets go of those must find them in their places.
	v.adopt(list, good, cells)
	if err := errors.Join(err, cerr); err != nil {
		return fmt.Errorf("read the metadata of %s: %w", v.dir, err)
	}
	return nil
}

// adopt takes over what the files say.
func (v *volume) adopt(list []found, good []uint32, cells cellScan) {
	v.mu.Lock()
	defer v.mu.Unlock()
	kept := v.pickLocked(list, good)
	v.tileLocked(list, kept)
	v.enqueueLocked(list, kept)
	v.adoptCellsLocked(cells)
	v.fitLocked(v.mu.space.high, v.mu.objects.high())
	v.mu.reserved = pages(int64(v.mu.space.frontier) * unit)
}

// tileLocked lays the tiles of the blocks, in the order of the file, and
// vacant ones between them.
func (v *volume) tileLocked(list []found, kept []uint32) {
	p := &v.mu.space
	for _, at := range kept {
		p.high = max(p.high, list[at].n)
	}
	used := make([]bool, p.high+1)
	for _, at := range kept {
		used[list[at].n] = true
	}
	for n := p.high; n > 0; n-- {
		p.slots.grow(n)
		if !used[n] {
			p.giveNumber(n)
		}
	}
	for _, at := range kept {
		f := &list[at]
		if gap := f.start - p.frontier; gap > 0 {
			if n := p.number(); n != 0 {
				p.append(n, gap)
				p.bin(n)
			}
		}
		p.frontier = f.start
		p.append(f.n, unitsOf(int(f.size)))
	}
}

// enqueueLocked puts the blocks into their queues, oldest first.
func (v *volume) enqueueLocked(list []found, kept []uint32) {
	// The policy needs the order only roughly: sequence numbers lose the bits that
	// they have too many.
	least, shift := v.mu.seq, 0
	for _, at := range kept {
		least = min(least, list[at].seq)
	}
	for (v.mu.seq-least)>>shift > 1<<32-1 {
		shift++
	}
	var key objectKey
	run := uint32(0) // the blocks of one object mostly came one after another
	for _, at := range ordered(list, kept, func(f *found) uint32 { return uint32((f.seq - least) >> shift) }) {
		f := &list[at]
		if next := keyOf(f.id); next != key {
			v.mu.objects.hold(key, run)
			key, run = next, 0
		}
		run++
		if f.fill {
			v.mu.policy.insertFill(f.n)
		} else {
			v.mu.policy.insert(f.n, false)
		}
		v.mu.bytes += int64(f.size)
	}
	v.mu.objects.hold(key, run)
}

// description is what the cells of one object say together.
type description struct {
	seq   uint64
	cells []uint32
	parts [][]byte
}

func (d *description) whole() bool { return !slices.Contains(d.cells, 0) }

// cellScan is what a look at the objects file gives.
type cellScan struct {
	byKey map[objectKey]*description
	high  uint32
}

// scanCells reads the descriptions of all objects in a file, the youngest of
// each.
func scanCells(f file) (cellScan, error) {
	out := cellScan{byKey: map[objectKey]*description{}}
	err := scan(f, cellSize, 0, 1, func(n uint32, b []byte) {
		out.high = n
		var c cell
		if !c.decode(b) {
			return
		}
		d := out.byKey[c.key]
		if d == nil || c.seq > d.seq {
			d = &description{seq: c.seq, cells: make([]uint32, c.parts), parts: make([][]byte, c.parts)}
			out.byKey[c.key] = d
		}
		if c.seq == d.seq && int(c.parts) == len(d.cells) {
			d.cells[c.part], d.parts[c.part] = n, slices.Clone(c.payload)
		}
	})
	return out, err
}

// adoptCellsLocked takes over the cells of objects that have blocks; the
// others are free.
func (v *volume) adoptCellsLocked(found cellScan) {
	t := &v.mu.objects
	t.next = make([]uint32, found.high+1)
	used, high := make([]bool, found.high+1), uint32(0)
	for key, d := range found.byKey {
		v.mu.seq = max(v.mu.seq, d.seq)
		ref, held := t.byKey[key]
		if !held || !d.whole() {
			continue
		}
		ref.cells = d.cells[0]
		t.byKey[key] = ref
		for i, c := range d.cells {
			used[c], high = true, max(high, c)
			if i+1 < len(d.cells) {
				t.next[c] = d.cells[i+1]
			}
		}
	}
	t.next = t.next[:high+1]
	for c := high; c > 0; c-- {
		if !used[c] {
			t.next[c], t.free = t.free, c
		}
	}
}

// diskStep is how much of a data file is reserved or given back at once, in
// bytes: each step that ends shows that the disk gets on.
const diskStep = 4 << 30

// adoptData makes the disk blocks of the data file those of the tiles. It is the
// writer's first job, because a start need not wait for the disk to do it. What
// the disk does not give back counts as reserved, until it does.
func (v *volume) adoptData() error {
	v.mu.Lock()
	end := pages(int64(v.mu.space.frontier) * unit)
	v.mu.Unlock()
	for off := int64(0); off < end; off += diskStep {
		v.getsOn()
		if err := v.data.Reserve(off, min(diskStep, end-off)); err != nil {
			v.log.Warn("the disk has no room for what the cache holds", "dir", v.dir, "error", err)
			break
		}
	}
	return errors.Join(v.trim(pages(v.capacity)), v.trimMetadata())
}

// trimMetadata cuts off what lies behind the last record and the last cell that
// there may be, as when the capacity was larger.
func (v *volume) trimMetadata() error {
	v.mu.Lock()
	slots, cells := v.mu.space.high, v.mu.objects.high()
	v.mu.Unlock()
	return errors.Join(cutTo(v.blocks, recordOffset(slots+1)), cutTo(v.objects, cellOffset(cells+1)))
}

func cutTo(f file, end int64) error {
	size, err := f.Size()
	if err != nil || size <= end {
		return err
	}
	return f.Truncate(end)
}

// eachObject yields what the volume knows of the objects that it has blocks
// of. It answers false when the caller has had enough.
func (v *volume) eachObject(yield func(Entry) bool) bool {
	v.mu.Lock()
	down := v.mu.down || !v.mu.opened
	var objects file
	if !down { // open writes it without the lock, and is over
		objects = v.objects
	}
	v.mu.Unlock()
	if down {
		return true
	}
	cells, err := scanCells(objects)
	if err != nil {
		v.readFailed()
		return true
	}
	for key, d := range cells.byKey {
		v.mu.Lock()
		_, held := v.mu.objects.byKey[key]
		v.mu.Unlock()
		if !held || !d.whole() {
			continue
		}
		e, ok := parseDescription(slices.Concat(d.parts...), key)
		if ok && !yield(e) {
			return false
		}
	}
	return true
}
