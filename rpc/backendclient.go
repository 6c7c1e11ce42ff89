package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/shards/placement"
)

// BackendClientOptions configure a BackendClient. Identity must be set.
type BackendClientOptions struct {
	Identity *Identity
	// TLS is nil for plain text.
	TLS *TLS
}

// BackendClient is how an FE calls its BEs. The context of a call bounds it.
type BackendClient struct {
	caller *caller
	pool   *pool
}

var _ placement.Backends = (*BackendClient)(nil)

// backendConnectTimeout is longer than that of a read: an FE can wait for a BE
// that is busy.
const backendConnectTimeout = time.Second

// NewBackendClient returns a client; Close stops it.
func NewBackendClient(o BackendClientOptions) (*BackendClient, error) {
	if o.Identity == nil {
		return nil, errors.New("rpc backend client: Identity is not set")
	}
	c := &BackendClient{pool: newPool(o.TLS, backendConnectTimeout, clientIdle, 16)}
	var err error
	if c.caller, err = newCaller(o.Identity, c.pool, peerService()); err != nil {
		c.pool.close()
		return nil, err
	}
	return c, nil
}

// Close closes all connections: running calls fail.
func (c *BackendClient) Close() error {
	c.pool.close()
	return nil
}

// The bounds of replies in bytes, and of the part of a request that is up to the
// caller.
const (
	maxConfig = 1 << 20
	maxList   = 256 << 10
	maxHot    = 4 << 20
	maxOrder  = maxRequest - 8<<10
)

// answered is a reply of generated code.
type answered interface {
	comparable
	GetBase() *headstart.Base
	GetFailure() *headstart.Failure
}

// ask makes one call of Backend, whose reply get finds.
func ask[R answered](ctx context.Context, c *caller, addr block.Addr, method string, limit int, args, result any, get func() R) (R, error) {
	var none R
	conn, err := c.call(ctx, addr, method, limit, args, result)
	if err != nil {
		return none, fmt.Errorf("%s at %v: %w", method, addr, err)
	}
	defer c.release(conn)
	rep := get()
	if rep == none {
		return none, fmt.Errorf("%s at %v: %w", method, addr, errWire)
	}
	if err := c.accept(conn, rep.GetBase(), rep.GetFailure(), strict); err != nil {
		return none, fmt.Errorf("%s at %v: %w", method, addr, err)
	}
	return rep, nil
}

func (c *caller) request() *headstart.Base { return c.id.now.Load().base(request) }

// Warm implements placement.Backends. What is too much for one request goes in
// several: to say a part of it twice does no harm.
func (c *BackendClient) Warm(ctx context.Context, to block.Addr, call placement.WarmCall) ([]placement.WarmProgress, error) {
	var progress []placement.WarmProgress
	req := &headstart.WarmRequest{Base: c.caller.request()}
	bytes := 0
	send := func() error {
		some, err := c.warm(ctx, to, req)
		progress = append(progress, some...)
		req, bytes = &headstart.WarmRequest{Base: req.Base}, 0
		return err
	}
	add := func(n int, put func()) error {
		if n > maxOrder {
			return fmt.Errorf("%w: one batch takes %d bytes, a request has room for %d", block.ErrInvalid, n, maxOrder)
		}
		if bytes+n > maxOrder {
			if err := send(); err != nil {
				return err
			}
		}
		bytes += n
		put()
		return nil
	}
	for _, b := range call.Start {
		batch := wireBatch(b)
		if err := add(batch.BLength(), func() { req.Start = append(req.Start, batch) }); err != nil {
			return nil, err
		}
	}
	for _, id := range call.Ask {
		if err := add(4+len(id), func() { req.Ask = append(req.Ask, id) }); err != nil {
			return nil, err
		}
	}
	for _, id := range call.Drop {
		if err := add(4+len(id), func() { req.Drop = append(req.Drop, id) }); err != nil {
			return nil, err
		}
	}
	if err := send(); err != nil {
		return nil, err
	}
	return progress, nil
}

func (c *BackendClient) warm(ctx context.Context, to block.Addr, req *headstart.WarmRequest) ([]placement.WarmProgress, error) {
	var result headstart.BackendWarmResult
	rep, err := ask(ctx, c.caller, to, methodWarm, maxConfig, &headstart.BackendWarmArgs{Req: req}, &result, result.GetSuccess)
	if err != nil {
		return nil, err
	}
	progress := make([]placement.WarmProgress, len(rep.Progress))
	for i, p := range rep.Progress {
		progress[i] = placement.WarmProgress{
			ID: p.Id, State: placement.WarmState(p.State), Blocks: p.Blocks, Bytes: p.Bytes, Err: p.Error[:min(len(p.Error), maxReason)],
		}
	}
	return progress, nil
}

// List implements placement.Backends.
func (c *BackendClient) List(ctx context.Context, to block.Addr, call placement.ListCall) (placement.ListReply, error) {
	args := &headstart.BackendListArgs{Req: &headstart.ListRequest{
		Base: c.caller.request(), Prefix: wireObject(call.Prefix), After: call.After, Max: int32(call.Max),
	}}
	var result headstart.BackendListResult
	rep, err := ask(ctx, c.caller, to, methodList, maxList, args, &result, result.GetSuccess)
	if err != nil {
		return placement.ListReply{}, err
	}
	return placement.ListReply{Objects: objectsOf(rep.Objects), More: rep.More}, nil
}

// ShowConfig implements placement.Backends.
func (c *BackendClient) ShowConfig(ctx context.Context, to block.Addr) ([]placement.ConfigItem, error) {
	args := &headstart.BackendShowConfigArgs{Req: &headstart.ShowConfigRequest{Base: c.caller.request()}}
	var result headstart.BackendShowConfigResult
	rep, err := ask(ctx, c.caller, to, methodShowConfig, maxConfig, args, &result, result.GetSuccess)
	if err != nil {
		return nil, err
	}
	items := make([]placement.ConfigItem, len(rep.Items))
	for i, item := range rep.Items {
		items[i] = placement.ConfigItem{Key: item.Key, Value: item.Value, Type: item.Type, Mutable: item.IsMutable}
	}
	return items, nil
}

// SetConfig implements placement.Backends.
func (c *BackendClient) SetConfig(ctx context.Context, to block.Addr, values map[string]string, persist bool) error {
	args := &headstart.BackendSetConfigArgs{Req: &headstart.SetConfigRequest{Base: c.caller.request(), Values: values, Persist: persist}}
	var result headstart.BackendSetConfigResult
	_, err := ask(ctx, c.caller, to, methodSetConfig, maxHead, args, &result, result.GetSuccess)
	return err
}

// Hot asks the node at addr what it has cached of tablets.
func (c *Client) Hot(ctx context.Context, addr block.Addr, tablets []uint64) (placement.HotReply, error) {
	args := &headstart.BackendHotArgs{Req: &headstart.HotRequest{Base: c.caller.request(), Tablets: wireTablets(tablets)}}
	var result headstart.BackendHotResult
	rep, err := ask(ctx, c.caller, addr, methodHot, maxHot, args, &result, result.GetSuccess)
	if err != nil {
		return placement.HotReply{}, err
	}
	return placement.HotReply{BlockSize: rep.BlockSize, Objects: hotOf(rep.Objects)}, nil
}

// Forget tells the node at addr that somebody has changed objects. What is too much
// for one request goes in several.
func (c *Client) Forget(ctx context.Context, addr block.Addr, objects []block.Object) error {
	for len(objects) > 0 {
		req := &headstart.ForgetRequest{Base: c.caller.request()}
		for bytes := 0; len(objects) > 0; objects = objects[1:] {
			o := wireObject(objects[0])
			if n := o.BLength(); bytes+n <= maxOrder || bytes == 0 {
				bytes += n
			} else {
				break
			}
			req.Objects = append(req.Objects, o)
		}
		var result headstart.BackendForgetResult
		if _, err := ask(ctx, c.caller, addr, methodForget, maxConfig, &headstart.BackendForgetArgs{Req: req}, &result, result.GetSuccess); err != nil {
			return err
		}
	}
	return nil
}
