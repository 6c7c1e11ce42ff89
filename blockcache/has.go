package blockcache

import "headstart/engine/block"

// Has reports whether the cache has the block, as far as it knows without
// looking at its bytes. It has no effect on what is evicted next.
func (c *Cache) Has(id block.ID) bool {
	at := c.pin(id, onePin)
	if at.seg == nil {
		return false
	}
	at.seg.unpin(at.token, onePin)
	return true
}
