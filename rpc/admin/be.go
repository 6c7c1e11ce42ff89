package admin

import (
	"context"
	"log/slog"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/blockcache"
	"headstart/cmd/config"
	"headstart/engine"
	"headstart/engine/fill"
	"headstart/engine/profile"
	"headstart/pools"
	"headstart/shards"
)

// BEOptions is what the HTTP side of a BE shows and changes. All fields but
// Logger and Bucket are needed.
type BEOptions struct {
	Config   *config.Set
	Engine   *engine.Engine
	Cache    *blockcache.Cache
	Serving  *fill.Server
	Table    *shards.Table
	Breakers *shards.Breakers
	Profiles *profile.Profiles
	Buffers  *pools.Buffers
	Health   *Health
	Tokens   *Tokens
	// Wire adds metrics of the parts that this package must not know.
	Wire func() []Sample
	// Bucket is what a path without a bucket lies in.
	Bucket string
	// BlockTimeout is how long a reader may wait for one block of /read.
	BlockTimeout time.Duration
	Logger       *slog.Logger
}

// BE is the HTTP side of a BE.
type BE struct {
	*server
	BEOptions
}

// NewBE returns the HTTP side of a BE; Serve runs it.
func NewBE(o BEOptions) *BE {
	b := &BE{server: newServer(o.Health, o.Tokens, o.Logger), BEOptions: o}
	b.routes = append(b.routes,
		route{"/read", "GET", Reading, b.read},
		route{"/metrics", "GET", Open, b.metrics},
		route{"/vars", "GET", Open, b.vars},
		route{"/vars/*", "GET", Open, b.vars},
		route{"/api/peer_cache", "GET POST", Open, b.peerCache},
		route{"/api/circuit_breaker", "GET POST", Open, b.circuitBreaker},
		route{"/api/file_cache", "GET POST", Changing, b.fileCache},
		route{"/api/update_config", "POST", Changing, b.updateConfig},
		route{"/api/show_config", "GET", Open, b.showConfig},
		route{"/api/query_profile", "GET", Open, b.queryProfile},
		route{"/debug/pprof/*", "GET", Changing, profiling()},
	)
	return b
}

// fileCache serves /api/file_cache?op=clear[&sync=true].
func (s *BE) fileCache(ctx *fasthttp.RequestCtx) {
	op := string(ctx.QueryArgs().Peek("op"))
	if op != "clear" {
		fail(ctx, fasthttp.StatusBadRequest, "bad_argument", "op="+quote(op)+": want clear")
		return
	}
	bound, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	if err := s.Cache.Clear(bound); err != nil {
		fail(ctx, fasthttp.StatusInternalServerError, "clear_failed", err.Error())
		return
	}
	answer(ctx, map[string]string{"status": "OK"})
}

// updateConfig serves POST /api/update_config?key=value[&key=value…][&persist=true].
func (s *BE) updateConfig(ctx *fasthttp.RequestCtx) {
	values, persist, err := updates(ctx.QueryArgs())
	if err == nil {
		err = s.Config.Update(values, persist)
	}
	if err != nil {
		fail(ctx, fasthttp.StatusBadRequest, "bad_config", err.Error())
		return
	}
	answer(ctx, map[string]string{"status": "OK"})
}

// showConfig serves GET /api/show_config[?conf_item=key].
func (s *BE) showConfig(ctx *fasthttp.RequestCtx) {
	items := s.Config.Show()
	if name := string(ctx.QueryArgs().Peek("conf_item")); name != "" {
		item, err := s.Config.ShowKey(name)
		if err != nil {
			fail(ctx, fasthttp.StatusBadRequest, "unknown_key", err.Error())
			return
		}
		items = []config.Item{item}
	}
	rows := make([][4]any, len(items))
	for i, it := range items {
		rows[i] = [4]any{it.Name, it.Type, it.Value, it.Mutable}
	}
	answer(ctx, rows)
}

// queryProfile serves GET /api/query_profile?query_id=…[&format=json].
func (s *BE) queryProfile(ctx *fasthttp.RequestCtx) {
	args := ctx.QueryArgs()
	id := string(args.Peek("query_id"))
	q := s.Profiles.Find(id)
	if q == nil {
		fail(ctx, fasthttp.StatusNotFound, "no_such_query", "no profile of query "+quote(id)+" is kept")
		return
	}
	if string(args.Peek("format")) == "json" {
		answer(ctx, q)
		return
	}
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.SetBodyString(q.Text())
}
