package config

import (
	"errors"
	"fmt"
	"strings"
)

// What can be wrong with a key or its value. Error wraps one of them.
var (
	// ErrUnknownKey: the node has no such key.
	ErrUnknownKey = errors.New("unknown key")
	// ErrStatic: the key is read at start only.
	ErrStatic = errors.New("static key")
	// ErrValue: the value is not one that the key takes.
	ErrValue = errors.New("bad value")
	// ErrConflict: the value is fine, but not together with another key's.
	ErrConflict = errors.New("conflicting values")
	// ErrNoFile: the node has no configuration file.
	ErrNoFile = errors.New("no configuration file")
	// ErrSyntax: the line is not "key = value".
	ErrSyntax = errors.New("bad line")
)

// Error says where something is wrong, with what, and what would be right.
type Error struct {
	// From is the file, or what else the value came from; "" for an update.
	From string
	// Line is the line of the file, from 1 on; 0 when there are no lines.
	Line int
	Key  string
	// Value is the text as it was given; a secret is masked. It means something
	// only with HasValue.
	Value    string
	HasValue bool
	// Why says what is wrong and what would be right.
	Why string
	Err error
}

// maxQuoted bounds how much of a value an error repeats.
const maxQuoted = 200

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	if e.From != "" {
		b.WriteString(e.From)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key)
		if e.HasValue {
			fmt.Fprintf(&b, " = %.*q", maxQuoted, e.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Why)
	return b.String()
}

// Unwrap returns the kind of error.
func (e *Error) Unwrap() error { return e.Err }
