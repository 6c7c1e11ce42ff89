package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"headstart/shards/placement"
)

// HeartbeatAll is Heartbeat to every FE at once: each judges by itself who is
// alive. It returns when all have answered or run into the time-out, with the
// reply of one that has taken it; the error is nil when there is one.
func (c *DirectoryClient) HeartbeatAll(ctx context.Context, h placement.Heartbeat) (placement.HeartbeatReply, error) {
	replies, errs := make([]placement.HeartbeatReply, len(c.endpoints)), make([]error, len(c.endpoints))
	var calls sync.WaitGroup
	for i, addr := range c.endpoints {
		calls.Go(func() { // ends with the time-out
			attempt, done := context.WithTimeout(ctx, c.timeout)
			defer done()
			c.calls.Add(1)
			if replies[i], errs[i] = c.heartbeatAt(attempt, addr, h); errs[i] != nil {
				c.failures.Add(1)
				errs[i] = fmt.Errorf("directory at %v: %w", addr, errs[i])
			}
		})
	}
	calls.Wait()
	for i, err := range errs {
		if err == nil {
			c.learn(replies[i], nil)
			return replies[i], nil
		}
	}
	return placement.HeartbeatReply{}, errors.Join(errs...)
}
