package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"headstart/bench/s3law"
	"headstart/cmd/config"
)

// TestBP04_NothingOfANodeOutlivesIt: an FE and a BE start, serve a read and stop
// again and again in one process. Goroutines and files are as many as before.
func TestBP04_NothingOfANodeOutlivesIt(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	data := []byte(strings.Repeat("0123456789abcdef", 1<<12))
	store, err := s3law.Start(s3law.Options{Bucket: "b", Objects: []s3law.Object{{Key: "k", Data: data}}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	store.Enable(false)
	dir := t.TempDir()
	startAndStop(t, dir, store.URL(), data) // what is made once in a process is made
	http.DefaultClient.CloseIdleConnections()
	goroutines, files := held(t)
	for range rounds {
		startAndStop(t, dir, store.URL(), data)
	}
	http.DefaultClient.CloseIdleConnections()
	var g, f int
	if !poll(func() bool { g, f = held(t); return g <= goroutines && f <= files }) {
		stacks := make([]byte, 1<<20)
		t.Fatalf("after %d rounds %d goroutines and %d files, %d and %d before\n%s",
			rounds, g, f, goroutines, files, stacks[:runtime.Stack(stacks, true)])
	}
}

func held(t *testing.T) (goroutines, files int) {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc/self/fd: ", err)
	}
	return runtime.NumGoroutine(), len(open)
}

// startAndStop runs an FE and a BE for one read.
func startAndStop(t *testing.T, dir, s3 string, data []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	feConf, err := config.FromMap(config.FE, map[string]string{
		"http_port": "0", "rpc_port": "0", "query_port": "0", "meta_dir": filepath.Join(dir, "fe"),
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := startFE(ctx, feConf, quiet)
	if err != nil {
		t.Fatal(err)
	}
	beConf, err := config.FromMap(config.BE, map[string]string{
		"webserver_port": "0", "brpc_port": "0", "s3_port": "-1",
		"fe_endpoints": fmt.Sprintf("127.0.0.1:%d", f.line.RPCPort), "enable_cache_read_from_peer": "true",
		"s3_endpoint": s3, "s3_bucket": "b", "s3_access_key": "a", "s3_secret_key": "s",
		"file_cache_path": fmt.Sprintf(`[{"path":%q,"total_size":8388608}]`, filepath.Join(dir, "be")),
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := startPatient(ctx, beConf, quiet)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/read?path=k&tablet_id=1", b.line.WebserverPort))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != string(data) {
		t.Errorf("%s: %d bytes, %v", resp.Status, len(body), err)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := b.drain(ctx); err != nil {
		t.Error(err)
	}
	if err := f.drain(ctx); err != nil {
		t.Error(err)
	}
}
