package config

// Limits that several keys share.
const (
	maxPort  = 65535
	hour     = 3600
	day      = 24 * hour
	maxCount = 1 << 20
	maxBytes = 1 << 50
)

// port describes a port of the node itself: 0 lets the system choose one.
func port(name, def string, role Role, help string) Key {
	return Key{Name: name, Kind: Int, Role: role, Default: def, Max: maxPort, Unit: "port", Static: true, Help: help}
}

// shownPort describes a port that Headstart itself does not open.
func shownPort(name, def, help string) Key {
	return Key{Name: name, Kind: Int, Default: def, Min: -1, Max: maxPort, Unit: "port", Static: true, Help: help}
}

func nodeKeys() []Key {
	return []Key{
		{Name: "host", Kind: String, Role: Both, Default: "127.0.0.1", Static: true, Form: formReachable, check: isReachableHost,
			Help: "Address that other nodes and clients reach this node at."},
		{Name: "listen_host", Kind: String, Role: Both, Static: true, Form: formListen, check: isListenHost,
			Help: "Address that the node's ports are bound to; empty means the same as host, 0.0.0.0 every interface."},
		port("webserver_port", "8040", BE, "HTTP port of a BE: /read, /api, /metrics, health, pprof and the console."),
		port("brpc_port", "8060", BE, "Port that BEs speak to each other on; it answers GET /vars as well."),
		{Name: "s3_port", Kind: Int, Default: "8050", Min: -1, Max: maxPort, Unit: "port", Static: true,
			Help: "Port of the S3 front; -1 switches it off."},
		shownPort("be_port", "9060", "Shown as BePort in SHOW BACKENDS; not opened."),
		shownPort("heartbeat_service_port", "9050", "Shown as HeartbeatPort in SHOW BACKENDS; not opened."),
		shownPort("arrow_flight_sql_port", "-1", "Shown as ArrowFlightSqlPort in SHOW BACKENDS; not opened."),
		{Name: "fe_endpoints", Kind: String, Static: true, Form: formEndpoints, check: isEndpoints,
			Help: "Addresses (host:rpc_port) of the FEs, any of which may answer; empty runs the BE without an FE."},
		{Name: "compute_group_id", Kind: String, Default: "default", Static: true, Form: formID, check: isID,
			Help: "Id of the compute group that the BE belongs to."},
		{Name: "compute_group_name", Kind: String, Default: "default", Static: true,
			Help: "Name of that compute group, for people only."},
		{Name: "cloud_unique_id", Kind: String, Static: true,
			Help: "Shown in the Tag of SHOW BACKENDS."},
		{Name: "location", Kind: String, Default: "default", Static: true, Form: formID, check: isID,
			Help: "Availability zone, rack or the like; peers of the same location are preferred."},
		{Name: "cluster_id", Kind: String, Role: Both, Static: true,
			Help: "Id of the cluster: an FE makes one at its first start when empty, a BE takes its FE's over when empty."},
		{Name: "heartbeat_interval_ms", Kind: Int, Role: Both, Default: "3000", Min: 10, Max: hour * 1000, Unit: "ms",
			Help: "How often a BE reports to the FE; once an FE has answered, the FE's value holds."},
		{Name: "drain_timeout_ms", Kind: Int, Role: Both, Default: "20000", Max: hour * 1000, Unit: "ms",
			Help: "How long a node that was told to stop waits for the requests under way."},
		{Name: "log_level", Kind: String, Role: Both, Default: "info", Form: "debug, info, warn or error", check: isLogLevel,
			Help: "Least severe level that is logged."},
		{Name: "slow_read_threshold_ms", Kind: Int, Default: "500", Min: -1, Max: hour * 1000, Unit: "ms",
			Help: "A read that has waited this long for blocks keeps its timeline (/api/slow_reads); 0 keeps every read that missed, -1 none."},
		{Name: "slow_read_sample_per_million", Kind: Int, Default: "1000", Max: 1_000_000, Unit: "of a million",
			Help: "How many of a million other reads that missed keep theirs."},
	}
}

func accessKeys() []Key {
	return []Key{
		{Name: "cluster_token", Kind: String, Role: Both, Secret: true,
			Help: "Secret that the nodes of a cluster prove to each other; empty lets every node in."},
		{Name: "admin_token", Kind: String, Role: Both, Secret: true,
			Help: "Secret that guards what changes state, and pprof; empty leaves them open."},
		{Name: "read_token", Kind: String, Secret: true,
			Help: "Secret that guards /read and the Kitex read; empty leaves them open."},
		{Name: "enable_peer_tls", Kind: Bool, Role: Both, Default: "false",
			Help: "Whether nodes speak mutual TLS with each other; all nodes of a cluster must agree."},
		{Name: "peer_tls_ca_path", Kind: String, Role: Both, Static: true,
			Help: "PEM file of the authorities that sign the nodes' certificates."},
		{Name: "peer_tls_cert_path", Kind: String, Role: Both, Static: true,
			Help: "PEM file of this node's certificate."},
		{Name: "peer_tls_key_path", Kind: String, Role: Both, Static: true,
			Help: "PEM file of this node's private key."},
		{Name: "peer_tls_allowed_names", Kind: String, Role: Both, Form: formPatterns, check: isPatterns,
			Help: "Names that certificates of other nodes may have (common name, DNS name, address or URI); empty allows all that the authorities have signed."},
		{Name: "peer_candidate_allowed_networks", Kind: String, Form: formNetworks, check: isNetworks,
			Help: "Networks that manually set candidates must lie in; empty allows every network."},
	}
}

func feKeys() []Key {
	return []Key{
		port("http_port", "8030", FE, "HTTP port of an FE: /api, /metrics and health."),
		port("rpc_port", "9020", FE, "Port that BEs report to and ask for the holders of tablets."),
		port("query_port", "9030", FE, "Port for MySQL clients."),
		{Name: "query_users", Kind: String, Role: FE, Secret: true, Form: formUsers, check: isUsers,
			Help: "Who may log in with a MySQL client; empty lets root in, with the admin_token for a password."},
		{Name: "query_tls_cert_path", Kind: String, Role: FE, Static: true,
			Help: "PEM file of the certificate for MySQL clients that want TLS; empty offers none."},
		{Name: "query_tls_key_path", Kind: String, Role: FE, Static: true,
			Help: "PEM file of the private key of query_tls_cert_path."},
		{Name: "meta_dir", Kind: String, Role: FE, Default: "./fe-meta", Static: true, Form: "a directory", check: notEmpty,
			Help: "Directory that the FE keeps its state in."},
		{Name: "fe_store", Kind: String, Role: FE, Static: true, Form: formStore, check: isStore,
			Help: "Where the FE's state is: in meta_dir when empty, else in an etcd that several FEs share."},
		{Name: "fe_store_user", Kind: String, Role: FE, Static: true,
			Help: "Name to log in to etcd with; empty for an etcd without authentication."},
		{Name: "fe_store_password", Kind: String, Role: FE, Static: true, Secret: true,
			Help: "Password of fe_store_user."},
		{Name: "fe_store_tls_ca_path", Kind: String, Role: FE, Static: true,
			Help: "PEM file of the authorities that sign etcd's certificates; empty means those of the system."},
		{Name: "fe_store_tls_cert_path", Kind: String, Role: FE, Static: true,
			Help: "PEM file of the certificate that etcd asks this FE for; empty shows none."},
		{Name: "fe_store_tls_key_path", Kind: String, Role: FE, Static: true,
			Help: "PEM file of the private key of fe_store_tls_cert_path."},
		{Name: "heartbeat_timeout_ms", Kind: Int, Role: FE, Default: "10000", Min: 10, Max: hour * 1000, Unit: "ms",
			Help: "A BE that has not reported for this long is not alive."},
		{Name: "balance_type", Kind: String, Role: FE, Default: "async_warmup",
			Form: "without_warmup, async_warmup, sync_warmup or peer_read_async_warmup", check: isBalanceType,
			Help: "How tablets move between the BEs of a compute group that does not say so itself."},
	}
}

func storeKeys() []Key {
	return []Key{
		{Name: "s3_endpoint", Kind: String, Static: true, Form: formURL, check: isURL,
			Help: "URL of the object store; empty means Amazon S3 in s3_region."},
		{Name: "s3_region", Kind: String, Default: "us-east-1", Static: true, Form: formID, check: isID,
			Help: "Region that requests are signed for."},
		{Name: "s3_bucket", Kind: String, Static: true,
			Help: "Bucket of paths that name none."},
		{Name: "s3_access_key", Kind: String, Static: true,
			Help: "Access key; without one the SDK looks in its usual places."},
		{Name: "s3_secret_key", Kind: String, Static: true, Secret: true,
			Help: "Secret key of s3_access_key."},
		{Name: "s3_session_token", Kind: String, Static: true, Secret: true,
			Help: "Session token of temporary credentials."},
		{Name: "s3_path_style", Kind: Bool, Default: "true", Static: true,
			Help: "Whether the bucket is part of the path of a URL, not of its host."},
		{Name: "max_concurrent_s3_gets", Kind: Int, Default: "64", Min: 1, Max: maxCount, Static: true,
			Help: "GETs under way at the same time; a further one waits for its turn."},
		{Name: "s3_get_timeout_ms", Kind: Int, Default: "60000", Min: 1, Max: hour * 1000, Unit: "ms", Static: true,
			Help: "Longest time that one attempt at a GET may take."},
		{Name: "s3_get_idle_timeout_ms", Kind: Int, Default: "5000", Min: 1, Max: hour * 1000, Unit: "ms", Static: true,
			Help: "Longest time without a byte before an attempt at a GET is given up."},
		{Name: "object_storage_get_max_blocks", Kind: Int, Default: "16", Min: 1, Max: 16, Unit: "blocks",
			Help: "Largest number of neighbouring blocks that one GET may grow to; 1 reads block by block."},
		{Name: "external_revalidate_ms", Kind: Int, Default: "1000", Min: -1, Max: day * 1000, Unit: "ms",
			Help: "How long what is known of an object outside tablets holds before the store is asked again; 0 asks each time, -1 never."},
		{Name: "buffer_budget_bytes", Kind: Int, Default: "536870912", Min: 16 << 20, Max: maxBytes, Unit: "bytes", Static: true,
			Help: "Memory for blocks on their way from peers and object storage."},
	}
}
