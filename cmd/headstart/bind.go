package main

import (
	"crypto/rand"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"

	"headstart/cmd/config"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/objstore"
	"headstart/rpc"
	"headstart/rpc/admin"
	"headstart/shards"
	"headstart/shards/placement"
)

// bindEngine lets the engine follow its keys.
func bindEngine(c *config.Set, s *engine.Settings) {
	c.BindBool("enable_cache_read_from_peer", &s.EnableCacheReadFromPeer)
	c.BindBool("enable_peer_s3_race", &s.EnablePeerS3Race)
	c.BindBool("enable_same_compute_group_peer_read", &s.EnableSameComputeGroupPeerRead)
	c.BindBool("enable_cross_compute_group_peer_read", &s.EnableCrossComputeGroupRead)
	c.BindBool("enable_external_peer_read", &s.EnableExternalPeerRead)
	c.BindBool("enable_adaptive_peer_race_hedge", &s.EnableAdaptivePeerRaceHedge)
	c.BindInt("peer_race_hedge_budget_percent", &s.PeerRaceHedgeBudgetPercent)
	c.BindInt("peer_race_hedge_delay_ms", &s.PeerRaceHedgeDelayMS)
	c.BindInt("peer_read_rpc_timeout_ms", &s.PeerReadRPCTimeoutMS)
	c.BindInt("peer_server_cache_fill_timeout_ms", &s.PeerServerCacheFillTimeoutMS)
	c.BindInt("object_storage_get_max_blocks", &s.ObjectStorageGetMaxBlocks)
	c.BindInt("external_revalidate_ms", &s.ExternalRevalidateMS)
	c.BindInt("peer_cross_location_read_bytes_per_second", &s.PeerCrossLocationBytesPerSecond)
	c.Bind("peer_read_allowed_compute_groups", func(v config.Value) {
		groups := strings.FieldsFunc(v.Text(), func(r rune) bool { return r == ',' || r == ' ' })
		s.PeerReadAllowedComputeGroups.Store(&groups)
	})
	c.BindString("peer_cache_fill_compute_group_id", &s.PeerCacheFillComputeGroupID)
}

// bindShards lets the candidates and breakers follow their keys.
func bindShards(c *config.Set, s *shards.Settings) {
	c.BindInt("peer_rpc_failure_eviction_threshold", &s.EvictionThreshold)
	c.BindInt("peer_all_miss_cooldown_threshold", &s.AllMissThreshold)
	c.BindInt("peer_all_miss_cooldown_duration_s", &s.CooldownSeconds)
	c.BindInt("peer_candidate_expiry_s", &s.ExpirySeconds)
	c.BindInt("peer_candidate_cleanup_interval_s", &s.CleanupSeconds)
	c.BindInt("peer_candidate_refresh_interval_s", &s.RefreshSeconds)
	c.BindInt("peer_candidate_max_tablets", &s.MaxTablets)
	c.BindInt("peer_candidate_max_addresses", &s.MaxAddresses)
	c.BindBool("enable_peer_location_preference", &s.LocationPreference)
	c.BindBool("enable_slow_peer_ejection", &s.SlowPeerEjection)
	c.BindInt("cache_peer_read_failure_threshold", &s.FailureThreshold)
	c.BindInt("cache_peer_read_circuit_open_seconds", &s.CircuitOpenSeconds)
	c.BindInt("peer_silence_probe_ms", &s.SilenceProbeMS)
}

// interval follows heartbeat_interval_ms, in nanoseconds.
func interval(c *config.Set) *atomic.Int64 {
	var every atomic.Int64
	c.BindDuration("heartbeat_interval_ms", &every)
	return &every
}

func newNodeID() string { return rand.Text() }

func cores() int { return runtime.GOMAXPROCS(0) }

// addrs reads a list of host:port.
func addrs(list []string) ([]block.Addr, error) {
	out := make([]block.Addr, len(list))
	for i, text := range list {
		var err error
		if out[i], err = block.ParseAddr(text); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// heartbeat is what the BE says of itself.
func (b *be) heartbeat(leaving bool) placement.Heartbeat {
	m := b.cache.Metrics()
	return placement.Heartbeat{
		NodeID: b.identity.Node().ID, Host: b.conf.String("host"),
		HeartbeatPort: int(b.conf.Int("heartbeat_service_port")), BePort: int(b.conf.Int("be_port")),
		HTTPPort: b.line.WebserverPort, BrpcPort: b.line.BrpcPort,
		ArrowFlightSQLPort: max(0, int(b.conf.Int("arrow_flight_sql_port"))),
		GroupID:            b.conf.String("compute_group_id"), GroupName: b.conf.String("compute_group_name"),
		CloudUniqueID: b.conf.String("cloud_unique_id"), Location: b.conf.String("location"),
		Version: version(), Started: b.started, CPUCores: cores(), MemoryBytes: b.memory,
		CacheCapacityBytes: m.CapacityBytes, CacheUsedBytes: m.AllocatedBytes,
		Leaving: leaving,
	}
}

// wireMetrics are the metrics of the parts that rpc/admin must not import.
func (b *be) wireMetrics() admin.Wire {
	s3, calls, served := b.origin.Metrics(), b.peers.Metrics(), b.rpc.Metrics()
	w := admin.Wire{
		S3Gets: int64(s3.Gets), S3Heads: int64(s3.Heads), S3Retries: int64(s3.Retries),
		S3Bytes: int64(s3.Bytes), S3Discarded: int64(s3.Discarded),
		S3InFlight: int64(s3.InFlight), S3Waiting: int64(s3.Waiting), S3Waited: s3.Waited,
		S3Dials: int64(s3.Dials), S3Aborted: int64(s3.Aborted),
		PeerCalls: calls.Calls, PeerCancels: calls.Cancels, PeerCuts: calls.Cuts,
		PeerBytes: calls.Bytes, PeerWasted: calls.WastedBytes,
		PeerConns: int64(calls.Conns), PeerDials: calls.Dials, PeerDialErrors: calls.DialErrors,
		ServerConns: int64(served.Conns), ServerCalls: served.Calls, ServerRefused: served.Refused,
		ServerCancels: served.Cancels, ServerBadFrames: served.BadFrames, ServerBytes: served.Bytes,
	}
	w.S3Forwards = int64(s3.Forwards)
	if b.front != nil {
		f := b.front.Metrics()
		w.FrontRequests, w.FrontErrors, w.FrontDenied, w.FrontPassed, w.FrontChanged = f.Requests, f.Errors, f.Denied, f.Passed, f.Changed
		w.FrontAbandoned, w.FrontCut, w.FrontBytes, w.FrontStreams, w.FrontShort = f.Abandoned, f.Cut, f.Bytes, f.Streams, f.Short
		w.FrontLocal, w.FrontPeer, w.FrontStore = f.Local, f.Peer, f.Store
	}
	warm := b.warm.Metrics()
	w.WarmBatches, w.WarmFailed, w.WarmQueued, w.WarmRunning = warm.Batches, warm.Failed, int64(warm.Queued), int64(warm.Running)
	w.WarmPeerBlocks, w.WarmPeerBytes = warm.PeerBlocks, warm.PeerBytes
	w.WarmStoreBlocks, w.WarmStoreBytes = warm.StoreBlocks, warm.StoreBytes
	for r := range objstore.Reasons {
		w.S3Errors = append(w.S3Errors, admin.Reason{Name: r.String(), Count: int64(s3.Errors[r])})
	}
	if b.fes != nil {
		fes := b.fes.Metrics()
		w.DirectoryCalls, w.DirectoryFailures = fes.Calls, fes.Failures
	}
	return w
}

// peerTLS is what nodes speak with each other while enable_peer_tls is on. A
// node that was told so does not start without it.
func peerTLS(c *config.Set, log *slog.Logger) (*rpc.TLS, error) {
	t := rpc.NewTLS(rpc.TLSOptions{
		CAPath: c.String("peer_tls_ca_path"), CertPath: c.String("peer_tls_cert_path"), KeyPath: c.String("peer_tls_key_path"),
		Logger: log,
	})
	c.Bind("enable_peer_tls", func(v config.Value) {
		t.SetEnabled(v.Bool())
		if !v.Bool() {
			return
		}
		if err := t.Check(); err != nil {
			log.Error("peer TLS is on, and no node can be reached", "error", err)
		}
	})
	c.Bind("peer_tls_allowed_names", func(v config.Value) { t.SetAllowed(v.List()) })
	if c.Bool("enable_peer_tls") {
		return t, t.Check()
	}
	return t, nil
}
