package rpc

import (
	"context"
	"fmt"

	"github.com/cloudwego/kitex/pkg/serviceinfo"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/shards/placement"
)

// Control is what a BE does for FEs, Hot for BEs that warm up, and Forget for BEs
// through which objects were written.
type Control interface {
	// Warm takes the call's batches, and returns the progress of all those that
	// it starts or asks about.
	Warm(context.Context, placement.WarmCall) ([]placement.WarmProgress, error)
	// List lists objects of the object store, not more than fit into a request.
	List(context.Context, placement.ListCall) (placement.ListReply, error)
	// Hot returns what the BE has cached of tablets.
	Hot(ctx context.Context, tablets []uint64) (placement.HotReply, error)
	// Forget drops what the BE knows of objects that somebody has changed.
	Forget(ctx context.Context, objects []block.Object) error
	// ShowConfig returns all keys, secrets masked.
	ShowConfig(context.Context) ([]placement.ConfigItem, error)
	// SetConfig changes keys: all or, with an error, none.
	SetConfig(ctx context.Context, values map[string]string, persist bool) error
}

// maxHotTablets bounds the tablets of one Hot.
const maxHotTablets = 64

// backendMethods are those of the service Backend of the IDL.
func backendMethods() map[string]serviceinfo.MethodInfo {
	return map[string]serviceinfo.MethodInfo{
		methodWarm: method(func(s *Server, ctx context.Context, a *headstart.BackendWarmArgs, r *headstart.BackendWarmResult) error {
			r.Success = s.warm(ctx, orEmpty(a.Req))
			return nil
		}),
		methodList: method(func(s *Server, ctx context.Context, a *headstart.BackendListArgs, r *headstart.BackendListResult) error {
			r.Success = s.list(ctx, orEmpty(a.Req))
			return nil
		}),
		methodHot: method(func(s *Server, ctx context.Context, a *headstart.BackendHotArgs, r *headstart.BackendHotResult) error {
			r.Success = s.hot(ctx, orEmpty(a.Req))
			return nil
		}),
		methodForget: method(func(s *Server, ctx context.Context, a *headstart.BackendForgetArgs, r *headstart.BackendForgetResult) error {
			r.Success = s.forget(ctx, orEmpty(a.Req))
			return nil
		}),
		methodShowConfig: method(func(s *Server, ctx context.Context, a *headstart.BackendShowConfigArgs, r *headstart.BackendShowConfigResult) error {
			r.Success = s.showConfig(ctx, orEmpty(a.Req))
			return nil
		}),
		methodSetConfig: method(func(s *Server, ctx context.Context, a *headstart.BackendSetConfigArgs, r *headstart.BackendSetConfigResult) error {
			r.Success = s.setConfig(ctx, orEmpty(a.Req))
			return nil
		}),
	}
}

// control checks who calls a method of Backend: a node of the cluster that has
// its token.
func (s *Server) control(ctx context.Context, b *headstart.Base) (Control, error) {
	_, err := s.greet(ctx, b, strict)
	switch {
	case err != nil:
		return nil, err
	case s.opts.Control == nil:
		return nil, fmt.Errorf("%w: this node takes no orders", block.ErrInvalid)
	}
	return s.opts.Control, s.available()
}

// warm serves Warm.
func (s *Server) warm(ctx context.Context, req *headstart.WarmRequest) *headstart.WarmReply {
	rep := &headstart.WarmReply{Base: s.base()}
	c, err := s.control(ctx, req.GetBase())
	if err == nil {
		var progress []placement.WarmProgress
		progress, err = c.Warm(ctx, warmCallOf(req))
		for _, p := range progress {
			rep.Progress = append(rep.Progress, &headstart.WarmProgress{
				Id: p.ID, State: int32(p.State), Blocks: p.Blocks, Bytes: p.Bytes, Error: p.Err[:min(len(p.Err), maxReason)],
			})
		}
	}
	rep.Failure = failureOf(err)
	return rep
}

// list serves List.
func (s *Server) list(ctx context.Context, req *headstart.ListRequest) *headstart.ListReply {
	rep := &headstart.ListReply{Base: s.base()}
	c, err := s.control(ctx, req.GetBase())
	if err == nil {
		var page placement.ListReply
		page, err = c.List(ctx, placement.ListCall{Prefix: objectOf(orEmpty(req.Prefix)), After: req.After, Max: int(req.Max)})
		rep.Objects, rep.More = wireObjects(page.Objects), page.More
	}
	rep.Failure = failureOf(err)
	return rep
}

// hot serves Hot.
func (s *Server) hot(ctx context.Context, req *headstart.HotRequest) *headstart.HotReply {
	rep := &headstart.HotReply{Base: s.base()}
	c, err := s.control(ctx, req.GetBase())
	if err == nil && len(req.Tablets) > maxHotTablets {
		err = fmt.Errorf("%w: %d tablets, at most %d are asked about at a time", block.ErrInvalid, len(req.Tablets), maxHotTablets)
	}
	if err == nil {
		var hot placement.HotReply
		hot, err = c.Hot(ctx, tabletsOf(req.Tablets))
		rep.Objects, rep.BlockSize = wireHot(hot.Objects), hot.BlockSize
	}
	rep.Failure = failureOf(err)
	return rep
}

// forget serves Forget.
func (s *Server) forget(ctx context.Context, req *headstart.ForgetRequest) *headstart.ForgetReply {
	rep := &headstart.ForgetReply{Base: s.base()}
	c, err := s.control(ctx, req.GetBase())
	if err == nil {
		objects := make([]block.Object, len(req.Objects))
		for i, o := range req.Objects {
			objects[i] = objectOf(orEmpty(o))
		}
		err = c.Forget(ctx, objects)
	}
	rep.Failure = failureOf(err)
	return rep
}

// showConfig serves ShowConfig.
func (s *Server) showConfig(ctx context.Context, req *headstart.ShowConfigRequest) *headstart.ShowConfigReply {
	rep := &headstart.ShowConfigReply{Base: s.base()}
	c, err := s.control(ctx, req.GetBase())
	if err == nil {
		var items []placement.ConfigItem
		items, err = c.ShowConfig(ctx)
		for _, i := range items {
			rep.Items = append(rep.Items, &headstart.ConfigItem{Key: i.Key, Value: i.Value, Type: i.Type, IsMutable: i.Mutable})
		}
	}
	rep.Failure = failureOf(err)
	return rep
}

// setConfig serves SetConfig.
func (s *Server) setConfig(ctx context.Context, req *headstart.SetConfigRequest) *headstart.SetConfigReply {
	rep := &headstart.SetConfigReply{Base: s.base()}
	c, err := s.control(ctx, req.GetBase())
	if err == nil {
		err = c.SetConfig(ctx, req.Values, req.Persist)
	}
	rep.Failure = failureOf(err)
	return rep
}
