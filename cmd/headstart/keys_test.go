package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headstart/cmd/config"
	"headstart/engine/block"
	"headstart/shards"
)

// testToken is the one secret that the readers of these tests present.
const testToken = "t0ken"

// valuesOf returns values of a key that may follow each other, the default
// among them. A key that is new has to be given some here when it is a text.
func valuesOf(t testing.TB, k config.Key) []string {
	t.Helper()
	switch k.Name {
	case "cluster_token":
		return []string{"secret", "another"}
	case "admin_token", "read_token":
		return []string{"", testToken}
	case "query_users":
		return []string{"", "root:" + testToken, "root:" + testToken + ", looker:on:read"}
	case "log_level":
		return []string{"info", "warn", "error"}
	case "peer_tls_allowed_names":
		return []string{"", "node-*", "nobody"}
	case "peer_candidate_allowed_networks":
		return []string{"", "127.0.0.0/8", "10.0.0.0/8"}
	case "peer_cache_fill_compute_group_id":
		return []string{"", writers, "nobody"}
	case "peer_read_allowed_compute_groups":
		return []string{"", readers, writers + "," + readers}
	case "peer_fetch_queue_policy":
		return []string{"adaptive", "fifo"}
	case "s3_front_keys":
		return []string{"", `[{"access_key":"a","secret_key":"b"}]`}
	case "s3_front_anonymous":
		return []string{"none", "read", "read_write"}
	case "s3_front_domains":
		return []string{"localhost", "s3.test,s3.example.com", ""}
	case "balance_type":
		return []string{"async_warmup", "without_warmup", "sync_warmup", "peer_read_async_warmup"}
	case "file_cache_enter_disk_resource_limit_mode_percent", "file_cache_enter_need_evict_cache_in_advance_percent":
		return []string{k.Default, "99"}
	case "file_cache_exit_disk_resource_limit_mode_percent", "file_cache_exit_need_evict_cache_in_advance_percent":
		return []string{k.Default, "50"}
	case "heartbeat_interval_ms": // those of the other role must stay above or below
		return []string{"50", "100", "9999"}
	case "heartbeat_timeout_ms":
		return []string{"10000", "20000", "3600000"}
	}
	switch k.Kind {
	case config.Bool:
		return []string{"true", "false"}
	case config.Int:
		return slices.Compact([]string{k.Default, strconv.FormatInt(k.Min, 10), strconv.FormatInt(k.Max, 10)})
	}
	t.Errorf("%s has no values to change between: give it some", k.Name)
	return []string{k.Default}
}

// certificate writes a certificate that is its own authority.
func certificate(t *testing.T, dir string) map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node-1"}, DNSNames: []string{"node-1"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"peer_tls_ca_path": "cert.pem", "peer_tls_cert_path": "cert.pem", "peer_tls_key_path": "key.pem"}
	for name, file := range paths {
		paths[name] = filepath.Join(dir, file)
	}
	for name, b := range map[string]*pem.Block{"peer_tls_cert_path": {Type: "CERTIFICATE", Bytes: cert}, "peer_tls_key_path": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(paths[name], pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// update posts one change, and presents the token.
func (c *testCluster) update(addr, key, value string) error {
	r, err := http.NewRequest(http.MethodPost, "http://"+addr+"/api/update_config?"+url.Values{key: {value}}.Encode(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+testToken)
	resp, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s = %s: %s", key, value, resp.Status)
	}
	return nil
}

// TestS64_EveryKeyChangesUnderReadersWithoutAFailedRead changes each key that is
// not static a hundred times over HTTP, eight keys at a time, while 64 readers
// read from caches that are emptied again and again. Each change is a reader's turn:
// if they read all the time they would keep the changes from the processor.
func TestS64_EveryKeyChangesUnderReadersWithoutAFailedRead(t *testing.T) {
	const readersAtOnce = 64
	changes := 100
	if testing.Short() {
		changes = 10
	}
	keys := certificate(t, t.TempDir())
	keys["log_level"] = "error"
	c := startCluster(t, keys, readers, readers, writers)
	for tablet := 1; tablet <= testTablets; tablet++ {
		c.read(1, tablet)
		c.read(2, tablet)
	}
	c.client.Transport = &http.Transport{MaxIdleConnsPerHost: 2 * readersAtOnce}
	var reads, failed atomic.Int64
	var bySource [3]atomic.Int64
	var all sync.WaitGroup
	turns := make(chan struct{}, readersAtOnce)
	for range readersAtOnce {
		turns <- struct{}{}
		all.Go(func() { // ends with turns
			for range turns {
				src, err := c.readBlock(0, 1+mathrand.IntN(testTablets), mathrand.IntN(4), testToken)
				if reads.Add(1); err != nil && failed.Add(1) < 5 {
					t.Errorf("a read has failed: %v", err)
				}
				bySource[max(0, slices.Index([]string{"local", "peer", "s3"}, src))].Add(1)
			}
		})
	}
	changed := c.changeAll(config.BE, c.web(0), changes, turns) + c.changeAll(config.FE, c.feWeb(), changes, turns)
	everywhere := func() bool { return bySource[0].Load() > 0 && bySource[1].Load() > 0 && bySource[2].Load() > 0 }
	for range 10 { // under most values peers are not read from: chance may want more
		if !everywhere() {
			changed += c.changeAll(config.BE, c.web(0), changes, turns)
		}
	}
	close(turns)
	all.Wait()
	t.Logf("%d changes under %d reads (%d local, %d peer, %d s3), %d failed", changed, reads.Load(),
		bySource[0].Load(), bySource[1].Load(), bySource[2].Load(), failed.Load())
	if !everywhere() {
		t.Error("the reads did not come from everywhere")
	}
}

// changeAll changes every mutable key of a node so many times, and ends with its
// first value. Each change is a turn, unless there are enough. Now and then the
// first BE's cache is emptied, so that reads miss.
func (c *testCluster) changeAll(role config.Role, addr string, times int, turns chan<- struct{}) int64 {
	keys := make(chan config.Key)
	var changed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { // ends with keys
			for k := range keys {
				values := valuesOf(c.t, k)
				for i := range times + 1 {
					value := values[(i+1)%len(values)]
					if i == times {
						value = values[0]
					}
					if err := c.update(addr, k.Name, value); err != nil {
						c.t.Errorf("%v", err)
					}
					if changed.Add(1)%16 == 0 {
						c.freshen()
					}
					select {
					case turns <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	for _, k := range config.Keys(role) {
		if !k.Static {
			keys <- k
		}
	}
	close(keys)
	all.Wait()
	return changed.Load()
}

// freshen makes the first BE as one that has just come: nothing cached, nobody
// blamed for what the changes did, and all tablets known to be at the second.
func (c *testCluster) freshen() {
	if err := c.bes[0].cache.Clear(context.Background()); err != nil {
		c.t.Error(err)
	}
	at := block.Addr{Host: "127.0.0.1", Port: c.bes[1].line.BrpcPort}
	c.bes[0].breakers.Reset(at)
	for tablet := int64(1); tablet <= testTablets; tablet++ {
		view := shards.View{Candidates: []shards.CandidateView{{Host: at.Host, Port: at.Port, GroupID: readers}}}
		_ = c.bes[0].table.Set(block.TabletRoute(tablet), view) // peer_candidate_max_tablets may be 1 at the moment
	}
}

// TestS64_CF03_EveryKeyReachesItsComponent: what a component works with is what
// show_config shows, for every key that is not static; those that this version
// does not act on are said to be so in the log.
func TestS64_CF03_EveryKeyReachesItsComponent(t *testing.T) {
	keys := certificate(t, t.TempDir())
	c := startCluster(t, keys, readers, writers)
	b := c.bes[0]
	inForce := b.inForce()
	b.frontInForce(inForce)
	for _, k := range config.Keys(config.BE) {
		if k.Static || k.Name == "drain_timeout_ms" { // looked at when it is needed
			continue
		}
		values := valuesOf(t, k)
		for i := range values {
			value := values[(i+1)%len(values)]
			if err := c.update(c.web(0), k.Name, value); err != nil {
				t.Fatal(err)
			}
			probe := inForce[k.Name]
			if probe == nil {
				continue
			}
			if got := probe(); got != value {
				t.Errorf("%s = %s: the component works with %q", k.Name, value, got)
			}
		}
		unused := strings.Contains(c.log.String(), "key="+k.Name+" value=") && strings.Contains(c.log.String(), "does not act on the key")
		if (inForce[k.Name] == nil) != unused && !slices.Contains(seenByBehaviour(), k.Name) {
			t.Errorf("%s: say in inForce or in seenByBehaviour how it is seen that it acts", k.Name)
		}
	}
}

// seenByBehaviour are keys whose components keep the value to themselves: the
// tests named see what they do.
func seenByBehaviour() []string {
	return []string{
		"cluster_token", "enable_peer_tls", "peer_tls_allowed_names", "peer_serving_max_bytes_per_group", // TestCF03_SecretsAndBoundsAct
		"s3_front_keys",                   // TestCF03_FrontFollowsItsKeys
		"peer_candidate_allowed_networks", // rpc/admin.TestSE02_TheListFollowsItsKey
	}
}

// TestCF03_SecretsAndBoundsAct sees whether peers are read from.
func TestCF03_SecretsAndBoundsAct(t *testing.T) {
	keys := certificate(t, t.TempDir())
	keys["peer_rpc_failure_eviction_threshold"], keys["cache_peer_read_failure_threshold"] = "1000", "1000"
	c := startCluster(t, keys, readers, writers)
	tablet := 0
	want := func(what, src string) {
		t.Helper()
		tablet++
		c.read(1, tablet)
		c.knows(0, tablet, 1)
		if got := c.read(0, tablet); got != src {
			t.Errorf("%s: the block came from %s, want %s", what, got, src)
		}
	}
	set := func(i int, key, value string) {
		t.Helper()
		if err := c.update(c.web(i), key, value); err != nil {
			t.Error(err)
		}
	}
	want("at first", "peer")
	set(0, "cluster_token", "another")
	want("with another token", "s3")
	set(0, "cluster_token", "secret")
	want("with the token", "peer")
	c.bes[1].groupBytes.TryAcquire(readers, 1) // who has nothing gets one reply, whatever the bound
	set(1, "peer_serving_max_bytes_per_group", "1")
	want("with a bound below a block", "s3")
	set(1, "peer_serving_max_bytes_per_group", "0")
	want("without a bound", "peer")
	set(0, "enable_peer_tls", "true")
	want("with TLS at one end", "s3")
	set(0, "peer_tls_allowed_names", "nobody")
	set(1, "enable_peer_tls", "true")
	want("with TLS at both, and the other's name not allowed", "s3")
	set(0, "peer_tls_allowed_names", "node-*")
	want("with TLS at both", "peer")
}

// inForce returns, for each key whose component shows it, what that works with.
func (b *be) inForce() map[string]func() string {
	probes := make(map[string]func() string)
	number := func(key string, v *atomic.Int64) { probes[key] = func() string { return fmt.Sprint(v.Load()) } }
	flag := func(key string, v *atomic.Bool) { probes[key] = func() string { return fmt.Sprint(v.Load()) } }
	text := func(key string, v *atomic.Pointer[string]) { probes[key] = func() string { return *v.Load() } }
	e, r, f, s := b.engine.Settings, b.upkeep.settings, b.serving.Settings, b.cacheSettings
	flag("enable_cache_read_from_peer", &e.EnableCacheReadFromPeer)
	flag("enable_peer_s3_race", &e.EnablePeerS3Race)
	flag("enable_same_compute_group_peer_read", &e.EnableSameComputeGroupPeerRead)
	flag("enable_cross_compute_group_peer_read", &e.EnableCrossComputeGroupRead)
	flag("enable_external_peer_read", &e.EnableExternalPeerRead)
	flag("enable_adaptive_peer_race_hedge", &e.EnableAdaptivePeerRaceHedge)
	number("peer_race_hedge_delay_ms", &e.PeerRaceHedgeDelayMS)
	number("peer_race_hedge_budget_percent", &e.PeerRaceHedgeBudgetPercent)
	number("peer_read_rpc_timeout_ms", &e.PeerReadRPCTimeoutMS)
	number("object_storage_get_max_blocks", &e.ObjectStorageGetMaxBlocks)
	number("external_revalidate_ms", &e.ExternalRevalidateMS)
	number("peer_cross_location_read_bytes_per_second", &e.PeerCrossLocationBytesPerSecond)
	text("peer_cache_fill_compute_group_id", &e.PeerCacheFillComputeGroupID)
	probes["peer_read_allowed_compute_groups"] = func() string { return strings.Join(*e.PeerReadAllowedComputeGroups.Load(), ",") }
	number("peer_rpc_failure_eviction_threshold", &r.EvictionThreshold)
	number("peer_all_miss_cooldown_threshold", &r.AllMissThreshold)
	number("peer_all_miss_cooldown_duration_s", &r.CooldownSeconds)
	number("peer_candidate_expiry_s", &r.ExpirySeconds)
	number("peer_candidate_cleanup_interval_s", &r.CleanupSeconds)
	number("peer_candidate_refresh_interval_s", &r.RefreshSeconds)
	number("peer_candidate_max_tablets", &r.MaxTablets)
	number("peer_candidate_max_addresses", &r.MaxAddresses)
	flag("enable_peer_location_preference", &r.LocationPreference)
	flag("enable_slow_peer_ejection", &r.SlowPeerEjection)
	number("cache_peer_read_failure_threshold", &r.FailureThreshold)
	number("cache_peer_read_circuit_open_seconds", &r.CircuitOpenSeconds)
	number("peer_silence_probe_ms", &r.SilenceProbeMS)
	flag("peer_read_updates_eviction_order", &f.PeerReadUpdatesEvictionOrder)
	flag("enable_peer_server_cache_fill", &f.EnablePeerServerCacheFill)
	number("peer_server_cache_fill_timeout_ms", &f.PeerServerCacheFillTimeoutMS)
	number("file_cache_enter_disk_resource_limit_mode_percent", &s.EnterDiskLimitPercent)
	number("file_cache_exit_disk_resource_limit_mode_percent", &s.ExitDiskLimitPercent)
	flag("enable_evict_file_cache_in_advance", &s.EvictInAdvance)
	number("file_cache_enter_need_evict_cache_in_advance_percent", &s.EnterEvictPercent)
	number("file_cache_exit_need_evict_cache_in_advance_percent", &s.ExitEvictPercent)
	number("file_cache_ttl_seconds", &s.TTLSeconds)
	number("peer_server_cache_fill_quota_percent", &s.FillPercent)
	number("file_cache_scrub_bytes_per_second", &s.ScrubBytesPerSecond)
	number("slow_read_threshold_ms", &b.timelines.ThresholdMS)
	number("slow_read_sample_per_million", &b.timelines.SamplePerMillion)
	flag("warm_up_from_peer", &b.warm.Settings.FromPeer)
	number("file_cache_warmup_download_rate_limit_bytes_per_second", &b.warm.Settings.BytesPerSecond)
	text("admin_token", &b.tokens.Admin)
	text("read_token", &b.tokens.Read)
	probes["max_concurrent_peer_races"] = func() string { return fmt.Sprint(b.races.Metrics().Limit) }
	probes["max_concurrent_peer_server_fills"] = func() string { return fmt.Sprint(b.fills.Metrics().Limit) }
	probes["peer_fetch_queue_timeout_ms"] = func() string { return fmt.Sprint(b.queue.Metrics().Timeout.Milliseconds()) }
	probes["peer_fetch_queue_policy"] = func() string {
		if b.queue.Metrics().Adaptive {
			return "adaptive"
		}
		return "fifo"
	}
	probes["heartbeat_interval_ms"] = func() string { return fmt.Sprint(time.Duration(b.agent.every.Load()).Milliseconds()) }
	probes["log_level"] = func() string {
		for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn} {
			if b.log.Enabled(context.Background(), l) {
				return strings.ToLower(l.String())
			}
		}
		return "error"
	}
	return probes
}

// frontInForce is inForce of the S3 front.
func (b *be) frontInForce(probes map[string]func() string) {
	front := b.front.Settings
	probes["s3_front_read_only"] = func() string { return fmt.Sprint(front.ReadOnly.Load()) }
	probes["s3_front_revalidate_ms"] = func() string { return fmt.Sprint(front.RevalidateMS.Load()) }
	probes["s3_front_readahead_blocks"] = func() string { return fmt.Sprint(front.ReadaheadBlocks.Load()) }
	probes["s3_front_anonymous"] = func() string { return []string{"none", "read", "read_write"}[front.Anonymous.Load()] }
	probes["s3_front_domains"] = func() string { return strings.Join(*front.Domains.Load(), ",") }
}
