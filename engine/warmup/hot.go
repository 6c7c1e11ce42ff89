package warmup

import (
	"headstart/engine/block"
	"headstart/engine/object"
	"headstart/shards/placement"
)

const (
	// maxHotObjects and maxHotRanges bound one answer; what is beyond is not
	// copied.
	maxHotObjects = 4096
	maxHotRanges  = 16_384
)

// Hot returns what the cache has of tablets: of the files that were read for
// them.
func (s *Service) Hot(tablets []uint64) placement.HotReply {
	want := make(map[uint64]bool, len(tablets))
	for _, id := range tablets {
		want[id] = true
	}
	reply := placement.HotReply{BlockSize: s.Engine.BlockSize}
	if len(tablets) == 0 { // a greeting
		return reply
	}
	ranges := 0
	s.scan.Lock() // a walk over a million objects is enough at a time
	defer s.scan.Unlock()
	s.Engine.OfTablets(want, func(tablet uint64, o block.Object, known *object.Known) bool {
		cached := s.cached(known, maxHotRanges-ranges)
		if len(cached) == 0 {
			return true
		}
		ranges += len(cached)
		reply.Objects = append(reply.Objects, placement.HotObject{
			Tablet: tablet, WarmObject: placement.WarmObject{Object: o, Meta: known.Meta}, Blocks: cached,
		})
		return len(reply.Objects) < maxHotObjects && ranges < maxHotRanges
	})
	return reply
}

// cached returns which blocks of an object the cache has, in at most so many
// ranges.
func (s *Service) cached(known *object.Known, most int) (ranges []placement.BlockRange) {
	all := block.Geometry(s.Engine.BlockSize).Blocks(known.Meta.Size)
	for i := range all {
		if !s.Cache.Has(known.Base.At(i)) {
			continue
		}
		if last := len(ranges) - 1; last >= 0 && ranges[last].First+uint64(ranges[last].Count) == i {
			ranges[last].Count++
			continue
		}
		if len(ranges) == most {
			break
		}
		ranges = append(ranges, placement.BlockRange{First: i, Count: 1})
	}
	return ranges
}
