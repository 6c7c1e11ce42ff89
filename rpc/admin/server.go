// Package admin is the HTTP side of a node: reads for people and scripts, the
// /api of the reference system, /vars and /metrics, health and pprof.
//
// It owns nothing but its listener: all it shows or changes belongs to the
// parts it was built with. The names of metrics exist here and nowhere else.
package admin

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

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

// route is one path. methods lists those it takes, separated by blanks.
type route struct {
	path    string
	methods string
	access  Access
	handle  func(*fasthttp.RequestCtx)
}

// Limits of one connection and one request: a slow or greedy client costs no
// more than these.
const (
	maxBodyBytes   = 4 << 20
	maxHeaderBytes = 16 << 10
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxConns       = 4096
)

// Health is what /livez and /readyz answer from. Reason is nil or empty when
// the node is ready.
type Health struct {
	reason atomic.Pointer[string]
}

// NotReady makes /readyz fail with a reason; an empty reason makes it succeed.
func (h *Health) NotReady(reason string) { h.reason.Store(&reason) }

// Ready makes /readyz succeed.
func (h *Health) Ready() { h.NotReady("") }

func (h *Health) get() string {
	if r := h.reason.Load(); r != nil {
		return *r
	}
	return "starting"
}

// Tokens are the secrets that routes ask for; a nil or empty one leaves its
// routes open.
type Tokens struct {
	Admin, Read atomic.Pointer[string]
}

// server is what the servers of both roles share.
type server struct {
	routes []route
	health *Health
	tokens *Tokens
	log    *slog.Logger
	http   *fasthttp.Server
}

func newServer(health *Health, tokens *Tokens, log *slog.Logger) *server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &server{health: health, tokens: tokens, log: log}
	s.routes = []route{
		{"/livez", "GET", Open, s.livez},
		{"/readyz", "GET", Open, s.readyz},
	}
	s.http = &fasthttp.Server{
		Handler: s.dispatch, Name: "headstart",
		MaxRequestBodySize: maxBodyBytes, ReadBufferSize: maxHeaderBytes,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		Concurrency: maxConns, NoDefaultServerHeader: true, NoDefaultDate: true,
		CloseOnShutdown: true, Logger: quiet{log},
	}
	return s
}

// Serve answers on ln until Shutdown.
func (s *server) Serve(ln net.Listener) error { return s.http.Serve(ln) }

// Shutdown stops taking requests and waits for those under way, or for ctx.
func (s *server) Shutdown(ctx context.Context) error { return s.http.ShutdownWithContext(ctx) }

// dispatch finds the route, checks the method and the caller, and calls it.
func (s *server) dispatch(ctx *fasthttp.RequestCtx) {
	path := string(ctx.Path())
	for i := range s.routes {
		r := &s.routes[i]
		if r.path != path && !(strings.HasSuffix(r.path, "/*") && strings.HasPrefix(path, r.path[:len(r.path)-1])) {
			continue
		}
		switch {
		case !allows(r.methods, string(ctx.Method())):
			ctx.Response.Header.Set("Allow", strings.ReplaceAll(r.methods, " ", ", "))
			fail(ctx, fasthttp.StatusMethodNotAllowed, "method_not_allowed", "use "+r.methods+" for "+path)
		case !s.admitted(ctx, r.access):
			fail(ctx, fasthttp.StatusUnauthorized, "unauthorized", "this needs a token: Authorization: Bearer <token>")
		default:
			r.handle(ctx)
		}
		return
	}
	fail(ctx, fasthttp.StatusNotFound, "not_found", "no such path: "+path)
}

func allows(methods, method string) bool {
	for m := range strings.FieldsSeq(methods) {
		if m == method || (m == "GET" && method == "HEAD") {
			return true
		}
	}
	return false
}

// admitted compares the caller's token in constant time. The admin's token
// opens everything.
func (s *server) admitted(ctx *fasthttp.RequestCtx, a Access) bool {
	if a == Open {
		return true
	}
	given := strings.TrimPrefix(string(ctx.Request.Header.Peek("Authorization")), "Bearer ")
	set, admin := compare(s.tokens.Admin.Load(), given)
	if a == Changing {
		return admin || !set
	}
	set, reader := compare(s.tokens.Read.Load(), given)
	return reader || admin || !set
}

// compare reports whether a token is set, and whether it was given.
func compare(want *string, given string) (set, same bool) {
	if want == nil || *want == "" {
		return false, false
	}
	return true, subtle.ConstantTimeCompare([]byte(*want), []byte(given)) == 1
}

func (s *server) livez(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("ok\n") }

func (s *server) readyz(ctx *fasthttp.RequestCtx) {
	if reason := s.health.get(); reason != "" {
		fail(ctx, fasthttp.StatusServiceUnavailable, "not_ready", reason)
		return
	}
	ctx.SetBodyString("ok\n")
}

// problem is the body of every answer that is no success.
type problem struct {
	// Code is stable, for programs; Message is a sentence, for people.
	Code    string `json:"code"`
	Message string `json:"message"`
}

// fail answers with a status, a stable code and a sentence.
func fail(ctx *fasthttp.RequestCtx, status int, code, message string) {
	ctx.ResetBody()
	answer(ctx, problem{code, message})
	ctx.SetStatusCode(status)
}

// answer answers with v as JSON.
func answer(ctx *fasthttp.RequestCtx, v any) {
	body, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		ctx.SetStatusCode(fasthttp.StatusInternalServerError)
		return
	}
	ctx.SetContentType("application/json")
	ctx.SetBody(append(body, '\n'))
}

// quiet keeps fasthttp's words on broken connections at the level they deserve.
type quiet struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (q quiet) Printf(format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok && errors.Is(err, net.ErrClosed) {
			return
		}
	}
	q.log.Debug("http", "detail", format)
}
