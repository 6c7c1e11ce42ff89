package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headstart/engine/block"
)

func TestOS01_BodyThatEndsEarlyIsReadOn(t *testing.T) {
	const size = 3 * blockSize
	whole := func(w http.ResponseWriter) { partial(w, 0, size, size) }
	chunked := func(w http.ResponseWriter) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", size-1, size))
		w.WriteHeader(http.StatusPartialContent)
	}
	for _, c := range []struct {
		name   string
		header func(w http.ResponseWriter)
		sent   int64
		next   string
	}{
		{"no byte", whole, 0, "bytes=0-11999"},
		{"in the first block", whole, 400, "bytes=400-11999"},
		{"between two blocks", whole, blockSize, "bytes=4000-11999"},
		{"last byte", whole, size - 1, "bytes=11999-11999"},
		{"chunked, no last chunk", chunked, blockSize + 1, "bytes=4001-11999"},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake(t)
			o := fake.put("k", fakeObject{size: size})
			fake.onGet(func(n int64, w http.ResponseWriter, r *http.Request) bool {
				if n > 1 {
					return false
				}
				w.Header().Set("ETag", `"v0"`)
				c.header(w)
				fake.send(w, r, content("k", 0, 0, c.sent))
				flush(w)
				panic(http.ErrAbortHandler)
			})
			s := fake.store(Options{})
			data, _, err := get(t.Context(), t, s, fetch(o, 0, 3))
			if err != nil || !bytes.Equal(data, content("k", 0, 0, size)) {
				t.Errorf("%s: %d bytes, %v", c.name, len(data), err)
			}
			if got := fake.ranges(); got != "bytes=0-11999 "+c.next {
				t.Errorf("%s: asked for %q", c.name, got)
			}
			if m := s.Metrics(); m.Errors[ReasonNetwork] != 1 || m.Retries != 1 || m.Discarded != 0 || m.InFlight != 0 {
				t.Errorf("%s: metrics %+v", c.name, m)
			}
		})
	}
}

// A body that ends early each time: the attempts of one span are bounded, and
// what is whole is handed out.
func TestOS01_BodyThatAlwaysEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 2 * blockSize})
		fake.onGet(func(_ int64, w http.ResponseWriter, r *http.Request) bool {
			from, to := askedRange(t, r)
			w.Header().Set("ETag", `"v0"`)
			partial(w, from, to, 2*blockSize)
			fake.send(w, r, content("k", 0, from, from+blockSize/2))
			flush(w)
			panic(http.ErrAbortHandler)
		})
		data, _, err := get(t.Context(), t, fake.store(Options{Attempts: 3}), fetch(o, 0, 2))
		if !errors.Is(err, errShort) || !bytes.Equal(data, content("k", 0, 0, blockSize)) || fake.gets.Load() != 3 {
			t.Errorf("%d bytes after %d GETs, %v", len(data), fake.gets.Load(), err)
		}
	})
}

func TestOS03_RepliesThatDontFitAreRejected(t *testing.T) {
	const huge = 1 << 40
	// The range asked for is the second block of an object of three.
	reply := func(status int, contentRange string, length, sent int64) func(*fakeS3, http.ResponseWriter, *http.Request) {
		return func(f *fakeS3, w http.ResponseWriter, r *http.Request) {
			if contentRange != "" {
				w.Header().Set("Content-Range", contentRange)
			}
			if length >= 0 {
				w.Header().Set("Content-Length", fmt.Sprint(length))
			}
			w.WriteHeader(status)
			flush(w)
			for n := sent; n > 0 && r.Context().Err() == nil; n -= 1 << 16 {
				f.send(w, r, make([]byte, min(n, 1<<16)))
			}
			if length > 0 || sent > 0 {
				hang(r) // a reply that is too long does not end by itself
			}
		}
	}
	for name, fault := range map[string]func(*fakeS3, http.ResponseWriter, *http.Request){
		"200 and the whole object": reply(200, "", 3*blockSize, 3*blockSize),
		"200 and one TiB":          reply(200, "", huge, huge),
		"200, endless":             reply(200, "", -1, huge),
		"another offset":           reply(206, "bytes 0-3999/12000", 4000, 4000),
		"too long":                 reply(206, "bytes 4000-11999/12000", 8000, 8000),
		"too short":                reply(206, "bytes 4000-7998/12000", 3999, 3999),
		"no Content-Range":         reply(206, "", 4000, 4000),
		"no size":                  reply(206, "bytes 4000-7999/*", 4000, 4000),
		"nonsense":                 reply(206, "bytes one-two/three", 4000, 4000),
		"signs":                    reply(206, "bytes +4000-7999/+12000", 4000, 4000),
		"end before start":         reply(206, "bytes 4000-3999/12000", 0, 0),
		"ends before it starts":    reply(206, "bytes 4000-2999/3000", -1, 0),
		"past its own size":        reply(206, "bytes 4000-7999/5000", 4000, 4000),
		"lengths disagree":         reply(206, "bytes 4000-7999/12000", 3999, 3999),
		"lengths disagree, huge":   reply(206, "bytes 4000-7999/12000", huge, huge),
		"204":                      reply(204, "", -1, 0),
		"bad Last-Modified": func(f *fakeS3, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Last-Modified", "yesterday")
			reply(206, "bytes 4000-7999/12000", huge, huge)(f, w, r)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake(t)
			o := fake.put("k", fakeObject{size: 3 * blockSize})
			fake.onGet(func(_ int64, w http.ResponseWriter, r *http.Request) bool {
				fault(fake, w, r)
				return true
			})
			s := fake.store(Options{IdleTimeout: time.Hour, AttemptTimeout: 2 * time.Hour})
			start := time.Now()
			data, _, err := get(t.Context(), t, s, fetch(o, 1, 1))
			if !errors.Is(err, errReply) || len(data) != 0 {
				t.Errorf("%s: %d bytes, %v", name, len(data), err)
			}
			if took := time.Since(start); took != 0 || fake.gets.Load() != 1 || s.Metrics().Errors[ReasonReply] != 1 {
				t.Errorf("%s: %v, %d GETs, %+v", name, took, fake.gets.Load(), s.Metrics())
			}
			synctest.Wait()
			// A server may fill the socket's buffers; more than that is not taken.
			if sent := fake.sent.Load(); sent > 1<<17 || fake.inFlight.Load() != 0 {
				t.Errorf("%s: %d bytes were sent, %d requests go on", name, sent, fake.inFlight.Load())
			}
		})
	}
}

func TestOS03_WholeObjectThatFitsTheRangeIsFine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: blockSize + 5})
		fake.onGet(func(_ int64, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", fmt.Sprint(blockSize+5))
			fake.send(w, r, content("k", 0, 0, blockSize+5))
			return true
		})
		s := fake.store(Options{})
		data, meta, err := get(t.Context(), t, s, fetch(o, 0, 2))
		if err != nil || !bytes.Equal(data, content("k", 0, 0, blockSize+5)) || meta.Size != blockSize+5 {
			t.Errorf("%d bytes, %+v, %v", len(data), meta, err)
		}
		if _, _, err := get(t.Context(), t, s, fetch(o, 0, 1)); !errors.Is(err, errReply) {
			t.Errorf("a range that does not hold the object: %v", err)
		}
	})
}

func TestOS03_LongErrorIsNotReadToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 5})
		fake.onGet(func(_ int64, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusNotFound)
			for r.Context().Err() == nil {
				fake.send(w, r, make([]byte, 1<<16))
			}
			return true
		})
		_, _, err := get(t.Context(), t, fake.store(Options{}), fetch(o, 0, 1))
		synctest.Wait()
		if !errors.Is(err, block.ErrNotFound) || fake.sent.Load() > 4*maxErrorBody {
			t.Errorf("%v, %d bytes were sent", err, fake.sent.Load())
		}
	})
}

// dialSilence connects to somebody who listens and never says a word.
func dialSilence(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() { // ends when the client closes
		_, _ = io.Copy(io.Discard, server)
		_ = server.Close()
	}()
	return client, nil
}

func TestOS15_SilenceEndsAtTheIdleLimit(t *testing.T) {
	const idle = 2 * time.Second
	for _, c := range []struct {
		name  string
		fault func(f *fakeS3, w http.ResponseWriter, r *http.Request)
		dial  func(ctx context.Context, network, addr string) (net.Conn, error)
		https bool
		limit time.Duration
	}{
		{name: "headers, then silence", fault: func(_ *fakeS3, w http.ResponseWriter, r *http.Request) {
			partial(w, 0, blockSize, blockSize)
			flush(w)
			hang(r)
		}},
		{name: "one byte, then silence", fault: func(f *fakeS3, w http.ResponseWriter, r *http.Request) {
			from, _ := askedRange(f.t, r)
			partial(w, from, blockSize, blockSize)
			f.send(w, r, content("k", 0, from, from+1))
			flush(w)
			hang(r)
		}},
		{name: "one byte a second", limit: 10 * time.Second, fault: func(f *fakeS3, w http.ResponseWriter, r *http.Request) {
			from, _ := askedRange(f.t, r)
			partial(w, from, blockSize, blockSize)
			for r.Context().Err() == nil {
				f.send(w, r, content("k", 0, from, from+1))
				flush(w)
				from++
				time.Sleep(time.Second)
			}
		}},
		{name: "no reply", fault: func(_ *fakeS3, _ http.ResponseWriter, r *http.Request) { hang(r) }},
		{name: "no connection", dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		{name: "accepts, says nothing", dial: dialSilence},
		{name: "no TLS handshake", dial: dialSilence, https: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake(t)
			if c.https {
				fake.endpoint = "https://s3.test"
			}
			if c.dial != nil {
				fake.dial = c.dial
			}
			o := fake.put("k", fakeObject{size: blockSize})
			fake.onGet(func(_ int64, w http.ResponseWriter, r *http.Request) bool {
				c.fault(fake, w, r)
				return true
			})
			s := fake.store(Options{IdleTimeout: idle, AttemptTimeout: 10 * time.Second, Attempts: 2})
			start := time.Now()
			_, _, err := get(t.Context(), t, s, fetch(o, 0, 1))
			limit := max(c.limit, idle)
			if took := time.Since(start); took < 2*limit || took > 2*limit+maxBackoff+time.Second {
				t.Errorf("%s: ended after %v, want two attempts of %v", c.name, took, limit)
			}
			if !errors.Is(err, errIdle) && !errors.Is(err, errSlow) || s.Metrics().Errors[ReasonTimeout] != 2 {
				t.Errorf("%s: %v, %+v", c.name, err, s.Metrics())
			}
		})
	}
}

// A reader that takes its time is not a server that is silent.
func TestOS15_SlowReaderIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 3 * blockSize})
		s := fake.store(Options{IdleTimeout: time.Second, AttemptTimeout: time.Hour})
		st, err := s.Fetch(t.Context(), fetch(o, 0, 3))
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		for i := range 3 {
			time.Sleep(time.Minute)
			p, err := st.Next()
			if err != nil {
				t.Fatalf("block %d: %v", i, err)
			}
			p.Buf.Release()
		}
		if fake.gets.Load() != 1 {
			t.Errorf("%d GETs", fake.gets.Load())
		}
	})
}

func TestErrorsAreTypedAndRetriedWhereThatHelps(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   error
		reason Reason
		gets   int64
	}{
		{404, "NoSuchKey", block.ErrNotFound, ReasonNotFound, 1},
		{404, "NoSuchBucket", block.ErrNotFound, ReasonNotFound, 1},
		{403, "AccessDenied", block.ErrDenied, ReasonDenied, 1},
		{403, "SignatureDoesNotMatch", block.ErrDenied, ReasonDenied, 1},
		{401, "Unauthorized", block.ErrDenied, ReasonDenied, 1},
		{412, "PreconditionFailed", block.ErrChanged, ReasonChanged, 1},
		{503, "SlowDown", block.ErrThrottled, ReasonThrottled, 3},
		{503, "ServiceUnavailable", block.ErrThrottled, ReasonThrottled, 3},
		{429, "TooManyRequests", block.ErrThrottled, ReasonThrottled, 3},
		{400, "SlowDown", block.ErrThrottled, ReasonThrottled, 3},
		{500, "InternalError", nil, ReasonServer, 3},
		{502, "BadGateway", nil, ReasonServer, 3},
		{400, "RequestTimeout", nil, ReasonServer, 3},
		{400, "InvalidRequest", nil, ReasonOther, 1},
		{301, "PermanentRedirect", nil, ReasonOther, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake(t)
			o := fake.put("k", fakeObject{size: 5})
			fake.onGet(refuse(c.status, c.code))
			s := fake.store(Options{Attempts: 3})
			_, _, err := get(t.Context(), t, s, fetch(o, 0, 1))
			if c.want != nil && !errors.Is(err, c.want) || err == nil || !strings.Contains(err.Error(), c.code) {
				t.Errorf("%d %s: %v", c.status, c.code, err)
			}
			m := s.Metrics()
			if fake.gets.Load() != c.gets || m.Errors[c.reason] != uint64(c.gets) || m.Retries != uint64(c.gets-1) {
				t.Errorf("%d %s: %d GETs, metrics %+v", c.status, c.code, fake.gets.Load(), m)
			}
			if fake.accepts.Load() != 1 || m.Aborted != 0 {
				t.Errorf("%d %s: %d connections, metrics %+v", c.status, c.code, fake.accepts.Load(), m)
			}
		})
	}
}

// Each span of a run has its own attempts.
func TestPR17_AttemptsAreCountedBySpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 5 * blockSize})
		fake.onGet(func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n%2 == 1 {
				replyError(w, 500, "InternalError")
			}
			return n%2 == 1
		})
		f := fetch(o, 0, 1)
		f.Run.Want = 0b10101
		data, _, err := get(t.Context(), t, fake.store(Options{Attempts: 2}), f)
		if err != nil || len(data) != 3*blockSize || fake.gets.Load() != 6 {
			t.Errorf("%d bytes after %d GETs, %v", len(data), fake.gets.Load(), err)
		}
	})
}

// PR-17: whatever goes wrong, one span costs at most Attempts requests, and
// there is no second place that retries.
func TestPR17_AttemptsDontMultiply(t *testing.T) {
	for name, fault := range map[string]func(w http.ResponseWriter){
		"503":   func(w http.ResponseWriter) { replyError(w, 503, "SlowDown") },
		"500":   func(w http.ResponseWriter) { replyError(w, 500, "InternalError") },
		"reset": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"broken error": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(500)
			flush(w)
			panic(http.ErrAbortHandler)
		},
	} {
		for _, attempts := range []int64{1, 2, 5} {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake(t)
				o := fake.put("k", fakeObject{size: 5})
				fake.onGet(func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
					fault(w)
					return true
				})
				_, _, err := get(t.Context(), t, fake.store(Options{Attempts: int(attempts)}), fetch(o, 0, 16))
				if err == nil || fake.gets.Load() != attempts {
					t.Errorf("%s: %d GETs where %d are allowed, %v", name, fake.gets.Load(), attempts, err)
				}
			})
		}
	}
}

func TestOS19_DeniedIsSaidAtOnceAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		o := fake.put("k", fakeObject{size: 5})
		fake.onGet(refuse(http.StatusForbidden, "AccessDenied"))
		s := fake.store(Options{})
		start := time.Now()
		for range 10 {
			if _, _, err := get(t.Context(), t, s, fetch(o, 0, 1)); !errors.Is(err, block.ErrDenied) {
				t.Error(err)
			}
		}
		if m := s.Metrics(); fake.gets.Load() != 10 || m.Errors[ReasonDenied] != 10 || time.Since(start) != 0 {
			t.Errorf("%d GETs in %v, metrics %+v", fake.gets.Load(), time.Since(start), m)
		}
	})
}

func TestHeadRetriesAndTypesItsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		s := fake.store(Options{Attempts: 2})
		missing := block.Object{Store: block.DefaultStore, Bucket: "bucket", Key: "missing"}
		_, err := s.Head(t.Context(), missing)
		if typed, ok := errors.AsType[*block.Error](err); !ok || typed.Op != "head" || !errors.Is(err, block.ErrNotFound) {
			t.Errorf("missing object: %v", err)
		}
		s.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }
		s.transport.CloseIdleConnections()
		if _, err := s.Head(t.Context(), missing); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("no connection: %v", err)
		}
		if m := s.Metrics(); m.Heads != 3 || m.Errors[ReasonNetwork] != 2 || m.InFlight != 0 {
			t.Errorf("metrics %+v", m)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Head(ctx, missing); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}
