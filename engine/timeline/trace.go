package timeline

import (
	"encoding/hex"
	"math/rand/v2"
)

// trace is what a W3C traceparent says: which trace a call belongs to and which
// span of it has made the call. parent is "" without one.
type trace struct {
	// id has 32 hex digits, parent and span 16; span is this read's own.
	id, parent, span string
	sampled          bool
}

// The form of a traceparent: 00-<32 hex digits>-<16>-<2>.
const (
	parentLen = 2 + 1 + 32 + 1 + 16 + 1 + 2
	idAt      = 3
	spanAt    = idAt + 32 + 1
	flagsAt   = spanAt + 16 + 1
)

// ValidTraceparent reports whether text is a traceparent that can be followed. A
// version newer than ours may say more behind what we know.
func ValidTraceparent(text string) bool {
	if len(text) < parentLen || len(text) > 2*parentLen || text[:2] == "ff" {
		return false
	}
	if len(text) > parentLen && (text[:2] == "00" || text[parentLen] != '-') {
		return false
	}
	for i, c := range []byte(text[:parentLen]) {
		dash := i == idAt-1 || i == spanAt-1 || i == flagsAt-1
		digit := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if dash && c != '-' || !dash && !digit {
			return false
		}
	}
	return !zeros(text[idAt:spanAt-1]) && !zeros(text[spanAt:flagsAt-1])
}

func zeros(s string) bool {
	for i := range len(s) {
		if s[i] != '0' {
			return false
		}
	}
	return true
}

// follow reads a traceparent and opens a span below it; what is no traceparent
// is no trace.
func follow(parent string) trace {
	if !ValidTraceparent(parent) {
		return trace{}
	}
	var span [8]byte
	for n, i := rand.Uint64()|1, 0; i < len(span); i++ {
		span[i] = byte(n >> (8 * i))
	}
	flags := parent[flagsAt+1]
	return trace{
		id: parent[idAt : spanAt-1], parent: parent[spanAt : flagsAt-1], span: hex.EncodeToString(span[:]),
		sampled: flags <= '9' && flags&1 == 1 || flags > '9' && flags&1 == 0,
	}
}

// Traceparent returns what the calls of this read carry: its own span as the
// parent. Without a timeline it is the traceparent that the read came with.
func (r *Read) Traceparent(given string) string {
	switch {
	case r == nil:
		return given
	case r.trace.id == "":
		return ""
	case r.trace.sampled:
		return "00-" + r.trace.id + "-" + r.trace.span + "-01"
	}
	return "00-" + r.trace.id + "-" + r.trace.span + "-00"
}
