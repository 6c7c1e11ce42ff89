package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
	"headstart/fuzz/fault"
	"headstart/shards"
)

// TestS87_AllFEsAwayForFiveMinutes: for five minutes no FE answers, or it hangs. No
// read fails, known peers go on serving, and object storage stands in for those
// that are not known. When the FE is back, nodes report by themselves, and what
// was first read in the meantime is found at peers, nothing restarted.
func TestS87_AllFEsAwayForFiveMinutes(t *testing.T) {
	const from, away, report, pace = 30 * time.Second, 5 * time.Minute, 2 * time.Second, 15 * time.Second
	kinds := []fault.Kind{fault.DirectorySilent, fault.DirectoryError}
	if testing.Short() { // six minutes of three nodes are long under the race detector
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.limits = limits{cacheBlocks: 400, bufferBlocks: 4096, races: 64, raceGets: 32, fills: 32, workers: 8, queue: 64}
			w.tight = false
			w.plan = &fault.Plan{Begin: time.Now(), Rules: []fault.Rule{{Kind: kind, From: from, To: from + away, Percent: 100}}}
			for i := range w.switched {
				w.switched[i] = switches()[i].values[0]
			}
			for i, n := range w.nodes {
				n.group = []string{"g0", "g1", "g2"}[i]
				n.start()
				l := n.enter()
				l.rules.ExpirySeconds.Store(shards.NewSettings().ExpirySeconds.Load())
				l.leave()
			}
			known, news := w.bucket.objects[0], w.bucket.objects[tabletFiles-1]
			time.Sleep(report)
			w.readWhole(w.nodes[0], known)
			w.readWhole(w.nodes[1], known) // asks the FE behind the read
			time.Sleep(report)
			if peers, _ := w.readCold(w.nodes[1], known); peers == 0 {
				t.Fatal("peers are not used while there is an FE")
			}
			time.Sleep(from + report - w.now())
			w.readWhole(w.nodes[0], news)
			w.readWhole(w.nodes[2], news) // nobody says who has it: object storage does
			for w.now() < from+away-pace {
				if peers, store := w.readCold(w.nodes[1], known); peers == 0 || store != 0 {
					t.Fatalf("at %v without an FE: %d blocks come from peers, %d from object storage", w.now(), peers, store)
				}
				time.Sleep(pace)
			}
			for _, b := range w.fe.Backends() {
				if b.Alive {
					t.Errorf("%s has not been cut off", b.Host)
				}
			}
			time.Sleep(from + away + 2*report - w.now())
			for _, b := range w.fe.Backends() {
				if !b.Alive {
					t.Errorf("%s does not report again", b.Host)
				}
			}
			time.Sleep(time.Minute) // the longest pause between look-ups that fail
			w.readCold(w.nodes[2], news)
			time.Sleep(report)
			if peers, store := w.readCold(w.nodes[2], news); peers == 0 || store != 0 {
				t.Errorf("after the FE's return %d blocks come from peers, %d from object storage", peers, store)
			}
			for _, n := range w.nodes {
				n.end()
			}
		})
	}
}

// readWhole reads an object whole; it must not fail.
func (w *world) readWhole(n *node, o *stored) {
	l := n.enter()
	defer l.leave()
	dst := make([]byte, len(o.current().data))
	req := &block.Read{Object: o.Object, Route: o.route, Version: block.Immutable}
	if got, _, err := l.engine.Read(l.ctx, req, dst); err != nil || string(dst[:got]) != string(o.current().data) {
		w.fail("%s: %d bytes of %s, %v", n.name, got, o.Key, err)
	}
}

// readCold does so with an empty cache, and returns how many blocks have come from
// peers and from object storage.
func (w *world) readCold(n *node, o *stored) (peers, store int64) {
	n.clear()
	l := n.enter()
	defer l.leave()
	before := l.engine.Metrics()
	w.readWhole(n, o)
	after := l.engine.Metrics()
	return after.PeerBlocks - before.PeerBlocks, after.StoreBlocks - before.StoreBlocks
}
