package admin

import (
	"net/http/pprof"
	"sync/atomic"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
)

// maxProfileSeconds bounds a profile over time.
const maxProfileSeconds = 60

// profiling returns the routes of Go's own profiles.
func profiling() []route {
	one := new(atomic.Bool)
	index := fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Index)
	below := func(name string, h fasthttp.RequestHandler) route {
		return route{"GET", "/debug/pprof/" + name, "", Changing, h}
	}
	return []route{
		below("", index),
		below("*", oneAtATime(one, index)),
		below("cmdline", fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Cmdline)),
		below("symbol", fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Symbol)),
		below("profile", oneAtATime(one, fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Profile))),
		below("trace", oneAtATime(one, fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Trace))),
	}
}

// oneAtATime keeps profiles from becoming a load of their own: one runs at a
// time on this server, and for a bounded number of seconds.
func oneAtATime(running *atomic.Bool, h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		_, err := number(ctx.QueryArgs(), "seconds", 1, 1, maxProfileSeconds)
		if err != nil {
			wrongArgument(ctx, err)
			return
		}
		if !running.CompareAndSwap(false, true) {
			ctx.Response.Header.Set("Retry-After", "1")
			fail(ctx, fasthttp.StatusTooManyRequests, "busy", "another profile is being taken")
			return
		}
		defer running.Store(false)
		h(ctx)
	}
}
