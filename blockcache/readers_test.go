package blockcache_test

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/profile"
)

const blockSize = 4096

// origin is object storage: every object has 10,000 blocks, the first of which is
// there after 40 ms.
type origin struct{}

func (origin) meta() block.Meta {
	return block.Meta{Size: 10_000 * blockSize, Version: block.Immutable}
}

// Head implements engine.Origin.
func (o origin) Head(context.Context, block.Object) (block.Meta, error) { return o.meta(), nil }

// Fetch implements block.Store.
func (o origin) Fetch(_ context.Context, f *block.Fetch) (block.Stream, error) {
	time.Sleep(40 * time.Millisecond)
	return &body{origin: o, left: f.Run}, nil
}

type body struct {
	origin
	left block.Run
}

// Next implements block.Stream.
func (b *body) Next() (block.Piece, error) {
	for i := range uint64(block.MaxRun) {
		if index := b.left.First + i; b.left.Has(index) {
			b.left = b.left.Without(index)
			buf := block.NewBuf(make([]byte, blockSize), nil)
			buf.Seal()
			return block.Piece{Index: index, Status: block.StatusData, Buf: buf}, nil
		}
	}
	return block.Piece{}, io.EOF
}

// Meta implements block.Stream.
func (b *body) Meta() block.Meta { return b.meta() }

// Close implements block.Stream.
func (b *body) Close() {}

// TestPR28_NobodyWaitsForACacheWrite: each write takes two seconds. Readers get
// what object storage gives them when it does, what waits to be written is
// bounded, and what is beyond that is not cached.
func TestPR28_NobodyWaitsForACacheWrite(t *testing.T) {
	const bound, readers, each = 32 * blockSize, 8, 100
	synctest.Test(t, func(t *testing.T) {
		cache, err := blockcache.Open(blockcache.SlowWrites(blockcache.Options{
			Logger: slog.New(slog.DiscardHandler), BlockSize: blockSize, WriteQueueBytes: bound, IOTimeout: time.Minute,
			Paths: []blockcache.Path{{Dir: t.TempDir(), TotalBytes: 64 << 20}},
		}, 2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(engine.Options{
			Cache: cache, Origin: origin{}, Profiles: profile.New(1), Settings: engine.NewSettings(), BlockSize: blockSize,
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Settings.ObjectStorageGetMaxBlocks.Store(1)
		o := block.Object{Store: "s3", Bucket: "b", Key: "k"}
		var all sync.WaitGroup
		for g := range readers {
			all.Go(func() {
				dst := make([]byte, 100)
				for n := range each {
					req := &block.Read{Object: o, Version: block.Immutable, Route: block.TabletRoute(1), Offset: int64(g*each+n) * blockSize}
					begin := time.Now()
					_, _, err := e.Read(context.Background(), req, dst)
					// The first of them wait for the one that learns what the object is.
					if took := time.Since(begin); err != nil || took > 40*time.Millisecond && n > 0 {
						t.Errorf("block %d after %v (%v), want object storage's 40ms", g*each+n, took, err)
					}
					if pending := cache.Metrics().PendingBytes; pending > bound {
						t.Errorf("%d bytes wait to be written, %d may", pending, bound)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		if m := cache.Metrics(); m.PendingBytes == 0 || m.Blocks >= readers*each {
			t.Errorf("%d blocks cached, %d bytes pending: the disk was not slow", m.Blocks, m.PendingBytes)
		}
		e.Close()
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // Close leaves a write that hangs behind
	})
}
