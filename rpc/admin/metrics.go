package admin

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/VictoriaMetrics/metrics"
	"github.com/valyala/fasthttp"
)

// Sample is one metric at one moment. A name without labels that is the
// reference system's is shown by /vars as well.
type Sample struct {
	// Name is in Prometheus form, with labels.
	Name  string
	Gauge bool
	Value int64
}

func counter(name string, v int64) Sample { return Sample{Name: name, Value: v} }
func gauge(name string, v int64) Sample   { return Sample{Name: name, Gauge: true, Value: v} }

// referenceNames are the reference system's own names, requesting side first.
func (s *BE) referenceNames() []Sample {
	m, v := s.Engine.Metrics(), s.Serving.Metrics()
	return []Sample{
		counter("cached_remote_reader_peer_read", m.PeerReads),
		counter("cached_remote_reader_s3_read", m.StoreReads),
		counter("peer_race_peer_win", m.RacePeerWin),
		counter("peer_race_s3_win", m.RaceStoreWin),
		counter("peer_race_both_fail", m.RaceBothFail),
		counter("peer_same_compute_group_read", m.SameGroupReads),
		counter("peer_cross_compute_group_read", m.CrossGroupReads),
		counter("peer_lazy_fetch_triggered", m.LazyFetches),
		counter("file_cache_get_by_peer_num", v.Requests),
		counter("file_cache_get_by_peer_success_num", v.Success),
		counter("file_cache_get_by_peer_failed_num", v.Failed),
		counter("file_cache_get_by_peer_queue_timeout_num", v.QueueTimeout),
		counter("peer_server_fill_requested", v.FillRequested),
		counter("peer_server_fill_success", v.FillSuccess),
		counter("peer_server_fill_timeout", v.FillTimeout),
		counter("peer_server_fill_rejected", v.FillRejected),
	}
}

// ownNames are Headstart's own, in base units and with bounded labels.
func (s *BE) ownNames() []Sample {
	m := s.Engine.Metrics()
	b, c := s.Buffers.Metrics(), s.Cache.Metrics()
	list := []Sample{
		counter(`headstart_reads_total`, m.Reads),
		counter(`headstart_read_errors_total`, m.ReadErrors),
		counter(`headstart_read_blocks_total{source="local"}`, m.LocalBlocks),
		counter(`headstart_read_blocks_total{source="peer"}`, m.PeerBlocks),
		counter(`headstart_read_blocks_total{source="s3"}`, m.StoreBlocks),
		counter(`headstart_read_blocks_joined_total`, m.JoinedBlocks),
		counter(`headstart_read_bytes_total{source="local"}`, m.LocalBytes),
		counter(`headstart_read_bytes_total{source="peer"}`, m.PeerBytes),
		counter(`headstart_read_bytes_total{source="s3"}`, m.StoreBytes),
		counter(`headstart_race_wasted_bytes_total`, m.WastedBytes),
		counter(`headstart_race_hedges_total`, m.Hedges),
		counter(`headstart_race_hedges_refused_total`, m.HedgeNoSlot),
		counter(`headstart_race_abandoned_total`, m.RaceAbandoned),
		counter(`headstart_race_sequential_total`, m.RaceSequential),
		counter(`headstart_directory_lookups_total`, m.Lookups),
		counter(`headstart_directory_lookup_failures_total`, m.LookupFailures),
		counter(`headstart_peer_corrupt_total`, m.PeerCorrupt),
		counter(`headstart_fetch_panics_total`, m.Panics),
		counter(`headstart_object_changed_total`, m.Changed),
		counter(`headstart_object_stale_meta_used_total`, m.StaleMetaUsed),
		gauge(`headstart_objects_known`, m.ObjectsKnown),
		gauge(`headstart_flights{kind="race"}`, m.FlightsRacing),
		gauge(`headstart_flights{kind="get"}`, m.FlightsGetting),
		gauge(`headstart_buffer_bytes`, b.LentBytes),
		counter(`headstart_cache_refused_total`, int64(c.Refused)),
		counter(`headstart_cache_evicted_total`, int64(c.Evicted)),
		counter(`headstart_cache_corrupt_total`, int64(c.Corrupt)),
		counter(`headstart_cache_disk_errors_total{op="read"}`, int64(c.ReadErrors)),
		counter(`headstart_cache_disk_errors_total{op="write"}`, int64(c.WriteErrors)),
		gauge(`headstart_cache_blocks`, int64(c.Blocks)),
		gauge(`headstart_cache_allocated_bytes`, c.AllocatedBytes),
		gauge(`headstart_cache_capacity_bytes`, c.CapacityBytes),
	}
	if s.Wire != nil {
		list = append(list, s.Wire()...)
	}
	return list
}

// metrics serves GET /metrics in Prometheus form.
func (s *BE) metrics(ctx *fasthttp.RequestCtx) {
	var body bytes.Buffer
	writePrometheus(&body, s.referenceNames())
	writePrometheus(&body, s.ownNames())
	metrics.WriteProcessMetrics(&body)
	ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
	ctx.SetBody(body.Bytes())
}

func writePrometheus(w io.Writer, samples []Sample) {
	for _, m := range samples {
		if m.Gauge {
			metrics.WriteGaugeUint64(w, m.Name, uint64(max(m.Value, 0)))
		} else {
			metrics.WriteCounterUint64(w, m.Name, uint64(max(m.Value, 0)))
		}
	}
}

// vars serves GET /vars and GET /vars/NAME, where NAME may hold wildcards, in
// bvar form: name : value.
func (s *BE) vars(ctx *fasthttp.RequestCtx) {
	pattern := strings.TrimPrefix(strings.TrimPrefix(string(ctx.Path()), "/vars"), "/")
	text, ok := s.Vars(pattern)
	if !ok {
		fail(ctx, fasthttp.StatusNotFound, "not_found", "no variable is named "+quote(pattern))
		return
	}
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.SetBodyString(text)
}

// Vars returns the lines of /vars whose names match pattern, all for "". It
// reports false when nothing matches.
func (s *BE) Vars(pattern string) (string, bool) {
	var text strings.Builder
	for _, m := range s.referenceNames() {
		if ok, err := path.Match(pattern, m.Name); pattern == "" || (err == nil && ok) {
			fmt.Fprintf(&text, "%s : %d\n", m.Name, m.Value)
		}
	}
	return text.String(), text.Len() > 0
}

// metrics serves GET /metrics of an FE.
func (s *FE) metrics(ctx *fasthttp.RequestCtx) {
	var body bytes.Buffer
	m := s.Directory.Metrics()
	writePrometheus(&body, []Sample{
		counter(`headstart_fe_heartbeats_total`, m.Heartbeats),
		counter(`headstart_fe_lookups_total`, m.Lookups),
	})
	metrics.WriteProcessMetrics(&body)
	ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
	ctx.SetBody(body.Bytes())
}
