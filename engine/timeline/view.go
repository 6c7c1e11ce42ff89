package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// View is one read as /api/slow_reads shows it. All times are in microseconds
// from the beginning of the read, which is when it met its first miss.
type View struct {
	// Why is "slow" or "sample".
	Why string `json:"why"`
	// BeganMS is in Unix milliseconds.
	BeganMS int64 `json:"began_ms"`
	// WaitedUS is how long the reader has waited for blocks; TookUS is more when
	// the reader itself, or its client, was slow.
	WaitedUS int64  `json:"waited_us"`
	TookUS   int64  `json:"took_us"`
	Object   string `json:"object"`
	Route    string `json:"route"`
	Offset   int64  `json:"offset"`
	Size     int64  `json:"size"`
	QueryID  string `json:"query_id,omitempty"`
	// TraceID, ParentID and SpanID are those of W3C Trace Context.
	TraceID  string     `json:"trace_id,omitempty"`
	ParentID string     `json:"parent_id,omitempty"`
	SpanID   string     `json:"span_id,omitempty"`
	Error    string     `json:"error,omitempty"`
	Steps    []StepView `json:"steps"`
	// StepsDropped is how many there were beyond those shown.
	StepsDropped int `json:"steps_dropped,omitempty"`
}

// StepView is one step of a read.
type StepView struct {
	What       string `json:"what"`
	Addr       string `json:"addr,omitempty"`
	FirstBlock uint64 `json:"first_block"`
	Blocks     int    `json:"blocks"`
	AtUS       int64  `json:"at_us"`
	// FirstByteUS and UntilUS are 0 for a moment, for a call that brought nothing,
	// and as long as the step goes on.
	FirstByteUS int64 `json:"first_byte_us,omitempty"`
	UntilUS     int64 `json:"until_us,omitempty"`
	// QueueUS is how long the peer kept the call in its queue.
	QueueUS int64 `json:"queue_us,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// Count is of blocks (local) or of candidates.
	Count   int    `json:"count,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	// Checksum is "ok" for bytes that matched what their peer said, "made" for those
	// of object storage, where it is made, and "mismatch".
	Checksum string `json:"checksum,omitempty"`
}

// maxShown bounds what is shown of a name.
const maxShown = 1024

// Show returns up to limit reads of each kind, the latest first.
func (l *Log) Show(limit int) []View {
	if l == nil || limit < 1 {
		return []View{}
	}
	slow, samples := l.slow.newest(nil), l.samples.newest(nil)
	list := append(slow[:min(limit, len(slow))], samples[:min(limit, len(samples))]...)
	slices.SortStableFunc(list, func(a, b *Read) int { return b.began.Compare(a.began) })
	views := make([]View, len(list))
	for i, r := range list {
		views[i] = r.view()
	}
	return views
}

func (r *Read) view() View {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := View{
		Why: r.mu.why, BeganMS: r.began.UnixMilli(),
		WaitedUS: r.mu.waited.Microseconds(), TookUS: r.mu.took.Microseconds(),
		Object: cut(r.req.Object.String()), Route: r.req.Route.String(), Offset: r.req.Offset, Size: r.req.Size,
		QueryID: cut(r.req.QueryID), TraceID: r.trace.id, ParentID: r.trace.parent, SpanID: r.trace.span,
		Error: r.mu.err, Steps: make([]StepView, len(r.mu.steps)), StepsDropped: r.mu.dropped,
	}
	for i := range r.mu.steps {
		v.Steps[i] = r.mu.steps[i].view()
	}
	// Steps of several fetches come in the order of their ends and beginnings.
	slices.SortStableFunc(v.Steps, func(a, b StepView) int { return cmp.Compare(a.AtUS, b.AtUS) })
	return v
}

func cut(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "…"
	}
	return s
}

func (s *step) view() StepView {
	v := StepView{
		What: s.what.String(), FirstBlock: s.blocks.First, Blocks: s.blocks.Count(), AtUS: s.at.Microseconds(),
		FirstByteUS: s.first.Microseconds(), UntilUS: s.until.Microseconds(), QueueUS: s.queued.Microseconds(),
		Bytes: s.bytes, Count: s.count, Outcome: s.outcome,
	}
	if s.addr.Host != "" {
		v.Addr = s.addr.String()
	}
	switch {
	case s.outcome == Mismatch:
		v.Checksum = "mismatch"
	case s.bytes == 0:
	case s.what == Peer:
		v.Checksum = "ok"
	default:
		v.Checksum = "made"
	}
	return v
}

// Mismatch is the outcome of a call whose bytes did not match their checksum.
const Mismatch = "checksum mismatch"

// barWidth is how many letters the waterfall gives to the whole read.
const barWidth = 40

// Waterfall returns the read for people: a line for each step, with a bar from
// its beginning (.) over its first byte (=) to its end.
func (v *View) Waterfall() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-6s  waited %s of %s  %s bytes %d+%d, %s", time.UnixMilli(v.BeganMS).UTC().Format("2006-01-02T15:04:05.000Z"),
		v.Why, ms(v.WaitedUS), ms(v.TookUS), v.Object, v.Offset, v.Size, v.Route)
	for _, p := range [][2]string{{"query", v.QueryID}, {"trace", v.TraceID}, {"parent", v.ParentID}, {"span", v.SpanID}, {"error:", v.Error}} {
		if p[1] != "" {
			b.WriteString("  " + p[0] + " " + p[1])
		}
	}
	b.WriteByte('\n')
	end := v.TookUS
	for _, s := range v.Steps {
		end = max(end, s.UntilUS, s.AtUS)
	}
	for i := range v.Steps {
		s := &v.Steps[i]
		name := s.What
		if s.Addr != "" {
			name += " " + s.Addr
		}
		fmt.Fprintf(&b, "  %10s  %-26s |%s|  %s\n", ms(s.AtUS), name, s.bar(end), s.words())
	}
	if v.StepsDropped > 0 {
		fmt.Fprintf(&b, "  and %d more steps\n", v.StepsDropped)
	}
	return b.String()
}

func (s *StepView) bar(end int64) string {
	at := func(us int64) int { return int(us * (barWidth - 1) / max(end, 1)) }
	bar := []byte(strings.Repeat(" ", barWidth))
	bar[at(s.AtUS)] = '.'
	for i := at(s.AtUS); i <= at(s.UntilUS); i++ {
		bar[i] = '.'
		if s.FirstByteUS > 0 && i >= at(s.FirstByteUS) {
			bar[i] = '='
		}
	}
	if s.UntilUS == 0 && s.moment() {
		bar[at(s.AtUS)] = '*'
	}
	return string(bar)
}

func (s *StepView) moment() bool {
	switch s.What {
	case Local.String(), Candidates.String(), Hedge.String(), Winner.String():
		return true
	}
	return false
}

func (s *StepView) words() string {
	var w []string
	add := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	switch {
	case s.What == Local.String():
		add("%d blocks found, then a miss", s.Count)
	case s.What == Candidates.String():
		add("%d, %s", s.Count, s.Outcome)
	case s.Outcome != "":
		add("%s", s.Outcome)
	case s.UntilUS == 0 && !s.moment():
		add("goes on")
	}
	if s.Blocks == 1 {
		add("block %d", s.FirstBlock)
	} else if s.Blocks > 1 {
		add("%d blocks from %d", s.Blocks, s.FirstBlock)
	}
	if s.QueueUS > 0 {
		add("queue %s", ms(s.QueueUS))
	}
	if s.FirstByteUS > 0 {
		add("first byte %s", ms(s.FirstByteUS))
	}
	if s.UntilUS > 0 {
		add("end %s", ms(s.UntilUS))
	}
	if s.Bytes > 0 {
		add("%d bytes", s.Bytes)
	}
	if s.Checksum != "" && s.Checksum != "mismatch" {
		add("checksum %s", s.Checksum)
	}
	return strings.Join(w, ", ")
}

// ms prints microseconds as milliseconds.
func ms(us int64) string { return fmt.Sprintf("%.1f ms", float64(us)/1000) }
