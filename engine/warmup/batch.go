package warmup

import (
	"context"
	"sync/atomic"

	"headstart/shards/placement"
)

// batch is a batch on its way. Its state is one of the FE's words:
//
//	queued ──► running ──► done
//	   │          │  └───► failed
//	   └──────────┴──────► unknown: it was dropped
type batch struct {
	placement.WarmBatch
	ctx    context.Context
	cancel context.CancelFunc
	// state is moved by the worker that runs the batch. err is written before the
	// state becomes failed.
	state         atomic.Uint32
	err           error
	blocks, bytes atomic.Int64
}

func newBatch(ctx context.Context, b placement.WarmBatch) *batch {
	w := &batch{WarmBatch: b}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.state.Store(uint32(placement.WarmQueued))
	return w
}

// begin reports whether the batch is still wanted.
func (b *batch) begin() bool {
	if b.ctx.Err() != nil {
		b.state.Store(uint32(placement.WarmUnknown))
		return false
	}
	return b.state.CompareAndSwap(uint32(placement.WarmQueued), uint32(placement.WarmRunning))
}

func (b *batch) end(err error) {
	switch {
	case err == nil:
		b.state.Store(uint32(placement.WarmDone))
	case b.ctx.Err() != nil:
		b.state.Store(uint32(placement.WarmUnknown))
	default:
		b.err = err
		b.state.Store(uint32(placement.WarmFailed))
	}
}

func (b *batch) progress() placement.WarmProgress {
	p := placement.WarmProgress{ID: b.ID, State: placement.WarmState(b.state.Load()), Blocks: b.blocks.Load(), Bytes: b.bytes.Load()}
	if p.State == placement.WarmFailed {
		p.Err = b.err.Error()
	}
	return p
}
