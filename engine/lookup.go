package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"headstart/engine/block"
	"headstart/engine/profile"
	"headstart/shards"
)

const (
	// maxLookups bounds the look-ups that wait for the FE, lookupBatch those that
	// one question carries.
	maxLookups  = 4096
	lookupBatch = 256
	// lookupTimeout is how long the FE may take for one question.
	lookupTimeout = 2 * time.Second
	// refreshInterval is how often lists in use are looked at for their age,
	// maxRefresh how many of them are refreshed then: more than the share of a full
	// table with the default settings.
	refreshInterval = 30 * time.Second
	maxRefresh      = 1 << 17
	// warnInterval is the least time between two complaints about the FE.
	warnInterval = 30 * time.Second
)

var errLookupsFull = errors.New("too many look-ups wait for the FE")

// lookup is one route whose candidates the FE is asked for. started is when its
// read missed, query the profile that pays for it.
type lookup struct {
	route   block.Route
	query   *profile.Query
	started time.Time
}

// lookUp asks the FE for the candidates of a route, unless somebody does so
// already or the last answer forbids it. It never waits.
func (e *Engine) lookUp(route block.Route, query *profile.Query) {
	if e.Directory == nil || !e.Table.BeginLookup(route) {
		return
	}
	select {
	case e.lookups <- lookup{route: route, query: query, started: time.Now()}:
	default:
		e.count.lookupFailures.Add(1)
		e.Table.EndLookup(route, nil, errLookupsFull)
	}
}

// runLookups asks the FE for what readers wait for, many routes at a time, and
// refreshes the lists that are in use. It ends with e.ctx.
func (e *Engine) runLookups() {
	refresh := time.NewTicker(refreshInterval)
	defer refresh.Stop()
	batch := make([]lookup, 0, lookupBatch)
	var due []block.Route
	var warned time.Time
	for {
		batch = batch[:0]
		if len(due) == 0 {
			select {
			case <-e.ctx.Done():
				return
			case l := <-e.lookups:
				batch = append(batch, l)
			case <-refresh.C:
				share := e.Table.RefreshShare(refreshInterval)
				due = e.Table.DueForRefresh(max(lookupBatch, min(share, maxRefresh)))
			}
		}
		batch, due = e.fillBatch(batch, due)
		if len(batch) == 0 {
			continue
		}
		err := e.askDirectory(batch)
		if err == nil {
			continue
		}
		due = nil // they are due the next time as well
		if e.ctx.Err() == nil && time.Since(warned) >= warnInterval {
			warned = time.Now()
			e.Logger.Warn("the FE does not answer; reads go to known peers and object storage", "error", err)
		}
	}
}

// fillBatch adds to a question what readers wait for, and as much of due as has
// room behind that. It returns what is left of due.
func (e *Engine) fillBatch(batch []lookup, due []block.Route) ([]lookup, []block.Route) {
	for more := true; more && len(batch) < lookupBatch; {
		select {
		case l := <-e.lookups:
			batch = append(batch, l)
		default:
			more = false
		}
	}
	for len(due) > 0 && len(batch) < lookupBatch {
		if e.Table.BeginLookup(due[0]) {
			batch = append(batch, lookup{route: due[0], started: time.Now()})
		}
		due = due[1:]
	}
	return batch, due
}

// findAll is one question to the Directory, whose panic is no more than a
// failure: it must not end the node.
func (e *Engine) findAll(ctx context.Context, routes []block.Route) (found [][]shards.Candidate, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic of the directory: %v", p)
			e.count.panics.Add(1)
			e.Logger.Error("look-up panicked", "error", err)
		}
	}()
	found, err = e.Directory.Lookup(ctx, routes)
	if err == nil && len(found) != len(routes) {
		err = errors.New("the FE answered another number of tablets than it was asked for")
	}
	return found, err
}

func (e *Engine) askDirectory(batch []lookup) error {
	routes := make([]block.Route, len(batch))
	for i := range batch {
		routes[i] = batch[i].route
	}
	ctx, cancel := context.WithTimeout(e.ctx, lookupTimeout)
	defer cancel()
	e.count.lookups.Add(int64(len(batch)))
	found, err := e.findAll(ctx, routes)
	if err != nil {
		e.count.lookupFailures.Add(int64(len(batch)))
	}
	for i, l := range batch {
		var candidates []shards.Candidate
		if err == nil {
			candidates = found[i]
		}
		e.Table.EndLookup(l.route, candidates, err)
		l.query.AddLazyFetchTime(time.Since(l.started))
	}
	return err
}
