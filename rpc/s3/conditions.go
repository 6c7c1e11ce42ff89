package s3

import (
	"net/http"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/engine/block"
)

// etagOf returns the ETag as a header has it, "" when there is none.
func etagOf(m *block.Meta) string {
	switch {
	case m.ETag == "":
		return ""
	case strings.HasPrefix(m.ETag, "W/"):
		return `W/"` + m.ETag[2:] + `"`
	}
	return `"` + m.ETag + `"`
}

// conditional reports whether the request has any condition.
func conditional(h *fasthttp.RequestHeader) bool {
	for _, name := range [...]string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"} {
		if len(h.Peek(name)) > 0 {
			return true
		}
	}
	return false
}

// conditions are checked in the order of RFC 9110, section 13.2.2. status is
// 412, 304, or 0 when the request is to be answered; whole says that its Range
// does not count.
func conditions(h *fasthttp.RequestHeader, m *block.Meta) (status int, whole bool) {
	if match := h.Peek("If-Match"); len(match) > 0 {
		if !matches(string(match), m.ETag, true) {
			return http.StatusPreconditionFailed, false
		}
	} else if t, ok := date(h, "If-Unmodified-Since"); ok && !m.Modified.IsZero() && m.Modified.Truncate(time.Second).After(t) {
		return http.StatusPreconditionFailed, false
	}
	if none := h.Peek("If-None-Match"); len(none) > 0 {
		if matches(string(none), m.ETag, false) {
			return http.StatusNotModified, false
		}
	} else if t, ok := date(h, "If-Modified-Since"); ok && !m.Modified.IsZero() && !m.Modified.Truncate(time.Second).After(t) {
		return http.StatusNotModified, false
	}
	if still := h.Peek("If-Range"); len(still) > 0 {
		t, isDate := date(h, "If-Range")
		if isDate {
			whole = m.Modified.IsZero() || !m.Modified.Truncate(time.Second).Equal(t)
		} else {
			whole = !matches(string(still), m.ETag, true)
		}
	}
	return 0, whole
}

func date(h *fasthttp.RequestHeader, name string) (time.Time, bool) {
	t, err := http.ParseTime(string(h.Peek(name)))
	return t, err == nil
}

// matches reports whether a list of ETags, or *, has etag in it. A strong
// comparison takes no weak ones. S3's clients leave the quotes out at times.
func matches(list, etag string, strong bool) bool {
	if strings.TrimSpace(list) == "*" {
		return true
	}
	weak := strings.HasPrefix(etag, "W/")
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		opaque, isWeak := strings.CutPrefix(one, "W/")
		if strong && (isWeak || weak) {
			continue
		}
		if etag != "" && strings.Trim(opaque, `"`) == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}
