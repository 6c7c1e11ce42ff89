package admin

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/valyala/fasthttp"

	"headstart/blockcache"
	"headstart/engine/block"
)

// target reads value=, the path of an object.
func (s *BE) target(ctx *fasthttp.RequestCtx) (block.Object, bool) {
	obj, err := block.ParsePath(string(ctx.QueryArgs().Peek("value")), s.Bucket)
	if err != nil {
		wrongArgument(ctx, errors.New("value: "+err.Error()))
		return block.Object{}, false
	}
	return obj, true
}

// version is one version of an object that blocks may be cached of.
type version struct {
	base block.ID
	meta block.Meta
}

// versionsOf returns the versions of an object that the node knows: that of
// tablet files, and the current one of an object outside tablets.
func (s *BE) versionsOf(o block.Object) []version {
	var list []version
	for _, v := range []block.Version{block.Immutable, ""} {
		if known := s.Engine.Known(o, v); known != nil {
			list = append(list, version{known.Base, known.Meta})
		}
	}
	return list
}

func (s *BE) blocksOf(v version) uint64 {
	return block.Geometry(s.Engine.BlockSize).Blocks(v.meta.Size)
}

// clearCache serves op=clear[&sync=true][&value=path]: all blocks go, or those
// of one object. With sync the answer comes when the space is free.
func (s *BE) clearCache(ctx *fasthttp.RequestCtx) {
	wait, err := flag(ctx.QueryArgs(), "sync")
	if err != nil {
		wrongArgument(ctx, err)
		return
	}
	if ctx.QueryArgs().Has("value") {
		obj, ok := s.target(ctx)
		if !ok {
			return
		}
		for _, v := range s.versionsOf(obj) {
			s.Cache.DropObject(v.base, s.blocksOf(v))
		}
		done(ctx)
		return
	}
	bound, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	if !wait {
		// The blocks are gone when Clear has looked at bound; the space follows.
		cancel()
	}
	if err := s.Cache.Clear(bound); err != nil && (wait || !errors.Is(err, context.Canceled)) {
		fail(ctx, fasthttp.StatusInternalServerError, "clear_failed", err.Error())
		return
	}
	done(ctx)
}

// releaseCache serves op=release: blocks that nobody holds go, as with
// op=clear, and the answer is how many.
func (s *BE) releaseCache(ctx *fasthttp.RequestCtx) {
	bound, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	blocks := s.Cache.Metrics().Blocks
	if err := s.Cache.Clear(bound); err != nil {
		fail(ctx, fasthttp.StatusInternalServerError, "clear_failed", err.Error())
		return
	}
	answer(ctx, map[string]int{"released_elements": blocks})
}

// resetCache serves op=reset&capacity=bytes&path=dir: the directory may take so
// much of its disk from now on, until the next restart. What is above goes.
func (s *BE) resetCache(ctx *fasthttp.RequestCtx) {
	args := ctx.QueryArgs()
	capacity, err := number(args, "capacity", 0, 1, math.MaxInt64)
	if err == nil && capacity == 0 {
		err = errors.New("capacity is missing")
	}
	if err != nil {
		wrongArgument(ctx, err)
		return
	}
	path := string(args.Peek("path"))
	switch err := s.Cache.Resize(path, capacity); {
	case errors.Is(err, blockcache.ErrNoPath):
		fail(ctx, fasthttp.StatusNotFound, "no_such_path", "path="+quote(path)+" is not in file_cache_path")
	case err != nil:
		wrongArgument(ctx, err)
	default:
		done(ctx)
	}
}

// dumpCache serves op=dump: what is known in memory alone goes to the disk, so
// that a restart finds all of it.
func (s *BE) dumpCache(ctx *fasthttp.RequestCtx) {
	bound, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	if err := s.Cache.Flush(bound); err != nil {
		fail(ctx, fasthttp.StatusInternalServerError, "dump_failed", err.Error())
		return
	}
	done(ctx)
}

// hashOfPath serves op=hash&value=path: what the blocks of the object are
// named by. Without a known version it is the name of tablet files.
func (s *BE) hashOfPath(ctx *fasthttp.RequestCtx) {
	obj, ok := s.target(ctx)
	if !ok {
		return
	}
	base := block.BaseID(obj, block.Immutable)
	if list := s.versionsOf(obj); len(list) > 0 {
		base = list[0].base
	}
	hash, _, _ := strings.Cut(base.String(), "/")
	answer(ctx, map[string]string{"hash": hash})
}

// maxListed bounds what one op=list_cache lists.
const maxListed = 100_000

// listCache serves op=list_cache&value=path: the cached blocks of an object,
// each as hash/number.
func (s *BE) listCache(ctx *fasthttp.RequestCtx) {
	obj, ok := s.target(ctx)
	if !ok {
		return
	}
	list := []string{}
	for _, v := range s.versionsOf(obj) {
		for i := range s.blocksOf(v) {
			lease, ok := s.Cache.Peek(v.base.At(i))
			if !ok {
				continue
			}
			lease.Release()
			if list = append(list, v.base.At(i).String()); len(list) == maxListed {
				answer(ctx, list)
				return
			}
		}
	}
	answer(ctx, list)
}
