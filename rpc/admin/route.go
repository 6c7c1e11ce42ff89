package admin

import (
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// Access says what a route needs of its caller.
type Access uint8

// The kinds of access.
const (
	// Open routes show what anybody may see.
	Open Access = iota
	// Reading routes hand out data: read_token guards them.
	Reading
	// Changing routes change state or show the inside: admin_token guards them.
	Changing
)

// route is one thing that can be asked for.
type route struct {
	// method is GET, which stands for HEAD as well, or POST.
	method string
	// path ends in /* when it stands for all paths below it.
	path string
	// op is the value of op=, "" for paths without one.
	op     string
	access Access
	handle fasthttp.RequestHandler
}

// router finds the route of a request, and lets nobody past that may not pass:
// no handler checks method or token by itself.
type router struct {
	admit func(*fasthttp.RequestCtx, Access) bool
	// exact and below have the routes of each path, below without the *.
	exact, below map[string][]route
}

func (r *router) add(routes ...route) {
	if r.exact == nil {
		r.exact, r.below = make(map[string][]route), make(map[string][]route)
	}
	for _, one := range routes {
		if prefix, ok := strings.CutSuffix(one.path, "*"); ok {
			r.below[prefix] = append(r.below[prefix], one)
		} else {
			r.exact[one.path] = append(r.exact[one.path], one)
		}
	}
}

// at returns the routes of a path.
func (r *router) at(path []byte) []route {
	if routes, ok := r.exact[string(path)]; ok {
		return routes
	}
	for prefix, routes := range r.below {
		if strings.HasPrefix(string(path), prefix) {
			return routes
		}
	}
	return nil
}

// dispatch finds the route, checks the method and the caller, and calls it.
func (r *router) dispatch(ctx *fasthttp.RequestCtx) {
	routes := r.at(ctx.Path())
	if routes == nil {
		fail(ctx, fasthttp.StatusNotFound, "not_found", "no such path: "+quote(string(ctx.Path())))
		return
	}
	var methods, ops []string
	op := ctx.QueryArgs().Peek("op")
	for i := range routes {
		one := &routes[i]
		switch {
		case one.op != "" && one.op != string(op):
			if !slices.Contains(ops, one.op) {
				ops = append(ops, one.op)
			}
		case !one.takes(ctx):
			methods = append(methods, one.method)
		case !r.admit(ctx, one.access):
			ctx.Response.Header.Set("WWW-Authenticate", "Bearer")
			fail(ctx, fasthttp.StatusUnauthorized, "unauthorized", "this needs a token: Authorization: Bearer <token>")
			return
		default:
			one.handle(ctx)
			return
		}
	}
	if len(methods) == 0 {
		fail(ctx, fasthttp.StatusBadRequest, "bad_argument", "op="+quote(string(op))+": want "+strings.Join(ops, ", "))
		return
	}
	allow := strings.Join(methods, ", ")
	ctx.Response.Header.Set("Allow", allow)
	fail(ctx, fasthttp.StatusMethodNotAllowed, "method_not_allowed", quote(string(ctx.Method()))+": want "+allow)
}

func (r *route) takes(ctx *fasthttp.RequestCtx) bool {
	method := string(ctx.Method())
	return method == r.method || (method == fasthttp.MethodHead && r.method == fasthttp.MethodGet)
}
