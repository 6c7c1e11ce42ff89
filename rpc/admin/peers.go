package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine/block"
	"headstart/shards"
)

const (
	// defaultLimit is how many tablets op=show_all lists unless it is told,
	// maxLimit how many it lists at most.
	defaultLimit = 1000
	maxLimit     = 1_000_000
)

// tablet reads tablet_id.
func tablet(ctx *fasthttp.RequestCtx) (block.Route, bool) {
	id, err := number(ctx.QueryArgs(), "tablet_id", -1, 0, math.MaxInt64)
	if err == nil && id < 0 {
		err = errors.New("tablet_id is missing")
	}
	if err != nil {
		wrongArgument(ctx, err)
		return block.Route{}, false
	}
	return block.TabletRoute(id), true
}

// showTablets serves GET /api/peer_cache?op=show_all[&limit=N].
func (s *BE) showTablets(ctx *fasthttp.RequestCtx) {
	limit, err := number(ctx.QueryArgs(), "limit", defaultLimit, 1, maxLimit)
	if err != nil {
		wrongArgument(ctx, err)
		return
	}
	answer(ctx, s.Table.ShowAll(int(limit)))
}

// showTablet serves GET /api/peer_cache?op=show&tablet_id=N.
func (s *BE) showTablet(ctx *fasthttp.RequestCtx) {
	if route, ok := tablet(ctx); ok {
		view, _ := s.Table.Show(route)
		answer(ctx, view)
	}
}

// setTablet serves POST /api/peer_cache?op=set&tablet_id=N.
func (s *BE) setTablet(ctx *fasthttp.RequestCtx) {
	route, ok := tablet(ctx)
	if !ok {
		return
	}
	forced, err := s.forced(ctx.PostBody())
	if err == nil {
		err = s.Table.Set(route, forced)
	}
	if err != nil {
		s.log.Warn("refused candidates set by hand", "tablet_id", route.ID, "from", ctx.RemoteAddr().String(), "error", err)
		fail(ctx, fasthttp.StatusBadRequest, "bad_candidates", err.Error())
		return
	}
	s.log.Info("candidates set by hand", "tablet_id", route.ID, "candidates", len(forced.Candidates), "from", ctx.RemoteAddr().String())
	done(ctx)
}

// lookupTimeout bounds the look-ups of all names in one list of candidates.
const lookupTimeout = time.Second

// forced reads the body of op=set.
func (s *BE) forced(body []byte) (shards.View, error) {
	var v shards.View
	if err := decodeStrict(body, &v); err != nil {
		return v, err
	}
	if v.Candidates == nil {
		return v, errors.New("candidates are missing")
	}
	if len(v.Candidates) > shards.MaxCandidates {
		return v, fmt.Errorf("%d candidates: at most %d are possible", len(v.Candidates), shards.MaxCandidates)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	seen := make(map[string]bool, len(v.Candidates))
	for _, c := range v.Candidates {
		if err := s.hosts.check(ctx, c.Host); err != nil {
			return v, err
		}
		host := strings.ToLower(c.Host)
		if a, err := netip.ParseAddr(host); err == nil {
			host = a.String() // one address may be written in several ways
		}
		at := block.Addr{Host: host, Port: c.Port}.String()
		if seen[at] {
			return v, fmt.Errorf("candidate %s is listed twice", at)
		}
		seen[at] = true
	}
	return v, nil
}

// removeTablet serves POST /api/peer_cache?op=remove&tablet_id=N.
func (s *BE) removeTablet(ctx *fasthttp.RequestCtx) { s.known(ctx, s.Table.Remove) }

// resetCooldown serves POST /api/peer_cache?op=reset_cooldown&tablet_id=N.
func (s *BE) resetCooldown(ctx *fasthttp.RequestCtx) { s.known(ctx, s.Table.ResetCooldown) }

// known does something to a tablet that the table must know.
func (s *BE) known(ctx *fasthttp.RequestCtx, do func(block.Route) bool) {
	route, ok := tablet(ctx)
	switch {
	case !ok:
	case do(route):
		done(ctx)
	default:
		fail(ctx, fasthttp.StatusNotFound, "unknown_tablet", route.String()+" has no candidates here")
	}
}

// showBreakers serves GET /api/circuit_breaker.
func (s *BE) showBreakers(ctx *fasthttp.RequestCtx) { answer(ctx, s.Breakers.Show()) }

// resetBreaker serves POST /api/circuit_breaker?op=reset&address=host:port.
func (s *BE) resetBreaker(ctx *fasthttp.RequestCtx) {
	addr, err := block.ParseAddr(string(ctx.QueryArgs().Peek("address")))
	switch {
	case err != nil:
		wrongArgument(ctx, err)
	case !s.Breakers.Reset(addr):
		fail(ctx, fasthttp.StatusNotFound, "unknown_address", "no breaker is kept for "+addr.String())
	default:
		done(ctx)
	}
}
