package objstore

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"headstart/engine/block"
)

// forwardIdleTimeout is how long a forwarded request may go without a byte in
// either direction: putting a large upload together takes the store minutes.
const forwardIdleTimeout = 5 * time.Minute

// Forward sends somebody's request of S3, whose path is /bucket/key and escaped as
// S3 wants it, to object storage, signed with the Store's credentials. It takes
// the payload's hash from X-Amz-Content-Sha256. Nothing is retried: the body can
// be read once. Forwarded requests have places of their own, so that uploads don't
// keep reads waiting. The caller closes the reply's body.
func (s *Store) Forward(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := s.forwards.enter(ctx); err != nil {
		return nil, forwardFailed(req, classify(ctx, err).err)
	}
	s.count.forwards.Add(1)
	bound, cancel := context.WithCancelCause(ctx)
	watchdog := time.AfterFunc(forwardIdleTimeout, func() { cancel(errIdle) })
	end := sync.OnceFunc(func() {
		watchdog.Stop()
		cancel(nil)
		s.forwards.leave()
	})
	progress := func() { watchdog.Reset(forwardIdleTimeout) }
	out, err := s.signed(bound, req)
	if err == nil {
		if out.Body != nil && out.Body != http.NoBody {
			out.Body = &moving{ReadCloser: out.Body, progress: progress, end: func() {}}
		}
		var resp *http.Response
		if resp, err = s.transport.RoundTrip(out); err == nil {
			resp.Body = &moving{ReadCloser: resp.Body, progress: progress, end: end}
			return resp, nil
		}
	}
	f := classify(bound, err)
	s.count.errors[f.reason].Add(1)
	end()
	return nil, forwardFailed(req, f.err)
}

func forwardFailed(req *http.Request, err error) error {
	return &block.Error{
		Op: "forward " + req.Method, Object: block.Object{Store: block.DefaultStore, Key: req.URL.Path},
		Source: block.SourceStore, Err: err,
	}
}

// signed returns the request as object storage gets it.
func (s *Store) signed(ctx context.Context, req *http.Request) (*http.Request, error) {
	out := req.Clone(ctx)
	base, err := s.base()
	if err != nil {
		return nil, err
	}
	out.URL.Scheme, out.URL.Host, out.Host = base.Scheme, base.Host, ""
	if bucket, rest := splitPath(out.URL.Path); !s.opts.PathStyle && bucket != "" {
		out.URL.Host = bucket + "." + base.Host
		_, raw := splitPath(out.URL.RawPath)
		out.URL.Path, out.URL.RawPath = rest, raw
	}
	if out.ContentLength == 0 {
		out.Body = http.NoBody
	}
	creds, err := s.client.Options().Credentials.Retrieve(ctx)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	hash := out.Header.Get("X-Amz-Content-Sha256")
	err = s.signer.SignHTTP(ctx, creds, out, hash, "s3", s.opts.Region, time.Now(), func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = true // S3 wants the path as it is sent
	})
	return out, err
}

// base is the URL of the service.
func (s *Store) base() (*url.URL, error) {
	if s.opts.Endpoint == "" {
		return &url.URL{Scheme: "https", Host: "s3." + s.opts.Region + ".amazonaws.com"}, nil
	}
	return url.Parse(s.opts.Endpoint)
}

// splitPath cuts /bucket/key into the bucket and /key.
func splitPath(path string) (bucket, rest string) {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			return path[1:i], path[i:]
		}
	}
	return path[min(1, len(path)):], "/"
}

// moving is a body that says when bytes have moved.
type moving struct {
	io.ReadCloser
	progress, end func()
}

// Read implements io.Reader.
func (m *moving) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		m.progress()
	}
	return n, err
}

// Close implements io.Closer.
func (m *moving) Close() error {
	err := m.ReadCloser.Close()
	m.end()
	return err
}
