package block

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestErrorNamesWhatAndWhere(t *testing.T) {
	cause := fmt.Errorf("read: %w", ErrThrottled)
	e := &Error{Op: "get", Object: Object{"s3", "data", "key"}, Source: SourceStore, Err: cause}
	if got, want := e.Error(), "get s3://data/key from s3: read: throttled by object storage"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !errors.Is(e, ErrThrottled) || errors.Is(e, ErrBusy) {
		t.Error("the cause is lost")
	}
	e.Source, e.Addr = SourcePeer, "be-1:8060"
	if got, want := e.Error(), "get s3://data/key from peer be-1:8060: read: throttled by object storage"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if SourceNone.String() != "none" || SourceLocal.String() != "local" || Source(99).String() != "none" {
		t.Error("wrong name of a source")
	}
}

// TestPR27_OutcomeOfEveryStatus walks all statuses that a server can send, and
// those that it can't: they are errors, never misses.
func TestPR27_OutcomeOfEveryStatus(t *testing.T) {
	want := map[Status]Outcome{
		StatusData: OutcomeHit, StatusNotFound: OutcomeMiss, StatusFilling: OutcomeBusy,
		StatusQueueTimeout: OutcomeBusy, StatusQueueFull: OutcomeBusy, StatusFillRejected: OutcomeBusy,
		StatusFillTimeout: OutcomeBusy, StatusCancelled: OutcomeCancelled, StatusGoingAway: OutcomeBusy,
		StatusUnsupported: OutcomeUnsupported, StatusFailed: OutcomeError,
	}
	for s := range Status(255) {
		o, known := want[s]
		if !known {
			o = OutcomeError
		}
		if got := s.Outcome(); got != o {
			t.Errorf("status %d is outcome %d, want %d", s, got, o)
		}
	}
	failures := map[Outcome]bool{OutcomeTimeout: true, OutcomeError: true, OutcomeCorrupt: true}
	for o := range OutcomeUnsupported + 1 {
		if o.Failed() != failures[o] {
			t.Errorf("outcome %d failed: %v", o, o.Failed())
		}
	}
}

func TestPR01_OutcomeOfErrors(t *testing.T) {
	for _, c := range []struct {
		err       error
		cancelled bool
		want      Outcome
	}{
		{nil, false, OutcomeHit},
		{&Error{Err: fmt.Errorf("%w: a name is too long", ErrInvalid)}, false, OutcomeUnsupported},
		{context.Canceled, false, OutcomeCancelled},
		{context.DeadlineExceeded, true, OutcomeCancelled},
		{errors.New("reset"), true, OutcomeCancelled},
		{fmt.Errorf("call: %w", context.DeadlineExceeded), false, OutcomeTimeout},
		{&Error{Source: SourcePeer, Err: ErrBusy}, false, OutcomeBusy},
		{&Error{Source: SourcePeer, Err: ErrCorrupt}, false, OutcomeCorrupt},
		{&Error{Source: SourcePeer, Err: ErrRefused}, false, OutcomeError},
		{errors.New("reset"), false, OutcomeError},
	} {
		if got := OutcomeOf(c.err, c.cancelled); got != c.want {
			t.Errorf("OutcomeOf(%v, %v) = %d, want %d", c.err, c.cancelled, got, c.want)
		}
	}
}
