package rpc

import (
	"sync"
)

// maxEarly bounds the Cancels that are remembered for calls still to come.
const maxEarly = 1024

// calls are the FetchBlocks calls that a Cancel can name. A Cancel may overtake
// its call, because each has a connection of its own: the last maxEarly that
// named no running call are remembered, so that their calls end at once.
type calls struct {
	mu struct {
		sync.Mutex
		running map[callName]*call
		// early has the names in order, a ring, of which next is the oldest.
		early map[callName]struct{}
		order [maxEarly]callName
		next  int
	}
}

// callName is unique in a cluster: a node counts its calls from a random start.
type callName struct {
	node string
	id   uint64
}

func (cs *calls) init() {
	cs.mu.running = make(map[callName]*call)
	cs.mu.early = make(map[callName]struct{})
}

// begin makes a call known; one whose id is 0, or taken, stays unknown.
func (cs *calls) begin(c *call) {
	if c.name.id == 0 {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if _, early := cs.mu.early[c.name]; early {
		delete(cs.mu.early, c.name)
		c.cancelFor(causeCancel)
	}
	if cs.mu.running[c.name] == nil {
		cs.mu.running[c.name] = c
	}
}

func (cs *calls) end(c *call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.mu.running[c.name] == c {
		delete(cs.mu.running, c.name)
	}
}

// cancel ends the call of that name, now or as soon as it comes. It reports
// whether the call was running.
func (cs *calls) cancel(name callName) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.mu.running[name]; c != nil {
		c.cancelFor(causeCancel)
		return true
	}
	if name.id == 0 {
		return false
	}
	delete(cs.mu.early, cs.mu.order[cs.mu.next])
	cs.mu.early[name] = struct{}{}
	cs.mu.order[cs.mu.next] = name
	cs.mu.next = (cs.mu.next + 1) % maxEarly
	return false
}
