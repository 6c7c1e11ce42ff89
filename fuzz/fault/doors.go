package fault

import (
	"context"
	"errors"
	"fmt"

	"headstart/engine"
	"headstart/engine/block"
	"headstart/shards"
)

// Peers calls other nodes for Node, through Inner.
type Peers struct {
	Inner block.Peers
	Plan  *Plan
	Node  string
}

// FetchFrom implements block.Peers. The peer's name is its host.
func (p *Peers) FetchFrom(ctx context.Context, addr block.Addr, f *block.Fetch) (block.Stream, error) {
	r, dice, hit := p.Plan.roll(DoorPeer, p.Node, addr.Host, fmt.Sprint(f.Object, f.Run, f.Wait))
	if !hit {
		return p.Inner.FetchFrom(ctx, addr, f)
	}
	s := &bent{ctx: ctx, rule: r, dice: dice, source: block.SourcePeer, f: f, addr: addr.String()}
	ask := *f
	switch r.Kind {
	case PeerError:
		if err := pause(ctx, r.Delay); err != nil {
			return nil, s.wrap(err)
		}
		return nil, s.wrap(errCut)
	case PeerSilent:
		return s, nil
	case PeerBusy:
		status := [...]block.Status{
			block.StatusQueueTimeout, block.StatusQueueFull, block.StatusFillRejected, block.StatusFillTimeout,
			block.StatusCancelled, block.StatusGoingAway, block.StatusUnsupported, block.StatusFailed, 99,
		}
		s.say(f.Run, status[dice%uint64(len(status))])
		return s, nil
	case PeerFilling:
		if err := pause(ctx, r.Delay); err != nil {
			return nil, s.wrap(err)
		}
		s.say(f.Run, block.StatusFilling)
		return s, nil
	case PeerPartial:
		ask.Run.Want &= uint16(dice)
		s.say(block.Run{First: f.Run.First, Want: f.Run.Want &^ ask.Run.Want}, block.StatusNotFound)
		if ask.Run.Want == 0 {
			return s, nil
		}
	}
	inner, err := p.Inner.FetchFrom(ctx, addr, &ask)
	if err != nil {
		return nil, err
	}
	s.Stream = inner
	return s, nil
}

// say puts a word on each block of run before the rest of the reply.
func (s *bent) say(run block.Run, status block.Status) {
	for i := range uint64(block.MaxRun) {
		if run.Has(run.First + i) {
			s.first = append(s.first, block.Piece{Index: run.First + i, Status: status})
		}
	}
}

// Origin reads object storage for Node, through Inner.
type Origin struct {
	Inner engine.Origin
	Plan  *Plan
	Node  string
}

// Fetch implements block.Store.
func (o *Origin) Fetch(ctx context.Context, f *block.Fetch) (block.Stream, error) {
	r, dice, hit := o.Plan.roll(DoorStore, o.Node, "", fmt.Sprint(f.Object, f.Run))
	if !hit {
		return o.Inner.Fetch(ctx, f)
	}
	s := &bent{ctx: ctx, rule: r, dice: dice, source: block.SourceStore, f: f}
	if err := r.refuse(ctx); err != nil {
		return nil, s.wrap(err)
	}
	inner, err := o.Inner.Fetch(ctx, f)
	if err != nil {
		return nil, err
	}
	s.Stream = inner
	return s, nil
}

// Head implements engine.Origin.
func (o *Origin) Head(ctx context.Context, obj block.Object) (block.Meta, error) {
	r, _, hit := o.Plan.roll(DoorStore, o.Node, "", obj.String())
	if hit {
		if err := r.refuse(ctx); err != nil {
			return block.Meta{}, &block.Error{Op: "head", Object: obj, Source: block.SourceStore, Err: err}
		}
	}
	return o.Inner.Head(ctx, obj)
}

// refuse returns the error of a request that the rule leaves without an answer,
// when it is due.
func (r Rule) refuse(ctx context.Context) error {
	var err error
	switch r.Kind {
	case StoreError:
		err = errors.New("internal error of object storage")
	case StoreThrottled:
		err = block.ErrThrottled
	case StoreDenied:
		err = block.ErrDenied
	case StoreRange:
		err = errors.New("object storage says that there is no such byte")
	case StoreSilent:
		err = errors.New("no byte came from object storage for too long")
	default:
		return nil
	}
	if gone := pause(ctx, r.Delay); gone != nil {
		return gone
	}
	return err
}

// Directory asks the FE for Node, through Inner.
type Directory struct {
	Inner engine.Directory
	Plan  *Plan
	Node  string
}

// Lookup implements engine.Directory.
func (d *Directory) Lookup(ctx context.Context, routes []block.Route) ([][]shards.Candidate, error) {
	r, _, hit := d.Plan.roll(DoorDirectory, d.Node, "", fmt.Sprint(routes))
	switch {
	case !hit:
		return d.Inner.Lookup(ctx, routes)
	case r.Kind == DirectorySilent:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, errCut
}
