package rpc

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
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
	node block.Node
	// write orders those who replace now.
	write sync.Mutex
	// now is replaced as a whole when the cluster id is learned or the token
	// changes; a reader sees both and the bytes made of them, never a mixture.
	now atomic.Pointer[credentials]
}

// credentials are the two Bases of a node, encoded, for one cluster id and one
// token.
type credentials struct {
	clusterID      string
	token          []byte
	request, reply []byte
}

// NewIdentity returns the identity of a node. clusterID is "" as long as it is
// not known; an empty token asks others for no proof.
func NewIdentity(node block.Node, clusterID, token string) *Identity {
	id := &Identity{node: node}
	id.replace(clusterID, token)
	return id
}

// Node returns who the node is.
func (id *Identity) Node() block.Node { return id.node }

// ClusterID returns the id of the node's cluster, "" while it is not known.
func (id *Identity) ClusterID() string { return id.now.Load().clusterID }

// SetClusterID sets the id of the cluster, as learned from an FE.
func (id *Identity) SetClusterID(clusterID string) {
	id.write.Lock()
	defer id.write.Unlock()
	id.replace(clusterID, string(id.now.Load().token))
}

// SetToken changes the token, from the next call on and on connections that
// are open too. Until the other nodes have it as well they and this one refuse
// each other.
func (id *Identity) SetToken(token string) {
	id.write.Lock()
	defer id.write.Unlock()
	id.replace(id.now.Load().clusterID, token)
}

func (id *Identity) replace(clusterID, token string) {
	c := &credentials{clusterID: clusterID, token: []byte(token)}
	c.request, c.reply = c.encode(request, id.node), c.encode(reply, id.node)
	id.now.Store(c)
}

func (c *credentials) encode(d direction, n block.Node) []byte {
	b := appendI32(nil, 1, Version)
	b = appendString(b, 2, c.clusterID)
	b = appendString(b, 3, n.ID)
	b = appendString(b, 4, n.GroupID)
	b = appendString(b, 5, n.Location)
	b = appendString(b, 6, c.proof(d, c.clusterID, n.ID))
	return appendStop(b)
}

// proof is empty without a token.
func (c *credentials) proof(d direction, clusterID, nodeID string) []byte {
	if len(c.token) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, c.token)
	for _, s := range [...]string{string(d), clusterID, nodeID} {
		mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
		mac.Write([]byte(s))
	}
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

// policy says how much two sides must know of each other before a call.
type policy int

const (
	// strict: both name the same cluster.
	strict policy = iota
	// joining: one side may not know the cluster yet, as in a first heartbeat.
	joining
	// guest: the caller need not be a node, so it has nothing to prove.
	guest
)

// check refuses a node of another protocol, another cluster, or without the
// token; the error says which. The token comes first: who does not have it
// learns nothing of this node.
func (c *credentials) check(b *headstart.Base, d direction, p policy) error {
	switch {
	case max(len(b.ClusterId), len(b.NodeId), len(b.ComputeGroupId), len(b.Location)) > maxName:
		return fmt.Errorf("%w: an id of it is too long", block.ErrRefused)
	case b.Version < Version-1 || b.Version > Version+1:
		return fmt.Errorf("%w: it speaks protocol version %d, this node %d", block.ErrRefused, b.Version, Version)
	case p != guest && len(c.token) > 0 && !hmac.Equal(b.Proof, c.proof(d, b.ClusterId, b.NodeId)):
		return fmt.Errorf("%w: its cluster_token differs from this node's", block.ErrRefused)
	case b.ClusterId != c.clusterID && (p == strict || b.ClusterId != "" && c.clusterID != ""):
		return fmt.Errorf("%w: its cluster id is %q, this node's %q", block.ErrRefused, b.ClusterId, c.clusterID)
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
	if err := creds.check(b, d, p); err != nil {
		return block.Node{}, err
	}
	node := block.Node{ID: b.NodeId, GroupID: b.ComputeGroupId, Location: b.Location}
	if p != guest && b.ClusterId == creds.clusterID { // then no policy would say more
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
