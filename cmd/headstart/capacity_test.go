package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/rpc"
	"headstart/shards/placement"
)

// process is a BE of its own, on the binary that the test is.
type process struct {
	*demoNode
	t     *testing.T
	cache string
	// most is the most disk that the sampler has seen in use.
	most atomic.Int64
}

func startProcess(t *testing.T, store, group string, total int64, more map[string]string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &process{t: t, cache: dir + "/cache"}
	conf := cacheConf(store, p.cache, total)
	maps.Copy(conf, patient())
	maps.Copy(conf, more)
	conf["compute_group_id"] = group
	var text strings.Builder
	for k, v := range conf {
		fmt.Fprintf(&text, "%s = %s\n", k, v)
	}
	if err := os.WriteFile(dir+"/be.conf", []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if p.demoNode, err = startNode(exe, "be", group, group, dir, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.terminate()
		p.reap()
	})
	if err := p.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.sample()
	return p
}

// sample looks every few milliseconds, until the test ends, how much disk the
// cache takes.
func (p *process) sample() {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { // until cancel
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			p.most.Store(max(p.most.Load(), diskBlocks(p.t, p.cache)))
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	p.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// read gets an object over HTTP and compares it.
func (p *process) read(key string, size int64) error {
	q := url.Values{"path": {key}, "tablet_id": {"1"}}
	r, err := http.Get("http://" + p.web() + "/read?" + q.Encode())
	if err != nil {
		return err
	}
	defer r.Body.Close()
	got, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		return fmt.Errorf("%s: status %d: %w", key, r.StatusCode, err)
	}
	want, err := io.ReadAll(newPattern(key, size))
	if err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("%s: %d bytes, not those of the object", key, len(got))
	}
	return nil
}

// counter reads a number from /metrics.
func (p *process) counter(name string) float64 {
	p.t.Helper()
	r, err := http.Get("http://" + p.web() + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, found := strings.Cut("\n"+string(text), "\n"+name+" ")
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(value, 64)
	if !found || err != nil {
		p.t.Fatalf("no %s in the metrics (%v)", name, err)
	}
	return n
}

// warmUp orders so many objects of a size to be copied, as an FE does, and waits
// until they were.
func (p *process) warmUp(objects int, size int64) {
	p.t.Helper()
	fe, err := rpc.NewBackendClient(rpc.BackendClientOptions{Identity: rpc.NewIdentity(block.Node{ID: newNodeID()}, "", "")})
	if err != nil {
		p.t.Fatal(err)
	}
	defer fe.Close()
	batch := placement.WarmBatch{ID: "all"}
	for i := range objects {
		key := fmt.Sprint("warmed/", i)
		etag := strings.ReplaceAll(key, "/", "-")
		batch.Objects = append(batch.Objects, placement.WarmObject{
			Object: block.Object{Store: block.DefaultStore, Bucket: "b", Key: key},
			Meta:   block.Meta{Size: size, Version: block.Version(etag), ETag: etag},
		})
	}
	to := block.Addr{Host: demoHost, Port: p.ports.BrpcPort}
	call := placement.WarmCall{Start: []placement.WarmBatch{batch}}
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		progress, err := fe.Warm(p.t.Context(), to, call)
		if err != nil || len(progress) != 1 || progress[0].State == placement.WarmFailed {
			p.t.Fatalf("%+v: %v", progress, err)
		}
		if progress[0].State == placement.WarmDone {
			if want := int64(objects) * size; progress[0].Bytes != want {
				p.t.Errorf("%d bytes were copied, want %d", progress[0].Bytes, want)
			}
			return
		}
		call = placement.WarmCall{Ask: []string{batch.ID}}
	}
}

// TestLC20_S52_CapacityHoldsOnEveryWritePath reads many times what fits, as
// users do, through real nodes: misses that object storage answers, fills for a
// peer, what the peer then keeps of its answers, and warm-up as an FE orders it.
func TestLC20_S52_CapacityHoldsOnEveryWritePath(t *testing.T) {
	const capacity, object = 64 << 20, 8 << 20
	volume := int64(1 << 30)
	if testing.Short() {
		volume /= 4
	}
	store := storeOf(t, object)
	server := startProcess(t, store, "server", capacity, nil)
	reader := startProcess(t, store, "reader", capacity, map[string]string{
		"enable_cache_read_from_peer": "true", "enable_peer_s3_race": "false",
		"peer_cache_fill_compute_group_id": "server",
	})
	candidate, err := json.Marshal(map[string]any{"candidates": []any{
		map[string]any{"host": demoHost, "brpc_port": server.ports.BrpcPort, "compute_group_id": "server"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post("http://"+reader.web()+"/api/peer_cache?op=set&tablet_id=1", "application/json", bytes.NewReader(candidate))
	if err != nil || r.StatusCode != 200 {
		t.Fatal(err, r.StatusCode)
	}
	_ = r.Body.Close()

	const each = 4 // readers of a path
	for path, p := range map[string]*process{"misses": server, "fills": reader} {
		var readers sync.WaitGroup
		for g := range each {
			readers.Go(func() { // ends with its objects
				for i := range int(volume/object) / each {
					if err := p.read(fmt.Sprint(path, "/", g, "/", i), object); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		readers.Wait()
	}
	warmed := startProcess(t, store, "warmed", capacity, map[string]string{
		"file_cache_warmup_download_rate_limit_bytes_per_second": "-1",
	})
	warmed.warmUp(int(volume/object), object)

	blocks := float64(volume / testCacheBlock)
	if n := server.counter("peer_server_fill_success"); n*16 < blocks/2 {
		t.Errorf("%v fills: most of the second half did not come by way of the server", n)
	}
	for _, p := range []*process{server, reader, warmed} {
		most, evicted := p.most.Load(), p.counter("headstart_cache_evicted_total")
		t.Logf("%s: at most %d bytes of disk of %d, %v blocks evicted", p.name, most, capacity, evicted)
		if most > capacity || most < capacity*8/10 {
			t.Errorf("%s: at most %d bytes of disk in use, capacity %d", p.name, most, capacity)
		}
		if evicted < blocks/3 {
			t.Errorf("%s: only %v blocks of %v were evicted", p.name, evicted, blocks)
		}
	}
}
