package engine

import (
	"context"

	"headstart/engine/block"
)

// Getting reports whether the node is reading a block from object storage, for
// whomever.
func (e *Engine) Getting(id block.ID) bool { return e.gets.Has(id) }

// Await waits for the GET of a block that is under way and returns the block,
// which the caller releases. It never starts a GET and never waits for a peer:
// without a GET, or when that brings nothing, it looks into the cache, and
// answers an invalid lease when the block is not there either.
func (e *Engine) Await(ctx context.Context, id block.ID) (block.Lease, error) {
	var failed error
	if f := e.gets.JoinOpen(id); f != nil {
		res, err := f.Wait(ctx)
		if err == nil && res.Buf != nil {
			lease := res.Buf.Retain().Lease()
			f.Leave()
			return lease, nil
		}
		e.count.wastedBytes.Add(f.Leave())
		if err != nil {
			return block.Lease{}, err
		}
		failed = res.Err
	}
	if lease, ok := e.Cache.Peek(id); ok {
		return lease, nil
	}
	return block.Lease{}, failed
}
