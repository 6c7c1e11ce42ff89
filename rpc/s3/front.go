// Package s3 is the front of a BE for S3 clients: objects are read through the
// File Cache, everything else goes on to object storage with the BE's own
// credentials. The engine decides where bytes come from, this package what a
// request means, who may make it, and how it is answered.
//
// A reply is written out of leased blocks, which are given back when their bytes
// are with the kernel. What a request holds is bounded: its header, the window of
// its read, one buffer. No answer is made of two versions of an object: what
// can't be finished is cut.
package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine"
	"headstart/engine/block"
	"headstart/rpc/framing"
)

// Limits of one connection and one request.
const (
	maxHeaderBytes = 16 << 10
	// maxBodyBytes is the largest part there is, 5 GiB, with room for the
	// signatures of its chunks.
	maxBodyBytes = 6 << 30
	// maxListBytes bounds bodies that are lists: keys to delete, parts of an upload.
	maxListBytes = 4 << 20
	readTimeout  = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	maxConns     = 4096
)

// Upstream is object storage behind the front. Forward sends a request whose path
// is /bucket/key, signed with the node's own credentials; ContentLength is -1
// when nobody knows it.
type Upstream interface {
	Forward(req *http.Request) (*http.Response, error)
}

// Settings are the keys of the configuration that the front follows.
type Settings struct {
	// ReadOnly refuses whatever changes something.
	ReadOnly atomic.Bool
	// RevalidateMS is how long what is known of an object holds: 0 asks each time,
	// -1 never.
	RevalidateMS atomic.Int64
	// ReadaheadBlocks is how many blocks of an answer may be under way.
	ReadaheadBlocks atomic.Int64
	// Anonymous is what may be done without a signature.
	Anonymous atomic.Uint32
	// Keys are the pairs that sign requests, nil for none.
	Keys atomic.Pointer[Keys]
	// Domains are the names that a bucket may stand before, as in bucket.domain.
	Domains atomic.Pointer[[]string]
}

// NewSettings returns the defaults of the configuration.
func NewSettings() *Settings {
	s := &Settings{}
	s.RevalidateMS.Store(1000)
	s.ReadaheadBlocks.Store(16)
	return s
}

// Options is what a front is built from. Logger may be nil.
type Options struct {
	Engine   *engine.Engine
	Upstream Upstream
	Settings *Settings
	// Ready answers "" when the node serves, else why it does not.
	Ready func() string
	// BlockTimeout is how long a client may wait for one block, and take to accept
	// it; 1 min when 0.
	BlockTimeout time.Duration
	// MaxStreamBlocks bounds the blocks that all answers under way read ahead, 256
	// when 0; each gets one, whatever that adds up to.
	MaxStreamBlocks int
	// Place returns the node that is to hold the objects of a route, the zero address
	// for this one, or where nobody knows; nil means always this one.
	Place func(ctx context.Context, route block.Route) block.Addr
	// Changed tells the other holders of an object that it has changed, before a
	// writer gets its answer; nil for none.
	Changed func(ctx context.Context, objects []block.Object)
	Logger  *slog.Logger
}

// Validate says what is missing.
func (o *Options) Validate() error {
	if o.Engine == nil || o.Upstream == nil || o.Settings == nil {
		return errors.New("s3: Options need Engine, Upstream and Settings")
	}
	if o.BlockTimeout < 0 || o.MaxStreamBlocks < 0 {
		return fmt.Errorf("s3: BlockTimeout %v and MaxStreamBlocks %d must not be negative", o.BlockTimeout, o.MaxStreamBlocks)
	}
	return nil
}

// Front answers S3 requests. All methods may be called at the same time.
type Front struct {
	Options
	framed   framing.Server
	count    counters
	spool    spool
	trailers trailers
	keys     keyCache
	// ids numbers requests; node is what tells the ids of two processes apart.
	ids  atomic.Uint64
	node string
	// chunks has *[chunkBytes]byte for bodies under way, bodies has *body, requests
	// has *request, shorts has *short.
	chunks, bodies, requests, shorts sync.Pool
	date                             dateLine
	// anybody has what may be done without a signature, by how much that is.
	anybody [AccessWrite + 1]Key
}

// New returns a front; Serve runs it.
func New(o Options) (*Front, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.BlockTimeout == 0 {
		o.BlockTimeout = time.Minute
	}
	if o.MaxStreamBlocks == 0 {
		o.MaxStreamBlocks = 256
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Front{Options: o, node: newNodeName()}
	f.spool.each, f.spool.all = spoolBytes, MaxSpoolBytes
	for access := range f.anybody {
		f.anybody[access].Access = Access(access)
	}
	f.framed.Limits = framing.Limits{HeaderBytes: maxHeaderBytes, BodyBytes: maxBodyBytes}
	f.framed.Wrap = f.newConn
	f.framed.HTTP = &fasthttp.Server{
		Handler: f.handle, ExpectHandler: f.expect, ErrorHandler: f.broken, Logger: quiet{o.Logger},
		// Bodies are streamed: this is how much of one is read before its handler runs.
		MaxRequestBodySize: 64 << 10, StreamRequestBody: true, ReadBufferSize: maxHeaderBytes + 1,
		ReadTimeout: readTimeout, WriteTimeout: o.BlockTimeout, IdleTimeout: idleTimeout,
		Concurrency: maxConns, NoDefaultServerHeader: true, NoDefaultContentType: true,
		CloseOnShutdown: true, SecureErrorLogMessage: true, DisablePreParseMultipartForm: true,
	}
	framing.GiveTime(f.framed.HTTP)
	return f, nil
}

// Serve answers on ln until Shutdown, which may have come before.
func (f *Front) Serve(ln net.Listener) error { return f.framed.Serve(ln) }

// Shutdown stops taking requests and waits for those under way, or for ctx.
func (f *Front) Shutdown(ctx context.Context) error { return f.framed.Shutdown(ctx) }

// broken answers a request that could not be read. The connection is closed
// behind the answer.
func (f *Front) broken(ctx *fasthttp.RequestCtx, err error) {
	var slow net.Error
	var wrong *framing.Error
	if c, ok := ctx.Conn().(*conn); ok {
		wrong = framing.Refused(c.Conn)
	}
	e := &Error{Code: codeInvalidRequest, Message: "The request can't be read."}
	switch {
	case wrong != nil && wrong.Status == fasthttp.StatusRequestEntityTooLarge:
		e = &Error{Code: codeEntityTooLarge, Message: wrong.Reason}
	case wrong != nil:
		e.Message = wrong.Reason
	case errors.As(err, &slow) && slow.Timeout():
		e = &Error{Code: codeRequestTimeout, Message: fmt.Sprintf("The request took longer than %v to arrive.", readTimeout)}
	}
	f.fail(ctx, &request{}, e)
	ctx.SetConnectionClose()
}

// quiet keeps fasthttp's words on broken connections at the level they deserve.
type quiet struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (q quiet) Printf(format string, args ...any) {
	q.log.Debug("s3", "detail", fmt.Sprintf(format, args...))
}
