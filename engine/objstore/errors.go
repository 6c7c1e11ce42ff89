package objstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"headstart/engine/block"
)

var (
	// errIdle and errSlow end an attempt.
	errIdle = errors.New("no byte came from object storage for too long")
	errSlow = errors.New("object storage took too long")
	// errShort: the reply ended before its last byte.
	errShort = errors.New("the reply is shorter than it should be")
	// errReply: a reply that does not fit the request.
	errReply = errors.New("unusable reply of object storage")
	// errShed: the request was not sent.
	errShed = fmt.Errorf("%w: too many requests wait for their turn", block.ErrThrottled)
	// errClosed: the stream was closed by its reader.
	errClosed = fmt.Errorf("the stream is closed: %w", context.Canceled)
)

// Reason says why an attempt failed.
type Reason uint8

// The reasons, for Metrics.Errors.
const (
	// ReasonNotFound, ReasonDenied, ReasonChanged and ReasonThrottled go with the
	// errors of package block.
	ReasonNotFound Reason = iota
	ReasonDenied
	ReasonChanged
	ReasonThrottled
	// ReasonShed: not even sent, because object storage throttles and too many
	// requests wait for their turn.
	ReasonShed
	// ReasonServer: object storage met an error of its own.
	ReasonServer
	// ReasonNetwork: no connection, or it broke.
	ReasonNetwork
	// ReasonTimeout: no byte for too long, or not all of them in time.
	ReasonTimeout
	// ReasonReply: the reply does not fit the request.
	ReasonReply
	// ReasonBusy: no memory for the block.
	ReasonBusy
	// ReasonCancelled: the reader has given up.
	ReasonCancelled
	// ReasonOther: the request was refused, or could not be made.
	ReasonOther
	// Reasons is how many there are.
	Reasons
)

// String is the reason's name in metrics.
func (r Reason) String() string {
	names := [Reasons]string{"not_found", "denied", "changed", "throttled", "shed", "server", "network", "timeout",
		"reply", "busy", "cancelled", "other"}
	if r < Reasons {
		return names[r]
	}
	return "unknown"
}

// failure is a failed attempt.
type failure struct {
	reason Reason
	err    error
}

// mayHelp reports whether another attempt may end better.
func (f failure) mayHelp() bool {
	switch f.reason {
	case ReasonThrottled, ReasonServer, ReasonNetwork, ReasonTimeout:
		return true
	}
	return false
}

// classify finds out why an attempt failed. ctx is the attempt's: its cause
// tells a time-out of ours from a broken connection.
func classify(ctx context.Context, err error) failure {
	if cause := context.Cause(ctx); cause != nil {
		if cause == errIdle || cause == errSlow {
			return failure{ReasonTimeout, cause}
		}
		return failure{ReasonCancelled, cause}
	}
	switch {
	case errors.Is(err, block.ErrChanged):
		return failure{ReasonChanged, err}
	case errors.Is(err, errShed):
		return failure{ReasonShed, err}
	case errors.Is(err, block.ErrBusy):
		return failure{ReasonBusy, err}
	case errors.Is(err, errReply):
		return failure{ReasonReply, err}
	case errors.Is(err, errShort):
		return failure{ReasonNetwork, err}
	}
	if status := statusOf(err); status > 0 {
		return classifyStatus(status, err)
	}
	if _, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok {
		return failure{ReasonNetwork, err}
	}
	return failure{ReasonOther, err}
}

// statusOf returns the status of the reply that the SDK made an error of, 0 if
// there was none.
func statusOf(err error) int {
	if reply, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return reply.HTTPStatusCode()
	}
	return 0
}

func classifyStatus(status int, err error) failure {
	var code string
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code = api.ErrorCode()
	}
	wrap := func(r Reason, sentinel error) failure { return failure{r, fmt.Errorf("%w: %w", sentinel, err)} }
	switch {
	case code == "SlowDown", status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return wrap(ReasonThrottled, block.ErrThrottled)
	case status == http.StatusNotFound:
		return wrap(ReasonNotFound, block.ErrNotFound)
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return wrap(ReasonDenied, block.ErrDenied)
	case status == http.StatusPreconditionFailed:
		return wrap(ReasonChanged, block.ErrChanged)
	case status >= 500, status == http.StatusRequestTimeout, code == "RequestTimeout":
		return failure{ReasonServer, err}
	case status < 300:
		return wrap(ReasonReply, errReply)
	}
	return failure{ReasonOther, err}
}

// retrier counts the attempts of one span, or of one Head. All retries of
// object storage are made here.
type retrier struct {
	s     *Store
	tried int
}

// The back-off before attempt n+1 is between half and all of firstBackoff *
// 2^(n-1), at most maxBackoff.
const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = time.Second
)

// again decides about a failed attempt. It returns nil when the caller shall
// try again: now, the back-off is over. ctx is the one of all attempts.
func (r *retrier) again(ctx context.Context, f failure) error {
	r.s.count.errors[f.reason].Add(1)
	switch f.reason {
	case ReasonThrottled:
		r.s.pacer.refused()
	case ReasonNotFound, ReasonChanged:
		r.s.pacer.served()
		r.s.health.served()
	case ReasonDenied:
		r.s.pacer.served()
	}
	if !f.mayHelp() {
		r.s.health.failed(f)
		return f.err
	}
	if r.tried >= r.s.opts.Attempts {
		r.s.health.failed(f)
		return fmt.Errorf("after %d attempts: %w", r.tried, f.err)
	}
	d := min(firstBackoff<<(r.tried-1), maxBackoff)
	if err := sleep(ctx, d/2+rand.N(d/2)); err != nil {
		return err
	}
	r.s.count.retries.Add(1)
	return nil
}
