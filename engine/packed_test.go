package engine

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// packedFile is a read of a file of size bytes that lies at off in the object.
func packedFile(off, size int64) *block.Read {
	return &block.Read{
		Object: testObject(), Version: block.Immutable, Route: tablet(), Packed: &block.Slice{Offset: off, Size: size},
	}
}

// readPacked reads by Read and by Open, and checks that both give the bytes of
// the file from off on, n of them as far as it has as many.
func (w *world) readPacked(file *block.Read, off int64, n int) {
	w.t.Helper()
	want := content(testObject(), "v1", file.Packed.Offset+off, int(max(0, min(int64(n), file.Packed.Size-off))))
	req := *file
	req.Offset = off
	dst := make([]byte, n)
	k, _, err := w.e.Read(context.Background(), &req, dst)
	if err != nil || string(dst[:k]) != string(want) {
		w.t.Errorf("Read of %d bytes at %d of %+v: %d bytes, %v", n, off, *file.Packed, k, err)
	}
	for _, size := range []int64{int64(n), -1} {
		req.Size = size
		if size < 0 {
			want = content(testObject(), "v1", file.Packed.Offset+off, int(file.Packed.Size-off))
		}
		r, err := w.e.Open(context.Background(), &req)
		if err != nil {
			w.t.Errorf("Open of %d bytes at %d of %+v: %v", size, off, *file.Packed, err)
			continue
		}
		if r.Len() != int64(len(want)) {
			w.t.Errorf("Len of %d bytes at %d of %+v: %d, want %d", size, off, *file.Packed, r.Len(), len(want))
		}
		if got := drain(w.t, r); string(got) != string(want) {
			w.t.Errorf("%d bytes at %d of %+v: %d bytes, or wrong ones", size, off, *file.Packed, len(got))
		}
	}
}

// drain reads r to its end.
func drain(t *testing.T, r *Reader) (got []byte) {
	t.Helper()
	defer r.Close()
	for {
		v, err := r.Next(context.Background())
		if err == io.EOF {
			return got
		}
		if err != nil {
			t.Error(err)
			return got
		}
		part := make([]byte, v.To-v.From)
		if _, err := v.Lease.CopyAt(part, v.From); err != nil {
			t.Error(err)
		}
		v.Lease.Release()
		got = append(got, part...)
	}
}

func TestS17_PackedFilesAreReadWithinTheirEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		const end = 20*testBlock + 100
		for _, f := range [][2]int64{{0, 100}, {100, 1}, {testBlock - 5, 10}, {3*testBlock + 7, 2*testBlock + 9}, {end - 50, 50}, {0, end}, {70, 0}, {end, 0}} {
			file := packedFile(f[0], f[1])
			for _, off := range []int64{0, 1, f[1] / 2, f[1] - 1, f[1]} {
				if off < 0 || off > f[1] {
					continue
				}
				for _, n := range []int{0, 1, 5, testBlock, 25 * testBlock} {
					w.readPacked(file, off, n)
				}
			}
		}
	})
}

func TestS17_RangesThatNoPackedFileHas(t *testing.T) {
	const end = 20*testBlock + 100
	inWorld(t, func(w *world) {
		for _, c := range []struct {
			file block.Slice
			off  int64
		}{
			{block.Slice{Offset: 50, Size: 100}, 101}, // behind the file, though not behind the object
			{block.Slice{Offset: 50, Size: 100}, -1},
			{block.Slice{Offset: -1, Size: 100}, 0},
			{block.Slice{Offset: 50, Size: -1}, 0},
			{block.Slice{Offset: 50, Size: math.MaxInt64}, 0},
			{block.Slice{Offset: end - 50, Size: 51}, 0}, // the object is too short for the file
			{block.Slice{Offset: end + 1, Size: 1}, 0},
		} {
			for range 2 { // the object is not known, then it is
				req := packedFile(c.file.Offset, c.file.Size)
				req.Offset = c.off
				if n, _, err := w.e.Read(context.Background(), req, make([]byte, 10)); !errors.Is(err, block.ErrRange) || n != 0 {
					t.Errorf("%+v from %d: Read gives %d bytes, %v", c.file, c.off, n, err)
				}
				req.Size = 10
				if _, err := w.e.Open(context.Background(), req); !errors.Is(err, block.ErrRange) {
					t.Errorf("%+v from %d: Open gives %v", c.file, c.off, err)
				}
				w.learn()
			}
		}
		if m := w.e.Metrics(); m.ReadErrors != 28 {
			t.Errorf("%d failed reads counted, want 28", m.ReadErrors)
		}
	})
}

// Forty files in one block cost one GET, or one call to a peer that has the block
// of the object: nobody is asked for a file that does not exist by itself.
func TestS17PR26_PackedFilesShareTheBlocksOfTheirObject(t *testing.T) {
	for _, peer := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.learn()
			if peer {
				w.know(tablet(), candidate(1, "cg_a"))
				w.peer(1, serves(time.Millisecond))
			}
			gets := len(w.gets())
			for i := range int64(40) {
				w.readPacked(packedFile(5*testBlock+i*100, 100), 0, 100)
				synctest.Wait()
			}
			asked := w.calls()
			if !peer {
				asked = w.gets()[gets:]
			}
			if len(asked) != 1 || asked[0].req.Object != testObject() || asked[0].req.Run != block.NewRun(5, 1) {
				t.Errorf("peer %v: asked %d times, want once for block 5 of the object", peer, len(asked))
			}
			if m := w.e.Metrics(); len(w.gets()) != gets+len(asked)-int(m.PeerReads) || m.ObjectsKnown != 1 {
				t.Errorf("%d GETs, %d objects known", len(w.gets())-gets, m.ObjectsKnown)
			}
		})
	}
}
