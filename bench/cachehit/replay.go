package cachehit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"headstart/blockcache"
	"headstart/engine/block"
)

// blockSize makes every block one page, so that a cache can be sized to the
// block.
const blockSize = 4 << 10

// replay is a cache of a fixed number of blocks.
type replay struct {
	cache  *blockcache.Cache
	dir    string
	object block.Object
	meta   block.Meta
	base   block.ID
	bytes  []byte
}

// Replay runs a row through a cache that holds exactly row.Size blocks, and
// returns how many of its accesses were hits. Files go below tmp.
func Replay(row Row, tmp string) (hits int, err error) {
	r, err := open(row.Size, tmp)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, key := range row.Trace.Access {
		hit, err := r.access(uint64(key))
		if err != nil {
			return 0, err
		}
		if hit {
			hits++
		}
	}
	if n := r.cache.Metrics().Blocks; n > row.Size {
		return 0, fmt.Errorf("%s: the cache holds %d blocks", row, n)
	}
	if n := r.cache.Metrics().Corrupt; n > 0 {
		return 0, fmt.Errorf("%s: %d blocks were dropped as corrupt", row, n)
	}
	return hits, nil
}

// open finds the capacity that holds so many blocks and no more.
func open(blocks int, tmp string) (*replay, error) {
	total := int64(blocks)*blockSize*21/20 + 1<<20
	for range 20 {
		got, err := blocksOf(total, blocks, tmp)
		if err != nil {
			return nil, err
		}
		if got == blocks {
			return start(total, tmp)
		}
		total += int64(blocks-got) * blockSize
	}
	return nil, fmt.Errorf("no capacity holds exactly %d blocks", blocks)
}

// blocksOf returns how many blocks a cache of total bytes holds, counting to
// a bit more than most.
func blocksOf(total int64, most int, tmp string) (n int, err error) {
	r, err := start(total, tmp)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for i := range most + most/4 + 600 {
		if _, err := r.access(uint64(i)); err != nil {
			return 0, err
		}
	}
	return r.cache.Metrics().Blocks, nil
}

func start(total int64, tmp string) (*replay, error) {
	dir, err := os.MkdirTemp(tmp, "cachehit")
	if err != nil {
		return nil, err
	}
	cache, err := blockcache.Open(blockcache.Options{
		Paths:     []blockcache.Path{{Dir: dir, TotalBytes: total}},
		BlockSize: blockSize,
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r := &replay{cache: cache, dir: dir, bytes: make([]byte, blockSize)}
	r.object = block.Object{Store: block.DefaultStore, Bucket: "trace", Key: "blocks"}
	r.meta = block.Meta{Size: 1 << 40, Version: block.Immutable}
	r.base = block.BaseID(r.object, r.meta.Version)
	return r, nil
}

func (r *replay) close() error { return errors.Join(r.cache.Close(), os.RemoveAll(r.dir)) }

// access is one read: a hit, or an offer that is on disk before the next.
func (r *replay) access(key uint64) (bool, error) {
	id := r.base.At(key)
	if l, ok := r.cache.Get(id); ok {
		l.Release()
		return true, nil
	}
	b := block.NewBuf(r.bytes, nil)
	b.Seal() // or the scrubber takes it out
	defer b.Release()
	if !r.cache.Offer(&blockcache.Entry{Object: r.object, Meta: r.meta, ID: id}, b) {
		return false, fmt.Errorf("block %d was refused", key)
	}
	return false, r.cache.Flush(context.Background())
}
