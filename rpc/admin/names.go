package admin

import (
	"strconv"
	"time"

	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/fill"
	"headstart/engine/profile"
	"headstart/engine/timeline"
	"headstart/pools"
	"headstart/shards"
)

// kind is how a metric is written.
type kind uint8

const (
	counter kind = iota
	gauge
	// seconds is a counter of nanoseconds that is shown in seconds.
	seconds
	// recorder is a latency recorder as the reference system has them: a family
	// of names, in microseconds.
	recorder
	// summary is the same in seconds, for Prometheus.
	summary
)

// side says whose work a metric counts (OB-08): all of them are about one node.
type side uint8

const (
	requesting side = iota
	serving
	both
)

func (s side) String() string {
	return [...]string{"requesting side", "serving side", "whole node"}[s]
}

// metric is one line of the one table of names.
type metric struct {
	// name is in Prometheus form, with labels.
	name string
	kind kind
	side side
	// help is one sentence; "" for further labels of the name above.
	help string
	// value is nil for latencies, and the other way round.
	value     func(*books) int64
	latencies func(*books) profile.Latencies
}

func count(name string, s side, help string, v func(*books) int64) metric {
	return metric{name: name, kind: counter, side: s, help: help, value: v}
}

func level(name string, s side, help string, v func(*books) int64) metric {
	return metric{name: name, kind: gauge, side: s, help: help, value: v}
}

func duration(name string, s side, help string, v func(*books) int64) metric {
	return metric{name: name, kind: seconds, side: s, help: help, value: v}
}

func latency(name string, k kind, s side, help string, v func(*books) profile.Latencies) metric {
	return metric{name: name, kind: k, side: s, help: help, latencies: v}
}

// books is what the parts of a node have counted, taken once for one answer.
type books struct {
	engine   engine.Metrics
	serving  fill.Metrics
	cache    blockcache.Metrics
	buffers  pools.BuffersMetrics
	queue    pools.QueueMetrics
	races    pools.TokensMetrics
	raceGets pools.TokensMetrics
	fills    pools.SharesMetrics
	table    shards.Metrics
	breakers shards.BreakerMetrics
	profiles int
	reads    timeline.Metrics
	wire     Wire
}

func (s *BE) books() *books {
	b := &books{
		engine: s.Engine.Metrics(), serving: s.Serving.Metrics(), cache: s.Cache.Metrics(),
		buffers: s.Buffers.Metrics(), queue: s.Serving.Queue.Metrics(), fills: s.Serving.Fills.Metrics(),
		table: s.Table.Metrics(), breakers: s.Breakers.Metrics(), profiles: s.Profiles.Len(), reads: s.Timelines.Metrics(), wire: s.Wire(),
	}
	if s.Engine.Races != nil {
		b.races, b.raceGets = s.Engine.Races.Metrics(), s.Engine.RaceGets.Metrics()
	}
	return b
}

// Wire is what the network side of a node has counted: parts that this package
// must not import.
type Wire struct {
	// Object storage.
	S3Gets, S3Heads, S3Retries, S3Bytes, S3Discarded int64
	S3InFlight, S3Waiting                            int64
	S3Waited                                         time.Duration
	S3Dials, S3Aborted                               int64
	// S3Errors counts failed attempts by reason.
	S3Errors []Reason
	// Calls to peers.
	PeerCalls, PeerCancels, PeerCuts, PeerBytes, PeerWasted int64
	PeerConns, PeerDials, PeerDialErrors                    int64
	// Calls of peers.
	ServerConns, ServerCalls, ServerRefused     int64
	ServerCancels, ServerBadFrames, ServerBytes int64
	// Calls to FEs.
	DirectoryCalls, DirectoryFailures int64
	// Requests at the S3 front.
	FrontRequests, FrontErrors, FrontDenied, FrontPassed, FrontChanged int64
	FrontAbandoned, FrontCut, FrontBytes, FrontStreams, FrontShort     int64
	FrontLocal, FrontPeer, FrontStore                                  int64
	// S3Forwards went on to object storage for S3 clients.
	S3Forwards int64
	// Warm-up.
	WarmBatches, WarmFailed, WarmQueued, WarmRunning               int64
	WarmPeerBlocks, WarmPeerBytes, WarmStoreBlocks, WarmStoreBytes int64
}

// Reason is a count of one reason; there is a fixed set of them.
type Reason struct {
	Name  string
	Count int64
}

// referenceMetrics are the reference system's own names: /vars shows these.
func referenceMetrics() []metric {
	return []metric{
		count("cached_remote_reader_peer_read", requesting, "Calls to peers issued.", func(b *books) int64 { return b.engine.PeerReads }),
		count("cached_remote_reader_s3_read", requesting, "Reads of object storage issued.", func(b *books) int64 { return b.engine.StoreReads }),
		count("peer_race_peer_win", requesting, "Races won by the peer, answers within the head start included.", func(b *books) int64 { return b.engine.RacePeerWin }),
		count("peer_race_s3_win", requesting, "Races won by object storage.", func(b *books) int64 { return b.engine.RaceStoreWin }),
		count("peer_race_both_fail", requesting, "Races that neither side has won.", func(b *books) int64 { return b.engine.RaceBothFail }),
		count("peer_same_compute_group_read", requesting, "Calls to peers of the own compute group that brought data.", func(b *books) int64 { return b.engine.SameGroupReads }),
		count("peer_cross_compute_group_read", requesting, "Calls to peers of other compute groups that brought data.", func(b *books) int64 { return b.engine.CrossGroupReads }),
		count("peer_lazy_fetch_triggered", requesting, "Reads that found no candidates and had the FE asked behind them.", func(b *books) int64 { return b.engine.LazyFetches }),
		latency("peer_cache_reader_peer", recorder, requesting, "Latency of calls to peers that were answered, over the last 10 seconds.", func(b *books) profile.Latencies { return b.engine.PeerLatency }),
		count("file_cache_get_by_peer_num", serving, "Peer reads received.", func(b *books) int64 { return b.serving.Requests }),
		count("file_cache_get_by_peer_success_num", serving, "Peer reads that were answered with data.", func(b *books) int64 { return b.serving.Success }),
		count("file_cache_get_by_peer_failed_num", serving, "Peer reads that did not return the data, whatever the reason.", func(b *books) int64 { return b.serving.Failed }),
		count("file_cache_get_by_peer_queue_timeout_num", serving, "Peer reads rejected because they waited longer than peer_fetch_queue_timeout_ms.", func(b *books) int64 { return b.serving.QueueTimeout }),
		count("peer_server_fill_requested", serving, "Fills requested.", func(b *books) int64 { return b.serving.FillRequested }),
		count("peer_server_fill_success", serving, "Fills completed.", func(b *books) int64 { return b.serving.FillSuccess }),
		count("peer_server_fill_timeout", serving, "Fills that took longer than peer_server_cache_fill_timeout_ms.", func(b *books) int64 { return b.serving.FillTimeout }),
		count("peer_server_fill_rejected", serving, "Fills rejected because max_concurrent_peer_server_fills were running.", func(b *books) int64 { return b.serving.FillRejected }),
	}
}

// ownMetrics are Headstart's own, in base units and with bounded labels.
func ownMetrics() []metric {
	var all []metric
	for _, part := range [][]metric{readMetrics(), raceMetrics(), peerMetrics(), servingMetrics(), cacheMetrics(), storeMetrics(), frontMetrics(), warmUpMetrics()} {
		all = append(all, part...)
	}
	return all
}

func readMetrics() []metric {
	const blocks = "Blocks handed to readers, by where they came from."
	const bytes = "Bytes: handed out of the own cache, or received from peers and object storage."
	return []metric{
		count(`headstart_reads_total`, requesting, "Reads.", func(b *books) int64 { return b.engine.Reads }),
		count(`headstart_read_errors_total`, requesting, "Reads that failed.", func(b *books) int64 { return b.engine.ReadErrors }),
		count(`headstart_read_blocks_total{source="local"}`, requesting, blocks, func(b *books) int64 { return b.engine.LocalBlocks }),
		count(`headstart_read_blocks_total{source="peer"}`, requesting, "", func(b *books) int64 { return b.engine.PeerBlocks }),
		count(`headstart_read_blocks_total{source="s3"}`, requesting, "", func(b *books) int64 { return b.engine.StoreBlocks }),
		count(`headstart_read_blocks_joined_total`, requesting, "Blocks among them that shared the fetch of another reader.", func(b *books) int64 { return b.engine.JoinedBlocks }),
		count(`headstart_read_bytes_total{source="local"}`, requesting, bytes, func(b *books) int64 { return b.engine.LocalBytes }),
		count(`headstart_read_bytes_total{source="peer"}`, requesting, "", func(b *books) int64 { return b.engine.PeerBytes }),
		count(`headstart_read_bytes_total{source="s3"}`, requesting, "", func(b *books) int64 { return b.engine.StoreBytes }),
		count(`headstart_fetch_panics_total`, requesting, "Fetches that panicked; a waiting reader has taken each of them over.", func(b *books) int64 { return b.engine.Panics }),
		count(`headstart_object_changed_total`, requesting, "Reads that met another version of their object.", func(b *books) int64 { return b.engine.Changed }),
		count(`headstart_object_stale_meta_used_total`, requesting, "Reads that went on with what was known of an object because object storage did not answer.", func(b *books) int64 { return b.engine.StaleMetaUsed }),
		level(`headstart_objects_known`, both, "Objects whose size and version are known.", func(b *books) int64 { return b.engine.ObjectsKnown }),
		level(`headstart_flights{kind="race"}`, requesting, "Blocks being fetched: by races, or by GETs.", func(b *books) int64 { return b.engine.FlightsRacing }),
		level(`headstart_flights{kind="get"}`, both, "", func(b *books) int64 { return b.engine.FlightsGetting }),
		count(`headstart_reads_kept_total{why="slow"}`, requesting, "Reads whose timelines were kept for /api/slow_reads.", func(b *books) int64 { return b.reads.Slow }),
		count(`headstart_reads_kept_total{why="sample"}`, requesting, "", func(b *books) int64 { return b.reads.Samples }),
		level(`headstart_query_profiles`, requesting, "Query profiles kept.", func(b *books) int64 { return int64(b.profiles) }),
		level(`headstart_buffer_bytes`, both, "Memory lent to blocks on their way.", func(b *books) int64 { return b.buffers.LentBytes }),
		level(`headstart_buffer_kept_bytes`, both, "Memory that waits to be lent again.", func(b *books) int64 { return b.buffers.KeptBytes }),
		level(`headstart_buffer_budget_bytes`, both, "Bound on both together (buffer_budget_bytes).", func(b *books) int64 { return b.buffers.BudgetBytes }),
		count(`headstart_buffer_refused_total`, both, "Requests for memory that met the bound.", func(b *books) int64 { return int64(b.buffers.Refused) }),
	}
}

func raceMetrics() []metric {
	return []metric{
		count(`headstart_race_hedges_total`, requesting, "Reads of object storage started beside a running peer read.", func(b *books) int64 { return b.engine.Hedges }),
		count(`headstart_race_hedges_refused_total{reason="slots"}`, requesting, "Hedges that were due and not sent: max_peer_race_s3_thread_num were in use, or the budget was spent.", func(b *books) int64 { return b.engine.HedgeNoSlot }),
		count(`headstart_race_hedges_refused_total{reason="budget"}`, requesting, "", func(b *books) int64 { return b.engine.HedgeNoBudget }),
		count(`headstart_late_gets_total`, requesting, "Reads of object storage that were late and asked peers beside it.", func(b *books) int64 { return b.engine.LateGETs }),
		count(`headstart_race_wasted_bytes_total`, requesting, "Bytes that came from the wire and were not needed.", func(b *books) int64 { return b.engine.WastedBytes }),
		count(`headstart_race_abandoned_total`, requesting, "Races that their readers gave up.", func(b *books) int64 { return b.engine.RaceAbandoned }),
		count(`headstart_race_sequential_total`, requesting, "Fetches with candidates that did not race (enable_peer_s3_race, max_concurrent_peer_races).", func(b *books) int64 { return b.engine.RaceSequential }),
		level(`headstart_races`, requesting, "Races under way.", func(b *books) int64 { return int64(b.races.InUse) }),
		level(`headstart_race_gets`, requesting, "Reads of object storage beside a race under way.", func(b *books) int64 { return int64(b.raceGets.InUse) }),
	}
}

func peerMetrics() []metric {
	const states = "Addresses whose circuit is open, or lets one probe through."
	return []metric{
		latency(`headstart_peer_call_seconds`, summary, requesting, "Latency of calls to peers that were answered; quantiles over the last 10 seconds.", func(b *books) profile.Latencies { return b.engine.PeerLatency }),
		count(`headstart_peer_corrupt_total`, requesting, "Replies of peers whose bytes did not match their checksum.", func(b *books) int64 { return b.engine.PeerCorrupt }),
		count(`headstart_peer_fill_group_unmatched_total`, requesting, "Peer reads for which peer_cache_fill_compute_group_id matched no candidate.", func(b *books) int64 { return b.engine.FillGroupUnmatched }),
		level(`headstart_peer_tablets`, requesting, "Tablets that candidates are kept for.", func(b *books) int64 { return b.table.Tablets }),
		count(`headstart_peer_tablets_dropped_total`, requesting, "Tablets whose candidates found no room (peer_candidate_max_tablets).", func(b *books) int64 { return b.table.Dropped }),
		count(`headstart_peer_candidates_evicted_total`, requesting, "Candidates evicted after RPC failures in a row.", func(b *books) int64 { return b.table.Evicted }),
		count(`headstart_peer_candidates_expired_total`, requesting, "Candidates dropped because nobody used them.", func(b *books) int64 { return b.table.Expired }),
		count(`headstart_peer_cooldowns_total`, requesting, "Cooldowns that tablets have entered.", func(b *books) int64 { return b.table.Cooldowns }),
		level(`headstart_peer_addresses`, requesting, "Addresses that circuits and latencies are kept for.", func(b *books) int64 { return b.breakers.Addresses }),
		level(`headstart_peer_circuits{state="open"}`, requesting, states, func(b *books) int64 { return b.breakers.Open }),
		level(`headstart_peer_circuits{state="half_open"}`, requesting, "", func(b *books) int64 { return b.breakers.HalfOpen }),
		count(`headstart_peer_circuits_opened_total`, requesting, "Circuits that have opened.", func(b *books) int64 { return b.breakers.Opened }),
		count(`headstart_peer_ejected_total`, requesting, "Slow peers that have been ejected.", func(b *books) int64 { return b.breakers.Ejected }),
		level(`headstart_peer_connections`, requesting, "Connections to peers.", func(b *books) int64 { return b.wire.PeerConns }),
		count(`headstart_peer_dials_total`, requesting, "Connections to peers made or tried.", func(b *books) int64 { return b.wire.PeerDials }),
		count(`headstart_peer_dial_errors_total`, requesting, "Connections to peers that failed.", func(b *books) int64 { return b.wire.PeerDialErrors }),
		count(`headstart_peer_calls_total`, requesting, "Calls to peers sent.", func(b *books) int64 { return b.wire.PeerCalls }),
		count(`headstart_peer_received_bytes_total`, requesting, "Bytes of blocks received from peers.", func(b *books) int64 { return b.wire.PeerBytes }),
		count(`headstart_peer_cross_location_bytes_total`, requesting, "Bytes of blocks that peers of another location have brought.", func(b *books) int64 { return b.engine.FarBytes }),
		count(`headstart_peer_wasted_bytes_total`, requesting, "Bytes among them that nobody wanted any more when they came.", func(b *books) int64 { return b.wire.PeerWasted }),
		count(`headstart_peer_cancels_total`, requesting, "Calls to peers that were cancelled.", func(b *books) int64 { return b.wire.PeerCancels }),
		count(`headstart_peer_cuts_total`, requesting, "Connections closed because a cancelled call was not answered.", func(b *books) int64 { return b.wire.PeerCuts }),
		count(`headstart_directory_lookups_total`, requesting, "Look-ups of candidates at the FE.", func(b *books) int64 { return b.engine.Lookups }),
		count(`headstart_directory_lookup_failures_total`, requesting, "Look-ups that no FE has answered.", func(b *books) int64 { return b.engine.LookupFailures }),
		count(`headstart_directory_lookups_empty_total`, requesting, "Look-ups that brought no usable candidate.", func(b *books) int64 { return b.table.LookupsEmpty }),
		count(`headstart_directory_calls_total`, both, "Calls to FEs, heartbeats included.", func(b *books) int64 { return b.wire.DirectoryCalls }),
		count(`headstart_directory_call_failures_total`, both, "Calls to FEs that failed.", func(b *books) int64 { return b.wire.DirectoryFailures }),
	}
}

func servingMetrics() []metric {
	const shed = "Peer reads refused without work, by reason."
	return []metric{
		level(`headstart_peer_queue_running`, serving, "Peer reads being served.", func(b *books) int64 { return int64(b.queue.Running) }),
		level(`headstart_peer_queue_depth`, serving, "Peer reads that wait for a worker.", func(b *books) int64 { return int64(b.queue.Depth) }),
		count(`headstart_peer_queue_delayed_total`, serving, "Peer reads that had to wait.", func(b *books) int64 { return int64(b.queue.Delayed) }),
		duration(`headstart_peer_queue_wait_seconds_total`, serving, "How long they waited, all together.", func(b *books) int64 { return int64(b.queue.Waited) }),
		level(`headstart_peer_queue_most_late_milliseconds`, serving, "How long a peer read was kept at most that should have been refused: what the machine made of a time-out.", func(b *books) int64 { return b.queue.MostLate.Milliseconds() }),
		count(`headstart_peer_queue_shed_total{reason="queue_timeout"}`, serving, shed, func(b *books) int64 { return int64(b.queue.Timeouts) }),
		count(`headstart_peer_queue_shed_total{reason="queue_full"}`, serving, "", func(b *books) int64 { return int64(b.queue.Full) }),
		count(`headstart_peer_queue_shed_total{reason="cancelled"}`, serving, "", func(b *books) int64 { return int64(b.queue.Cancelled) }),
		count(`headstart_peer_queue_shed_total{reason="closed"}`, serving, "", func(b *books) int64 { return int64(b.queue.Closed) }),
		level(`headstart_peer_fills`, serving, "Fills under way.", func(b *books) int64 { return int64(b.fills.InUse) }),
		count(`headstart_peer_fill_failures_total`, serving, "Fills that met an error of object storage.", func(b *books) int64 { return b.serving.FillFailed }),
		count(`headstart_peer_shared_blocks_total`, serving, "Blocks served from reads of object storage that were under way for somebody else.", func(b *books) int64 { return b.serving.Shared }),
		count(`headstart_peer_fill_panics_total`, serving, "Fills that panicked.", func(b *books) int64 { return b.serving.Panics }),
		level(`headstart_peer_server_connections`, serving, "Connections of other nodes.", func(b *books) int64 { return b.wire.ServerConns }),
		count(`headstart_peer_server_calls_total`, serving, "Calls of other nodes, of all methods.", func(b *books) int64 { return b.wire.ServerCalls }),
		count(`headstart_peer_server_refused_total`, serving, "Calls of strangers: another cluster, another protocol, no proof of the token.", func(b *books) int64 { return b.wire.ServerRefused }),
		count(`headstart_peer_server_cancels_total`, serving, "Calls that their callers have cancelled.", func(b *books) int64 { return b.wire.ServerCancels }),
		count(`headstart_peer_server_bad_frames_total`, serving, "Connections closed because what came was no call.", func(b *books) int64 { return b.wire.ServerBadFrames }),
		count(`headstart_peer_server_bytes_total`, serving, "Bytes of blocks sent to other nodes.", func(b *books) int64 { return b.wire.ServerBytes }),
	}
}

func storeMetrics() []metric {
	return []metric{
		latency(`headstart_s3_first_block_seconds`, summary, both, "Time until a GET has brought its first block; quantiles over the last 10 seconds.", func(b *books) profile.Latencies { return b.engine.StoreLatency }),
		count(`headstart_s3_gets_total`, both, "GETs sent to object storage.", func(b *books) int64 { return b.wire.S3Gets }),
		count(`headstart_s3_heads_total`, both, "HEADs sent to object storage.", func(b *books) int64 { return b.wire.S3Heads }),
		count(`headstart_s3_retries_total`, both, "Requests among them that followed a failed one.", func(b *books) int64 { return b.wire.S3Retries }),
		count(`headstart_s3_bytes_total`, both, "Bytes of blocks received from object storage.", func(b *books) int64 { return b.wire.S3Bytes }),
		count(`headstart_s3_discarded_bytes_total`, both, "Bytes received from object storage in vain.", func(b *books) int64 { return b.wire.S3Discarded }),
		level(`headstart_s3_in_flight`, both, "Requests to object storage under way.", func(b *books) int64 { return b.wire.S3InFlight }),
		level(`headstart_s3_waiting`, both, "Requests that wait for their turn (max_concurrent_s3_gets).", func(b *books) int64 { return b.wire.S3Waiting }),
		duration(`headstart_s3_wait_seconds_total`, both, "How long requests have waited for their turn, all together.", func(b *books) int64 { return int64(b.wire.S3Waited) }),
		count(`headstart_s3_dials_total`, both, "Connections to object storage opened.", func(b *books) int64 { return b.wire.S3Dials }),
		count(`headstart_s3_aborted_total`, both, "Replies given up at the price of their connection.", func(b *books) int64 { return b.wire.S3Aborted }),
	}
}

func frontMetrics() []metric {
	const answers = "Answers with bytes of objects, by where the first of them came from."
	return []metric{
		count(`headstart_s3_front_requests_total`, both, "Requests of S3 clients.", func(b *books) int64 { return b.wire.FrontRequests }),
		count(`headstart_s3_front_errors_total`, both, "Those answered with an error of the front's own.", func(b *books) int64 { return b.wire.FrontErrors }),
		count(`headstart_s3_front_denied_total`, both, "Those refused because of who asked.", func(b *books) int64 { return b.wire.FrontDenied }),
		count(`headstart_s3_front_passed_total`, both, "Those passed on to object storage.", func(b *books) int64 { return b.wire.FrontPassed }),
		count(`headstart_s3_front_changed_total`, both, "Objects that they have changed.", func(b *books) int64 { return b.wire.FrontChanged }),
		count(`headstart_s3_front_abandoned_total`, both, "Reads whose client left before the first byte.", func(b *books) int64 { return b.wire.FrontAbandoned }),
		count(`headstart_s3_front_cut_total`, both, "Answers that ended before their last byte.", func(b *books) int64 { return b.wire.FrontCut }),
		count(`headstart_s3_front_bytes_total`, both, "Bytes of objects sent to S3 clients.", func(b *books) int64 { return b.wire.FrontBytes }),
		level(`headstart_s3_front_streams`, both, "Answers under way.", func(b *books) int64 { return b.wire.FrontStreams }),
		count(`headstart_s3_front_short_answers_total`, both, "Answers given where their request was read: of one resident block.", func(b *books) int64 { return b.wire.FrontShort }),
		count(`headstart_s3_front_answers_total{source="local"}`, both, answers, func(b *books) int64 { return b.wire.FrontLocal }),
		count(`headstart_s3_front_answers_total{source="peer"}`, both, "", func(b *books) int64 { return b.wire.FrontPeer }),
		count(`headstart_s3_front_answers_total{source="s3"}`, both, "", func(b *books) int64 { return b.wire.FrontStore }),
		count(`headstart_s3_forwards_total`, both, "Requests sent to object storage for S3 clients.", func(b *books) int64 { return b.wire.S3Forwards }),
	}
}

func warmUpMetrics() []metric {
	const blocks, bytes = "Blocks copied by warm-up, by where they came from.", "Bytes of them."
	return []metric{
		count(`headstart_warm_up_batches_total`, both, "Batches of warm-up that have ended.", func(b *books) int64 { return b.wire.WarmBatches }),
		count(`headstart_warm_up_batches_failed_total`, both, "Those that were not copied whole.", func(b *books) int64 { return b.wire.WarmFailed }),
		level(`headstart_warm_up_batches_queued`, both, "Batches that wait for their turn.", func(b *books) int64 { return b.wire.WarmQueued }),
		level(`headstart_warm_up_batches_running`, both, "Batches that are being copied.", func(b *books) int64 { return b.wire.WarmRunning }),
		count(`headstart_warm_up_blocks_total{source="peer"}`, both, blocks, func(b *books) int64 { return b.wire.WarmPeerBlocks }),
		count(`headstart_warm_up_blocks_total{source="s3"}`, both, "", func(b *books) int64 { return b.wire.WarmStoreBlocks }),
		count(`headstart_warm_up_bytes_total{source="peer"}`, both, bytes, func(b *books) int64 { return b.wire.WarmPeerBytes }),
		count(`headstart_warm_up_bytes_total{source="s3"}`, both, "", func(b *books) int64 { return b.wire.WarmStoreBytes }),
	}
}

func cacheMetrics() []metric {
	list := []metric{
		count(`headstart_cache_hits_total`, both, "Looks into the own File Cache that found their block.", func(b *books) int64 { return int64(b.cache.Hits) }),
		count(`headstart_cache_misses_total`, both, "Those that did not.", func(b *books) int64 { return int64(b.cache.Misses) }),
		count(`headstart_cache_refused_total`, both, "Blocks that the cache did not take.", func(b *books) int64 { return int64(b.cache.Refused) }),
		count(`headstart_cache_evicted_total`, both, "Blocks that made room.", func(b *books) int64 { return int64(b.cache.Evicted) }),
		count(`headstart_cache_corrupt_total`, both, "Blocks dropped because their bytes did not match their checksum.", func(b *books) int64 { return int64(b.cache.Corrupt) }),
		count(`headstart_cache_disk_errors_total{op="read"}`, both, "Errors of the cache's disks.", func(b *books) int64 { return int64(b.cache.ReadErrors) }),
		count(`headstart_cache_disk_errors_total{op="write"}`, both, "", func(b *books) int64 { return int64(b.cache.WriteErrors) }),
		count(`headstart_cache_disk_full_total`, both, "Writes that found the disk full.", func(b *books) int64 { return int64(b.cache.DiskFull) }),
		level(`headstart_cache_directories_down`, both, "Directories out of use because of their disk.", func(b *books) int64 { return int64(b.cache.Down) }),
		level(`headstart_cache_directories_limited`, both, "Directories that take nothing because their disk is full.", func(b *books) int64 { return int64(b.cache.Limited) }),
		count(`headstart_cache_scrubbed_bytes_total`, both, "Bytes at rest that were read again and found right.", func(b *books) int64 { return int64(b.cache.ScrubbedBytes) }),
		level(`headstart_cache_fill_bytes`, both, "Disk in use by blocks that were brought for other nodes.", func(b *books) int64 { return b.cache.FillBytes }),
		level(`headstart_cache_blocks`, both, "Blocks cached.", func(b *books) int64 { return int64(b.cache.Blocks) }),
		level(`headstart_cache_pending_bytes`, both, "Bytes of blocks that are not on disk yet.", func(b *books) int64 { return b.cache.PendingBytes }),
		level(`headstart_cache_allocated_bytes`, both, "Disk in use, metadata included.", func(b *books) int64 { return b.cache.AllocatedBytes }),
		level(`headstart_cache_capacity_bytes`, both, "Bound on it (total_size of file_cache_path).", func(b *books) int64 { return b.cache.CapacityBytes }),
	}
	names := [...]string{block.QueueNormal: "normal", block.QueueTTL: "ttl", block.QueueIndex: "index", block.QueueDisposable: "disposable"}
	help := "Blocks of each queue."
	for i, name := range names {
		list = append(list, level(`headstart_cache_queue_blocks{queue=`+strconv.Quote(name)+`}`, both, help, func(b *books) int64 { return int64(b.cache.QueueBlocks[i]) }))
		help = ""
	}
	help = "Disk in use by each queue."
	for i, name := range names {
		list = append(list, level(`headstart_cache_queue_bytes{queue=`+strconv.Quote(name)+`}`, both, help, func(b *books) int64 { return b.cache.QueueBytes[i] }))
		help = ""
	}
	return list
}
