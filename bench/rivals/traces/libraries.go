package main

import (
	"github.com/Yiling-J/theine-go"
	"github.com/dgraph-io/ristretto/v2"
	"github.com/maypok86/otter/v2"

	"headstart/bench/cachehit"
)

type otterCache struct{ c *otter.Cache[uint32, bool] }

// newOtter does its housekeeping in the caller's goroutine: nothing is lost to
// lag.
func newOtter(size int, _ *cachehit.Trace) policy {
	return otterCache{otter.Must(&otter.Options[uint32, bool]{MaximumSize: size, Executor: func(f func()) { f() }})}
}

func (p otterCache) access(key uint32) bool {
	if _, ok := p.c.GetIfPresent(key); ok {
		return true
	}
	p.c.Set(key, true)
	return false
}

func (p otterCache) close() { p.c.StopAllGoroutines() }

type theineCache struct{ c *theine.Cache[uint32, bool] }

func newTheine(size int, _ *cachehit.Trace) policy {
	c, err := theine.NewBuilder[uint32, bool](int64(size)).Build()
	if err != nil {
		panic(err)
	}
	return theineCache{c}
}

func (p theineCache) access(key uint32) bool {
	if _, ok := p.c.Get(key); ok {
		return true
	}
	p.c.Set(key, true, 1)
	return false
}

func (p theineCache) close() { p.c.Close() }

type ristrettoCache struct {
	c *ristretto.Cache[uint32, bool]
}

func newRistretto(size int, _ *cachehit.Trace) policy {
	c, err := ristretto.NewCache(&ristretto.Config[uint32, bool]{
		NumCounters: int64(10 * size), MaxCost: int64(size), BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		panic(err)
	}
	return ristrettoCache{c}
}

func (p ristrettoCache) access(key uint32) bool {
	if _, ok := p.c.Get(key); ok {
		return true
	}
	p.c.Set(key, true, 1)
	p.c.Wait()
	return false
}

func (p ristrettoCache) close() { p.c.Close() }
