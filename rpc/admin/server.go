// Package admin is the HTTP side of a node: reads for people and scripts, the
// /api of the reference system, /vars and /metrics, health and pprof.
//
// It owns nothing but its listeners: all it shows or changes belongs to the
// parts it was built with. The names of metrics exist here and nowhere else.
// No request makes it hold more memory, or hold a connection for longer, than
// the limits below say.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/rpc/framing"
)

// Limits of one connection and one request: a slow or greedy client costs no
// more than these.
const (
	// maxBodyBytes holds the largest list of candidates that a tablet can have.
	maxBodyBytes   = 64 << 10
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
	router
	health *Health
	tokens *Tokens
	log    *slog.Logger
	framed framing.Server
}

func newServer(health *Health, tokens *Tokens, log *slog.Logger) *server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &server{health: health, tokens: tokens, log: log}
	s.router.admit = s.admitted
	s.add(
		route{"GET", "/livez", "", Open, s.livez},
		route{"GET", "/readyz", "", Open, s.readyz},
	)
	s.add(profiling()...)
	s.framed.HTTP = newHTTP(s.dispatch, log)
	s.framed.Limits = framing.Limits{HeaderBytes: maxHeaderBytes, BodyBytes: maxBodyBytes}
	return s
}

// newHTTP returns a server whose connections have to be a framing.Conn.
func newHTTP(h fasthttp.RequestHandler, log *slog.Logger) *fasthttp.Server {
	server := &fasthttp.Server{
		Handler: h, ErrorHandler: broken, Logger: quiet{log},
		// One byte more than framing lets through: it is the one to say no.
		MaxRequestBodySize: maxBodyBytes, ReadBufferSize: maxHeaderBytes + 1,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		Concurrency: maxConns, NoDefaultServerHeader: true, NoDefaultDate: true,
		CloseOnShutdown: true, SecureErrorLogMessage: true,
		// A form with files would go to the disk before anybody asks for it.
		DisablePreParseMultipartForm: true,
	}
	framing.GiveTime(server)
	return server
}

// Serve answers on ln until Shutdown, which may have come before.
func (s *server) Serve(ln net.Listener) error { return s.framed.Serve(ln) }

// Shutdown stops taking requests and waits for those under way, or for ctx.
func (s *server) Shutdown(ctx context.Context) error { return s.framed.Shutdown(ctx) }

// admitted compares the caller's token in constant time. The admin's token
// opens everything.
func (s *server) admitted(ctx *fasthttp.RequestCtx, a Access) bool {
	if a == Open {
		return true
	}
	scheme, given, _ := strings.Cut(string(ctx.Request.Header.Peek("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		given = ""
	}
	set, admin := compare(s.tokens.Admin.Load(), given)
	if a == Reading {
		readSet, reader := compare(s.tokens.Read.Load(), given)
		return !readSet || reader || (set && admin)
	}
	if set && !admin {
		s.log.Warn("refused a caller without the admin's token", "path", string(ctx.Path()), "from", ctx.RemoteAddr().String())
	}
	return !set || admin
}

// compare reports whether a token is set, and whether it was given. Comparing
// hashes keeps the length of the token to ourselves as well.
func compare(want *string, given string) (set, same bool) {
	if want == nil || *want == "" {
		return false, false
	}
	a, b := sha256.Sum256([]byte(*want)), sha256.Sum256([]byte(given))
	return true, subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func (s *server) livez(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("ok\n") }

func (s *server) readyz(ctx *fasthttp.RequestCtx) {
	if reason := s.health.get(); reason != "" {
		fail(ctx, fasthttp.StatusServiceUnavailable, "not_ready", reason)
		return
	}
	ctx.SetBodyString("ok\n")
}

// broken answers a request that could not be read. The connection is closed
// behind the answer.
func broken(ctx *fasthttp.RequestCtx, err error) {
	var slow net.Error
	wrong := framing.Refused(ctx.Conn())
	switch {
	case wrong != nil && wrong.Status == fasthttp.StatusRequestEntityTooLarge:
		fail(ctx, wrong.Status, "body_too_large", wrong.Reason)
	case wrong != nil && wrong.Status == fasthttp.StatusRequestHeaderFieldsTooLarge:
		fail(ctx, wrong.Status, "header_too_large", wrong.Reason)
	case wrong != nil:
		fail(ctx, wrong.Status, "malformed_request", wrong.Reason)
	case errors.As(err, &slow) && slow.Timeout():
		fail(ctx, fasthttp.StatusRequestTimeout, "request_timeout",
			fmt.Sprintf("the request took longer than %v to arrive", readTimeout))
	default:
		fail(ctx, fasthttp.StatusBadRequest, "malformed_request", "the request can't be read")
	}
}

// quiet keeps fasthttp's words on broken connections at the level they deserve.
type quiet struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (q quiet) Printf(format string, args ...any) {
	q.log.Debug("http", "detail", fmt.Sprintf(format, args...))
}
