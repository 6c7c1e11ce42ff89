package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/VictoriaMetrics/fastcache"
	"github.com/Yiling-J/theine-go"
	"github.com/allegro/bigcache/v3"
	"github.com/dgraph-io/ristretto/v2"
	"github.com/golang/groupcache"
	"github.com/maypok86/otter/v2"

	"headstart/engine/block"
)

// text is a block's name as caches with keys of bytes take it.
func text(ids []block.ID) []string {
	keys := make([]string, len(ids))
	for i, id := range ids {
		b := binary.BigEndian.AppendUint64(nil, id.Hi)
		keys[i] = string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, id.Lo), id.Index))
	}
	return keys
}

// values are all blocks of a cache that keeps what it is given.
func values(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = make([]byte, blockSize)
		list[i][blockSize-1] = 1
	}
	return list
}

// onHeap is a cache that returns the slice it was given.
func onHeap(name, config string, get func(i uint32) ([]byte, bool)) cache {
	return cache{
		name: name, config: config,
		copy: func(i uint32, dst []byte) bool {
			v, ok := get(i)
			return ok && copy(dst, v) == blockSize
		},
		lend: func(i uint32) bool { _, ok := get(i); return ok },
	}
}

func otterCache(ids []block.ID) (cache, error) {
	c, err := otter.New(&otter.Options[block.ID, []byte]{MaximumSize: len(ids) + len(ids)/8})
	if err != nil {
		return cache{}, err
	}
	for i, v := range values(len(ids)) {
		c.Set(ids[i], v)
	}
	return onHeap("otter 2.4.0", "MaximumSize 9/8 of the keys; keys of 24 bytes", func(i uint32) ([]byte, bool) { return c.GetIfPresent(ids[i]) }), nil
}

// ristrettoCache: keys are strings, since ristretto hashes no structs.
func ristrettoCache(ids []block.ID) (cache, error) {
	keys := text(ids)
	c, err := ristretto.NewCache(&ristretto.Config[string, []byte]{
		NumCounters: int64(10 * len(ids)), MaxCost: int64(2 * len(ids)), BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return cache{}, err
	}
	for i, v := range values(len(ids)) {
		for !c.Set(keys[i], v, 1) { // it drops when its buffer is full
			c.Wait()
		}
		if i%1024 == 0 {
			c.Wait()
		}
	}
	c.Wait()
	return onHeap("ristretto 2.4.2", "MaxCost 2 for a key of cost 1, 10 counters a key, BufferItems 64; keys are strings", func(i uint32) ([]byte, bool) { return c.Get(keys[i]) }), nil
}

func theineCache(ids []block.ID) (cache, error) {
	c, err := theine.NewBuilder[block.ID, []byte](int64(2 * len(ids))).Build()
	if err != nil {
		return cache{}, err
	}
	for i, v := range values(len(ids)) {
		c.Set(ids[i], v, 1)
	}
	c.Wait()
	return onHeap("theine 0.6.3", "room for twice the keys; keys of 24 bytes", func(i uint32) ([]byte, bool) { return c.Get(ids[i]) }), nil
}

func bigCache(ids []block.ID) (cache, error) {
	keys := text(ids)
	o := bigcache.DefaultConfig(24 * time.Hour)
	o.Verbose, o.CleanWindow, o.MaxEntriesInWindow, o.MaxEntrySize = false, 0, len(ids), blockSize
	c, err := bigcache.New(context.Background(), o)
	if err != nil {
		return cache{}, err
	}
	for i, v := range values(len(ids)) {
		if err := c.Set(keys[i], v); err != nil {
			return cache{}, err
		}
	}
	return cache{
		name: "bigcache 3.1.0", config: "1024 shards, nothing expires; returns a fresh copy, which is copied once more into the caller's buffer",
		copy: func(i uint32, dst []byte) bool {
			v, err := c.Get(keys[i])
			return err == nil && copy(dst, v) == blockSize
		},
	}, nil
}

func fastCache(ids []block.ID) (cache, error) {
	keys := make([][]byte, len(ids))
	c := fastcache.New(max(64<<20, 4*blockSize*len(ids)))
	for i, k := range text(ids) {
		keys[i] = []byte(k)
		c.Set(keys[i], values(1)[0])
	}
	return cache{
		name: "fastcache 1.13.2", config: "room for four times the bytes; copies into the caller's buffer under a shard's read lock",
		copy: func(i uint32, dst []byte) bool {
			return len(c.Get(dst[:0], keys[i])) == blockSize
		},
	}, nil
}

// groupCache is a group that has everything in its own memory: no peers.
func groupCache(ids []block.ID) (cache, error) {
	keys := text(ids)
	data := make(map[string][]byte, len(ids))
	for i, v := range values(len(ids)) {
		data[keys[i]] = v
	}
	filled := false
	g := groupcache.NewGroup("blocks", int64(8*blockSize*len(ids)), groupcache.GetterFunc(
		func(_ context.Context, key string, dest groupcache.Sink) error {
			if filled {
				return fmt.Errorf("%x is not in the cache any more", key)
			}
			return dest.SetBytes(data[key])
		}))
	ctx := context.Background()
	for _, k := range keys {
		var v groupcache.ByteView
		if err := g.Get(ctx, k, groupcache.ByteViewSink(&v)); err != nil {
			return cache{}, err
		}
	}
	filled = true
	return cache{
		name: "groupcache", config: "one group, no peers, room for eight times the bytes; one lock around an LRU",
		copy: func(i uint32, dst []byte) bool {
			var v groupcache.ByteView
			return g.Get(ctx, keys[i], groupcache.ByteViewSink(&v)) == nil && v.Copy(dst) == blockSize
		},
		lend: func(i uint32) bool {
			var v groupcache.ByteView
			return g.Get(ctx, keys[i], groupcache.ByteViewSink(&v)) == nil
		},
	}, nil
}
