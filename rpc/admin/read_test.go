package admin

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"headstart/engine/block"
)

// content is n bytes of which each 8 tell their place.
func content(n int) []byte {
	out := make([]byte, 0, n+8)
	for i := 0; i < n; i += 8 {
		out = binary.BigEndian.AppendUint64(out, uint64(i)<<8|0xa5)
	}
	return out[:n]
}

// withObject starts a node beside an object of the given size, key "k".
func withObject(t *testing.T, size int) (*nodeUnderTest, []byte) {
	t.Helper()
	n := startBE(t, nil)
	data := content(size)
	n.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: "k"}, data)
	return n, data
}

func TestS11_ReadOverHTTP(t *testing.T) {
	const size = 5*testBlock + 100
	n, data := withObject(t, size)
	for _, kind := range []string{"", "&tablet_id=7", "&kind=inverted_index"} {
		for _, r := range [][2]int{
			{0, size}, {0, 1}, {size - 1, 1}, {testBlock - 1, 2}, {10, testBlock - 10}, {testBlock, testBlock},
			{1, 4 * testBlock}, {3, size}, {size - 5, 1 << 20}, {0, 0}, {7, 0},
		} {
			for range 2 { // from object storage, then from the cache
				status, got := n.ask("GET", fmt.Sprintf("/read?path=k&offset=%d&size=%d%s", r[0], r[1], kind), "")
				want := data[r[0]:min(r[0]+r[1], size)]
				if status != 200 || !bytes.Equal([]byte(got), want) {
					t.Errorf("%d bytes from %d%s: %d, %d bytes", r[1], r[0], kind, status, len(got))
				}
			}
		}
	}
	for target, want := range map[string]int{
		"/read?path=k&offset=" + fmt.Sprint(size+1): 400, "/read?path=nothing": 404, "/read": 400, "/read?path=k&offset=-1": 400,
		"/read?path=k&size=1e3": 400, "/read?path=k&tablet_id=9223372036854775808": 400, "/read?path=k&kind=data2": 400, "/read?path=s3://": 400,
	} {
		if status, body := n.ask("GET", target, ""); status != want || !strings.Contains(body, `"code"`) {
			t.Errorf("%s: %d %s", target, status, body)
		}
	}
	resp, body := n.answer("HEAD", "/read?path=k", "")
	if resp.StatusCode != 200 || resp.ContentLength != size || body != "" || resp.Header.Get("X-Headstart-Source") != "local" {
		t.Errorf("HEAD: %d, length %d, %v", resp.StatusCode, resp.ContentLength, resp.Header)
	}
	if in := n.Buffers.Metrics().LentBytes; in != 0 {
		t.Errorf("%d bytes are still lent", in)
	}
}

func TestS17_PackedFilesOverHTTP(t *testing.T) {
	const size = 5*testBlock + 100
	n, data := withObject(t, size)
	const file = "/read?path=k&tablet_id=7&packed_offset=4000&packed_size=9000"
	for target, want := range map[string][]byte{
		file:                          data[4000:13000],
		file + "&offset=100&size=200": data[4100:4300],
		file + "&offset=8990&size=99": data[12990:13000],
		file + "&offset=9000":         {},
	} {
		if status, got := n.ask("GET", target, ""); status != 200 || got != string(want) {
			t.Errorf("%s: %d, %d bytes, want %d", target, status, len(got), len(want))
		}
	}
	for _, target := range []string{
		file + "&offset=9001",
		"/read?path=k&packed_offset=1", "/read?path=k&packed_size=1", "/read?path=k&packed_offset=-1&packed_size=1",
		fmt.Sprintf("/read?path=k&packed_offset=%d&packed_size=2", size-1), "/read?path=k&packed_offset=9223372036854775807&packed_size=1",
	} {
		if status, body := n.ask("GET", target, ""); status != 400 || !strings.Contains(body, `"code"`) {
			t.Errorf("%s: %d %s", target, status, body)
		}
	}
}

// TestLC10_BytesThatVanishUnderARead truncates the file that cached blocks lie
// in: the client gets the right bytes all the same, from object storage.
func TestLC10_BytesThatVanishUnderARead(t *testing.T) {
	n, data := withObject(t, 8*testBlock)
	n.ask("GET", "/read?path=k", "")
	n.ask("GET", "/api/file_cache?op=dump", "")
	gets := n.source.mu.gets
	for _, keep := range []int64{3*testBlock + 100, 1, 0} {
		must(t, n.Cache.Flush(t.Context()))
		for _, path := range n.cacheFiles(4 * testBlock) {
			must(t, os.Truncate(path, keep))
		}
		for range 2 {
			status, got := n.ask("GET", "/read?path=k", "")
			if status != 200 || !bytes.Equal([]byte(got), data) {
				t.Errorf("cut to %d bytes: %d, %d bytes, right: %t", keep, status, len(got), bytes.Equal([]byte(got), data))
			}
		}
	}
	if n.source.mu.gets == gets {
		t.Error("nobody has noticed")
	}
	if m := n.Engine.Metrics(); m.PeerCorrupt != 0 || m.ReadErrors != 0 {
		t.Errorf("what the disk has lost is booked as %+v", m)
	}
}

// cacheFiles are the files of the cache that are at least so long.
func (n *nodeUnderTest) cacheFiles(size int64) (list []string) {
	n.t.Helper()
	must(n.t, filepath.Walk(n.conf.CachePaths("file_cache_path")[0].Path, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Size() >= size {
			list = append(list, path)
		}
		return err
	}))
	if len(list) == 0 {
		n.t.Fatal("the cache has no file of that size")
	}
	return list
}

func TestClientThatLeavesGivesEverythingBack(t *testing.T) {
	n, _ := withObject(t, 100*testBlock)
	for range 10 {
		resp, err := n.client.Get("http://" + n.addr + "/read?path=k")
		must(t, err)
		var some [100]byte
		if _, err := resp.Body.Read(some[:]); err != nil {
			t.Error(err)
		}
		must(t, resp.Body.Close())
	}
	if status, _ := n.ask("GET", "/api/file_cache?op=clear&sync=true", ""); status != 200 {
		t.Errorf("clear: %d", status)
	}
}

func TestS73_QueryProfileOverHTTP(t *testing.T) {
	n, _ := withObject(t, 3*testBlock)
	n.ask("GET", "/read?path=k&tablet_id=1&query_id=before&offset="+fmt.Sprint(2*testBlock), "") // now the object is known
	for range 2 {
		n.ask("GET", "/read?path=k&tablet_id=1&query_id=q-1&size="+fmt.Sprint(2*testBlock), "")
	}
	n.ask("GET", "/read?path=k&tablet_id=1&query_id=q-1&kind=segment_footer&size=10", "")
	status, text := n.ask("GET", "/api/query_profile?query_id=q-1", "")
	for _, want := range []string{
		"Query \"q-1\":\n  SegmentIterator:\n    -  NumLocalIOTotal: 3\n    -  NumRemoteIOTotal: 2\n",
		"    -  BytesScannedFromRemote: 128.00 KiB\n", "    -  SegmentFooterIndexNumLocalIOTotal: 1\n", "    -  PeerCacheNodes: []\n",
	} {
		if status != 200 || !strings.Contains(text, want) {
			t.Errorf("%d, no %q in\n%s", status, want, text)
		}
	}
	var profile struct {
		ID       string         `json:"query_id"`
		Counters map[string]any `json:"SegmentIterator"`
	}
	_, text = n.ask("GET", "/api/query_profile?query_id=q-1&format=json", "")
	must(t, json.Unmarshal([]byte(text), &profile))
	c := profile.Counters
	if profile.ID != "q-1" || c["NumRemoteIOTotal"] != 2.0 || c["BytesScannedFromRemote"] != 2.0*testBlock || c["BytesScannedFromCache"] != 2.0*testBlock+10 {
		t.Errorf("%s", text)
	}
	if timer, ok := c["RemoteIOUseTimer"].(float64); !ok || timer <= 0 {
		t.Errorf("a timer of %v", c["RemoteIOUseTimer"])
	}
	for target, want := range map[string]int{"?query_id=q-2": 404, "": 404, "?query_id=q-1&format=xml": 400} {
		if status, _ := n.ask("GET", "/api/query_profile"+target, ""); status != want {
			t.Errorf("%s: %d", target, status)
		}
	}
}

func TestReadRefusesArgumentsThatNobodyLooksAt(t *testing.T) {
	n := startBE(t, nil)
	n.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: "k"}, []byte("hello"))
	for query, want := range map[string]string{
		"path=k":                       "",
		"path=k&tabletid=7":            `unknown argument \"tabletid\": want path, tablet_id, offset`,
		"path=k&offset=1&offset=2":     `argument \"offset\" is given twice`,
		"path=k&path=k":                `argument \"path\" is given twice`,
		"path=k&op=read":               `unknown argument \"op\"`,
		"path=k&%00=":                  `unknown argument \"\\x00\"`,
		"path=hdfs://bucket/k":         "this node reads from no other kind of store",
		"path=s3a://bucket/k&size=5":   "",
		"path=k&offset=1&size=2&kind=": "",
	} {
		status, body := n.ask("GET", "/read?"+query, "")
		if (status == 200) != (want == "") || !strings.Contains(body, want) || want != "" && status != 400 {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	if n.source.mu.gets != 1 {
		t.Errorf("%d GETs: s3 and s3a of one object are two", n.source.mu.gets)
	}
}

// FuzzReadArguments: no arguments bring the reader down, and what is taken
// makes sense.
func FuzzReadArguments(f *testing.F) {
	f.Add("path=s3://b/k&tablet_id=1&offset=0&size=10&kind=data&query_id=q")
	f.Add("path=k&offset=-1")
	f.Add("path=%00&offset=9223372036854775807&size=9223372036854775807")
	be := &BE{BEOptions: BEOptions{Bucket: "bucket"}}
	f.Fuzz(func(t *testing.T, query string) {
		var args fasthttp.Args
		args.Parse(query)
		req, err := be.readRequest(&args)
		if err != nil {
			return
		}
		if req.Offset < 0 || req.Size < -1 || req.Object.Bucket == "" || req.Object.Key == "" || req.Route.Kind == 0 {
			t.Errorf("%q: %+v", query, req)
		}
	})
}

// FuzzPeerCacheBody: a body is refused and nothing changes, or the tablet is
// what the body says, and what show answers is accepted again.
func FuzzPeerCacheBody(f *testing.F) {
	f.Add([]byte(`{"candidates":[{"host":"10.0.0.2","brpc_port":8060,"compute_group_id":"cg_write_01"}],"last_successful_compute_group_id":"a"}`))
	f.Add([]byte(`{"candidates":[],"consecutive_all_miss":4,"cooldown_until_ms":32503680000000}`))
	f.Add([]byte(`{"Candidates":null}`))
	n := startBE(f, nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		n.Table.Remove(block.TabletRoute(1))
		_, before := n.direct("GET", "/api/peer_cache?op=show&tablet_id=1", nil)
		status, answer := n.direct("POST", "/api/peer_cache?op=set&tablet_id=1", body)
		_, after := n.direct("GET", "/api/peer_cache?op=show&tablet_id=1", nil)
		switch {
		case status == http.StatusOK:
			if status, again := n.direct("POST", "/api/peer_cache?op=set&tablet_id=1", []byte(after)); status != http.StatusOK {
				t.Errorf("%q was taken, but not its own echo %q: %s", body, after, again)
			}
		case status < 400 || status > 499 || !strings.Contains(answer, `"code"`):
			t.Errorf("%q: %d %s", body, status, answer)
		case after != before:
			t.Errorf("%q: %d, and now it is %s", body, status, after)
		}
	})
}

// FuzzUpdateQuery: a query is refused and nothing changes, or all of it is in
// force.
func FuzzUpdateQuery(f *testing.F) {
	f.Add("peer_race_hedge_delay_ms=30&persist=true")
	f.Add("enable_peer_s3_race=false&max_concurrent_peer_races=%31")
	f.Add("log_level=debug&&=&persist=")
	n := startBE(f, nil)
	f.Fuzz(func(t *testing.T, query string) {
		_, before := n.direct("GET", "/api/show_config", nil)
		status, answer := n.direct("POST", "/api/update_config?"+query, nil)
		_, after := n.direct("GET", "/api/show_config", nil)
		switch {
		case status == http.StatusOK:
		case status < 400 || status > 499 || !strings.Contains(answer, `"code"`):
			t.Errorf("%q: %d %s", query, status, answer)
		case after != before:
			t.Errorf("%q was refused and changed\n%s\nto\n%s", query, before, after)
		}
	})
}
