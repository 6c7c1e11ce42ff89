package warmup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"headstart/blockcache"
	"headstart/engine/block"
	"headstart/shards/placement"
)

// copying is one object to copy from.
type copying struct {
	placement.WarmObject
	route block.Route
	// blocks are this node's; nil means all.
	blocks []placement.BlockRange
	// source has the blocks, if it has a port.
	source block.Addr
}

// wanted turns a source's word on an object into what is to be copied here. The
// source may cut its objects otherwise.
func (s *Service) wanted(o placement.HotObject, blockSize int64, source block.Addr) (copying, bool) {
	c := copying{WarmObject: o.WarmObject, route: block.Route{Kind: block.RouteTablet, ID: o.Tablet}}
	g := block.Geometry(s.Engine.BlockSize)
	all := g.Blocks(o.Meta.Size)
	if all == 0 || blockSize <= 0 || o.Meta.Version != block.Immutable {
		return c, false
	}
	if blockSize == s.Engine.BlockSize {
		c.source = source
	}
	for _, r := range o.Blocks {
		if r.First > uint64(o.Meta.Size)/uint64(blockSize) || r.Count <= 0 {
			continue
		}
		from := int64(r.First) * blockSize
		to := min(from+int64(r.Count)*blockSize, o.Meta.Size)
		first := g.Index(from)
		if end := min(g.Index(to-1)+1, all); first < end {
			c.blocks = append(c.blocks, placement.BlockRange{First: first, Count: int(end - first)})
		}
	}
	s.Engine.LearnOfTablet(c.route, o.Object, o.Meta)
	return c, len(c.blocks) > 0
}

// copyObject copies the blocks of one object that the cache lacks.
func (s *Service) copyObject(b *batch, c copying) (first error) {
	if c.blocks == nil {
		all := block.Geometry(s.Engine.BlockSize).Blocks(c.Meta.Size)
		if all == 0 {
			return nil
		}
		c.blocks = []placement.BlockRange{{Count: int(all)}}
	}
	base := block.BaseID(c.Object, c.Meta.Version)
	for _, r := range c.blocks {
		for end := r.First + uint64(r.Count); r.First < end; r.First += block.MaxRun {
			run := s.missing(base, block.NewRun(r.First, int(min(block.MaxRun, end-r.First))))
			if run.Want == 0 {
				continue
			}
			if err := s.pace.take(b.ctx, int64(run.Count())*s.Engine.BlockSize, s.Settings.BytesPerSecond.Load); err != nil {
				return err
			}
			if err := s.copyRun(b, &c, base, run); err != nil && first == nil {
				first = fmt.Errorf("%v: %w", c.Object, err)
			}
		}
	}
	return first
}

// missing returns a run without the blocks that the cache has.
func (s *Service) missing(base block.ID, run block.Run) block.Run {
	for i := range uint64(block.MaxRun) {
		if index := run.First + i; run.Has(index) && s.Cache.Has(base.At(index)) {
			run = run.Without(index)
		}
	}
	return run
}

// attempts is how often object storage is read for blocks that the cache did not
// take, because too many waited for the disk.
const attempts = 3

// copyRun copies a run of blocks: from the source that has them, if that is
// wanted, and what it does not give from object storage.
func (s *Service) copyRun(b *batch, c *copying, base block.ID, run block.Run) error {
	if c.source.Port != 0 && s.Settings.FromPeer.Load() {
		s.fromPeer(b, c, base, run)
		run = s.missing(base, run)
	}
	for attempt := range attempts {
		for rest := run; rest.Want != 0; {
			var span block.Run
			span, rest = rest.Span()
			if err := s.fromStore(b, c, span); err != nil {
				return err
			}
		}
		// An object outside tablets that has changed since it was listed has other
		// blocks now: those that its name stood for are not to be had.
		if run = s.missing(base, run); run.Want == 0 || c.route.Kind != block.RouteTablet {
			return nil
		}
		if err := s.rest(b.ctx, attempt); err != nil {
			return err
		}
	}
	return fmt.Errorf("the File Cache does not take %v", run)
}

// rest gives the disk time, more each time.
func (s *Service) rest(ctx context.Context, attempt int) error {
	timer := time.NewTimer(50 * time.Millisecond << attempt)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// peerTimeout bounds the fetch of one run from a source.
const peerTimeout = 10 * time.Second

// fromPeer copies what a source gives. Whatever goes wrong, object storage has
// the blocks too.
func (s *Service) fromPeer(b *batch, c *copying, base block.ID, run block.Run) {
	ctx, cancel := context.WithTimeout(b.ctx, peerTimeout)
	defer cancel()
	stream, err := s.Peers.FetchFrom(ctx, c.source, &block.Fetch{
		Object: c.Object, Meta: c.Meta, BlockSize: s.Engine.BlockSize, Run: run, Route: c.route,
	})
	if err != nil {
		return
	}
	defer stream.Close()
	for {
		piece, err := stream.Next()
		if err != nil {
			return
		}
		if piece.Buf == nil {
			continue
		}
		s.keep(ctx, c, base.At(piece.Index), piece.Buf)
		n := int64(len(piece.Buf.Bytes()))
		piece.Buf.Release()
		b.add(n)
		s.count.peerBlocks.Add(1)
		s.count.peerBytes.Add(n)
	}
}

// keep hands a block to the cache. A block that was paid for is worth waiting
// for the disk.
func (s *Service) keep(ctx context.Context, c *copying, id block.ID, buf *block.Buf) {
	entry := blockcache.Entry{Object: c.Object, Meta: c.Meta, ID: id, Route: c.route}
	for attempt := 0; attempt < attempts && !s.Cache.Offer(&entry, buf); attempt++ {
		if s.rest(ctx, attempt) != nil {
			return
		}
	}
}

// fromStore reads neighbouring blocks by the engine, which keeps them.
func (s *Service) fromStore(b *batch, c *copying, span block.Run) error {
	g := block.Geometry(s.Engine.BlockSize)
	version := block.Version("") // whatever is current
	if c.route.Kind == block.RouteTablet {
		version = block.Immutable
	}
	r, err := s.Engine.Open(b.ctx, &block.Read{
		Object: c.Object, Version: version, Route: c.route, NoPeer: true,
		Offset: g.Offset(span.First), Size: int64(span.Count()) * s.Engine.BlockSize,
	})
	if errors.Is(err, block.ErrRange) && c.route.Kind != block.RouteTablet {
		return nil // it is shorter than it was when it was listed
	}
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		view, err := r.Next(b.ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		n := int64(view.Lease.Len())
		from := view.Source
		view.Lease.Release()
		if from == block.SourceStore {
			b.add(n)
			s.count.storeBlocks.Add(1)
			s.count.storeBytes.Add(n)
		}
	}
}

func (b *batch) add(n int64) {
	b.blocks.Add(1)
	b.bytes.Add(n)
}
