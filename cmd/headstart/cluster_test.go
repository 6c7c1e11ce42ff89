package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"headstart/bench/s3law"
	"headstart/cmd/config"
	"headstart/cmd/ctl"
)

// The objects of a test cluster: data/1 is the one file of tablet 1, and so on.
const (
	testTablets     = 64
	testBlock       = 64 << 10
	testObjectBytes = 3*testBlock + 1000
)

// testCluster is an FE and some BEs in this process, on real sockets, with
// object storage without latency.
type testCluster struct {
	t     testing.TB
	dir   string
	store *s3law.Server
	data  [][]byte
	fe    *fe
	bes   []*be
	confs []*config.Set
	// log has the lines of all nodes.
	log    *lockedBuffer
	client *http.Client
}

// startCluster starts a BE in each of the groups named, with keys besides those
// that the cluster needs, and waits until the FE knows all.
func startCluster(t testing.TB, keys map[string]string, groups ...string) *testCluster {
	t.Helper()
	c := &testCluster{t: t, dir: t.TempDir(), log: &lockedBuffer{}, client: &http.Client{Timeout: patience}}
	random := rand.New(rand.NewPCG(1, 2))
	objects := make([]s3law.Object, testTablets)
	for i := range objects {
		data := make([]byte, testObjectBytes)
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		c.data = append(c.data, data)
		objects[i] = s3law.Object{Key: fmt.Sprintf("data/%d", i+1), Data: data}
	}
	var err error
	if c.store, err = s3law.Start(s3law.Options{Bucket: "bucket", Objects: objects}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.store.Close() })
	c.store.Enable(false)
	t.Cleanup(c.client.CloseIdleConnections)
	c.startFE(keys)
	for _, group := range groups {
		c.startBE(group, keys)
	}
	c.eventually("the FE knows all BEs", func() bool {
		return strings.Count(c.get(c.feWeb(), "/api/backends"), `"alive": true`) == len(groups)
	})
	return c
}

// load writes a configuration file and loads it.
func (c *testCluster) load(role config.Role, name string, keys map[string]string) *config.Set {
	c.t.Helper()
	dir := filepath.Join(c.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	var text strings.Builder
	for k, v := range keys {
		fmt.Fprintf(&text, "%s = %s\n", k, v)
	}
	path := filepath.Join(dir, role.String()+".conf")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		c.t.Fatal(err)
	}
	set, err := config.Load(role, path)
	if err != nil {
		c.t.Fatal(err)
	}
	return set
}

// logger is that of one node, which follows log_level as a real one does.
func (c *testCluster) logger(conf *config.Set, name string) *slog.Logger {
	log := newLogger(conf, c.log).With("node", name)
	conf.LogTo(log)
	return log
}

func (c *testCluster) startFE(keys map[string]string) {
	c.t.Helper()
	all := map[string]string{
		"host": "127.0.0.1", "http_port": "0", "rpc_port": "0", "query_port": "0",
		"meta_dir": filepath.Join(c.dir, "meta"), "heartbeat_interval_ms": "50", "cluster_token": "secret",
	}
	for _, k := range config.Keys(config.FE) {
		if v, ok := keys[k.Name]; ok {
			all[k.Name] = v
		}
	}
	conf := c.load(config.FE, "fe", all)
	var err error
	if c.fe, err = startFE(context.Background(), conf, c.logger(conf, "fe")); err != nil {
		c.t.Fatal(err)
	}
	warnUnused(conf, c.logger(conf, "fe"))
	c.t.Cleanup(func() { c.drain(c.fe) })
}

// patient are keys of a BE with which a machine that is busy makes neither object
// storage win nor a peer look slow or dead.
func patient() map[string]string {
	return map[string]string{
		"enable_adaptive_peer_race_hedge": "false", "peer_race_hedge_delay_ms": "20000",
		"peer_read_rpc_timeout_ms": "30000", "peer_fetch_queue_timeout_ms": "30000", "peer_server_cache_fill_timeout_ms": "30000",
		"s3_get_idle_timeout_ms": "60000",
	}
}

// startPatient starts a BE for which a busy machine has neither a hung disk nor
// unreachable peers.
func startPatient(ctx context.Context, conf *config.Set, log *slog.Logger) (*be, error) {
	b := newBE(conf, log)
	b.tolerance = patience
	return b, b.start(ctx)
}

// startBE starts one BE; a key among keys overrides what a cluster needs.
func (c *testCluster) startBE(group string, keys map[string]string) *be {
	c.t.Helper()
	name := fmt.Sprintf("be-%d", len(c.bes)+1)
	all := map[string]string{
		"host": "127.0.0.1", "webserver_port": "0", "brpc_port": "0", "s3_port": "0",
		"fe_endpoints": net.JoinHostPort("127.0.0.1", strconv.Itoa(c.fe.line.RPCPort)), "heartbeat_interval_ms": "50",
		"compute_group_id": group, "compute_group_name": "name_of_" + group, "cluster_token": "secret",
		"s3_endpoint": c.store.URL(), "s3_bucket": "bucket", "s3_access_key": "a", "s3_secret_key": "b",
		"file_cache_path":            `[{"path":"` + filepath.Join(c.dir, name, "cache") + `","total_size":67108864}]`,
		"file_cache_each_block_size": strconv.Itoa(testBlock), "buffer_budget_bytes": "67108864",
		"object_storage_get_max_blocks": "1", "enable_cache_read_from_peer": "true",
	}
	maps.Copy(all, patient())
	maps.Copy(all, keys)
	conf := c.load(config.BE, name, all)
	log := c.logger(conf, name)
	b, err := startPatient(context.Background(), conf, log)
	if err != nil {
		c.t.Fatal(err)
	}
	warnUnused(conf, log)
	c.t.Cleanup(func() { c.drain(b) })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.cache.AwaitLoaded(ctx); err != nil {
		c.t.Fatal(err)
	}
	c.bes, c.confs = append(c.bes, b), append(c.confs, conf)
	return b
}

func (c *testCluster) drain(n node) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.drain(ctx); err != nil && !strings.Contains(err.Error(), "closed") {
		c.t.Errorf("drain: %v", err)
	}
}

func (c *testCluster) feWeb() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.fe.line.HTTPPort))
}

// web is the HTTP address of BE i, counted from 0, peer the one that BEs use.
func (c *testCluster) web(i int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.bes[i].line.WebserverPort))
}

func (c *testCluster) peer(i int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.bes[i].line.BrpcPort))
}

// patience is how long a test waits for what ought to come soon: so long that only
// what never comes is late, on any machine.
const patience = time.Minute

// poll looks every few milliseconds for what no channel tells. It reports whether
// that was so within patience.
func poll(is func() bool) bool {
	limit, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			return false
		}
	}
	return true
}

func (c *testCluster) eventually(what string, is func() bool) {
	c.t.Helper()
	if !poll(is) {
		c.t.Fatalf("not so: %s", what)
	}
}

// ask sends one request and returns status and body.
func (c *testCluster) ask(method, addr, path, body string) (int, string) {
	c.t.Helper()
	r, err := http.NewRequest(method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (c *testCluster) get(addr, path string) string {
	c.t.Helper()
	status, text := c.ask(http.MethodGet, addr, path, "")
	if status != http.StatusOK {
		c.t.Fatalf("%s: %d %s", path, status, text)
	}
	return text
}

func (c *testCluster) configure(i int, query string) {
	c.t.Helper()
	if status, text := c.ask(http.MethodPost, c.web(i), "/api/update_config?"+query, ""); status != http.StatusOK {
		c.t.Fatalf("%s: %d %s", query, status, text)
	}
}

// read reads the first block of a tablet's file at BE i and returns where it
// came from. Any goroutine may call it.
func (c *testCluster) read(i, tablet int) string {
	c.t.Helper()
	src, err := c.readBlock(i, tablet, 0, "")
	if err != nil {
		c.t.Error(err)
	}
	return src
}

// readBlock reads one whole block, and checks its bytes. token may be "".
func (c *testCluster) readBlock(i, tablet, index int, token string) (source string, err error) {
	q := url.Values{
		"path": {fmt.Sprintf("data/%d", tablet)}, "tablet_id": {strconv.Itoa(tablet)},
		"offset": {strconv.Itoa(index * testBlock)}, "size": {strconv.Itoa(testBlock)},
	}
	r, err := http.NewRequest(http.MethodGet, "http://"+c.web(i)+"/read?"+q.Encode(), nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	want := c.data[tablet-1][index*testBlock:]
	if resp.StatusCode != http.StatusOK || !bytes.Equal(got, want[:min(testBlock, len(want))]) {
		return "", fmt.Errorf("block %d of tablet %d at BE %d: %d, %d bytes %.200q", index, tablet, i, resp.StatusCode, len(got), got)
	}
	return resp.Header.Get("X-Headstart-Source"), nil
}

// knows makes BE j the one candidate of a tablet at BE i.
func (c *testCluster) knows(i, tablet, j int) {
	c.t.Helper()
	if out, code := c.ctl("set", strconv.Itoa(tablet), c.peer(j)+"@"+c.bes[j].conf.String("compute_group_id"), "-be", c.web(i)); code != 0 {
		c.t.Fatal(out)
	}
}

// ctl runs headstart ctl and returns all that it prints.
func (c *testCluster) ctl(args ...string) (string, int) {
	c.t.Helper()
	var out bytes.Buffer
	code := ctl.Run(context.Background(), args, "", &out, &out)
	return out.String(), code
}
