package block

import "time"

// Node is who asks: the requester of a peer read.
type Node struct {
	// ID is unique for one process of one node.
	ID string
	// GroupID is the compute_group_id, Location the location.
	GroupID, Location string
}

// Answer is a server's word on one block.
type Answer struct {
	Index  uint64
	Status Status
	// Lease is set with StatusData.
	Lease Lease
}

// Reply is what a server answers to one Fetch. Whoever sends it releases its
// leases when the bytes are out.
type Reply struct {
	// Meta is what the server knows of the object.
	Meta Meta
	// Answers has one entry for each wanted block, in the order of the blocks.
	Answers []Answer
	// Waited is how long the request has waited for a worker.
	Waited time.Duration
}

// Release gives all leases back and empties the reply for its next use.
func (r *Reply) Release() {
	for i := range r.Answers {
		r.Answers[i].Lease.Release()
	}
	r.Meta, r.Answers, r.Waited = Meta{}, r.Answers[:0], 0
}

// View is a part of one block on its way to a reader: bytes From to To of the
// lease, which the receiver releases.
type View struct {
	Lease    Lease
	From, To int
	Source   Source
}
