package s3

import (
	"slices"
	"strconv"
	"strings"
)

// span is what a Range header asks for, before the object's size is known.
type span struct {
	// given: the header asks for a part, from from on. to is behind its last byte,
	// -1 for the object's end.
	given    bool
	from, to int64
	// suffix, when positive, asks for as many bytes at the object's end.
	suffix int64
}

// parseRange reads a Range header. One that makes no sense, or that asks for
// several parts, is as good as none: so it is with S3.
func parseRange(text string) span {
	whole := span{to: -1}
	unit, text, _ := strings.Cut(text, "=")
	first, last, found := strings.Cut(strings.TrimSpace(text), "-")
	if !found || !strings.EqualFold(unit, "bytes") {
		return whole
	}
	if first == "" {
		n, ok := parseSize(last)
		if !ok {
			return whole
		}
		if n == 0 {
			return span{given: true, from: -1, to: -1} // no byte at all: never satisfied
		}
		return span{given: true, suffix: n, to: -1}
	}
	from, ok := parseSize(first)
	if !ok {
		return whole
	}
	if last == "" {
		return span{given: true, from: from, to: -1}
	}
	end, ok := parseSize(last)
	if !ok || end < from {
		return whole
	}
	return span{given: true, from: from, to: end + 1}
}

// parseSize takes digits only; what is larger than any object is the largest.
func parseSize(text string) (int64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	const most = 1<<62 - 1
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > most {
		n = most
	}
	return n, true
}

// in cuts the span down to an object of size bytes. It reports false when no
// byte of the object lies in it.
func (s span) in(size int64) (from, to int64, ok bool) {
	from, to = s.from, s.to
	switch {
	case !s.given:
		return 0, size, true
	case s.suffix > 0:
		from = max(0, size-s.suffix)
	case from < 0:
		return 0, 0, false
	}
	if to < 0 || to > size {
		to = size
	}
	return from, to, from < size
}

// footer reports whether bytes from to to are read from a file of columns for its
// footer, which says where everything else is and is read by each query.
func footer(key string, from, to, size int64) bool {
	const tail, most = 64 << 10, 1 << 20
	if from == 0 || from < size-tail && (to != size || from < size-most) {
		return false
	}
	dot := strings.LastIndexByte(key, '.')
	return dot >= 0 && slices.Contains([]string{"parquet", "parq", "orc"}, strings.ToLower(key[dot+1:]))
}
