package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"headstart/bench/tpch"
)

// demoCacheBytes is the File Cache of one BE: with the share below, each could
// hold all objects.
const demoCacheBytes = 384 << 20

// demoCluster is the processes of a demo and the folder they live in.
type demoCluster struct {
	exe  string
	dir  string
	fe   *demoNode
	bes  []*demoNode
	http *http.Client
	died func(error)
}

func newDemoCluster(exe string, died func(error)) (*demoCluster, error) {
	dir, err := os.MkdirTemp("", "headstart-demo-")
	if err != nil {
		return nil, err
	}
	return &demoCluster{exe: exe, dir: dir, died: died,
		http: &http.Client{Timeout: time.Minute}}, nil
}

// demoBE is where one BE of a cluster belongs.
type demoBE struct{ group, groupName, location string }

// start returns when the FE knows all BEs as alive. Each BE has keys besides
// those that it needs. Nodes that run when it fails are stopped by stop.
func (c *demoCluster) start(ctx context.Context, s3 string, bes []demoBE, keys [][2]string) error {
	token := rand.Text()
	var err error
	c.fe, err = c.node("fe", "fe", "", [][2]string{
		{"host", demoHost}, {"listen_host", demoHost},
		{"http_port", "0"}, {"rpc_port", "0"}, {"query_port", "0"},
		{"meta_dir", "meta"}, {"cluster_token", token},
	})
	if err != nil {
		return err
	}
	if err := c.fe.await(ctx); err != nil {
		return err
	}
	for i, to := range bes {
		be, err := c.node("be", fmt.Sprintf("be-%d", i+1), to.group, append(c.beConf(to, s3, token), keys...))
		if err != nil {
			return err
		}
		c.bes = append(c.bes, be)
	}
	for _, be := range c.bes {
		if err := be.await(ctx); err != nil {
			return err
		}
	}
	return c.awaitAlive(ctx)
}

func (c *demoCluster) beConf(to demoBE, s3, token string) [][2]string {
	return [][2]string{
		{"host", demoHost}, {"listen_host", demoHost},
		{"webserver_port", "0"}, {"brpc_port", "0"}, {"s3_port", "0"},
		{"fe_endpoints", net.JoinHostPort(demoHost, strconv.Itoa(c.fe.ports.RPCPort))},
		{"compute_group_id", to.group}, {"compute_group_name", to.groupName},
		{"location", to.location}, {"cluster_token", token},
		{"s3_endpoint", s3}, {"s3_region", "us-east-1"}, {"s3_bucket", demoBucket},
		{"s3_access_key", "demo"}, {"s3_secret_key", "demo"}, {"s3_path_style", "true"},
		{"file_cache_path", fmt.Sprintf(`[{"path":"cache","total_size":%d,"normal_percent":85,`+
			`"ttl_percent":5,"index_percent":5,"disposable_percent":5}]`, demoCacheBytes)},
	}
}

// node writes a configuration file and starts a process on it.
func (c *demoCluster) node(role, name, group string, conf [][2]string) (*demoNode, error) {
	dir := filepath.Join(c.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, kv := range conf {
		fmt.Fprintf(&text, "%s = %s\n", kv[0], kv[1])
	}
	if err := os.WriteFile(filepath.Join(dir, role+".conf"), []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	return startNode(c.exe, role, name, group, dir, c.died)
}

// awaitAlive polls the FE: registration goes over its RPC port, so nothing
// tells the demo when it is done.
func (c *demoCluster) awaitAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoStartTimeout)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		alive, err := c.alive(ctx)
		if alive == len(c.bes) {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("the FE sees %d of %d BEs alive (last error: %v): %w", alive, len(c.bes), err, context.Cause(ctx))
		}
	}
}

// alive counts the BEs that the FE and they themselves call ready.
func (c *demoCluster) alive(ctx context.Context) (int, error) {
	var backends []struct {
		BrpcPort int  `json:"brpc_port"`
		Alive    bool `json:"alive"`
	}
	if err := c.getJSON(ctx, c.fe, "/api/backends", &backends); err != nil {
		return 0, err
	}
	n := 0
	for _, b := range backends {
		be := c.byBrpc(b.BrpcPort)
		if be == nil || !b.Alive {
			continue
		}
		if _, err := c.call(ctx, http.MethodGet, be, "/readyz"); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (c *demoCluster) byBrpc(port int) *demoNode {
	for _, be := range c.bes {
		if be.ports.BrpcPort == port {
			return be
		}
	}
	return nil
}

// group returns the BEs of a group that have not been killed.
func (c *demoCluster) group(id string) []*demoNode {
	var nodes []*demoNode
	for _, be := range c.bes {
		if be.group == id && !be.gone() {
			nodes = append(nodes, be)
		}
	}
	return nodes
}

// primaries asks the FE which BE of a group serves each object.
func (c *demoCluster) primaries(ctx context.Context, group string, objects int) ([]string, error) {
	ids := make([]string, objects)
	for i := range ids {
		ids[i] = strconv.FormatInt(tpch.TabletID(i), 10)
	}
	var answer struct {
		Tablets []struct {
			TabletID int64 `json:"tablet_id"`
			Holders  []struct {
				BrpcPort int    `json:"brpc_port"`
				GroupID  string `json:"compute_group_id"`
			} `json:"holders"`
		} `json:"tablets"`
	}
	if err := c.getJSON(ctx, c.fe, "/api/tablets?tablet_id="+strings.Join(ids, ","), &answer); err != nil {
		return nil, err
	}
	at := make(map[int64]string, objects)
	for _, t := range answer.Tablets {
		for _, h := range t.Holders {
			if be := c.byBrpc(h.BrpcPort); be != nil && h.GroupID == group {
				at[t.TabletID] = be.web()
			}
		}
	}
	nodes := make([]string, objects)
	for i := range nodes {
		if nodes[i] = at[tpch.TabletID(i)]; nodes[i] == "" {
			return nil, fmt.Errorf("the FE names no BE of %s for tablet %d", group, tpch.TabletID(i))
		}
	}
	return nodes, nil
}

// kill kills the BE of a group that serves the most objects, and says so.
func (c *demoCluster) kill(group string, primaries []string) string {
	var victim *demoNode
	most := -1
	for _, be := range c.group(group) {
		n := 0
		for _, p := range primaries {
			if p == be.web() {
				n++
			}
		}
		if n > most {
			victim, most = be, n
		}
	}
	victim.kill()
	return fmt.Sprintf("kill -9 %d: %s of %s, which serves %d of %d objects",
		victim.cmd.Process.Pid, victim.name, group, most, len(primaries))
}

// configure sets a key on all BEs of a group.
func (c *demoCluster) configure(ctx context.Context, group, key, value string) error {
	return c.each(ctx, group, "/api/update_config?"+url.Values{key: {value}}.Encode())
}

// clear empties the File Caches of a group.
func (c *demoCluster) clear(ctx context.Context, group string) error {
	return c.each(ctx, group, "/api/file_cache?op=clear&sync=true")
}

// each posts to all BEs of a group at once.
func (c *demoCluster) each(ctx context.Context, group, path string) error {
	nodes := c.group(group)
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, be := range nodes {
		all.Go(func() { // ends with its call, which the client's timeout bounds
			_, errs[i] = c.call(ctx, http.MethodPost, be, path)
		})
	}
	all.Wait()
	for i, err := range errs {
		// A node that was killed meanwhile needs no answer.
		if err != nil && !nodes[i].gone() {
			return err
		}
	}
	return nil
}

func (c *demoCluster) getJSON(ctx context.Context, n *demoNode, path string, into any) error {
	body, err := c.call(ctx, http.MethodGet, n, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s %s: %w", n.name, path, err)
	}
	return nil
}

// call returns the body of an answer 200; any other answer is an error.
func (c *demoCluster) call(ctx context.Context, method string, n *demoNode, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.web()+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s: %s: %.200s", n.name, method, path, resp.Status, body)
	}
	return body, err
}

// stop ends all nodes, BEs first, and removes their folder.
func (c *demoCluster) stop() {
	for _, be := range c.bes {
		be.terminate()
	}
	for _, be := range c.bes {
		be.reap()
	}
	if c.fe != nil {
		c.fe.terminate()
		c.fe.reap()
	}
	c.http.CloseIdleConnections()
	_ = os.RemoveAll(c.dir)
}
