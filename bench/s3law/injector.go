package s3law

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// paceBytes is how much of a body leaves at a time: 0.7 ms at BytesPerSecond,
// about what a timer resolves.
const paceBytes = 64 << 10

// Injector makes a handler answer GETs of objects as late as the law says, and
// counts them.
type Injector struct {
	law  Law
	next http.Handler
	// off is set by Enable and looked at once by each request.
	off atomic.Bool
	// drawn numbers the delayed requests: the n-th gets the law's n-th draw.
	drawn atomic.Uint64
	// gets and bytes only grow. A GET counts when it arrives, so one that its
	// client gives up counts as well.
	gets, bytes atomic.Int64
}

// NewInjector returns next behind the law, which is on.
func NewInjector(law Law, next http.Handler) *Injector {
	return &Injector{law: law, next: next}
}

// Enable switches the law on or off for the requests that come after.
// Counting goes on.
func (i *Injector) Enable(on bool) { i.off.Store(!on) }

// Metrics are the counters of an Injector.
type Metrics struct {
	// GETs counts GETs of objects, Bytes the bytes of their bodies that were
	// written.
	GETs, Bytes int64
}

// Metrics returns a snapshot.
func (i *Injector) Metrics() Metrics {
	return Metrics{GETs: i.gets.Load(), Bytes: i.bytes.Load()}
}

// ServeHTTP implements http.Handler.
func (i *Injector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, key := splitPath(r.URL.Path); r.Method != http.MethodGet || key == "" {
		i.next.ServeHTTP(w, r)
		return
	}
	i.gets.Add(1)
	out := &body{ResponseWriter: w, injector: i, ctx: r.Context()}
	if !i.off.Load() {
		first := i.law.FirstByte(i.drawn.Add(1) - 1)
		out.start = time.Now().Add(first)
		if !SleepUntil(out.ctx, out.start) {
			return
		}
	}
	i.next.ServeHTTP(out, r)
}

// splitPath takes a path-style request path apart.
func splitPath(path string) (bucket, key string) {
	bucket, key, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return bucket, key
}

// body paces what is written to it. Being no io.ReaderFrom, it is handed the
// object's bytes themselves when their reader can write them in one piece.
type body struct {
	http.ResponseWriter
	injector *Injector
	ctx      context.Context
	// start is when the first byte is due; zero: no pacing.
	start time.Time
	sent  int64
}

// Write implements io.Writer. The schedule is absolute: a late timer delays
// one piece, not all that follow.
func (b *body) Write(p []byte) (int, error) {
	if b.start.IsZero() {
		return b.write(p)
	}
	done := 0
	for done < len(p) {
		piece := p[done:min(done+paceBytes, len(p))]
		due := b.start.Add(b.injector.law.Body(b.sent + int64(len(piece))))
		if !SleepUntil(b.ctx, due) {
			return done, b.ctx.Err()
		}
		n, err := b.write(piece)
		done, b.sent = done+n, b.sent+int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// write counts bytes before they leave, so that a client which has them all finds
// them counted, and takes back those that did not.
func (b *body) write(p []byte) (int, error) {
	b.injector.bytes.Add(int64(len(p)))
	n, err := b.ResponseWriter.Write(p)
	b.injector.bytes.Add(int64(n - len(p)))
	return n, err
}

// SleepUntil waits for t and reports whether it came before ctx ended.
func SleepUntil(ctx context.Context, t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
