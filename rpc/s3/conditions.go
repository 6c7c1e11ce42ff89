package s3

import (
	"net/http"
	"strings"
	"time"

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

// conditions are checked in the order of RFC 9110, section 13.2.2. status is
// 412, 304, or 0 when the request is to be answered; whole says that its Range
// does not count.
func (a *asked) conditions(m *block.Meta) (status int, whole bool) {
	if !a.conditional {
		return 0, false
	}
	if len(a.match) > 0 {
		if !matches(string(a.match), m.ETag, true) {
			return http.StatusPreconditionFailed, false
		}
	} else if t, ok := date(a.unless); ok && !m.Modified.IsZero() && m.Modified.Truncate(time.Second).After(t) {
		return http.StatusPreconditionFailed, false
	}
	if len(a.none) > 0 {
		if matches(string(a.none), m.ETag, false) {
			return http.StatusNotModified, false
		}
	} else if t, ok := date(a.since); ok && !m.Modified.IsZero() && !m.Modified.Truncate(time.Second).After(t) {
		return http.StatusNotModified, false
	}
	if len(a.still) > 0 {
		t, isDate := date(a.still)
		if isDate {
			whole = m.Modified.IsZero() || !m.Modified.Truncate(time.Second).Equal(t)
		} else {
			whole = !matches(string(a.still), m.ETag, true)
		}
	}
	return 0, whole
}

func date(text []byte) (time.Time, bool) {
	if len(text) == 0 {
		return time.Time{}, false
	}
	t, err := http.ParseTime(string(text))
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
