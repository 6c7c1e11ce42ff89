package rpc

import (
	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/shards/placement"
)

// How what an FE and its BEs tell each other looks on the wire, and back.

func tabletsOf(ids []int64) []uint64 {
	out := make([]uint64, len(ids))
	for i, id := range ids {
		out[i] = uint64(id)
	}
	return out
}

func wireTablets(ids []uint64) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}

func wireHolder(h placement.Holder) *headstart.Holder {
	return &headstart.Holder{Host: h.Addr.Host, BrpcPort: int32(h.Addr.Port), ComputeGroupId: h.GroupID, Location: h.Location}
}

func holderOf(h *headstart.Holder) placement.Holder {
	return placement.Holder{Addr: block.Addr{Host: h.Host, Port: int(h.BrpcPort)}, GroupID: h.ComputeGroupId, Location: h.Location}
}

func wireObjects(objects []placement.WarmObject) []*headstart.WarmObject {
	out := make([]*headstart.WarmObject, len(objects))
	for i, o := range objects {
		out[i] = &headstart.WarmObject{Object: wireObject(o.Object), Meta: wireMeta(o.Meta)}
	}
	return out
}

func objectsOf(objects []*headstart.WarmObject) []placement.WarmObject {
	out := make([]placement.WarmObject, len(objects))
	for i, o := range objects {
		out[i] = placement.WarmObject{Object: objectOf(orEmpty(o.Object)), Meta: metaOf(o.Meta)}
	}
	return out
}

func wireBatch(b placement.WarmBatch) *headstart.WarmBatch {
	out := &headstart.WarmBatch{Id: b.ID, Balance: b.Balance, Objects: wireObjects(b.Objects)}
	for _, g := range b.Groups {
		group := &headstart.WarmGroup{Tablets: wireTablets(g.Tablets)}
		for _, s := range g.Sources {
			group.Sources = append(group.Sources, wireHolder(s))
		}
		out.Groups = append(out.Groups, group)
	}
	return out
}

func warmCallOf(req *headstart.WarmRequest) placement.WarmCall {
	call := placement.WarmCall{Ask: req.Ask, Drop: req.Drop}
	for _, b := range req.Start {
		batch := placement.WarmBatch{ID: b.Id, Balance: b.Balance, Objects: objectsOf(b.Objects)}
		for _, g := range b.Groups {
			group := placement.WarmGroup{Tablets: tabletsOf(g.Tablets)}
			for _, s := range g.Sources {
				group.Sources = append(group.Sources, holderOf(s))
			}
			batch.Groups = append(batch.Groups, group)
		}
		call.Start = append(call.Start, batch)
	}
	return call
}

func wireHot(objects []placement.HotObject) []*headstart.HotObject {
	out := make([]*headstart.HotObject, len(objects))
	for i, o := range objects {
		out[i] = &headstart.HotObject{Tablet: int64(o.Tablet), Object: wireObject(o.Object), Meta: wireMeta(o.Meta)}
		for _, r := range o.Blocks {
			out[i].Ranges = append(out[i].Ranges, &headstart.Range{First: int64(r.First), Count: int32(r.Count)})
		}
	}
	return out
}

func hotOf(objects []*headstart.HotObject) []placement.HotObject {
	out := make([]placement.HotObject, len(objects))
	for i, o := range objects {
		out[i] = placement.HotObject{Tablet: uint64(o.Tablet), WarmObject: placement.WarmObject{Object: objectOf(orEmpty(o.Object)), Meta: metaOf(o.Meta)}}
		for _, r := range o.Ranges {
			if r.First >= 0 && r.Count > 0 {
				out[i].Blocks = append(out[i].Blocks, placement.BlockRange{First: uint64(r.First), Count: int(r.Count)})
			}
		}
	}
	return out
}
