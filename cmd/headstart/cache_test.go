package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"headstart/cmd/config"
	"headstart/engine/block"
)

const testCacheBlock = 64 << 10

// pattern is the content of an object that is as long as one likes: every
// eight bytes say where they are.
type pattern struct {
	*io.SectionReader
}

type places struct{ seed uint64 }

func (p places) ReadAt(b []byte, off int64) (int, error) {
	var word [8]byte
	for i := 0; i < len(b); {
		at := off + int64(i)
		binary.LittleEndian.PutUint64(word[:], uint64(at/8)*0x9E3779B97F4A7C15+p.seed)
		i += copy(b[i:], word[at%8:])
	}
	return len(b), nil
}

func newPattern(key string, size int64) pattern {
	return pattern{io.NewSectionReader(places{uint64(block.Checksum([]byte(key)))}, 0, size)}
}

// storeOf is object storage that has every key, each size bytes long.
func storeOf(t *testing.T, size int64) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		w.Header().Set("ETag", `"`+strings.ReplaceAll(key, "/", "-")+`"`)
		http.ServeContent(w, r, "", time.Time{}, newPattern(key, size))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// cacheConf is a BE with a File Cache of so many bytes in dir.
func cacheConf(store, dir string, total int64) map[string]string {
	return map[string]string{
		"host": demoHost, "webserver_port": "0", "brpc_port": "0", "s3_port": "-1",
		"s3_endpoint": store, "s3_bucket": "b", "s3_access_key": "k", "s3_secret_key": "s",
		"file_cache_path":            fmt.Sprintf(`[{"path":%q,"total_size":%d}]`, dir, total),
		"file_cache_each_block_size": fmt.Sprint(testCacheBlock),
		// Tests must not depend on how full the disk is.
		"file_cache_enter_disk_resource_limit_mode_percent": "100",
		"file_cache_exit_disk_resource_limit_mode_percent":  "99",
	}
}

// cacheNode is a BE in this process.
type cacheNode struct {
	*be
	t   *testing.T
	dir string
}

func startCacheNode(t *testing.T, size, total int64, more map[string]string) *cacheNode {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	values := cacheConf(storeOf(t, size), dir, total)
	maps.Copy(values, more)
	conf, err := config.FromMap(config.BE, values)
	if err != nil {
		t.Fatal(err)
	}
	conf.LogTo(slog.New(slog.DiscardHandler))
	b, err := startPatient(t.Context(), conf, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.drain(ctx); err != nil {
			t.Error(err)
		}
	})
	return &cacheNode{b, t, dir}
}

// read reads an object as a user of the given queue does, and checks its bytes.
func (n *cacheNode) read(key string, queue block.Queue) {
	n.t.Helper()
	n.readAs(key, &block.Read{Queue: queue})
}

// readAs reads an object as a fill does, or as what else is asked for.
func (n *cacheNode) readAs(key string, as *block.Read) {
	n.t.Helper()
	as.Object = block.Object{Store: "s3", Bucket: "b", Key: key}
	as.Size, as.Version, as.Route = -1, block.Immutable, block.TabletRoute(1)
	r, err := n.engine.Open(n.t.Context(), as)
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	want := newPattern(key, r.Meta().Size)
	for at := int64(0); ; {
		view, err := r.Next(n.t.Context())
		if err == io.EOF {
			return
		}
		if err != nil {
			n.t.Fatal(err)
		}
		got, truth := make([]byte, view.Lease.Len()), make([]byte, view.Lease.Len())
		_, err = view.Lease.CopyAt(got, 0)
		view.Lease.Release()
		_, _ = want.ReadAt(truth, at)
		if err != nil || string(got) != string(truth) {
			n.t.Fatalf("%s: wrong bytes at %d (%v)", key, at, err)
		}
		at += int64(len(got))
	}
}

// fill reads objects until the cache has seen so many bytes, in steps that its
// queue of writes can take.
func (n *cacheNode) fill(prefix string, size, bytes int64) {
	n.t.Helper()
	for i := range bytes / size {
		n.read(fmt.Sprint(prefix, i), block.QueueNormal)
		if err := n.cache.Flush(n.t.Context()); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *cacheNode) set(values map[string]string) {
	n.t.Helper()
	if err := n.conf.Update(values, false); err != nil {
		n.t.Fatal(err)
	}
}

// await waits until ok, which the cache's keeper brings about within a second
// or two.
func (n *cacheNode) await(what string, ok func() bool) {
	n.t.Helper()
	if !poll(ok) {
		n.t.Fatalf("not within a minute: %s; %+v", what, n.cache.Metrics())
	}
}

// used is the part of the capacity that blocks hold, in percent.
func (n *cacheNode) used() int64 {
	m := n.cache.Metrics()
	return m.Bytes * 100 / m.CapacityBytes
}

// diskBlocks is what a directory and its files take of the disk, in bytes.
func diskBlocks(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(path, &st)
		}
		bytes += st.Blocks * 512
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return bytes
}

// fillQuotaActs changes the quota of fills for peers and looks what they hold.
func (n *cacheNode) fillQuotaActs(object, total int64) {
	n.t.Helper()
	n.set(map[string]string{"enable_evict_file_cache_in_advance": "false", "peer_server_cache_fill_quota_percent": "25"})
	n.fill("d", object, 2*total)
	fills := func(from, to int) int64 {
		for i := from; i < to; i++ {
			n.readAs(fmt.Sprint("fill", i), &block.Read{ForPeer: true, NoPeer: true})
			if err := n.cache.Flush(n.t.Context()); err != nil {
				n.t.Fatal(err)
			}
		}
		return n.cache.Metrics().FillBytes
	}
	n.await("a quota of 25 % of fills", func() bool {
		held := fills(0, 16)
		return held > total*20/100 && held <= total*25/100
	})
	n.set(map[string]string{"peer_server_cache_fill_quota_percent": "50"})
	next := 100
	n.await("one of 50 %", func() bool {
		next += 16
		held := fills(next, next+16)
		return held > total*45/100 && held <= total*50/100
	})
}

// TestS51_S56_CF03_CacheKeysAct changes each key of the cache in a running BE and
// looks what the cache does.
func TestS51_S56_CF03_CacheKeysAct(t *testing.T) {
	const total, object = 16 << 20, 1 << 20
	n := startCacheNode(t, object, total, map[string]string{"file_cache_scrub_bytes_per_second": "0"})
	for _, key := range n.conf.Unbound() {
		if strings.Contains(key, "file_cache") || strings.Contains(key, "cache_fill_quota") {
			t.Errorf("nothing follows %s", key)
		}
	}

	n.fill("a", object, 2*total)
	n.await("eviction in advance keeps below 88 %", func() bool { return n.used() < 88 })
	n.set(map[string]string{"enable_evict_file_cache_in_advance": "false"})
	n.fill("b", object, 2*total)
	if n.used() < 95 {
		t.Errorf("without eviction in advance %d %% are used", n.used())
	}
	n.set(map[string]string{
		"enable_evict_file_cache_in_advance":                   "true",
		"file_cache_enter_need_evict_cache_in_advance_percent": "60",
		"file_cache_exit_need_evict_cache_in_advance_percent":  "50",
	})
	n.await("eviction in advance down to 50 %", func() bool { return n.used() <= 50 })

	var fs syscall.Statfs_t
	if err := syscall.Statfs(n.dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Bavail*100/fs.Blocks < 97 {
		n.set(map[string]string{
			"file_cache_exit_disk_resource_limit_mode_percent":  "1",
			"file_cache_enter_disk_resource_limit_mode_percent": "2",
		})
		n.await("disk-limit mode", func() bool { return n.cache.Metrics().Limited == 1 })
		before := n.cache.Metrics()
		n.fill("c", object, object)
		if m := n.cache.Metrics(); m.Refused < before.Refused+object/testCacheBlock || m.Blocks > before.Blocks {
			t.Errorf("in disk-limit mode %d of %d blocks were refused", m.Refused-before.Refused, object/testCacheBlock)
		}
		n.set(map[string]string{
			"file_cache_enter_disk_resource_limit_mode_percent": "100",
			"file_cache_exit_disk_resource_limit_mode_percent":  "99",
		})
		n.await("the end of disk-limit mode", func() bool { return n.cache.Metrics().Limited == 0 })
	}

	n.fillQuotaActs(object, total)

	n.read("ttl", block.QueueTTL)
	if m := n.cache.Metrics(); m.QueueBlocks[block.QueueTTL] == 0 {
		t.Errorf("no block in the TTL queue: %v", m.QueueBlocks)
	}
	n.set(map[string]string{"file_cache_ttl_seconds": "1"})
	n.await("TTL blocks become NORMAL ones", func() bool { return n.cache.Metrics().QueueBlocks[block.QueueTTL] == 0 })

	if m := n.cache.Metrics(); m.ScrubbedBytes != 0 {
		t.Errorf("%d bytes were scrubbed with the scrubber off", m.ScrubbedBytes)
	}
	n.set(map[string]string{"file_cache_scrub_bytes_per_second": "1000000"})
	n.await("the scrubber", func() bool { return n.cache.Metrics().ScrubbedBytes > 0 })
}

// TestS55_ResetChangesTheCapacity through the verb of the running node.
func TestS55_ResetChangesTheCapacity(t *testing.T) {
	const total, object = 16 << 20, 1 << 20
	n := startCacheNode(t, object, total, nil)
	n.fill("a", object, total)
	ask := func(capacity int64, dir string) int {
		q := url.Values{"op": {"reset"}, "capacity": {fmt.Sprint(capacity)}, "path": {dir}}
		r, err := http.Get("http://" + n.httpLn.Addr().String() + "/api/file_cache?" + q.Encode())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		return r.StatusCode
	}
	for _, c := range []struct {
		capacity int64
		dir      string
		status   int
	}{{total + 1, n.dir, 400}, {1, n.dir, 400}, {total / 2, n.dir + "x", 404}} {
		if got := ask(c.capacity, c.dir); got != c.status || n.cache.Metrics().CapacityBytes != total {
			t.Errorf("capacity %d of %s: status %d, want %d; then %d bytes", c.capacity, c.dir, got, c.status, n.cache.Metrics().CapacityBytes)
		}
	}
	for _, capacity := range []int64{total / 4, total} {
		if got := ask(capacity, n.dir); got != 200 || n.cache.Metrics().CapacityBytes != capacity {
			t.Fatalf("capacity %d: status %d, then %d bytes", capacity, got, n.cache.Metrics().CapacityBytes)
		}
		n.await("disk blocks within the capacity", func() bool { return diskBlocks(t, n.dir) <= capacity })
		n.fill(fmt.Sprint(capacity), object, total)
		if got := diskBlocks(t, n.dir); got > capacity || got < capacity/2 {
			t.Errorf("capacity %d: %d bytes of disk in use", capacity, got)
		}
	}
}
