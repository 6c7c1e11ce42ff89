// Package fault makes the doors of a node fail by rule: Origin is object
// storage, Peers the other nodes, Directory the FE. Each wraps the real one and
// passes on what no rule bears on.
//
// A Plan holds the rules of one seed and prints them. Whether a rule bears on a
// call depends on the seed, the call and the time alone, so that a seed means
// the same faults each time. What a wrapper takes from the wrapped stream and
// does not hand on, it releases. It never makes bytes that no receiver could
// tell from right ones.
package fault

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// Kind is one way to fail.
type Kind uint8

// The kinds of faults, by the door that they are at.
const (
	// PeerError is a connection that breaks, PeerSilent a peer that never answers,
	// PeerSlow one that takes Delay for each step of its answer.
	PeerError Kind = iota
	PeerSilent
	PeerSlow
	// PeerBusy answers with a status that is neither data nor a miss, PeerFilling
	// says of all blocks, again and again, that they are being filled.
	PeerBusy
	PeerFilling
	// PeerPartial lacks some of the blocks, PeerCut breaks off between two, and
	// PeerCorrupt changes a bit of one.
	PeerPartial
	PeerCut
	PeerCorrupt
	// StoreError, StoreThrottled, StoreDenied and StoreRange are replies without a
	// byte; StoreSilent gives up after Delay, StoreSlow takes Delay for each step.
	StoreError
	StoreThrottled
	StoreDenied
	StoreRange
	StoreSilent
	StoreSlow
	// StoreCut breaks off between two blocks.
	StoreCut
	// DirectoryError and DirectorySilent are an FE that fails or never answers.
	DirectoryError
	DirectorySilent
	kinds
)

// String is the kind's name in a printed rule.
func (k Kind) String() string {
	return [kinds]string{
		"peer error", "peer silent", "peer slow", "peer busy", "peer filling for ever", "peer lacks blocks",
		"peer reply cut", "peer reply corrupt", "store error", "store throttles", "store denies", "store answers 416",
		"store silent", "store slow", "store reply cut", "FE error", "FE silent",
	}[k]
}

// Door is where a kind of fault can be met.
type Door uint8

// The doors.
const (
	DoorPeer Door = iota
	DoorStore
	DoorDirectory
)

// Door returns the door that the kind belongs to.
func (k Kind) Door() Door {
	switch {
	case k < StoreError:
		return DoorPeer
	case k < DirectoryError:
		return DoorStore
	}
	return DoorDirectory
}

// Rule lets Percent of the calls that Node makes from From to To fail; those to
// Peer only, for peers. "" stands for any node.
type Rule struct {
	Kind       Kind
	Node, Peer string
	From, To   time.Duration
	Percent    int
	Delay      time.Duration
}

// String tells what the rule does.
func (r Rule) String() string {
	who := "any node"
	if r.Node != "" {
		who = r.Node
	}
	if r.Peer != "" {
		who += " to " + r.Peer
	}
	how := ""
	switch r.Kind {
	case PeerSlow, StoreSlow, StoreSilent, PeerError, StoreError:
		how = " after " + r.Delay.String()
	}
	return fmt.Sprintf("%v to %v: %s%s, %d%% of the calls of %s", r.From, r.To, r.Kind, how, r.Percent, who)
}

// bears reports whether the rule is about calls of node to peer at now.
func (r Rule) bears(door Door, node, peer string, now time.Duration) bool {
	return r.Kind.Door() == door && r.From <= now && now < r.To &&
		(r.Node == "" || r.Node == node) && (r.Peer == "" || r.Peer == peer)
}

// Plan is the faults of one seed. It does not change.
type Plan struct {
	Seed  uint64
	Rules []Rule
	// Begin is the time that the rules count from.
	Begin time.Time
}

// NewPlan draws the rules of a seed for the nodes, from now until span later.
func NewPlan(seed uint64, nodes []string, span time.Duration) *Plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &Plan{Seed: seed, Begin: time.Now()}
	anyNode := append([]string{""}, nodes...)
	for range 3 + rng.IntN(12) {
		r := Rule{
			Kind: Kind(rng.IntN(int(kinds))), Node: anyNode[rng.IntN(len(anyNode))],
			Percent: []int{5, 30, 100}[rng.IntN(3)],
			Delay:   []time.Duration{time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond}[rng.IntN(3)],
		}
		if r.Kind.Door() == DoorPeer {
			r.Peer = anyNode[rng.IntN(len(anyNode))]
		}
		if r.Kind == StoreSilent {
			r.Delay *= 10
		}
		r.From = time.Duration(rng.Int64N(int64(span))).Round(time.Millisecond)
		r.To = min(span, r.From+time.Duration(rng.Int64N(int64(span/3))).Round(time.Millisecond))
		p.Rules = append(p.Rules, r)
	}
	return p
}

// String lists the rules.
func (p *Plan) String() string {
	var s strings.Builder
	for _, r := range p.Rules {
		fmt.Fprintln(&s, r)
	}
	return s.String()
}

// Elapsed is the time on the plan's clock.
func (p *Plan) Elapsed() time.Duration { return time.Since(p.Begin) }

// Active reports whether a rule may have borne on calls of node at door at some
// time between from and to.
func (p *Plan) Active(door Door, node string, from, to time.Duration) bool {
	for _, r := range p.Rules {
		if r.Kind.Door() == door && r.From <= to && from < r.To && (r.Node == "" || r.Node == node) {
			return true
		}
	}
	return false
}

// roll returns the first rule that bears on a call, with the call's own number
// for what else is to be drawn. what tells calls apart.
func (p *Plan) roll(door Door, node, peer, what string) (r Rule, dice uint64, hit bool) {
	now := p.Elapsed()
	for i, r := range p.Rules {
		if !r.bears(door, node, peer, now) {
			continue
		}
		h := fnv.New64a()
		fmt.Fprint(h, p.Seed, i, node, peer, what, now)
		dice := h.Sum64() * 0x9e3779b97f4a7c15 >> 8
		if int(dice%100) < r.Percent {
			return r, dice / 100, true
		}
	}
	return Rule{}, 0, false
}

// pause waits for d, or for the end of ctx, whose error it returns.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
