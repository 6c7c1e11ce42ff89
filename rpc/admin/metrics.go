package admin

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/valyala/fasthttp"

	"headstart/engine/profile"
)

// metrics serves GET /metrics in Prometheus form.
func (s *BE) metrics(ctx *fasthttp.RequestCtx) {
	var body bytes.Buffer
	b := s.books()
	writeAll(&body, referenceMetrics(), b)
	writeAll(&body, ownMetrics(), b)
	writeReasons(&body, b.wire.S3Errors)
	metrics.WriteProcessMetrics(&body)
	ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
	ctx.SetBody(body.Bytes())
}

func writeAll(w io.Writer, list []metric, b *books) {
	for i := range list {
		list[i].write(w, b)
	}
}

// write writes one metric in Prometheus form.
func (m *metric) write(w io.Writer, b *books) {
	family, _, _ := strings.Cut(m.name, "{")
	switch m.kind {
	case counter:
		m.describe(w, family, "counter")
		fmt.Fprintf(w, "%s %d\n", m.name, m.value(b))
	case gauge:
		m.describe(w, family, "gauge")
		fmt.Fprintf(w, "%s %d\n", m.name, m.value(b))
	case seconds:
		m.describe(w, family, "counter")
		fmt.Fprintf(w, "%s %g\n", m.name, time.Duration(m.value(b)).Seconds())
	case recorder:
		for _, v := range varsOf(m.name, m.latencies(b)) {
			kind := "gauge"
			if strings.HasSuffix(v.name, "_count") {
				kind = "counter"
			}
			m.describe(w, v.name, kind)
			fmt.Fprintf(w, "%s %d\n", v.name, v.value)
		}
	case summary:
		l := m.latencies(b)
		m.describe(w, family, "summary")
		for _, q := range quantiles(l) {
			fmt.Fprintf(w, "%s{quantile=%q} %g\n", m.name, q.label, q.value.Seconds())
		}
		fmt.Fprintf(w, "%s_sum %g\n%s_count %d\n", m.name, l.Sum.Seconds(), m.name, l.Count)
	}
}

// describe writes what a family of metrics is, above the first of them.
func (m *metric) describe(w io.Writer, family, kind string) {
	if m.help != "" {
		fmt.Fprintf(w, "# HELP %s %s (%s)\n# TYPE %s %s\n", family, m.help, m.side, family, kind)
	}
}

type quantile struct {
	// label is Prometheus' word, suffix the reference system's.
	label, suffix string
	value         time.Duration
}

func quantiles(l profile.Latencies) []quantile {
	return []quantile{{"0.5", "50", l.P50}, {"0.9", "90", l.P90}, {"0.99", "99", l.P99}, {"0.999", "999", l.P999}}
}

// s3Errors is the family of failed attempts at object storage; its labels are
// the reasons that the store knows.
const s3Errors = "headstart_s3_errors_total"

func writeReasons(w io.Writer, reasons []Reason) {
	if len(reasons) == 0 {
		return
	}
	fmt.Fprintf(w, "# HELP %s Failed attempts at object storage, by reason. (%s)\n# TYPE %s counter\n", s3Errors, both, s3Errors)
	for _, r := range reasons {
		fmt.Fprintf(w, "%s{reason=%q} %d\n", s3Errors, r.Name, r.Count)
	}
}

// variable is one line of /vars.
type variable struct {
	name  string
	value int64
}

// varsOf returns the variables of a latency recorder, times in microseconds.
func varsOf(prefix string, l profile.Latencies) []variable {
	list := []variable{
		{prefix + "_count", l.Count},
		{prefix + "_qps", int64(l.QPS + 0.5)},
		{prefix + "_latency", l.Mean.Microseconds()},
		{prefix + "_max_latency", l.Max.Microseconds()},
	}
	for _, q := range quantiles(l) {
		list = append(list, variable{prefix + "_latency_" + q.suffix, q.value.Microseconds()})
	}
	return list
}

// variables returns all lines of /vars, in name order.
func (s *BE) variables() []variable {
	var list []variable
	b := &books{engine: s.Engine.Metrics(), serving: s.Serving.Metrics()}
	for _, m := range referenceMetrics() {
		if m.kind == recorder {
			list = append(list, varsOf(m.name, m.latencies(b))...)
		} else {
			list = append(list, variable{m.name, m.value(b)})
		}
	}
	slices.SortFunc(list, func(a, b variable) int { return strings.Compare(a.name, b.name) })
	return list
}

// vars serves GET /vars and GET /vars/NAMES in bvar form. NAMES are separated
// by commas or semicolons; * stands for any letters and $ for one.
func (s *BE) vars(ctx *fasthttp.RequestCtx) {
	wanted := strings.Trim(strings.TrimPrefix(string(ctx.Path()), "/vars"), "/")
	var body strings.Builder
	for _, v := range s.variables() {
		if wanted == "" || matchesAny(wanted, v.name) {
			fmt.Fprintf(&body, "%s : %d\n", v.name, v.value)
		}
	}
	if body.Len() == 0 {
		fail(ctx, fasthttp.StatusNotFound, "not_found", "no variable is named "+quote(wanted))
		return
	}
	text(ctx, body.String())
}

func matchesAny(patterns, name string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(patterns, func(r rune) bool { return r == ',' || r == ';' }),
		func(p string) bool { return matches(p, name) })
}

// matches compares a name with a pattern. It goes back to the last * only, so
// that no pattern takes longer than the product of both lengths.
func matches(pattern, name string) bool {
	p, n, star, from := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == name[n] || pattern[p] == '$' || pattern[p] == '?'):
			p, n = p+1, n+1
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// metrics serves GET /metrics of an FE.
func (s *FE) metrics(ctx *fasthttp.RequestCtx) {
	var body bytes.Buffer
	m := s.Directory.Metrics()
	for _, one := range []metric{
		count("headstart_fe_heartbeats_total", serving, "Heartbeats received.", func(*books) int64 { return m.Heartbeats }),
		count("headstart_fe_heartbeats_refused_total", serving, "Heartbeats among them that were refused.", func(*books) int64 { return m.Refused }),
		count("headstart_fe_lookups_total", serving, "Look-ups of holders received.", func(*books) int64 { return m.Lookups }),
		count("headstart_fe_lookup_routes_total", serving, "Tablets that they asked for.", func(*books) int64 { return m.Routes }),
		count("headstart_fe_saves_total", both, "Writes of the FE's state.", func(*books) int64 { return m.Saves }),
		count("headstart_fe_save_failures_total", both, "Writes of the FE's state that failed.", func(*books) int64 { return m.SaveFailures }),
	} {
		one.write(&body, nil)
	}
	metrics.WriteProcessMetrics(&body)
	ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
	ctx.SetBody(body.Bytes())
}
