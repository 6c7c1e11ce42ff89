package admin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"headstart/blockcache"
	"headstart/cmd/config"
	"headstart/engine"
	"headstart/engine/block"
	"headstart/engine/fill"
	"headstart/engine/profile"
	"headstart/engine/timeline"
	"headstart/pools"
	"headstart/shards"
)

const testBlock = 64 << 10

// source is object storage in memory.
type source struct {
	mu struct {
		sync.Mutex
		objects map[string][]byte
		gets    int
	}
}

func (s *source) put(o block.Object, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.objects[o.String()] = data
}

func (s *source) meta(o block.Object, data []byte) block.Meta {
	version := block.Version(fmt.Sprintf("%08x", block.Checksum(data)))
	return block.Meta{Size: int64(len(data)), Version: version, ETag: string(version)}
}

// Head implements engine.Origin.
func (s *source) Head(_ context.Context, o block.Object) (block.Meta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.mu.objects[o.String()]
	if !ok {
		return block.Meta{}, block.ErrNotFound
	}
	return s.meta(o, data), nil
}

// Fetch implements block.Store.
func (s *source) Fetch(_ context.Context, f *block.Fetch) (block.Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.gets++
	data, ok := s.mu.objects[f.Object.String()]
	if !ok {
		return nil, &block.Error{Op: "get", Object: f.Object, Source: block.SourceStore, Err: block.ErrNotFound}
	}
	st := &pieces{meta: s.meta(f.Object, data)}
	if f.Meta.Version == block.Immutable {
		st.meta.Version = block.Immutable
	}
	for i := range uint64(block.MaxRun) {
		from := int64(f.Run.First+i) * f.BlockSize
		if f.Run.Has(f.Run.First+i) && from < int64(len(data)) {
			buf := block.NewBuf(bytes.Clone(data[from:min(from+f.BlockSize, int64(len(data)))]), nil)
			buf.Seal()
			st.rest = append(st.rest, block.Piece{Index: f.Run.First + i, Status: block.StatusData, Buf: buf})
		}
	}
	return st, nil
}

// pieces is a reply that is there at once.
type pieces struct {
	meta block.Meta
	rest []block.Piece
}

func (p *pieces) Next() (block.Piece, error) {
	if len(p.rest) == 0 {
		return block.Piece{}, io.EOF
	}
	first := p.rest[0]
	p.rest = p.rest[1:]
	return first, nil
}

func (p *pieces) Meta() block.Meta { return p.meta }

func (p *pieces) Close() {
	for _, piece := range p.rest {
		piece.Buf.Release()
	}
	p.rest = nil
}

// nodeUnderTest is a BE of real parts that serves over a real socket; only
// object storage is in memory, and there are no peers.
type nodeUnderTest struct {
	*BE
	t      testing.TB
	addr   string
	conf   *config.Set
	source *source
	log    *bytes.Buffer
	client *http.Client
}

// startBE starts a node with keys besides the defaults.
func startBE(t testing.TB, keys map[string]string) *nodeUnderTest {
	t.Helper()
	dir := t.TempDir()
	var lines strings.Builder
	lines.WriteString("file_cache_path = [{\"path\":\"" + filepath.Join(dir, "cache") + "\",\"total_size\":16777216}]\n")
	for k, v := range keys {
		lines.WriteString(k + " = " + v + "\n")
	}
	path := filepath.Join(dir, "be.conf")
	conf, err := config.Load(config.BE, write(t, path, lines.String()))
	if err != nil {
		t.Fatal(err)
	}
	n := &nodeUnderTest{t: t, conf: conf, source: &source{}, log: new(bytes.Buffer), client: &http.Client{Timeout: 30 * time.Second}}
	n.source.mu.objects = map[string][]byte{}
	logger := slog.New(slog.NewTextHandler(&guarded{out: n.log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	conf.LogTo(logger)
	o := n.parts(dir, logger)
	n.BE = NewBE(o)
	n.hosts.resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
		switch name {
		case "metadata.internal":
			return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
		case "be-2.internal":
			return []netip.Addr{netip.MustParseAddr("10.0.0.2")}, nil
		}
		return nil, errors.New("no such host")
	}
	o.Health.Ready()
	n.addr = n.listen()
	return n
}

// parts builds what a BE is made of.
func (n *nodeUnderTest) parts(dir string, logger *slog.Logger) BEOptions {
	n.t.Helper()
	cache, err := blockcache.Open(blockcache.Options{
		BlockSize: testBlock, Logger: logger, IOTimeout: time.Minute,
		Paths: []blockcache.Path{{Dir: filepath.Join(dir, "cache"), TotalBytes: 16 << 20}},
	})
	must(n.t, err)
	queue, err := pools.NewQueue(pools.QueueOptions{Workers: 2, MaxQueue: 8, Timeout: time.Minute})
	must(n.t, err)
	buffers, err := pools.NewBuffers(pools.BuffersOptions{})
	must(n.t, err)
	settings := shards.NewSettings()
	breakers := shards.NewBreakers(settings)
	table := shards.NewTable(shards.Options{Self: []block.Addr{{Host: "10.0.0.1", Port: 8060}}}, settings, breakers)
	profiles, timelines := profile.New(100), timeline.New(10)
	races := pools.NewTokens(64)
	e, err := engine.New(engine.Options{
		Cache: cache, Origin: n.source, Settings: engine.NewSettings(), Profiles: profiles, Timelines: timelines,
		Table: table, Breakers: breakers, Races: races, RaceGets: races,
		BlockSize: testBlock, GroupID: "cg_read_01", Logger: logger,
	})
	must(n.t, err)
	server := fill.NewServer(fill.Options{
		Engine: e, Cache: cache, Settings: &fill.Settings{}, Queue: queue, Fills: pools.NewShares(32), Logger: logger,
	})
	n.t.Cleanup(func() {
		server.Close()
		e.Close()
		must(n.t, errors.Join(queue.Close(), cache.Close()))
	})
	o := BEOptions{
		Config: n.conf, Engine: e, Cache: cache, Serving: server, Table: table, Breakers: breakers,
		Profiles: profiles, Timelines: timelines, Buffers: buffers, Health: new(Health), Tokens: new(Tokens),
		Bucket: "bucket", BlockTimeout: time.Minute, Logger: logger,
	}
	n.conf.BindString("admin_token", &o.Tokens.Admin)
	n.conf.BindString("read_token", &o.Tokens.Read)
	n.conf.BindInt("slow_read_threshold_ms", &timelines.ThresholdMS)
	n.conf.BindInt("slow_read_sample_per_million", &timelines.SamplePerMillion)
	return o
}

func (n *nodeUnderTest) listen() string {
	n.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(n.t, err)
	done := make(chan error, 1)
	go func() { done <- n.Serve(ln) }() // ended by Shutdown
	n.t.Cleanup(func() {
		n.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		must(n.t, errors.Join(n.Shutdown(ctx), <-done))
	})
	return ln.Addr().String()
}

// guarded lets a log be written by many and read at the end.
type guarded struct {
	mu  sync.Mutex
	out *bytes.Buffer
}

func (g *guarded) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.Write(p)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// ask sends one request and returns status and body. A header is "Name: value".
func (n *nodeUnderTest) ask(method, target, body string, headers ...string) (int, string) {
	n.t.Helper()
	resp, text := n.answer(method, target, body, headers...)
	return resp.StatusCode, text
}

func (n *nodeUnderTest) answer(method, target, body string, headers ...string) (*http.Response, string) {
	n.t.Helper()
	req, err := http.NewRequest(method, "http://"+n.addr+target, strings.NewReader(body))
	must(n.t, err)
	for _, h := range headers {
		if name, value, ok := strings.Cut(h, ": "); ok {
			req.Header.Set(name, value)
		}
	}
	resp, err := n.client.Do(req)
	must(n.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(n.t, err)
	return resp, string(text)
}

// direct is ask without a network, for fuzzing.
func (n *nodeUnderTest) direct(method, target string, body []byte) (int, string) {
	var ctx fasthttp.RequestCtx
	var req fasthttp.Request
	req.Header.SetMethod(method)
	req.SetRequestURI(target)
	req.SetBody(body)
	ctx.Init(&req, nil, nil)
	n.dispatch(&ctx)
	return ctx.Response.StatusCode(), string(ctx.Response.Body())
}

// raw sends bytes as they are and returns all that comes back until the server
// closes the connection.
func (n *nodeUnderTest) raw(in []byte) string {
	n.t.Helper()
	c, err := net.Dial("tcp", n.addr)
	must(n.t, err)
	defer c.Close()
	must(n.t, c.SetDeadline(time.Now().Add(30*time.Second)))
	go c.Write(in) // ends with the connection
	out, err := io.ReadAll(c)
	must(n.t, err)
	return string(out)
}

// transcript plays testdata/NAME.txt: a line "> METHOD target" sends a request,
// whose body is what follows up to "< status"; what follows that is the answer,
// with the present time as NOW. Blank lines and lines with # in front are for
// people. With HEADSTART_WRITE_TESTDATA set the answers are written instead.
func (n *nodeUnderTest) transcript(name string) {
	n.t.Helper()
	path := filepath.Join("testdata", name+".txt")
	file, err := os.ReadFile(path)
	must(n.t, err)
	var out strings.Builder
	var method, target, body string
	sent := false
	scan := bufio.NewScanner(bytes.NewReader(file))
	for scan.Scan() {
		line := scan.Text()
		switch {
		case strings.HasPrefix(line, "> "):
			method, target, _ = strings.Cut(line[2:], " ")
			body, sent = "", false
			out.WriteString(line + "\n")
		case strings.HasPrefix(line, "< "):
			status, answer := n.ask(method, target, body)
			fmt.Fprintf(&out, "< %d\n%s", status, present(answer))
			sent = true
		case line == "" || strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		case !sent:
			body += line + "\n"
			out.WriteString(line + "\n")
		}
	}
	must(n.t, scan.Err())
	if os.Getenv("HEADSTART_WRITE_TESTDATA") != "" {
		must(n.t, os.WriteFile(path, []byte(out.String()), 0o644))
		return
	}
	want, got := strings.Split(string(file), "\n"), strings.Split(out.String(), "\n")
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			n.t.Fatalf("%s:%d: it says\n%s\nbut the node's answer is\n%s", path, i+1, excerpt(want, i), excerpt(got, i))
		}
	}
}

func excerpt(lines []string, at int) string {
	return strings.Join(lines[min(max(at-3, 0), len(lines)):min(at+4, len(lines))], "\n")
}

// present replaces Unix milliseconds of this day by NOW.
func present(text string) string {
	today := fmt.Sprint(time.Now().UnixMilli())[:5]
	for {
		at := strings.Index(text, ": "+today)
		if at < 0 || len(text) < at+15 {
			return text
		}
		text = text[:at+2] + "NOW" + text[at+15:]
	}
}

// all returns every route.
func (r *router) all() []route {
	var list []route
	for _, paths := range []map[string][]route{r.exact, r.below} {
		for _, routes := range paths {
			list = append(list, routes...)
		}
	}
	return list
}
