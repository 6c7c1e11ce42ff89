// Package objstore reads blocks from S3: a contiguous run of them is one
// ranged GET, and each is sealed and handed out as soon as its bytes are there.
//
// A Store owns its connections. A block belongs to whoever got it from Next,
// in a buffer of Options.Buffers. Nothing is handed out that is not exactly the
// bytes asked for, of one version; never is more read than was asked for.
package objstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"headstart/engine/block"
	"headstart/pools"
)

// Options are the options of a Store.
type Options struct {
	// Endpoint is the URL of the service; "" means AWS's own for the region.
	Endpoint string
	// Region is what requests are signed for; "" means us-east-1.
	Region string
	// AccessKey and SecretKey sign the requests, with SessionToken if there is
	// one. Without AccessKey the SDK looks for credentials where it always does:
	// environment, shared files, instance role.
	AccessKey, SecretKey, SessionToken string
	// PathStyle puts the bucket into the path and not into the host's name.
	PathStyle bool
	// MaxInFlight bounds the requests under way; 0 means 64.
	MaxInFlight int
	// Attempts is how many requests one span of blocks, or one Head, may cost;
	// 0 means 3. Nothing below retries as well: the SDK's retries are off. (What
	// net/http repeats on its own is a request on a kept connection that turns
	// out to have been closed before a byte of a reply came.)
	Attempts int
	// IdleTimeout is how long an attempt may go without a byte; 0 means 5 s.
	IdleTimeout time.Duration
	// AttemptTimeout bounds an attempt from the request to the last byte; 0
	// means 1 min.
	AttemptTimeout time.Duration
	// DrainBytes: a reply that is given up with at most as many bytes missing is
	// read to its end, to keep the connection; with more, the connection is
	// closed. 0 means 256 KiB, a negative value always closes.
	DrainBytes int64
	// Buffers lends the memory of the blocks; nil means buffers of the Store's
	// own, of the default size.
	Buffers *pools.Buffers
	// Logger gets a line when object storage begins to fail, and when it serves
	// again; nil logs nothing.
	Logger *slog.Logger
}

// Validate reports options that make no sense.
func (o *Options) Validate() error {
	if o.MaxInFlight < 0 || o.Attempts < 0 || o.IdleTimeout < 0 || o.AttemptTimeout < 0 {
		return fmt.Errorf("object storage: max in flight %d, attempts %d, idle timeout %v and attempt timeout %v must not be negative",
			o.MaxInFlight, o.Attempts, o.IdleTimeout, o.AttemptTimeout)
	}
	if (o.AccessKey == "") != (o.SecretKey == "") {
		return errors.New("object storage: access key and secret key go together")
	}
	if o.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("object storage: endpoint %q: want http://host:port or https://host:port", o.Endpoint)
	}
	return nil
}

func (o *Options) setDefaults() error {
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 64
	}
	if o.Attempts == 0 {
		o.Attempts = 3
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 5 * time.Second
	}
	if o.AttemptTimeout == 0 {
		o.AttemptTimeout = time.Minute
	}
	if o.DrainBytes == 0 {
		o.DrainBytes = 256 << 10
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Buffers == nil {
		buffers, err := pools.NewBuffers(pools.BuffersOptions{Name: "object storage"})
		if err != nil {
			return err
		}
		o.Buffers = buffers
	}
	return nil
}

// Store is object storage as a source of blocks.
type Store struct {
	opts      Options
	client    *s3.Client
	transport *http.Transport
	// forwards bounds what is sent on for others, gate all else.
	gate, forwards gate
	signer         *v4.Signer
	pacer          pacer
	health         health
	count          counters
}

var _ block.Store = (*Store)(nil)

// New returns a Store. It sends nothing yet; ctx bounds the search for
// credentials when none are given.
func New(ctx context.Context, opts Options) (*Store, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	creds, err := credentialsOf(ctx, &opts)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, gate: newGate(opts.MaxInFlight), forwards: newGate(opts.MaxInFlight), signer: v4.NewSigner(), health: health{log: opts.Logger}}
	s.transport = s.newTransport()
	s3opts := s3.Options{
		Region:       opts.Region,
		Credentials:  creds,
		UsePathStyle: opts.PathStyle,
		// A block has its own checksum; without one from the store the SDK would
		// log a warning for each GET.
		ResponseChecksumValidation:                aws.ResponseChecksumValidationWhenRequired,
		DisableLogOutputChecksumValidationSkipped: true,
		Logger: logging.Nop{},
		// Retries are retrier's: the SDK's would multiply with them, and its
		// token bucket fails all callers at once.
		Retryer: aws.NopRetryer{},
		HTTPClient: &http.Client{
			Transport:     limited{s.transport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if opts.Endpoint != "" {
		s3opts.BaseEndpoint = aws.String(opts.Endpoint)
	}
	s.client = s3.New(s3opts)
	return s, nil
}

func credentialsOf(ctx context.Context, opts *Options) (aws.CredentialsProvider, error) {
	if opts.AccessKey != "" {
		return credentials.NewStaticCredentialsProvider(opts.AccessKey, opts.SecretKey, opts.SessionToken), nil
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(opts.Region))
	if err != nil {
		return nil, fmt.Errorf("object storage: no credentials given, and none found: %w", err)
	}
	return cfg.Credentials, nil
}

// newTransport returns HTTP/1.1 connections of the Store's own. As many are
// kept as may be in use, so that a steady load never opens one.
func (s *Store) newTransport() *http.Transport {
	// The attempt's own limit is the tighter one. These end what net/http goes on
	// with in the background when the attempt is over.
	dialTimeout := 2 * s.opts.IdleTimeout
	dialer := &net.Dialer{Timeout: dialTimeout}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			s.count.dials.Add(1)
			return dialer.DialContext(ctx, network, addr)
		},
		Protocols:           protocols,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns:        s.opts.MaxInFlight,
		MaxIdleConnsPerHost: s.opts.MaxInFlight,
		IdleConnTimeout:     idleConnTimeout,
		DisableCompression:  true,
	}
}

// idleConnTimeout is how long an unused connection is kept: about as long as
// S3 keeps it.
const idleConnTimeout = 20 * time.Second

// Close closes the connections that are not in use. Streams end by their own
// contexts, and their connections with them.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}
