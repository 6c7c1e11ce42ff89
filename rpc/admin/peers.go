package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/valyala/fasthttp"

	"headstart/engine/block"
	"headstart/shards"
)

// defaultLimit is how many tablets op=show_all lists unless it is told.
const defaultLimit = 1000

// peerCache serves /api/peer_cache: op=show and op=show_all with GET, op=set,
// op=remove and op=reset_cooldown with POST.
func (s *BE) peerCache(ctx *fasthttp.RequestCtx) {
	op := string(ctx.QueryArgs().Peek("op"))
	changing := op == "set" || op == "remove" || op == "reset_cooldown"
	switch {
	case !changing && op != "show" && op != "show_all":
		fail(ctx, fasthttp.StatusBadRequest, "bad_argument",
			"op="+quote(op)+": want show, show_all, set, remove or reset_cooldown")
	case changing != ctx.IsPost():
		method := map[bool]string{true: "POST", false: "GET"}[changing]
		ctx.Response.Header.Set("Allow", method)
		fail(ctx, fasthttp.StatusMethodNotAllowed, "method_not_allowed", "use "+method+" for op="+op)
	case changing && !s.admitted(ctx, Changing):
		fail(ctx, fasthttp.StatusUnauthorized, "unauthorized", "this needs a token: Authorization: Bearer <token>")
	case op == "show_all":
		s.showAllTablets(ctx)
	default:
		s.oneTablet(ctx, op)
	}
}

func (s *BE) showAllTablets(ctx *fasthttp.RequestCtx) {
	limit, err := number(ctx.QueryArgs(), "limit", defaultLimit, 1)
	if err != nil || limit > maxLimit {
		fail(ctx, fasthttp.StatusBadRequest, "bad_argument", "limit: want a whole number from 1 to "+strconv.Itoa(maxLimit))
		return
	}
	answer(ctx, s.Table.ShowAll(int(limit)))
}

// maxLimit bounds what one op=show_all lists.
const maxLimit = 1_000_000

func (s *BE) oneTablet(ctx *fasthttp.RequestCtx, op string) {
	id, err := number(ctx.QueryArgs(), "tablet_id", -1, 0)
	if err == nil && id < 0 {
		err = errors.New("tablet_id is missing")
	}
	if err != nil {
		fail(ctx, fasthttp.StatusBadRequest, "bad_argument", err.Error())
		return
	}
	route, known := block.TabletRoute(id), true
	switch op {
	case "show":
		view, _ := s.Table.Show(route)
		answer(ctx, view)
		return
	case "set":
		var forced shards.View
		if err = decodeStrict(ctx.PostBody(), &forced); err == nil {
			err = s.Table.Set(route, forced)
		}
	case "remove":
		known = s.Table.Remove(route)
	case "reset_cooldown":
		known = s.Table.ResetCooldown(route)
	}
	switch {
	case err != nil:
		fail(ctx, fasthttp.StatusBadRequest, "bad_candidates", err.Error())
	case !known:
		fail(ctx, fasthttp.StatusNotFound, "unknown_tablet", route.String()+" has no candidates here")
	default:
		answer(ctx, map[string]string{"status": "OK"})
	}
}

// circuitBreaker serves GET /api/circuit_breaker and POST op=reset&address=.
func (s *BE) circuitBreaker(ctx *fasthttp.RequestCtx) {
	if !ctx.IsPost() {
		answer(ctx, s.Breakers.Show())
		return
	}
	args := ctx.QueryArgs()
	addr, err := block.ParseAddr(string(args.Peek("address")))
	switch {
	case !s.admitted(ctx, Changing):
		fail(ctx, fasthttp.StatusUnauthorized, "unauthorized", "this needs a token: Authorization: Bearer <token>")
	case string(args.Peek("op")) != "reset":
		fail(ctx, fasthttp.StatusBadRequest, "bad_argument", "op="+quote(string(args.Peek("op")))+": want reset")
	case err != nil:
		fail(ctx, fasthttp.StatusBadRequest, "bad_argument", err.Error())
	case !s.Breakers.Reset(addr):
		fail(ctx, fasthttp.StatusNotFound, "unknown_address", "no breaker is kept for "+addr.String())
	default:
		answer(ctx, map[string]string{"status": "OK"})
	}
}

// decodeStrict reads one JSON value and refuses fields it does not know.
func decodeStrict(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("want one JSON value and nothing behind it")
	}
	return nil
}
