package main

import (
	"context"
	"fmt"

	"headstart/engine/block"
	"headstart/rpc"
	"headstart/shards/placement"
)

// control is what a BE does for FEs.
type control struct {
	config nodeConfig
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

var errNoWarmUp = fmt.Errorf("%w: this version does not warm up", block.ErrInvalid)

// Warm implements rpc.Control.
func (c *control) Warm(context.Context, placement.WarmCall) ([]placement.WarmProgress, error) {
	return nil, errNoWarmUp
}

// List implements rpc.Control.
func (c *control) List(context.Context, placement.ListCall) (placement.ListReply, error) {
	return placement.ListReply{}, errNoWarmUp
}

// Hot implements rpc.Control.
func (c *control) Hot(context.Context, []uint64) (placement.HotReply, error) {
	return placement.HotReply{}, errNoWarmUp
}
