package conduct

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"headstart/engine/block"
	"headstart/shards/placement"
)

// part is one backend's share of a batch:
//
//	fresh ──call answered──► accepted ──► warm
//	 │  ▲                      │  │
//	 │  └─ backend restarted ──┘  │ attempts used up, or
//	 └──────────────────────────► failed  the backend can't be reached
type part struct {
	placement.WarmPart
	state    partState
	attempts int
	// notBefore is when a fresh part may be given to the backend.
	notBefore time.Time
	progress  placement.WarmProgress
	err       string
	// counted is set when the end of the part is in the books of its round.
	counted bool
}

type partState uint8

const (
	fresh partState = iota
	accepted
	warm
	failed
)

func (p *part) ended() bool { return p.state == warm || p.state == failed }

// tablets returns how many tablets the part has.
func (p *part) tablets() int {
	n := 0
	for _, g := range p.Batch.Groups {
		n += len(g.Tablets)
	}
	return n
}

// line is what there is to say to one backend. It is forgotten when that is
// nothing.
type line struct {
	addr  block.Addr
	parts []*part
	drop  []string
	// calling is set while a call is under way.
	calling bool
	// asked is when the backend was last asked how far it is, failing since when
	// its calls have failed, notBefore when it may be called again.
	asked, failing, notBefore time.Time
}

// maxStarts bounds the batches that one call starts, and so its size.
const maxStarts = 16

// give makes parts of a batch, which the next calls carry out.
func (c *Conductor) give(work []placement.WarmPart) []*part {
	parts := make([]*part, len(work))
	for i, w := range work {
		w.Batch.ID = c.newID()
		parts[i] = &part{WarmPart: w}
		l := c.lines[w.BackendID]
		if l == nil {
			l = &line{}
			c.lines[w.BackendID] = l
		}
		l.addr, l.parts = w.Addr, append(l.parts, parts[i])
	}
	return parts
}

func (c *Conductor) newID() string {
	c.batches++
	return c.name + "-" + strconv.Itoa(c.batches)
}

// release takes parts that nobody waits for any more from their lines. With
// drop the backends are told to give them up.
func (c *Conductor) release(parts []*part, drop bool) {
	for _, p := range parts {
		l := c.lines[p.BackendID]
		if l == nil {
			continue
		}
		l.parts = slices.DeleteFunc(l.parts, func(other *part) bool { return other == p })
		if drop && p.state == accepted {
			l.drop = append(l.drop, p.Batch.ID)
		}
	}
}

// call starts the calls that are due.
func (c *Conductor) call(ctx context.Context, now time.Time) {
	for id, l := range c.lines {
		l.parts = slices.DeleteFunc(l.parts, (*part).ended)
		switch {
		case l.calling:
			continue
		case len(l.parts)+len(l.drop) == 0:
			delete(c.lines, id)
			continue
		case !c.directory.Reachable(id):
			l.fail(fmt.Sprintf("backend %d is not alive", id))
			c.Wake() // whoever waits for the parts has to know
			continue
		}
		said := l.say(now)
		if len(said.Start)+len(said.Ask)+len(said.Drop) == 0 {
			continue
		}
		l.calling = true
		to := l.addr
		c.calls.Go(func() { // ends with the call, which has a limit
			callCtx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			progress, err := c.backends.Warm(callCtx, to, said)
			c.tell(ctx, func() { c.answered(id, l, &said, progress, err) })
		})
	}
}

// say returns what there is to say now.
func (l *line) say(now time.Time) (said placement.WarmCall) {
	if now.Before(l.notBefore) {
		return said
	}
	ask := now.Sub(l.asked) >= pollEvery
	for _, p := range l.parts {
		switch {
		case p.state == fresh && len(said.Start) < maxStarts && !now.Before(p.notBefore):
			said.Start = append(said.Start, p.Batch)
		case p.state == accepted && ask:
			said.Ask = append(said.Ask, p.Batch.ID)
		}
	}
	if len(said.Ask) > 0 {
		l.asked = now
	}
	said.Drop = slices.Clone(l.drop)
	return said
}

// answered takes the end of a call in.
func (c *Conductor) answered(id int64, l *line, said *placement.WarmCall, progress []placement.WarmProgress, err error) {
	l.calling = false
	now := time.Now()
	if err != nil {
		l.notBefore = now.Add(pollEvery)
		if l.failing.IsZero() {
			l.failing = now
		}
		if now.Sub(l.failing) >= unanswered {
			l.fail(fmt.Sprintf("backend %d does not answer: %v", id, err))
		}
		return
	}
	l.failing = time.Time{}
	l.drop = slices.DeleteFunc(l.drop, func(id string) bool { return slices.Contains(said.Drop, id) })
	byID := make(map[string]*part, len(l.parts))
	for _, p := range l.parts {
		byID[p.Batch.ID] = p
		if p.state == fresh && slices.ContainsFunc(said.Start, func(b placement.WarmBatch) bool { return b.ID == p.Batch.ID }) {
			p.notBefore = now.Add(retryAfter) // unless the answer mentions it
		}
	}
	for _, news := range progress {
		if p := byID[news.ID]; p != nil {
			c.progressed(p, news, now)
		} else if news.State == placement.WarmQueued || news.State == placement.WarmRunning {
			l.drop = append(l.drop, news.ID) // released while the call was under way
		}
	}
}

// progressed moves a part by its backend's word.
func (c *Conductor) progressed(p *part, news placement.WarmProgress, now time.Time) {
	p.progress = news
	switch news.State {
	case placement.WarmUnknown:
		if p.state == accepted { // the backend was restarted
			p.state, p.notBefore = fresh, now
		}
	case placement.WarmDone:
		p.state = warm
	case placement.WarmFailed:
		p.attempts++
		p.err = fmt.Sprintf("backend %d: %s", p.BackendID, news.Err)
		p.state, p.notBefore = fresh, now.Add(retryAfter)
		if p.attempts >= c.options.Attempts {
			p.state = failed
		}
		p.Batch.ID = c.newID()
	default:
		p.state = accepted
	}
}

// fail gives up all that the backend was to do.
func (l *line) fail(why string) {
	for _, p := range l.parts {
		if !p.ended() {
			p.state, p.err = failed, why
		}
	}
	l.parts, l.drop, l.failing = nil, nil, time.Time{}
}
