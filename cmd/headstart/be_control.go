package main

import (
	"context"
	"fmt"

	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/objstore"
	"headstart/engine/warmup"
	"headstart/rpc"
	"headstart/shards/placement"
)

// control is what a BE does for FEs and for other BEs.
type control struct {
	engine *engine.Engine
	config nodeConfig
	warm   *warmup.Service
	origin *objstore.Store
}

var _ rpc.Control = (*control)(nil)

// ShowConfig implements rpc.Control.
func (c *control) ShowConfig(context.Context) ([]placement.ConfigItem, error) {
	return c.config.Show(), nil
}

// SetConfig implements rpc.Control. Without a cluster_token any process could
// come here; a node that asks people for its admin_token asks for one of the two.
func (c *control) SetConfig(ctx context.Context, values map[string]string, persist bool) error {
	if c.config.set.String("cluster_token") == "" && c.config.set.String("admin_token") != "" {
		return fmt.Errorf("%w: this node has an admin_token and no cluster_token, so it can't tell its FE from others", block.ErrDenied)
	}
	return c.config.Set(ctx, values, persist)
}

// Warm implements rpc.Control.
func (c *control) Warm(ctx context.Context, call placement.WarmCall) ([]placement.WarmProgress, error) {
	return c.warm.Warm(ctx, call), nil
}

// maxPage bounds a page of objects in bytes: it travels in one request to those
// who warm the objects up.
const maxPage = 24 << 10

// List implements rpc.Control.
func (c *control) List(ctx context.Context, call placement.ListCall) (placement.ListReply, error) {
	if call.Prefix.Store == "" {
		call.Prefix.Store = block.DefaultStore
	}
	found, more, err := c.origin.List(ctx, call.Prefix, call.After, call.Max)
	if err != nil {
		return placement.ListReply{}, err
	}
	page, bytes := placement.ListReply{More: more}, 0
	for _, o := range found {
		bytes += 100 + len(o.Object.Bucket) + len(o.Object.Key) + 2*len(o.Meta.ETag)
		if bytes > maxPage && len(page.Objects) > 0 {
			page.More = true
			break
		}
		page.Objects = append(page.Objects, placement.WarmObject{Object: o.Object, Meta: o.Meta})
	}
	return page, nil
}

// Hot implements rpc.Control.
func (c *control) Hot(_ context.Context, tablets []uint64) (placement.HotReply, error) {
	return c.warm.Hot(tablets), nil
}

// Forget implements rpc.Control.
func (c *control) Forget(_ context.Context, objects []block.Object) error {
	for _, o := range objects {
		c.engine.Changed(o)
	}
	return nil
}
