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
	// told has the day on which the FE heard of each tablet last: it forgets those
	// that nobody has asked for in days.
	told   map[uint64]int64
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// reportEvery is how often a BE looks for tablets that the FE may not know.
const reportEvery = 10 * time.Second

func startReporter(fes *rpc.DirectoryClient, e *engine.Engine, log *slog.Logger) *reporter {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reporter{fes: fes, engine: e, log: log, told: make(map[uint64]int64), cancel: cancel}
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

// report tells the FE of the tablets that it has not heard of today. What is no
// longer known here is forgotten: the table of objects is bounded, so this is.
func (r *reporter) report(ctx context.Context, now time.Time) {
	today, seen := now.Unix()/86_400, make(map[uint64]int64, len(r.told))
	var news []block.Route
	r.engine.OfTablets(nil, func(id uint64, _ block.Object, _ *object.Known) bool {
		if _, again := seen[id]; !again {
			if seen[id] = r.told[id]; seen[id] != today {
				news = append(news, block.Route{Kind: block.RouteTablet, ID: id})
			}
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
		r.told[route.ID] = today
	}
}
