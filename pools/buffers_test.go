package pools

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"headstart/engine/block"
)

func newBuffers(t *testing.T, opts BuffersOptions) *Buffers {
	t.Helper()
	opts.Name = "test"
	b, err := NewBuffers(opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustGet(t *testing.T, b *Buffers, n int) *block.Buf {
	t.Helper()
	buf, err := b.Get(n)
	if err != nil {
		t.Fatal(err)
	}
	if len(buf.Bytes()) != n {
		t.Fatalf("Get(%d) lends %d bytes", n, len(buf.Bytes()))
	}
	return buf
}

func TestBuffersComeInClasses(t *testing.T) {
	for _, c := range []struct{ blockSize, n, size int }{
		{1 << 20, 0, 4096},
		{1 << 20, 1, 4096},
		{1 << 20, 4096, 4096},
		{1 << 20, 4097, 8192},
		{1 << 20, 8192, 8192},
		{1 << 20, 512<<10 + 1, 1 << 20},
		{1 << 20, 1 << 20, 1 << 20},
		{1 << 20, 1<<20 + 1, 1<<20 + 1},
		{3 << 20, 2<<20 + 1, 3 << 20},
		{3 << 20, 2 << 20, 2 << 20},
		{3 << 20, 3 << 20, 3 << 20},
		{1000, 1, 1000},
		{1000, 1000, 1000},
		{1000, 1001, 1001},
	} {
		b := newBuffers(t, BuffersOptions{BlockSize: c.blockSize})
		buf := mustGet(t, b, c.n)
		if got := b.Metrics().LentBytes; buf.Cap() != c.size || got != int64(c.size) {
			t.Errorf("block size %d: Get(%d) has %d bytes and counts %d, want %d", c.blockSize, c.n, buf.Cap(), got, c.size)
		}
		buf.Truncate(c.n / 2)
		buf.Release()
		if got := b.Metrics().LentBytes; got != 0 {
			t.Errorf("Get(%d): %d bytes are left on the books", c.n, got)
		}
	}
}

func TestBuffersRefuseBeyondTheBudget(t *testing.T) {
	b := newBuffers(t, BuffersOptions{BudgetBytes: 3 << 20})
	held := []*block.Buf{mustGet(t, b, 1<<20), mustGet(t, b, 1<<20), mustGet(t, b, 1<<20)}
	_, err := b.Get(1)
	if !errors.Is(err, block.ErrBusy) || !strings.Contains(err.Error(), `"test"`) || !strings.Contains(err.Error(), "3145728") {
		t.Errorf("beyond the budget: %v", err)
	}
	held[0].Retain().Release()
	if _, err := b.Get(1); err == nil {
		t.Error("a buffer that somebody holds has been given up")
	}
	held[0].Release()
	mustGet(t, b, 1).Release()
	if m := b.Metrics(); m.Refused != 2 || m.LentBytes != 2<<20 || m.MaxLentBytes != 3<<20 {
		t.Errorf("metrics %+v", m)
	}
	if _, err := b.Get(-1); err == nil || errors.Is(err, block.ErrBusy) {
		t.Errorf("Get(-1): %v", err)
	}
}

func TestBuffersKeepNoMoreThanTheyMay(t *testing.T) {
	b := newBuffers(t, BuffersOptions{BudgetBytes: 8 << 20, KeepBytes: 2 << 20})
	var held []*block.Buf
	for range 8 {
		held = append(held, mustGet(t, b, 1<<20))
	}
	for _, buf := range held {
		buf.Release()
	}
	if m := b.Metrics(); m.KeptBytes != 2<<20 || m.LentBytes != 0 {
		t.Errorf("metrics %+v", m)
	}
	// Memory of one class makes room for another one.
	for range 8 << 20 / minClass {
		mustGet(t, b, minClass)
	}
	if m := b.Metrics(); m.KeptBytes != 0 || m.LentBytes != 8<<20 {
		t.Errorf("metrics %+v", m)
	}
}

func TestBuffersUnderRandomLoad(t *testing.T) {
	const budget = 2 << 20
	b := newBuffers(t, BuffersOptions{BudgetBytes: budget, BlockSize: 256 << 10})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(g)))
			var held []*block.Buf
			for range 3000 {
				if n := len(held); n > 0 && random.IntN(2) == 0 {
					buf := held[n-1]
					held = held[:n-1]
					for i := 0; i < len(buf.Bytes()); i += 500 {
						if buf.Bytes()[i] != byte(g) {
							t.Error("two holders share memory")
						}
					}
					buf.Release()
					continue
				}
				buf, err := b.Get(random.IntN(300 << 10))
				if err != nil {
					continue
				}
				for i := 0; i < len(buf.Bytes()); i += 500 {
					buf.Bytes()[i] = byte(g)
				}
				held = append(held, buf)
				if m := b.Metrics(); m.LentBytes+m.KeptBytes > budget {
					t.Errorf("over the budget: %+v", m)
				}
			}
			for _, buf := range held {
				buf.Release()
			}
		})
	}
	wg.Wait()
	if m := b.Metrics(); m.LentBytes != 0 || m.Refused == 0 || m.Made == m.Gets {
		t.Errorf("metrics %+v", m)
	}
}

func TestBuffersOptionsAreChecked(t *testing.T) {
	for _, opts := range []BuffersOptions{
		{BudgetBytes: -1}, {KeepBytes: -1}, {BlockSize: -1}, {BudgetBytes: 1000, BlockSize: 1001},
	} {
		if _, err := NewBuffers(opts); err == nil {
			t.Errorf("%+v is accepted", opts)
		}
	}
}
