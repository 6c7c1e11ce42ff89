package engine

import (
	"fmt"

	"headstart/engine/block"
	"headstart/engine/plan"
)

// unpack turns a read of a packed file into one of the object that holds it
// (S17). Blocks are the object's: the files in it share them, here and at peers,
// and a fill asks for nothing that does not exist (PR-26).
func unpack(req *block.Read) error {
	p := req.Packed
	if p == nil || req.Size == 0 {
		return nil
	}
	left := p.Size - req.Offset
	if p.Offset < 0 || p.Offset+p.Size < p.Offset || req.Offset < 0 || left < 0 {
		return &block.Error{Op: "read", Object: req.Object, Err: fmt.Errorf(
			"offset %d of a packed file of %d bytes at %d: %w", req.Offset, p.Size, p.Offset, block.ErrRange)}
	}
	if req.Size < 0 || req.Size > left {
		req.Size = left
	}
	req.Offset += p.Offset
	return nil
}

// clamp cuts a read, of which skip bytes are done, down to the object. A packed
// file must lie in it with all its bytes: a shorter object is not the one that
// the file was packed into.
func (e *Engine) clamp(req *block.Read, skip, objectSize int64) (plan.Range, bool) {
	if p := req.Packed; p != nil && p.Offset+p.Size > objectSize {
		return plan.Range{}, false
	}
	rest := req.Size
	if rest > 0 {
		rest -= skip
	}
	return plan.Clamp(e.geometry, req.Offset+skip, rest, objectSize)
}
