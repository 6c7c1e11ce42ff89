package shards

import (
	"sync/atomic"
	"time"

	"headstart/engine/block"
)

// Options is what a Table needs to know of its node. The zero value works: a
// node that is nobody's candidate, without a location.
type Options struct {
	// Self are the addresses of this node; they never become candidates.
	Self []block.Addr
	// Location is this node's own.
	Location string
	// CoarseMS, when not nil, is a clock in Unix milliseconds that its owner
	// ticks, for Candidates; it should not lag by more than a few of them.
	CoarseMS *atomic.Int64
}

// Settings are the keys that may change while the node runs. A zero Settings
// is of no use: NewSettings has the defaults.
type Settings struct {
	EvictionThreshold  atomic.Int64 // peer_rpc_failure_eviction_threshold
	AllMissThreshold   atomic.Int64 // peer_all_miss_cooldown_threshold
	CooldownSeconds    atomic.Int64 // peer_all_miss_cooldown_duration_s
	ExpirySeconds      atomic.Int64 // peer_candidate_expiry_s
	CleanupSeconds     atomic.Int64 // peer_candidate_cleanup_interval_s, for whoever calls Sweep
	RefreshSeconds     atomic.Int64 // peer_candidate_refresh_interval_s
	MaxTablets         atomic.Int64 // peer_candidate_max_tablets
	MaxAddresses       atomic.Int64 // peer_candidate_max_addresses
	LocationPreference atomic.Bool  // enable_peer_location_preference
	SlowPeerEjection   atomic.Bool  // enable_slow_peer_ejection
	FailureThreshold   atomic.Int64 // cache_peer_read_failure_threshold
	CircuitOpenSeconds atomic.Int64 // cache_peer_read_circuit_open_seconds
	SilenceProbeMS     atomic.Int64 // peer_silence_probe_ms
}

// NewSettings returns the defaults.
func NewSettings() *Settings {
	s := new(Settings)
	s.EvictionThreshold.Store(3)
	s.AllMissThreshold.Store(5)
	s.CooldownSeconds.Store(300)
	s.ExpirySeconds.Store(3600)
	s.CleanupSeconds.Store(3600)
	s.RefreshSeconds.Store(600)
	s.MaxTablets.Store(1 << 20)
	s.MaxAddresses.Store(1 << 18)
	s.LocationPreference.Store(true)
	s.SlowPeerEjection.Store(true)
	s.FailureThreshold.Store(3)
	s.CircuitOpenSeconds.Store(30)
	s.SilenceProbeMS.Store(1000)
	return s
}

func (s *Settings) expiryMS() int64 { return s.ExpirySeconds.Load() * 1000 }

func (s *Settings) refresh() time.Duration {
	return time.Duration(s.RefreshSeconds.Load()) * time.Second
}

// failureThreshold and openMS clamp where S27 says so.
func (s *Settings) failureThreshold() int64 { return max(1, s.FailureThreshold.Load()) }

func (s *Settings) openMS() int64 { return max(0, s.CircuitOpenSeconds.Load()) * 1000 }
