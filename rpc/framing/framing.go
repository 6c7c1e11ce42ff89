// Package framing lets through to an HTTP/1 server only requests whose end is
// beyond doubt. Where one request ends and the next begins must not depend on
// who reads it: a proxy and a server that disagree can be made to run a request
// that the proxy has never seen (request smuggling).
//
// It reads what the server reads, keeps at most one line of it, and never
// changes a byte: what it refuses, it withholds.
package framing

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
)

// Limits bound one request.
type Limits struct {
	// HeaderBytes bounds the request line and all header lines together, 16 KiB
	// when 0.
	HeaderBytes int
	// BodyBytes bounds the body as it is declared, 0 for none at all.
	BodyBytes int64
}

// Error is why a request was refused.
type Error struct {
	// Status is 400, 413 or 431.
	Status int
	Reason string
}

// Error implements error.
func (e *Error) Error() string { return "refused request: " + e.Reason }

func bad(format string, args ...any) error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// place is where in a request a Scanner stands.
//
//	requestLine ─▶ headerLine ─┬─ no body ──────────────────────▶ requestLine
//	                           ├─ length ─▶ body ───────────────▶ requestLine
//	                           └─ chunked ─▶ chunkSize ─┬─ 0 ─▶ lastLine ─▶ requestLine
//	                                 ▲                  └─▶ chunk ─▶ chunkEnd ─┐
//	                                 └─────────────────────────────────────────┘
type place uint8

const (
	requestLine place = iota
	headerLine
	body
	chunkSize
	chunk
	chunkEnd
	lastLine
)

// Scanner follows the requests of one connection. The zero value stands before
// the first one and has no room for bodies.
type Scanner struct {
	Limits Limits

	at place
	// line is the part of the current line that came with earlier bytes.
	line []byte
	// header counts the bytes of the current header, left those of the body or
	// the chunk that are still to come, total those of all chunks.
	header      int
	left, total int64
	// What the header has said: length is -1 until there is one.
	length  int64
	chunked bool
	http10  bool
	done    int
}

// Requests returns how many requests have ended.
func (s *Scanner) Requests() int { return s.done }

// between reports whether no request is under way.
func (s *Scanner) between() bool { return s.at == requestLine && len(s.line) == 0 }

// bodiless reports whether the last request had no body.
func (s *Scanner) bodiless() bool { return !s.chunked && s.length <= 0 }

// Scan looks at the next bytes of the connection. It returns how many of them
// may be passed on: all, or with an error those before the first one that is
// wrong, which never complete the request that it is in.
func (s *Scanner) Scan(p []byte) (int, error) {
	for i := 0; i < len(p); {
		if s.at == body || s.at == chunk {
			n := min(s.left, int64(len(p)-i))
			i += int(n)
			if s.left -= n; s.left == 0 {
				s.endOfBytes()
			}
			continue
		}
		end := bytes.IndexByte(p[i:], '\n')
		if end < 0 {
			if err := s.room(len(p) - i); err != nil {
				return i, err
			}
			s.line = append(s.line, p[i:]...)
			return len(p), nil
		}
		if err := s.room(end + 1); err != nil {
			return i, err
		}
		line := p[i : i+end+1]
		if len(s.line) > 0 {
			s.line = append(s.line, line...)
			line = s.line
		}
		if err := s.take(line); err != nil {
			return i + end, err
		}
		s.line = s.line[:0]
		i += end + 1
	}
	return len(p), nil
}

// maxChunkLine bounds the lines between chunks: what is longer is no size.
const maxChunkLine = 8 + len("\r\n")

// room reports whether a line may grow by n bytes.
func (s *Scanner) room(n int) error {
	if s.at > headerLine {
		if len(s.line)+n > maxChunkLine {
			return bad("a line between chunks is longer than the longest size")
		}
		return nil
	}
	limit := s.Limits.HeaderBytes
	if limit == 0 {
		limit = 16 << 10
	}
	if s.header += n; s.header > limit {
		return &Error{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the header is longer than %d bytes", limit)}
	}
	return nil
}

// take looks at one whole line, its line feed included.
func (s *Scanner) take(line []byte) error {
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return bad("a line does not end in CR LF")
	}
	for _, c := range text {
		if c < ' ' && c != '\t' || c == 0x7f {
			return bad("a control character in a header")
		}
	}
	switch s.at {
	case requestLine:
		return s.takeRequestLine(text)
	case headerLine:
		if len(text) == 0 {
			return s.endOfHeader()
		}
		return s.takeHeader(text)
	case chunkSize:
		return s.takeChunkSize(text)
	}
	if len(text) != 0 {
		return bad("something else than a line's end behind a chunk")
	}
	if s.at == lastLine {
		s.end()
		return nil
	}
	s.at = chunkSize
	return nil
}

// takeRequestLine reads the version alone, which decides whether there may be
// chunks. Empty lines before it are what old clients send behind a body.
func (s *Scanner) takeRequestLine(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	switch {
	case bytes.HasSuffix(text, []byte(" HTTP/1.1")):
		s.http10 = false
	case bytes.HasSuffix(text, []byte(" HTTP/1.0")):
		s.http10 = true
	default:
		return bad("want a request line that ends in HTTP/1.1")
	}
	if bytes.Count(text, []byte(" ")) != 2 || !token(text[:bytes.IndexByte(text, ' ')]) {
		return bad("want a method, a target and a version with one blank between them")
	}
	s.at, s.length, s.chunked = headerLine, -1, false
	return nil
}

func (s *Scanner) takeHeader(text []byte) error {
	name, value, ok := bytes.Cut(text, []byte(":"))
	switch {
	case text[0] == ' ' || text[0] == '\t':
		return bad("a folded header line")
	case !ok || !token(name):
		return bad("want a header line that begins with a name and a colon")
	case bytes.EqualFold(name, []byte("Content-Length")):
		return s.takeLength(bytes.TrimPrefix(value, []byte(" ")))
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		return s.takeEncoding(bytes.TrimPrefix(value, []byte(" ")))
	}
	return nil
}

func (s *Scanner) takeLength(value []byte) error {
	if s.length >= 0 || s.chunked {
		return bad("the length of the body is given twice")
	}
	n, ok := digits(value, 10, 18)
	if !ok {
		return bad("want a Content-Length of decimal digits alone")
	}
	s.length = n
	return nil
}

func (s *Scanner) takeEncoding(value []byte) error {
	if s.length >= 0 || s.chunked {
		return bad("the length of the body is given twice")
	}
	if s.http10 || !bytes.EqualFold(value, []byte("chunked")) {
		return bad("the one Transfer-Encoding there is here is chunked, with HTTP/1.1")
	}
	s.chunked = true
	return nil
}

func (s *Scanner) endOfHeader() error {
	switch {
	case s.chunked:
		s.at, s.total = chunkSize, 0
	case s.length <= 0:
		s.end()
	case s.length > s.Limits.BodyBytes:
		return s.tooLarge()
	default:
		s.at, s.left = body, s.length
	}
	return nil
}

func (s *Scanner) tooLarge() error {
	return &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", s.Limits.BodyBytes)}
}

// takeChunkSize admits no extensions and, behind the last chunk, no trailers:
// nobody needs them here, and servers disagree about them.
func (s *Scanner) takeChunkSize(text []byte) error {
	n, ok := digits(text, 16, 8)
	if !ok {
		return bad("want the size of a chunk as at most 8 hexadecimal digits")
	}
	if s.total += n; s.total > s.Limits.BodyBytes {
		return s.tooLarge()
	}
	if s.at, s.left = chunk, n; n == 0 {
		s.at = lastLine
	}
	return nil
}

// endOfBytes is behind the last byte of a body or a chunk.
func (s *Scanner) endOfBytes() {
	if s.at == chunk {
		s.at = chunkEnd
		return
	}
	s.end()
}

func (s *Scanner) end() {
	s.at, s.header = requestLine, 0
	s.done++
}

// digits reads a number of at most so many digits, and nothing but digits.
func digits(text []byte, base int64, most int) (int64, bool) {
	if len(text) == 0 || len(text) > most {
		return 0, false
	}
	n := int64(0)
	for _, c := range text {
		d := base
		switch lower := c | 0x20; {
		case c >= '0' && c <= '9':
			d = int64(c - '0')
		case lower >= 'a' && lower <= 'f':
			d = int64(lower-'a') + 10
		}
		if d >= base {
			return 0, false
		}
		n = n*base + d
	}
	return n, true
}

// token reports whether text is a name as headers and methods have it: letters,
// digits and a few signs (RFC 9110, 5.6.2).
func token(text []byte) bool {
	for _, c := range text {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return len(text) > 0
}
