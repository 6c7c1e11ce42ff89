package engine

import (
	"headstart/engine/block"
	"headstart/engine/object"
	"headstart/engine/plan"
)

// readLocal is the hit path: it copies blocks from the cache as long as they
// are there, and reports whether that was all of the read. It allocates
// nothing, locks nothing and asks nobody. What a hit counts costs it as much as
// its look-up, so it is counted once a read; first: the read itself has not been.
func (e *Engine) readLocal(req *block.Read, dst []byte, first bool) (n int, known *object.Known, done bool) {
	reads := int64(0)
	if first {
		reads = 1
	}
	known, rng := e.locate(req)
	if known == nil {
		e.count.local.Add(reads, 0, 0)
		return 0, nil, req.Size == 0
	}
	n, blocks := e.copyBlocks(req, known, rng, dst)
	e.count.local.Add(reads, blocks, int64(n))
	if blocks > 0 && req.QueryID != "" {
		e.Profiles.Get(req.QueryID).AddLocal(req.Kind, blocks, int64(n))
	}
	return n, known, uint64(blocks) == rng.Count
}

// locate returns which blocks the read is of, or nil if that is not known.
func (e *Engine) locate(req *block.Read) (*object.Known, plan.Range) {
	if req.Size == 0 {
		return nil, plan.Range{}
	}
	known := e.Fresh(req)
	if known == nil {
		return nil, plan.Range{}
	}
	rng, ok := e.clamp(req, 0, known.Meta.Size)
	if !ok {
		return nil, plan.Range{}
	}
	known.NoteRoute(req.Route, req.Packed != nil)
	return known, rng
}

// copyBlocks copies those of rng that are there, up to the first that is not.
func (e *Engine) copyBlocks(req *block.Read, known *object.Known, rng plan.Range, dst []byte) (n int, blocks int64) {
	for i := range rng.Count {
		lease, ok := e.Cache.Get(known.Base.At(rng.First + i))
		if !ok {
			break
		}
		from, to := e.cut(rng, rng.First+i)
		k, err := lease.CopyAt(dst[n:n+to-from], from)
		lease.Release()
		if err != nil || k != to-from {
			break // the cache has dropped the block: fetch it
		}
		n += k
		blocks++
		e.used(req, known, rng.First+i)
	}
	return n, blocks
}
