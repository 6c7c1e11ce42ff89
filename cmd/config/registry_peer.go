package config

func peerKeys() []Key {
	return []Key{
		{Name: "enable_cache_read_from_peer", Kind: Bool, Default: "false",
			Help: "Master switch of the requester: a miss asks the File Cache of other BEs first."},
		{Name: "enable_same_compute_group_peer_read", Kind: Bool, Default: "true",
			Help: "Whether BEs of the own compute group are asked."},
		{Name: "enable_cross_compute_group_peer_read", Kind: Bool, Default: "true",
			Help: "Whether BEs of other compute groups are asked."},
		{Name: "peer_read_allowed_compute_groups", Kind: String, Form: formIDs, check: isIDs,
			Help: "Ids of the compute groups that may be asked; empty allows all."},
		{Name: "enable_external_peer_read", Kind: Bool, Default: "true",
			Help: "Whether objects outside tablets are read from peers too."},
		{Name: "enable_peer_location_preference", Kind: Bool, Default: "true",
			Help: "Whether candidates of the own location come first among equals."},
		{Name: "peer_cross_location_read_bytes_per_second", Kind: Int, Default: "0", Max: maxBytes, Unit: "bytes/s",
			Help: "Bound on what is read from peers of other locations; 0 means no limit."},
		{Name: "enable_peer_s3_race", Kind: Bool, Default: "true",
			Help: "Whether a peer read races object storage; off tries all candidates first, one by one."},
		{Name: "peer_race_hedge_delay_ms", Kind: Int, Default: "20", Max: 60_000, Unit: "ms",
			Help: "Head start of the peer over object storage; 0 starts both at once."},
		{Name: "max_concurrent_peer_races", Kind: Int, Default: "64", Max: maxCount,
			Help: "Races under way at the same time; further misses are read sequentially."},
		{Name: "min_peer_race_s3_thread_num", Kind: Int, Default: "0", Max: 65_536, Unit: "threads", Static: true,
			Help: "Workers that the pool for the object-storage side of races keeps."},
		{Name: "max_peer_race_s3_thread_num", Kind: Int, Default: "32", Min: 1, Max: 65_536, Unit: "threads", Static: true,
			Help: "Workers that this pool may grow to; when all are busy there is no hedge."},
		{Name: "enable_adaptive_peer_race_hedge", Kind: Bool, Default: "true",
			Help: "Whether the head start follows the peer's live latency, below peer_race_hedge_delay_ms."},
		{Name: "peer_race_hedge_budget_percent", Kind: Int, Default: "5", Max: 100, Unit: "%",
			Help: "Bound on extra GETs of the adaptive hedge, in percent of reads."},
		{Name: "peer_read_rpc_timeout_ms", Kind: Int, Default: "1000", Min: 1, Max: 600_000, Unit: "ms",
			Help: "Longest time that one call to a peer may take; a call that carries the fill flag follows peer_server_cache_fill_timeout_ms."},
		{Name: "peer_cache_fill_compute_group_id", Kind: String,
			Help: "Id (not the name) of the compute group that fills its cache for this BE; empty switches fills off."},
		{Name: "warm_up_from_peer", Kind: Bool, Default: "false",
			Help: "Whether the warm-up of a rebalanced tablet copies blocks from its source BE instead of object storage."},
		{Name: "file_cache_warmup_download_rate_limit_bytes_per_second", Kind: Int, Default: "104857600", Min: -1, Max: maxBytes, Unit: "bytes/s",
			Help: "Bound on what warm-ups copy; 0 and -1 set none."},
	}
}

func candidateKeys() []Key {
	return []Key{
		{Name: "peer_rpc_failure_eviction_threshold", Kind: Int, Default: "3", Min: 1, Max: maxCount,
			Help: "RPC failures in a row after which a candidate of a tablet is evicted."},
		{Name: "peer_all_miss_cooldown_threshold", Kind: Int, Default: "5", Min: 1, Max: maxCount,
			Help: "Reads in a row that every candidate missed before a tablet cools down."},
		{Name: "peer_all_miss_cooldown_duration_s", Kind: Int, Default: "300", Max: 30 * day, Unit: "s",
			Help: "How long reads of such a tablet go straight to object storage."},
		{Name: "peer_candidate_expiry_s", Kind: Int, Default: "3600", Min: 1, Max: 30 * day, Unit: "s",
			Help: "A candidate that has not been used for this long is dropped."},
		{Name: "peer_candidate_cleanup_interval_s", Kind: Int, Default: "3600", Min: 1, Max: 30 * day, Unit: "s",
			Help: "How often the job that clears expired candidates runs."},
		{Name: "peer_candidate_refresh_interval_s", Kind: Int, Default: "600", Min: 1, Max: 30 * day, Unit: "s",
			Help: "How often the FE is asked again for the candidates of a tablet that is in use."},
		{Name: "peer_candidate_max_tablets", Kind: Int, Default: "1048576", Min: 1, Max: 1 << 30,
			Help: "Bound on the tablets that candidates are kept for."},
		{Name: "peer_candidate_max_addresses", Kind: Int, Default: "262144", Min: 1, Max: 1 << 30,
			Help: "Bound on the addresses that circuits and latencies are kept for."},
		{Name: "cache_peer_read_failure_threshold", Kind: Int, Default: "3", Min: 1, Max: maxCount, Clamp: true,
			Help: "Failures in a row after which the circuit of an address opens."},
		{Name: "cache_peer_read_circuit_open_seconds", Kind: Int, Default: "30", Max: 30 * day, Unit: "s", Clamp: true,
			Help: "How long an open circuit stops reads to its address before one probe is let through."},
		{Name: "peer_silence_probe_ms", Kind: Int, Default: "1000", Min: 1, Max: 600_000, Unit: "ms",
			Help: "When an address has not answered anything for this long, one losing call to it is left to run to its deadline."},
		{Name: "enable_slow_peer_ejection", Kind: Bool, Default: "true",
			Help: "Whether a peer that loses most of its races is asked less."},
	}
}

func servingKeys() []Key {
	return []Key{
		{Name: "brpc_peer_fetch_pool_threads", Kind: Int, Default: "-1", Min: 1, Max: 65_536, Auto: true, Unit: "threads", Static: true,
			Help: "Workers that serve peer reads; -1 means max(64, 2 x cores)."},
		{Name: "brpc_peer_fetch_pool_max_queue_size", Kind: Int, Default: "-1", Min: 1, Max: 1 << 24, Auto: true, Static: true,
			Help: "Length of their queue; -1 means max(4096, 128 x cores)."},
		{Name: "peer_fetch_queue_timeout_ms", Kind: Int, Default: "100", Min: 1, Max: 600_000, Unit: "ms",
			Help: "A peer read that has waited longer than this in the queue is rejected."},
		{Name: "peer_fetch_queue_policy", Kind: String, Default: "adaptive", Form: "fifo or adaptive", check: isQueuePolicy,
			Help: "Order of the queue: fifo serves the oldest first; adaptive, under overload, the newest, and rejects the others after a tenth of the time."},
		{Name: "peer_serving_max_bytes_per_group", Kind: Int, Default: "0", Max: maxBytes, Unit: "bytes",
			Help: "Bound on what is being sent to the BEs of one compute group, or to all callers of Read, at a time; 0 means no limit."},
		{Name: "peer_read_updates_eviction_order", Kind: Bool, Default: "false",
			Help: "Whether serving a peer counts as a use of the block in this BE's own cache."},
		{Name: "enable_peer_server_cache_fill", Kind: Bool, Default: "true",
			Help: "Whether the BE reads a block that it lacks from object storage for a peer that asks for a fill."},
		{Name: "max_concurrent_peer_server_fills", Kind: Int, Default: "32", Max: maxCount,
			Help: "Fills under way at the same time; further ones are rejected."},
		{Name: "peer_server_cache_fill_quota_percent", Kind: Int, Default: "20", Max: 100, Unit: "%",
			Help: "What fills may take of this BE's File Cache while its own data wants the space; 100 means no quota."},
		{Name: "peer_server_cache_fill_timeout_ms", Kind: Int, Default: "6000", Min: 1, Max: 600_000, Unit: "ms",
			Help: "Longest time that one fill request may take, however many blocks it needs."},
	}
}

// percent describes a watermark of the File Cache.
func percent(name, def, help string) Key {
	return Key{Name: name, Kind: Int, Default: def, Min: 1, Max: 100, Unit: "%", Help: help}
}

func cacheKeys() []Key {
	return []Key{
		{Name: "enable_file_cache", Kind: Bool, Default: "true", Static: true,
			Help: "Whether the BE caches at all; off serves from object storage only."},
		{Name: "file_cache_path", Kind: Paths, Default: `[{"path":"./file_cache","total_size":1073741824}]`, Static: true,
			Help: "Directories of the File Cache, best one a disk, each with its capacity and the shares of its four queues."},
		{Name: "file_cache_each_block_size", Kind: Int, Default: "1048576", Min: 4096, Max: 64 << 20, Unit: "bytes", Static: true,
			Step: 4096, Help: "Size of a block; all nodes of a cluster must agree."},
		{Name: "file_cache_write_queue_bytes", Kind: Int, Default: "134217728", Min: 1 << 20, Max: maxBytes, Unit: "bytes", Static: true,
			Help: "Bound on blocks that wait to be written; beyond it a block is served without being cached."},
		percent("file_cache_enter_disk_resource_limit_mode_percent", "90",
			"Disk use (space or inodes) at which nothing more is cached until it falls."),
		percent("file_cache_exit_disk_resource_limit_mode_percent", "88",
			"Disk use below which caching resumes."),
		{Name: "enable_evict_file_cache_in_advance", Kind: Bool, Default: "true",
			Help: "Whether blocks are evicted in the background before space runs out."},
		percent("file_cache_enter_need_evict_cache_in_advance_percent", "88",
			"Use (of space, inodes or capacity) at which this eviction starts."),
		percent("file_cache_exit_need_evict_cache_in_advance_percent", "85",
			"Use at which it stops."),
		{Name: "file_cache_ttl_seconds", Kind: Int, Default: "86400", Max: 3650 * day, Unit: "s",
			Help: "How long a block stays in the TTL queue before it becomes a NORMAL one; 0 means for good."},
		{Name: "file_cache_scrub_bytes_per_second", Kind: Int, Default: "8388608", Max: maxBytes, Unit: "bytes/s",
			Help: "What is read of each directory to find bytes that have gone bad at rest; 0 switches that off."},
	}
}
