package admin

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/blockcache"
	"headstart/cmd/config"
	"headstart/engine"
	"headstart/engine/fill"
	"headstart/engine/profile"
	"headstart/engine/timeline"
	"headstart/pools"
	"headstart/rpc/framing"
	"headstart/shards"
)

// BEOptions is what the HTTP side of a BE shows and changes. All fields but
// Logger, Bucket and Wire are needed.
type BEOptions struct {
	Config   *config.Set
	Engine   *engine.Engine
	Cache    *blockcache.Cache
	Serving  *fill.Server
	Table    *shards.Table
	Breakers *shards.Breakers
	Profiles *profile.Profiles
	// Timelines may be nil: then no read is a slow one.
	Timelines *timeline.Log
	Buffers   *pools.Buffers
	Health    *Health
	Tokens    *Tokens
	// Wire tells what the parts have counted that this package must not know.
	Wire func() Wire
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
	hosts *hosts
	// chunks has *[chunkBytes]byte for reads under way.
	chunks sync.Pool
	// varsOnly serves /vars on the port that BEs speak to each other on.
	varsOnly *fasthttp.Server
}

// NewBE returns the HTTP side of a BE; Serve runs it.
func NewBE(o BEOptions) *BE {
	if o.Wire == nil {
		o.Wire = func() Wire { return Wire{} }
	}
	b := &BE{server: newServer(o.Health, o.Tokens, o.Logger), BEOptions: o, hosts: newHosts(o.Config)}
	b.add(
		route{"GET", "/read", "", Reading, b.read},
		route{"GET", "/metrics", "", Open, b.metrics},
		route{"GET", "/vars", "", Open, b.vars},
		route{"GET", "/vars/*", "", Open, b.vars},
		route{"GET", "/api/peer_cache", "show", Open, b.showTablet},
		route{"GET", "/api/peer_cache", "show_all", Open, b.showTablets},
		route{"POST", "/api/peer_cache", "set", Changing, b.setTablet},
		route{"POST", "/api/peer_cache", "remove", Changing, b.removeTablet},
		route{"POST", "/api/peer_cache", "reset_cooldown", Changing, b.resetCooldown},
		route{"GET", "/api/circuit_breaker", "", Open, b.showBreakers},
		route{"POST", "/api/circuit_breaker", "reset", Changing, b.resetBreaker},
		route{"GET", "/api/file_cache", "hash", Open, b.hashOfPath},
		route{"GET", "/api/file_cache", "list_cache", Open, b.listCache},
		route{"GET", "/api/query_profile", "", Open, b.queryProfile},
		// It tells what others read.
		route{"GET", "/api/slow_reads", "", Changing, b.slowReads},
	)
	// The reference takes these with GET; POST is for those who know better.
	for _, method := range []string{"GET", "POST"} {
		b.add(
			route{method, "/api/file_cache", "release", Changing, b.releaseCache},
			route{method, "/api/file_cache", "clear", Changing, b.clearCache},
			route{method, "/api/file_cache", "reset", Changing, b.resetCache},
			route{method, "/api/file_cache", "dump", Changing, b.dumpCache},
		)
	}
	b.add(configuration(o.Config)...)

	few := router{admit: b.admitted}
	few.add(route{"GET", "/vars", "", Open, b.vars}, route{"GET", "/vars/*", "", Open, b.vars})
	b.varsOnly = newHTTP(few.dispatch, b.log)
	return b
}

// ServeVars answers GET /vars and nothing else on c, until c ends.
func (s *BE) ServeVars(c net.Conn) {
	if err := s.varsOnly.ServeConn(framing.NewConn(c, s.framed.Limits)); err != nil {
		s.log.Debug("http on the brpc_port", "error", err)
	}
}

// queryProfile serves GET /api/query_profile?query_id=…[&format=json].
func (s *BE) queryProfile(ctx *fasthttp.RequestCtx) {
	args := ctx.QueryArgs()
	id := string(args.Peek("query_id"))
	q := s.Profiles.Find(id)
	format := string(args.Peek("format"))
	switch {
	case format != "" && format != "text" && format != "json":
		fail(ctx, fasthttp.StatusBadRequest, "bad_argument", "format="+quote(format)+": want text or json")
	case q == nil:
		fail(ctx, fasthttp.StatusNotFound, "no_such_query", "no profile of query "+quote(id)+" is kept")
	case format == "json":
		answer(ctx, q)
	default:
		text(ctx, q.Text())
	}
}
