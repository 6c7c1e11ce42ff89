package s3

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"headstart/engine/block"
	"headstart/engine/object"
)

// header is what the answer says of its object, made once where that is known.
func (a *answer) header() *object.Header {
	if a.known != nil {
		return a.known.Header(saidOf)
	}
	return saidOf(a.meta)
}

// saidOf makes what answers say of an object. Of two lines of one name the last
// counts.
func saidOf(m *block.Meta) *object.Header {
	h := &object.Header{}
	add := func(name, value string) {
		if !sayable(name, value) {
			return
		}
		for i := range h.Lines {
			if strings.EqualFold(string(h.Lines[i].Name), name) {
				h.Lines[i].Value = []byte(value)
				return
			}
		}
		h.Lines = append(h.Lines, object.Line{Name: []byte(name), Value: []byte(value)})
	}
	if etag := etagOf(m); etag != "" {
		add("ETag", etag)
	}
	if !m.Modified.IsZero() {
		add("Last-Modified", m.Modified.UTC().Format(http.TimeFormat))
	}
	add("Accept-Ranges", "bytes")
	if m.ContentType != "" {
		add("Content-Type", m.ContentType)
	}
	for line := range strings.SplitSeq(m.Extra, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			add(name, value)
		}
	}
	for _, line := range h.Lines {
		h.Block = appendLine(h.Block, string(line.Name), line.Value)
	}
	return h
}

// sayable reports whether a line can stand in an answer whatever it says: the
// frame of the answer is not the object's to set.
func sayable(name, value string) bool {
	switch strings.ToLower(name) {
	case "", "content-length", "transfer-encoding", "connection", "date", "server", "set-cookie", "trailer":
		return false
	}
	return !strings.ContainsFunc(name+value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) &&
		!strings.ContainsAny(name, " \t:")
}

func appendLine(b []byte, name string, value []byte) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// dateLine is the Date line of answers, made once a second.
type dateLine struct {
	last atomic.Pointer[struct {
		second int64
		text   []byte
	}]
}

// at returns the whole line at a time.
func (d *dateLine) at(now time.Time) []byte {
	second := now.Unix()
	if last := d.last.Load(); last != nil && last.second == second {
		return last.text
	}
	text := appendLine(nil, "Date", now.UTC().AppendFormat(nil, http.TimeFormat))
	d.last.Store(&struct {
		second int64
		text   []byte
	}{second, text})
	return text
}
