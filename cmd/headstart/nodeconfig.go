package main

import (
	"context"
	"errors"
	"fmt"

	"headstart/cmd/config"
	"headstart/engine/block"
	"headstart/shards/placement"
)

// nodeConfig is a node's configuration as an FE shows and sets it.
type nodeConfig struct{ set *config.Set }

// Show implements mysql.Config.
func (c nodeConfig) Show() []placement.ConfigItem {
	shown := c.set.Show()
	items := make([]placement.ConfigItem, len(shown))
	for i, item := range shown {
		items[i] = placement.ConfigItem{Key: item.Name, Value: item.Value, Type: item.Type, Mutable: item.Mutable}
	}
	return items
}

// Set implements mysql.Config. What is wrong with the values is the caller's
// fault.
func (c nodeConfig) Set(_ context.Context, values map[string]string, persist bool) error {
	err := c.set.Update(values, persist)
	if _, wrong := errors.AsType[*config.Error](err); wrong {
		return fmt.Errorf("%w: %w", block.ErrInvalid, err)
	}
	return err
}
