package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestMain lets the test binary be the demo's nodes: the demo starts its own
// executable as "fe" and "be".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "fe" || os.Args[1] == "be") {
		if err := serveStandIn(os.Args[1], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "stand-in:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// standIn is a node that speaks the HTTP that the demo uses, and HTTP instead
// of RPC. It has no peers: blocks come from its memory or from S3.
type standIn struct {
	conf map[string]string
	mu   struct {
		sync.Mutex
		cache map[string][]byte
		// blocks and bytes count local and s3.
		blocks, bytes [2]int
		// backends is the FE's list.
		backends []map[string]any
	}
}

// serveStandIn runs until SIGTERM.
func serveStandIn(role, path string) error {
	s := &standIn{conf: make(map[string]string)}
	s.mu.cache = make(map[string][]byte)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		s.conf[key] = value
	}
	if s.conf["location"] == "die" {
		return errors.New("told to die")
	}
	var ports [2]int
	for i := range ports {
		ln, err := net.Listen("tcp", s.conf["listen_host"]+":0")
		if err != nil {
			return err
		}
		ports[i] = ln.Addr().(*net.TCPAddr).Port
		go func() { _ = http.Serve(ln, s.handler()) }() // ends with the process
	}
	ready := map[string]any{"event": "ready", "role": role, "pid": os.Getpid(), "http_port": ports[0], "rpc_port": ports[1]}
	if role == "be" {
		ready = map[string]any{"event": "ready", "role": role, "pid": os.Getpid(), "webserver_port": ports[0], "brpc_port": ports[1]}
		body, _ := json.Marshal(map[string]any{"host": s.conf["host"], "brpc_port": ports[1], "http_port": ports[0],
			"compute_group_id": s.conf["compute_group_id"], "alive": true})
		resp, err := http.Post("http://"+s.conf["fe_endpoints"]+"/register", "", strings.NewReader(string(body)))
		if err != nil {
			return err
		}
		resp.Body.Close()
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	fmt.Println("a line that is not the ready line")
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	<-stop
	return nil
}

func (s *standIn) handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("POST /register", func(_ http.ResponseWriter, r *http.Request) {
		var be map[string]any
		_ = json.NewDecoder(bufio.NewReader(r.Body)).Decode(&be)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.backends = append(s.mu.backends, be)
	})
	m.HandleFunc("GET /api/backends", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.mu.backends)
	})
	m.HandleFunc("GET /api/tablets", s.tablets)
	m.HandleFunc("POST /api/update_config", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("enable_cache_read_from_peer")+r.URL.Query().Get("peer_cache_fill_compute_group_id") == "" {
			http.Error(w, "no such key", http.StatusBadRequest)
		}
	})
	m.HandleFunc("POST /api/file_cache", func(http.ResponseWriter, *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		clear(s.mu.cache)
	})
	m.HandleFunc("GET /metrics", s.metrics)
	m.HandleFunc("GET /read", s.read)
	return m
}

// tablets names the first two BEs of each group by turns.
func (s *standIn) tablets(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tablets []map[string]any
	for id := range strings.SplitSeq(r.URL.Query().Get("tablet_id"), ",") {
		n, _ := strconv.Atoi(id)
		groups := make(map[any][]map[string]any)
		for _, be := range s.mu.backends {
			groups[be["compute_group_id"]] = append(groups[be["compute_group_id"]], be)
		}
		var holders []map[string]any
		for _, bes := range groups {
			holders = append(holders, bes[n%len(bes)])
		}
		tablets = append(tablets, map[string]any{"tablet_id": n, "holders": holders})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"tablets": tablets})
}

func (s *standIn) metrics(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(w, "# TYPE headstart_read_blocks_total counter")
	for name, v := range map[string][2]int{"blocks": s.mu.blocks, "bytes": s.mu.bytes} {
		fmt.Fprintf(w, "headstart_read_%s_total{source=\"local\"} %d\n", name, v[0])
		fmt.Fprintf(w, "headstart_read_%s_total{source=\"peer\"} 0\n", name)
		fmt.Fprintf(w, "headstart_read_%s_total{source=\"s3\"} %d\n", name, v[1])
	}
	fmt.Fprint(w, "peer_race_peer_win 0\npeer_race_s3_win 0\n")
}

// read takes each different read for a block of its own.
func (s *standIn) read(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	name := q.Get("path") + " " + q.Get("offset") + " " + q.Get("size")
	s.mu.Lock()
	data, local := s.mu.cache[name]
	s.mu.Unlock()
	if !local {
		off, _ := strconv.ParseInt(q.Get("offset"), 10, 64)
		size, _ := strconv.ParseInt(q.Get("size"), 10, 64)
		get, _ := http.NewRequestWithContext(r.Context(), "GET", s.conf["s3_endpoint"]+"/"+strings.TrimPrefix(q.Get("path"), "s3://"), nil)
		get.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+size-1))
		resp, err := http.DefaultClient.Do(get)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		data, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	source := map[bool]int{true: 0, false: 1}[local]
	s.mu.Lock()
	s.mu.cache[name] = data
	s.mu.blocks[source]++
	s.mu.bytes[source] += len(data)
	s.mu.Unlock()
	w.Header().Set("X-Headstart-Source", []string{"local", "s3"}[source])
	_, _ = w.Write(data)
}
