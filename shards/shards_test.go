package shards

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

// world is one node's policy in a bubble of virtual time.
type world struct {
	*testing.T
	*Table
	set   *Settings
	peers *Breakers
	route block.Route
}

// inBubble runs f with a table of a node at 10.0.0.99 in location "here".
func inBubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewSettings()
		b := NewBreakers(s)
		o := Options{Self: []block.Addr{{Host: "10.0.0.99", Port: 8060}}, Location: "here"}
		f(&world{T: t, Table: NewTable(o, s, b), set: s, peers: b, route: block.TabletRoute(10086)})
	})
}

// addr is where a peer that tests call by one letter lives.
func addr(name string) block.Addr { return block.Addr{Host: name, Port: 8060} }

// cands makes candidates of words like "a", "b:cg2" or "c:cg2@there": name,
// group (its own by default), location ("here").
func cands(words string) []Candidate {
	var list []Candidate
	for word := range strings.FieldsSeq(words) {
		word, location, ok := strings.Cut(word, "@")
		if !ok {
			location = "here"
		}
		name, group, ok := strings.Cut(word, ":")
		if !ok {
			group = "cg_" + name
		}
		list = append(list, Candidate{Addr: addr(name), GroupID: group, Location: location})
	}
	return list
}

// learn lets a look-up at the FE bring the candidates.
func (w *world) learn(words string) {
	w.Helper()
	if !w.BeginLookup(w.route) {
		w.Fatalf("no look-up of %s is due", w.route)
	}
	w.EndLookup(w.route, cands(words), nil)
}

// order is the names of the candidates in the order of trial.
func (w *world) order() string {
	return names(w.Candidates(w.route))
}

func names(s Snapshot) string {
	var list []string
	for i := range s.Len() {
		list = append(list, s.At(i).Addr.Host)
	}
	return strings.Join(list, " ")
}

func (w *world) wantOrder(want string) {
	w.Helper()
	if got := w.order(); got != want {
		w.Fatalf("order of trial %q, want %q", got, want)
	}
}

func (w *world) wantState(want State) {
	w.Helper()
	if got := w.Candidates(w.route).State(); got != want {
		w.Fatalf("state %d, want %d", got, want)
	}
}

// outcomes are the words of results: "a=miss b=hit".
func results(words string) []Result {
	outcome := map[string]block.Outcome{
		"hit": block.OutcomeHit, "miss": block.OutcomeMiss, "busy": block.OutcomeBusy,
		"timeout": block.OutcomeTimeout, "error": block.OutcomeError, "corrupt": block.OutcomeCorrupt,
		"open": block.OutcomeCircuitOpen, "cancelled": block.OutcomeCancelled,
		"unsupported": block.OutcomeUnsupported,
	}
	var list []Result
	for word := range strings.FieldsSeq(words) {
		name, what, _ := strings.Cut(word, "=")
		o, ok := outcome[what]
		if !ok {
			panic("no outcome " + what)
		}
		list = append(list, Result{Addr: addr(name), Outcome: o})
	}
	return list
}

// read is one peer leg that starts and ends at once.
func (w *world) read(words string) {
	w.Note(w.route, w.Candidates(w.route), results(words))
}

// view is op=show in short: list order with failures, then what is not zero.
func (w *world) view() string {
	v, _ := w.Show(w.route)
	var s strings.Builder
	for i, c := range v.Candidates {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(c.Host)
		if c.Failures > 0 {
			fmt.Fprintf(&s, "!%d", c.Failures)
		}
	}
	if v.LastGroupID != "" {
		s.WriteString(" last=" + v.LastGroupID)
	}
	if v.AllMiss != 0 {
		fmt.Fprintf(&s, " allmiss=%d", v.AllMiss)
	}
	if v.CooldownUntilMS != 0 {
		fmt.Fprintf(&s, " cooldown=%s", time.Until(time.UnixMilli(v.CooldownUntilMS)))
	}
	if v.Fetching {
		s.WriteString(" fetching")
	}
	return s.String()
}

func (w *world) wantView(want string) {
	w.Helper()
	if got := w.view(); got != want {
		w.Fatalf("state %q, want %q", got, want)
	}
}

// call is one RPC that ends at once; it reports whether it was allowed.
func (w *world) call(name string, o block.Outcome) bool {
	w.Helper()
	refused := w.peers.Refuses(addr(name))
	ticket, ok := w.peers.Allow(addr(name))
	if ok == refused {
		w.Errorf("Refuses(%s) is %t, Allow says %t", name, refused, ok)
	}
	if ok {
		ticket.Done(o)
	}
	return ok
}

func (w *world) wantCircuit(name, want string) {
	w.Helper()
	for _, v := range w.peers.Show() {
		if v.Address == addr(name).String() {
			if v.State != want {
				w.Fatalf("circuit of %s is %s, want %s", name, v.State, want)
			}
			return
		}
	}
	w.Fatalf("address %s is not known", name)
}
