package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/shards"
)

// whole is a node and an object store that have everything, and an FE that knows
// nothing. It counts the blocks that are held.
type whole struct{ held int }

func (w *whole) FetchFrom(_ context.Context, _ block.Addr, f *block.Fetch) (block.Stream, error) {
	return &blocks{w: w, left: f.Run, next: f.Run.First}, nil
}

func (w *whole) Fetch(_ context.Context, f *block.Fetch) (block.Stream, error) {
	return &blocks{w: w, left: f.Run, next: f.Run.First}, nil
}

func (w *whole) Head(context.Context, block.Object) (block.Meta, error) {
	return block.Meta{Version: "v"}, nil
}

func (w *whole) Lookup(_ context.Context, routes []block.Route) ([][]shards.Candidate, error) {
	return make([][]shards.Candidate, len(routes)), nil
}

// blocks is a reply with all that was asked for.
type blocks struct {
	w    *whole
	left block.Run
	next uint64
}

func (b *blocks) Next() (block.Piece, error) {
	for ; b.left.Want != 0; b.next++ {
		if b.left.Has(b.next) {
			index := b.next
			b.left = b.left.Without(index)
			b.w.held++
			buf := block.NewBuf([]byte("block"), func(*block.Buf) { b.w.held-- })
			buf.Seal()
			return block.Piece{Index: index, Status: block.StatusData, Buf: buf}, nil
		}
	}
	return block.Piece{}, io.EOF
}

func (b *blocks) Meta() block.Meta { return block.Meta{Version: "v"} }
func (b *blocks) Close()           {}

// read tells what a caller with 300 ms gets of four blocks: a letter for each
// answer, then how it ends.
func read(open func(context.Context, *block.Fetch) (block.Stream, error)) string {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	var told strings.Builder
	s, err := open(ctx, &block.Fetch{Run: block.NewRun(0, 4)})
	if err == nil {
		defer s.Close()
	}
	for err == nil {
		var p block.Piece
		if p, err = s.Next(); err != nil {
			break
		}
		switch p.Status {
		case block.StatusData:
			told.WriteString("D")
			p.Buf.Release()
		case block.StatusNotFound:
			told.WriteString("-")
		case block.StatusFilling:
			told.WriteString("f")
		default:
			told.WriteString("b")
		}
	}
	end := err.Error()
	return fmt.Sprintf("%s %s after %v", told.String(), strings.TrimSpace(end[strings.LastIndex(end, ": ")+1:]), time.Since(begin))
}

// through reads by a door where rule is in force, as many times as dice may fall.
func through(w *whole, rule Rule) map[string]bool {
	plan := &Plan{Rules: []Rule{rule}, Begin: time.Now()}
	peers, origin := &Peers{Inner: w, Plan: plan, Node: "a"}, &Origin{Inner: w, Plan: plan, Node: "a"}
	seen := map[string]bool{}
	for plan.Seed = range 40 {
		plan.Begin = time.Now()
		seen[read(func(ctx context.Context, f *block.Fetch) (block.Stream, error) {
			if rule.Kind.Door() == DoorStore {
				return origin.Fetch(ctx, f)
			}
			return peers.FetchFrom(ctx, block.Addr{Host: "b", Port: 1}, f)
		})] = true
	}
	return seen
}

func TestEachKindFailsInItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &whole{}
		for kind, want := range map[Kind][]string{
			PeerError:      {" connection reset after 50ms"},
			PeerSilent:     {" context deadline exceeded after 300ms"},
			PeerSlow:       {"DDDD EOF after 250ms"},
			PeerBusy:       {"bbbb EOF after 0s"},
			PeerFilling:    {"ffff EOF after 50ms"},
			PeerPartial:    {"---- EOF after 0s", "--DD EOF after 0s", "DDDD EOF after 0s"},
			PeerCut:        {" connection reset after 0s", "D connection reset after 0s", "DD connection reset after 0s"},
			PeerCorrupt:    {" checksum mismatch after 0s", "DDDD EOF after 0s"},
			StoreError:     {" internal error of object storage after 50ms"},
			StoreThrottled: {" throttled by object storage after 50ms"},
			StoreDenied:    {" access denied by object storage after 50ms"},
			StoreRange:     {" object storage says that there is no such byte after 50ms"},
			StoreSilent:    {" no byte came from object storage for too long after 50ms"},
			StoreSlow:      {"DDDD EOF after 250ms"},
			StoreCut:       {" connection reset after 0s", "D connection reset after 0s", "DD connection reset after 0s"},
		} {
			seen := through(w, Rule{Kind: kind, To: time.Hour, Percent: 100, Delay: 50 * time.Millisecond})
			for _, one := range want {
				if !seen[one] {
					t.Errorf("%s: never %q, but %v", kind, one, seen)
				}
			}
			if len(want) == 1 && len(seen) != 1 {
				t.Errorf("%s: want %q alone: %v", kind, want[0], seen)
			}
		}
		if w.held != 0 {
			t.Errorf("%d blocks were not given back", w.held)
		}
	})
}

func TestFEFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, want := range map[Kind]error{DirectoryError: errCut, DirectorySilent: context.DeadlineExceeded, PeerError: nil} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			plan := &Plan{Rules: []Rule{{Kind: kind, To: time.Hour, Percent: 100}}, Begin: time.Now()}
			d := &Directory{Inner: &whole{}, Plan: plan, Node: "a"}
			if _, err := d.Lookup(ctx, make([]block.Route, 1)); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", kind, err, want)
			}
			cancel()
		}
	})
}

func TestRuleBearsOnItsOwnCallsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &whole{}
		for name, rule := range map[string]Rule{
			"another node": {Kind: PeerError, Node: "c", To: time.Hour, Percent: 100},
			"another peer": {Kind: PeerError, Peer: "c", To: time.Hour, Percent: 100},
			"not yet":      {Kind: PeerError, From: time.Second, To: time.Hour, Percent: 100},
			"no more":      {Kind: PeerError, Percent: 100},
			"another door": {Kind: DirectoryError, To: time.Hour, Percent: 100},
			"nobody":       {Kind: PeerError, To: time.Hour},
		} {
			if seen := through(w, rule); len(seen) != 1 || !seen["DDDD EOF after 0s"] {
				t.Errorf("%s: %v", name, seen)
			}
		}
		if seen := through(w, Rule{Kind: PeerError, Node: "a", Peer: "b", To: time.Hour, Percent: 50}); len(seen) != 2 {
			t.Errorf("half of the calls: %v", seen)
		}
	})
}

func TestSeedMeansTheSameFaults(t *testing.T) {
	nodes := []string{"a", "b"}
	plan := NewPlan(7, nodes, time.Minute)
	if again := NewPlan(7, nodes, time.Minute); again.String() != plan.String() {
		t.Errorf("one seed, two plans:\n%s\n%s", plan, again)
	}
	if other := NewPlan(8, nodes, time.Minute); other.String() == plan.String() {
		t.Error("two seeds, one plan")
	}
	rule := Rule{Kind: PeerSlow, Node: "a", Peer: "b", From: time.Second, To: 3 * time.Second, Percent: 30, Delay: time.Millisecond}
	if got, want := rule.String(), "1s to 3s: peer slow after 1ms, 30% of the calls of a to b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	seen := map[Kind]bool{}
	for seed := range uint64(50) {
		for _, r := range NewPlan(seed, nodes, time.Minute).Rules {
			seen[r.Kind] = true
		}
	}
	if len(seen) != int(kinds) {
		t.Errorf("50 seeds have %d of %d kinds", len(seen), kinds)
	}
}
