package rpc

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"sync/atomic"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
)

// direction is part of what a proof covers, so that nobody can answer a node
// with the proof that it has sent itself.
type direction string

const (
	request direction = "request"
	reply   direction = "reply"
)

// Identity is who this node is to others: what stands in the Base of its
// messages, and what it wants to see in theirs. Its clients and servers share
// one. The token itself never travels.
type Identity struct {
	node  block.Node
	token []byte
	// now is replaced as a whole when the cluster id is learned; a reader sees
	// an id and the bytes made of it, never a mixture.
	now atomic.Pointer[credentials]
}

// credentials are the two Bases of a node, encoded, for one cluster id.
type credentials struct {
	clusterID      string
	request, reply []byte
}

// NewIdentity returns the identity of a node. clusterID is "" as long as it is
// not known; an empty token asks others for no proof.
func NewIdentity(node block.Node, clusterID, token string) *Identity {
	id := &Identity{node: node, token: []byte(token)}
	id.SetClusterID(clusterID)
	return id
}

// Node returns who the node is.
func (id *Identity) Node() block.Node { return id.node }

// ClusterID returns the id of the node's cluster, "" while it is not known.
func (id *Identity) ClusterID() string { return id.now.Load().clusterID }

// SetClusterID sets the id of the cluster, as learned from an FE.
func (id *Identity) SetClusterID(clusterID string) {
	id.now.Store(&credentials{
		clusterID: clusterID,
		request:   id.encode(request, clusterID),
		reply:     id.encode(reply, clusterID),
	})
}

func (id *Identity) encode(d direction, clusterID string) []byte {
	b := appendI32(nil, 1, Version)
	b = appendString(b, 2, clusterID)
	b = appendString(b, 3, id.node.ID)
	b = appendString(b, 4, id.node.GroupID)
	b = appendString(b, 5, id.node.Location)
	b = appendString(b, 6, id.proof(d, clusterID, id.node.ID))
	return appendStop(b)
}

// proof is empty without a token.
func (id *Identity) proof(d direction, clusterID, nodeID string) []byte {
	if len(id.token) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, id.token)
	fmt.Fprintf(mac, "%s|%s|%s", d, clusterID, nodeID)
	return mac.Sum(nil)
}

// base returns what the messages with generated code carry.
func (c *credentials) base(d direction) *headstart.Base {
	raw := c.request
	if d == reply {
		raw = c.reply
	}
	b := headstart.NewBase()
	if _, err := b.FastRead(raw); err != nil {
		return nil
	}
	return b
}

// policy says how much must be known about each other before a call.
type policy bool

const (
	// strict: both name the same cluster.
	strict policy = false
	// joining: one side may not know the cluster yet, as in a first heartbeat.
	joining policy = true
)

// check refuses a node of another protocol, another cluster, or without the
// token; the error says which.
func (id *Identity) check(c *credentials, b *headstart.Base, d direction, p policy) error {
	switch {
	case b.Version < Version-1 || b.Version > Version+1:
		return fmt.Errorf("%w: it speaks protocol version %d, this node %d", block.ErrRefused, b.Version, Version)
	case b.ClusterId != c.clusterID && (p == strict || b.ClusterId != "" && c.clusterID != ""):
		return fmt.Errorf("%w: its cluster id is %q, this node's %q", block.ErrRefused, b.ClusterId, c.clusterID)
	case len(id.token) > 0 && !hmac.Equal(b.Proof, id.proof(d, b.ClusterId, b.NodeId)):
		return fmt.Errorf("%w: its cluster_token differs from this node's", block.ErrRefused)
	}
	return nil
}

// acquaintance is the node at the other end of one connection, once it has
// been checked: the same Base again costs a comparison and no HMAC. It belongs
// to the goroutine that uses the connection.
type acquaintance struct {
	raw   []byte
	creds *credentials
	node  block.Node
}

// meet checks the Base raw and returns whose it is.
func (a *acquaintance) meet(id *Identity, raw []byte, d direction, p policy) (block.Node, error) {
	creds := id.now.Load()
	if a.creds == creds && bytes.Equal(a.raw, raw) {
		return a.node, nil
	}
	b := headstart.NewBase()
	if n, err := b.FastRead(raw); err != nil || n != len(raw) {
		return block.Node{}, fmt.Errorf("%w: it does not say who it is", block.ErrRefused)
	}
	if err := id.check(creds, b, d, p); err != nil {
		return block.Node{}, err
	}
	node := block.Node{ID: b.NodeId, GroupID: b.ComputeGroupId, Location: b.Location}
	if b.ClusterId == creds.clusterID {
		*a = acquaintance{raw: append(a.raw[:0], raw...), creds: creds, node: node}
	}
	return node, nil
}

// meetBase is meet for a Base that generated code has read.
func (a *acquaintance) meetBase(id *Identity, b *headstart.Base, d direction, p policy) (block.Node, error) {
	if b == nil {
		b = headstart.NewBase()
	}
	raw := make([]byte, b.BLength())
	b.FastWrite(raw)
	return a.meet(id, raw, d, p)
}
