package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"headstart/engine/block"
)

// The codes of S3's errors that the front itself gives.
const (
	codeAccessDenied     = "AccessDenied"
	codeBadDigest        = "BadDigest"
	codeBusy             = "SlowDown"
	codeEntityTooLarge   = "EntityTooLarge"
	codeIncompleteBody   = "IncompleteBody"
	codeInternal         = "InternalError"
	codeInvalidArgument  = "InvalidArgument"
	codeInvalidKeyID     = "InvalidAccessKeyId"
	codeInvalidRange     = "InvalidRange"
	codeInvalidRequest   = "InvalidRequest"
	codeInvalidURI       = "InvalidURI"
	codeMalformedAuth    = "AuthorizationHeaderMalformed"
	codeMalformedQuery   = "AuthorizationQueryParametersError"
	codeMalformedXML     = "MalformedXML"
	codeMethodNotAllowed = "MethodNotAllowed"
	codeMissingLength    = "MissingContentLength"
	codeNoSuchBucket     = "NoSuchBucket"
	codeNoSuchKey        = "NoSuchKey"
	codeNotImplemented   = "NotImplemented"
	codePrecondition     = "PreconditionFailed"
	codeRequestTimeout   = "RequestTimeout"
	codeSHA256Mismatch   = "XAmzContentSHA256Mismatch"
	codeSignature        = "SignatureDoesNotMatch"
	codeTimeSkewed       = "RequestTimeTooSkewed"
	codeTimeout          = "GatewayTimeout"
	codeUnavailable      = "ServiceUnavailable"
	codeBadGateway       = "BadGateway"
)

// Error is an answer that is no success.
type Error struct {
	Code, Message string
	// Size is set with codeInvalidRange.
	Size int64
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Status is the status of HTTP that goes with the code.
func (e *Error) Status() int {
	switch e.Code {
	case codeAccessDenied, codeInvalidKeyID, codeSignature, codeTimeSkewed:
		return http.StatusForbidden
	case codeNoSuchBucket, codeNoSuchKey:
		return http.StatusNotFound
	case codePrecondition:
		return http.StatusPreconditionFailed
	case codeInvalidRange:
		return http.StatusRequestedRangeNotSatisfiable
	case codeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case codeMissingLength:
		return http.StatusLengthRequired
	case codeNotImplemented:
		return http.StatusNotImplemented
	case codeBusy, codeUnavailable:
		return http.StatusServiceUnavailable
	case codeBadGateway:
		return http.StatusBadGateway
	case codeTimeout:
		return http.StatusGatewayTimeout
	case codeInternal:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// errorOf finds the answer for an error of the engine or of object storage,
// whose own code and words are passed on where they are known.
func errorOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	code, message := "", err.Error()
	if api, ok := errors.AsType[interface {
		error
		ErrorCode() string
		ErrorMessage() string
	}](err); ok {
		code = api.ErrorCode()
		if m := api.ErrorMessage(); m != "" {
			message = m
		}
	}
	switch {
	case errors.Is(err, block.ErrNotFound):
		if code != codeNoSuchBucket {
			code, message = codeNoSuchKey, "The specified key does not exist."
		}
	case errors.Is(err, block.ErrDenied):
		code, message = codeAccessDenied, "Object storage denies the access to this node."
	case errors.Is(err, block.ErrChanged):
		code, message = codeBusy, "The object has changed while it was read. Please try again."
	case errors.Is(err, block.ErrThrottled), errors.Is(err, block.ErrBusy):
		code, message = codeBusy, "Please reduce your request rate."
	case errors.Is(err, context.DeadlineExceeded):
		code, message = codeTimeout, "Object storage did not answer in time."
	default:
		code = codeBadGateway
	}
	return &Error{Code: code, Message: message}
}

// document is the body of an error.
type document struct {
	XMLName    xml.Name `xml:"Error"`
	Code       string
	Message    string
	BucketName string `xml:",omitempty"`
	Key        string `xml:",omitempty"`
	Resource   string
	RequestID  string `xml:"RequestId"`
}

// fail answers with an error. A body that has not been read is not waited for.
func (f *Front) fail(ctx *fasthttp.RequestCtx, r *request, e *Error) {
	r.own()
	f.count.errors.Add(1)
	ctx.Response.Reset()
	f.identify(ctx)
	ctx.SetStatusCode(e.Status())
	h := &ctx.Response.Header
	switch e.Code {
	case codeInvalidRange:
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(e.Size, 10))
	case codeBusy:
		h.Set("Retry-After", "1")
	case codeMethodNotAllowed:
		h.Set("Allow", "GET, HEAD, PUT, POST, DELETE")
	}
	if ctx.IsHead() {
		ctx.Response.SkipBody = true
		return
	}
	body, err := xml.Marshal(document{
		Code: e.Code, Message: valid(e.Message), BucketName: valid(r.bucket), Key: valid(r.key),
		Resource: valid("/" + r.path), RequestID: string(h.Peek("x-amz-request-id")),
	})
	if err != nil {
		return
	}
	ctx.SetContentType("application/xml")
	ctx.SetBody(append([]byte(xml.Header), body...))
}

// valid makes text that a caller has sent fit for XML, which has no place for
// control characters.
func valid(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' && c != '\n' {
			return '\uFFFD'
		}
		return c
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
