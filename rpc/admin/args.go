package admin

import (
	"errors"
	"net/http/pprof"
	"strconv"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
)

func quote(s string) string { return strconv.Quote(s) }

// updates reads the query of update_config. A key that comes twice is refused:
// which one should hold is anybody's guess.
func updates(args *fasthttp.Args) (values map[string]string, persist bool, err error) {
	values = map[string]string{}
	for k, v := range args.All() {
		key, value := string(k), string(v)
		if key == "persist" {
			if persist, err = strconv.ParseBool(value); err != nil {
				return nil, false, errors.New("persist=" + quote(value) + ": want true or false")
			}
			continue
		}
		if _, twice := values[key]; twice {
			return nil, false, errors.New("key " + quote(key) + " is given twice")
		}
		values[key] = value
	}
	if len(values) == 0 {
		return nil, false, errors.New("want at least one key=value")
	}
	return values, persist, nil
}

// profiling serves Go's own profiles below /debug/pprof/.
func profiling() fasthttp.RequestHandler {
	index := fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Index)
	special := map[string]fasthttp.RequestHandler{
		"cmdline": fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Cmdline),
		"profile": fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Profile),
		"symbol":  fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Symbol),
		"trace":   fasthttpadaptor.NewFastHTTPHandlerFunc(pprof.Trace),
	}
	return func(ctx *fasthttp.RequestCtx) {
		if h, ok := special[string(ctx.Path()[len("/debug/pprof/"):])]; ok {
			h(ctx)
			return
		}
		index(ctx)
	}
}
