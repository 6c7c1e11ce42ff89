package block

import (
	"context"
	"errors"
	"fmt"
)

// The errors that callers tell apart. Everything else is a failure of the
// Source that *Error names.
var (
	// ErrNotFound: the object does not exist in object storage.
	ErrNotFound = errors.New("no such object")
	// ErrRange: the offset lies past the end of the object.
	ErrRange = errors.New("offset past the end of the object")
	// ErrChanged: the object has another version than the one asked for.
	ErrChanged = errors.New("the object has changed")
	// ErrBusy: a bound is reached; trying elsewhere or later may work.
	ErrBusy = errors.New("busy")
	// ErrThrottled: object storage asked us to slow down.
	ErrThrottled = errors.New("throttled by object storage")
	// ErrDenied: object storage refused the credentials.
	ErrDenied = errors.New("access denied by object storage")
	// ErrCorrupt: bytes that don't match their checksum.
	ErrCorrupt = errors.New("checksum mismatch")
	// ErrRefused: a node of another cluster or protocol, or without the token.
	ErrRefused = errors.New("refused by the other node")
	// ErrInvalid: a call that makes no sense, or that the wire can't carry. It is
	// the caller's fault, so no peer is blamed for it.
	ErrInvalid = errors.New("invalid call")
)

// Source says where bytes came from.
type Source uint8

// The sources of a block.
const (
	SourceNone Source = iota
	SourceLocal
	SourcePeer
	SourceStore
)

// String is the value of the X-Headstart-Source header.
func (s Source) String() string {
	switch s {
	case SourceLocal:
		return "local"
	case SourcePeer:
		return "peer"
	case SourceStore:
		return "s3"
	}
	return "none"
}

// Error is the one type of error that leaves a Source: what was tried, on
// which object, where, and why it failed.
type Error struct {
	Op     string
	Object Object
	Source Source
	// Addr is the peer's address, "" for object storage.
	Addr string
	Err  error
}

// Error implements error.
func (e *Error) Error() string {
	at := e.Source.String()
	if e.Addr != "" {
		at += " " + e.Addr
	}
	return fmt.Sprintf("%s %s from %s: %v", e.Op, e.Object, at, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// OutcomeOf returns what an error of a peer call means for the peer. cancelled
// tells whether the requester itself has given the call up: a deadline of the
// call is the peer's failure, our own cancel is not.
func OutcomeOf(err error, cancelled bool) Outcome {
	switch {
	case err == nil:
		return OutcomeHit
	case cancelled || errors.Is(err, context.Canceled):
		return OutcomeCancelled
	case errors.Is(err, ErrInvalid):
		return OutcomeUnsupported
	case errors.Is(err, ErrBusy):
		return OutcomeBusy
	case errors.Is(err, ErrCorrupt):
		return OutcomeCorrupt
	case errors.Is(err, ErrChanged), errors.Is(err, ErrNotFound):
		return OutcomeMiss // it has another version: not the one that is asked for
	case errors.Is(err, context.DeadlineExceeded):
		return OutcomeTimeout
	}
	return OutcomeError
}
