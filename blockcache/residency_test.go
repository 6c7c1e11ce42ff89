package blockcache

import (
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
)

// What is remembered of pages is what was said of them in this epoch, whichever
// questions came before, and in whatever order.
func TestResidencyRemembersWhatWasSaid(t *testing.T) {
	const pages = 700 // more than two questions, and no whole region at the end
	rnd := rand.New(rand.NewPCG(1, 2))
	r := newResidency(pages * pageSize)
	var in, asked [pages]bool
	for epoch := uint32(1); epoch < 40; epoch++ {
		asked = [pages]bool{}
		for i := range in {
			in[i] = rnd.IntN(40) > 0
		}
		resident := func(first, last uint64) (set pageSet) {
			if last >= pages || last/regionPages-first/regionPages >= askRegions {
				t.Fatalf("asked about pages %d to %d", first, last)
			}
			for i := first; i <= last; i++ {
				asked[i] = true
				if in[i] {
					set[i/regionPages-first/regionPages] |= 1 << (i % regionPages)
				}
			}
			return set
		}
		for range 50 {
			first := rnd.Uint64N(pages)
			last := min(pages-1, first+rnd.Uint64N([]uint64{1, 40, pages}[rnd.IntN(3)]))
			want, seen := true, true
			for i := first; i <= last; i++ {
				want, seen = want && in[i], seen && asked[i]
			}
			if has := r.has(first, last, epoch); has && !(want && seen) {
				t.Fatalf("pages %d to %d are said to be in memory, where that is %v, and it was asked: %v", first, last, want, seen)
			}
			if got := r.ask(first, last, pages, epoch, resident); got != want || r.has(first, last, epoch) != want {
				t.Fatalf("pages %d to %d: asked %v, remembered %v, want %v", first, last, got, r.has(first, last, epoch), want)
			}
		}
	}
}

// The kernel's answer is put at the right bits, wherever a question begins and ends.
func TestResidentIsThePagesOfTheQuestion(t *testing.T) {
	const pages = 512
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f, err := openDiskFile(root, dataName)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(pages * pageSize); err != nil {
		t.Fatal(err)
	}
	mapped, err := f.Map(pages * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mapped) }()
	// Of a hole only those pages are in memory that somebody has touched.
	rnd, in := rand.New(rand.NewPCG(3, 4)), [pages]bool{}
	for range pages / 3 {
		at := rnd.IntN(pages)
		if _, err := f.WriteAt([]byte{1}, int64(at)*pageSize); err != nil {
			t.Fatal(err)
		}
	}
	for i := range in {
		in[i] = f.Resident(mapped, uint64(i), uint64(i))[0] != 0
	}
	if !slices.Contains(in[:], true) || !slices.Contains(in[:], false) {
		t.Fatal("all pages of a file with holes are alike")
	}
	for range 1000 {
		first := rnd.Uint64N(pages)
		last := first + rnd.Uint64N(min(pages-first, (askRegions-1)*regionPages))
		got := f.Resident(mapped, first, last)
		for i := first / regionPages * regionPages; i < (last/regionPages+1)*regionPages; i++ {
			bit := got[i/regionPages-first/regionPages]>>(i%regionPages)&1 == 1
			if want := i >= first && i <= last && in[i]; bit != want {
				t.Fatalf("pages %d to %d: page %d is %v, want %v", first, last, i, bit, want)
			}
		}
	}
}
