package blockcache

// where says which list has a block.
type where uint8

const (
	onProbation where = iota
	isProtected
	// inFills: the block was brought for another node, and counts against the
	// quota of those.
	inFills
)

// fills are the blocks that other nodes had this one bring (S35): a FIFO beside
// the queues. It may hold more than its quota while nobody else wants the space;
// then it is the first to give. At its quota a fill makes room among fills only.
// A block that the node's own readers hit moves into its queue when its turn to
// go comes. A quota that nobody uses is given back: once the cache has turned
// over without any fill, those that are left go before all others.
type fills struct {
	list
	quota uint64 // in units
	// idle counts the units that made room since the last fill came.
	idle uint64
}

// setFillPercent sets the quota.
func (p *policy) setFillPercent(percent int64) {
	p.fills.quota = p.total * uint64(percent) / 100
}

// insertFill adds a block that was brought for another node.
func (p *policy) insertFill(n uint32) {
	p.used(n)
	p.slots.at(n).where = inFills
	p.push(&p.fills.list, n)
	p.fills.idle = 0
}

// victimForFill returns the block that should make room for a fill, 0 for none.
func (p *policy) victimForFill(w wish) uint32 {
	if p.fills.units+uint64(w.units) > p.fills.quota {
		return p.fromFills()
	}
	return p.fromQueues(w)
}

// fromFills returns the next fill to go, 0 when there is none that may.
func (p *policy) fromFills() uint32 {
	for range p.fills.blocks {
		n := p.fills.oldest
		switch {
		case p.slots.pinned(n):
			p.unlink(&p.fills.list, n)
			p.push(&p.fills.list, n)
		case p.used(n):
			p.unlink(&p.fills.list, n)
			p.insert(n, false)
		default:
			return n
		}
	}
	return 0
}
