package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudwego/gopkg/protocol/thrift"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
)

// The codes of a Failure. A code that is not known is a failure like any
// other.
const (
	failRefused int32 = iota + 1
	failInvalid
	failNotFound
	failRange
	failChanged
	failBusy
	failThrottled
	failDenied
	failCorrupt
	failCancelled
	failInternal
)

// maxReason bounds the text of a failure in bytes.
const maxReason = 256

// failures pairs codes with the errors that they stand for on both sides; the
// first that fits an error counts.
func failures() [10]struct {
	code int32
	err  error
} {
	return [...]struct {
		code int32
		err  error
	}{
		{failRefused, block.ErrRefused},
		{failInvalid, block.ErrInvalid},
		{failNotFound, block.ErrNotFound},
		{failRange, block.ErrRange},
		{failChanged, block.ErrChanged},
		{failBusy, block.ErrBusy},
		{failThrottled, block.ErrThrottled},
		{failDenied, block.ErrDenied},
		{failCorrupt, block.ErrCorrupt},
		{failCancelled, context.Canceled},
	}
}

// failureOf returns how err travels; nil is no failure.
func failureOf(err error) *headstart.Failure {
	if err == nil {
		return nil
	}
	f := &headstart.Failure{Code: failInternal, Message: err.Error()}
	f.Message = f.Message[:min(len(f.Message), maxReason)]
	for _, known := range failures() {
		if errors.Is(err, known.err) {
			f.Code = known.code
			break
		}
	}
	return f
}

// errorOf returns the error that f stands for here. The text is another
// node's: it is quoted, and nothing is decided by it.
func errorOf(f *headstart.Failure) error {
	if f == nil {
		return nil
	}
	why := f.Message[:min(len(f.Message), maxReason)]
	for _, known := range failures() {
		if f.Code == known.code {
			return fmt.Errorf("%w (it says %q)", known.err, why)
		}
	}
	return fmt.Errorf("it failed: %q", why)
}

func appendFailure(b []byte, id uint16, f *headstart.Failure) []byte {
	b = appendField(b, thrift.STRUCT, id)
	return appendStop(appendString(appendI32(b, 1, f.Code), 2, f.Message))
}

func (c *cursor) failure() *headstart.Failure {
	f := headstart.NewFailure()
	for t, id, ok := c.field(); ok; t, id, ok = c.field() {
		switch {
		case id == 1 && c.is(t, thrift.I32):
			f.Code = c.i32()
		case id == 2 && c.is(t, thrift.STRING):
			f.Message = string(c.bytes(maxHead))
		default:
			c.skip(t, maxDepth)
		}
	}
	return f
}
