package profile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Bytes is a number of bytes that prints readable.
type Bytes int64

// String prints with two decimals and a unit: "1.50 MiB".
func (b Bytes) String() string {
	if b < 1<<10 {
		return fmt.Sprintf("%d B", int64(b))
	}
	value, unit := float64(b)/(1<<10), "KiB"
	for _, next := range [...]string{"MiB", "GiB", "TiB"} {
		if value < 1<<10 {
			break
		}
		value, unit = value/(1<<10), next
	}
	return fmt.Sprintf("%.2f %s", value, unit)
}

// readable prints with two decimals and a unit: "12.50 ms".
func readable(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f us", float64(d)/float64(time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// Text returns the profile for people: nested, two blanks a level, a counter a
// line behind the reference's "-  ".
func (q *Query) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Query %q:\n  SegmentIterator:\n", q.ID())
	counters := reflect.ValueOf(q.Counters())
	for field, value := range counters.Fields() {
		text := fmt.Sprint(value)
		switch v := value.Interface().(type) {
		case time.Duration:
			text = readable(v)
		case []string:
			text = "[" + strings.Join(v, ", ") + "]"
		}
		fmt.Fprintf(&b, "    -  %s: %s\n", field.Name, text)
	}
	return b.String()
}

// MarshalJSON returns the profile for programs: {"query_id", "SegmentIterator"}.
func (q *Query) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID       string   `json:"query_id"`
		Counters Counters `json:"SegmentIterator"`
	}{q.ID(), q.Counters()})
}

// ID returns the query's id, "" of nil.
func (q *Query) ID() string {
	if q == nil {
		return ""
	}
	return q.id
}
