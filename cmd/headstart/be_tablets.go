package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/object"
	"headstart/rpc"
)

// reporter lets the FE know which tablets are read here: it moves and warms up
// those that it knows. With peer read on it hears of them by look-ups as well.
type reporter struct {
	fes    *rpc.DirectoryClient
	engine *engine.Engine
	log    *slog.Logger
	told   map[uint64]telling
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// telling is how often the FE has heard of a tablet on a day: it forgets those
// that nobody has asked for in days. The second time is for an FE that died
// before it had saved what it was told.
type telling struct {
	day   int64
	times int
}

const tellTimes = 2

// reportEvery is how often a BE looks for tablets that the FE may not know.
const reportEvery = 10 * time.Second

func startReporter(fes *rpc.DirectoryClient, e *engine.Engine, log *slog.Logger) *reporter {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reporter{fes: fes, engine: e, log: log, told: make(map[uint64]telling), cancel: cancel}
	r.done.Go(func() { // ends with stop
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				r.report(ctx, now)
			}
		}
	})
	return r
}

func (r *reporter) stop() {
	r.cancel()
	r.done.Wait()
}

// report tells the FE of the tablets that it has not heard of often enough today.
// What is no longer known here is forgotten: the table of objects is bounded, so
// this is.
func (r *reporter) report(ctx context.Context, now time.Time) {
	today, seen := now.Unix()/86_400, make(map[uint64]telling, len(r.told))
	var news []block.Route
	r.engine.OfTablets(nil, func(id uint64, _ block.Object, _ *object.Known) bool {
		if _, again := seen[id]; again {
			return true
		}
		t := r.told[id]
		if t.day != today {
			t = telling{day: today}
		}
		if seen[id] = t; t.times < tellTimes {
			news = append(news, block.Route{Kind: block.RouteTablet, ID: id})
		}
		return true
	})
	r.told = seen
	if len(news) == 0 {
		return
	}
	if _, err := r.fes.Lookup(ctx, news); err != nil {
		r.log.Debug("tablets could not be reported", "tablets", len(news), "error", err)
		return
	}
	for _, route := range news {
		t := seen[route.ID]
		t.times++
		seen[route.ID] = t
	}
}
