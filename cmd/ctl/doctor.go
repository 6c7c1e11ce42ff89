package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"headstart/shards"
)

// finding is one thing that is wrong.
type finding struct {
	// Node is the host:port of the HTTP interface that it was seen at.
	Node string `json:"node"`
	// Check is a stable name, for programs.
	Check string `json:"check"`
	Fault string `json:"fault"`
	// Key is what to set, Advice how; "" when no key helps.
	Key    string `json:"key"`
	Advice string `json:"advice"`
}

// node is what doctor knows of one BE.
type node struct {
	addr     string
	conf     map[string]string
	counters map[string]int64
	tablets  []shards.View
	breakers []shards.BreakerView
}

// cluster is what doctor knows of all.
type cluster struct {
	nodes []*node
	// whole: an FE has named the BEs, so that there are no others.
	whole bool
	now   time.Time
	found []finding
}

// tabletsLookedAt bounds the tablets that doctor asks each BE for.
const tabletsLookedAt = 10_000

// doctor looks at all BEs and prints what is wrong. It prints nothing when
// nothing is.
func doctor(ctx context.Context, s *session) error {
	c := &cluster{now: time.Now()}
	addrs, err := s.discover(ctx, c)
	if err != nil {
		return err
	}
	s.lookAll(ctx, c, addrs)
	for _, check := range checks() {
		check(c)
	}
	if s.json {
		e := json.NewEncoder(s.stdout)
		e.SetIndent("", "    ")
		if err := e.Encode(append([]finding{}, c.found...)); err != nil {
			return err
		}
	} else {
		for _, f := range c.found {
			fmt.Fprintf(s.stdout, "%s: %s\n", f.Node, f.Fault)
			if f.Key != "" {
				fmt.Fprintf(s.stdout, "    %s: %s\n", f.Key, f.Advice)
			} else {
				fmt.Fprintf(s.stdout, "    %s\n", f.Advice)
			}
		}
	}
	if len(c.found) > 0 {
		return errFound
	}
	return nil
}

// discover returns the addresses of the BEs.
func (s *session) discover(ctx context.Context, c *cluster) ([]string, error) {
	if s.fe == "" {
		return strings.Split(s.be, ","), nil
	}
	var backends []struct {
		Host     string `json:"host"`
		HTTPPort int    `json:"http_port"`
		Alive    bool   `json:"alive"`
	}
	if err := s.getJSON(ctx, s.fe, "/api/backends", nil, &backends); err != nil {
		return nil, fmt.Errorf("FE %s: %w", s.fe, err)
	}
	c.whole = true
	var addrs []string
	for _, b := range backends {
		addr := net.JoinHostPort(b.Host, strconv.Itoa(b.HTTPPort))
		if b.Alive {
			addrs = append(addrs, addr)
			continue
		}
		c.report(addr, "dead_backend", "the FE has no heartbeats of this BE", "fe_endpoints",
			"if the BE runs, see that it names this FE, and what its log says of heartbeats; if it is gone for good, nothing is to do")
	}
	return addrs, nil
}

// lookAll asks all BEs at once, and once more after the time to look over.
func (s *session) lookAll(ctx context.Context, c *cluster, addrs []string) {
	before := s.countAll(ctx, addrs)
	if s.over > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(s.over):
		}
	}
	nodes := make([]*node, len(addrs))
	errs := make([]error, len(addrs))
	var all sync.WaitGroup
	for i, addr := range addrs {
		all.Go(func() { nodes[i], errs[i] = s.look(ctx, addr) }) // ends with the client's timeout
	}
	all.Wait()
	for i, n := range nodes {
		if errs[i] != nil {
			c.report(addrs[i], "no_answer", "the BE does not answer as it should: "+errs[i].Error(), "",
				"see that it runs, is ready and can be reached at its webserver_port")
			continue
		}
		for name, value := range before[i] {
			n.counters[name] -= value
		}
		c.nodes = append(c.nodes, n)
	}
}

// countAll returns the counters of all BEs as they are, if they are to be
// compared with later ones.
func (s *session) countAll(ctx context.Context, addrs []string) []map[string]int64 {
	all := make([]map[string]int64, len(addrs))
	if s.over > 0 {
		for i, addr := range addrs {
			all[i], _ = s.counters(ctx, addr) // a node that does not answer is found out later
		}
	}
	return all
}

func (s *session) look(ctx context.Context, addr string) (*node, error) {
	n := &node{addr: addr}
	if _, err := s.at(ctx, addr, http.MethodGet, "/readyz", nil, ""); err != nil {
		return nil, err
	}
	var err error
	if n.conf, err = s.configOf(ctx, addr); err != nil {
		return nil, err
	}
	if n.counters, err = s.counters(ctx, addr); err != nil {
		return nil, err
	}
	var list shards.ListView
	query := url.Values{"op": {"show_all"}, "limit": {strconv.Itoa(tabletsLookedAt)}}
	if err := s.getJSON(ctx, addr, "/api/peer_cache", query, &list); err != nil {
		return nil, err
	}
	n.tablets = list.Tablets
	return n, s.getJSON(ctx, addr, "/api/circuit_breaker", nil, &n.breakers)
}

// counters returns the whole numbers of /metrics whose names have no labels.
func (s *session) counters(ctx context.Context, addr string) (map[string]int64, error) {
	text, err := s.at(ctx, addr, http.MethodGet, "/metrics", nil, "")
	if err != nil {
		return nil, err
	}
	values := make(map[string]int64)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			values[name] = n
		}
	}
	return values, nil
}

func (c *cluster) report(node, check, fault, key, advice string) {
	c.found = append(c.found, finding{node, check, fault, key, advice})
}

// groups returns the ids of the compute groups that anybody has named, with the
// names that their BEs have.
func (c *cluster) groups() map[string]string {
	ids := make(map[string]string)
	for _, n := range c.nodes {
		for _, t := range n.tablets {
			for _, one := range t.Candidates {
				ids[one.GroupID] = ""
			}
		}
	}
	own := make(map[string]string)
	for _, n := range c.nodes {
		own[n.conf["compute_group_id"]] = n.conf["compute_group_name"]
	}
	maps.Copy(ids, own)
	return ids
}
