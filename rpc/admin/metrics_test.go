package admin

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"headstart/engine/block"
	"headstart/shards"
)

// metricsDoc is docs/METRICS.md.
func metricsDoc() string {
	var b strings.Builder
	b.WriteString(`# Metrics

Generated from the table of names in ` + "`rpc/admin`" + `; a test fails when they differ. (To renew it:
` + "`HEADSTART_WRITE_TESTDATA=1 go test ./rpc/admin -run OB08`" + `.)

Every value is about one node: there are no sums over a compute group. *Requesting side* is the BE that issues a read,
*serving side* the BE that answers a peer; a BE is both at the same time.

## The reference system's names

` + "`/vars`" + ` of the ` + "`brpc_port`" + ` and the ` + "`webserver_port`" + ` shows these as ` + "`name : value`" + `, times in microseconds;
` + "`/vars/NAME`" + ` takes ` + "`*`" + ` and ` + "`$`" + ` (one letter), and several names with commas. ` + "`/metrics`" + ` shows them by the same names.

`)
	rows(&b, referenceMetrics())
	b.WriteString("\n## Headstart's own\n\n`/metrics` alone shows these, in base units.\n\n")
	rows(&b, ownMetrics())
	fmt.Fprintf(&b, "| `%s{reason=…}` | counter | %s | Failed attempts at object storage, by reason. |\n", s3Errors, both)
	b.WriteString("\nThe Go runtime and the process are there as `go_…` and `process_…`.\n")
	return b.String()
}

func rows(b *strings.Builder, list []metric) {
	b.WriteString("| name | kind | side | |\n|---|---|---|---|\n")
	for _, m := range list {
		kind := [...]string{"counter", "gauge", "counter", "latency recorder", "summary"}[m.kind]
		names := "`" + m.name + "`"
		if m.kind == recorder {
			names = ""
			for _, v := range varsOf(m.name, m.latencies(new(books))) {
				names += "`" + v.name + "` "
			}
		}
		help := m.help
		if help == "" {
			help = "″"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", strings.TrimSpace(names), kind, m.side, help)
	}
}

func TestOB08_TheDocumentSaysWhatIsCounted(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "METRICS.md")
	if os.Getenv("HEADSTART_WRITE_TESTDATA") != "" {
		must(t, os.WriteFile(path, []byte(metricsDoc()), 0o644))
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != metricsDoc() {
		t.Errorf("%s is not up to date (%v)", path, err)
	}
}

func TestNamesOfMetricsFollowTheRules(t *testing.T) {
	own := regexp.MustCompile(`^headstart_[a-z0-9_]+(\{[a-z]+="[a-z0-9_]+"\})?$`)
	seen := map[string]bool{}
	for i, m := range slices.Concat(referenceMetrics(), ownMetrics()) {
		family, labels, _ := strings.Cut(m.name, "{")
		total := strings.HasSuffix(family, "_total")
		switch {
		case seen[m.name]:
			t.Errorf("%s is there twice", m.name)
		case m.help == "" && !seen[family]:
			t.Errorf("%s does not say what it is", m.name)
		case (m.value == nil) == (m.latencies == nil):
			t.Errorf("%s has no value, or two", m.name)
		case i < len(referenceMetrics()):
		case !own.MatchString(m.name):
			t.Errorf("%s is no name of ours", m.name)
		case total != (m.kind == counter || m.kind == seconds):
			t.Errorf("%s: counters end in _total, and nothing else does", m.name)
		case strings.ContainsAny(labels, "0123456789") && labels != `source="s3"}`:
			t.Errorf("%s: a label that looks like an address or an id (OB-01)", m.name)
		}
		seen[m.name], seen[family] = true, true
	}
}

// parsed reads the text of /metrics.
func parsed(t *testing.T, text string) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSpace(line)
		blank := strings.LastIndexByte(line, ' ')
		name, value := line[:max(blank, 0)], line[blank+1:]
		v, err := strconv.ParseFloat(value, 64)
		if _, twice := values[name]; err != nil || twice {
			t.Errorf("%q: no number, or a second time", line)
		}
		values[name] = v
	}
	return values
}

func TestS70_VarsAndMetricsSayTheSame(t *testing.T) {
	n := startBE(t, nil)
	_, vars := n.ask("GET", "/vars", "")
	_, text := n.ask("GET", "/metrics", "")
	metrics := parsed(t, text)
	line := regexp.MustCompile(`^([a-z0-9_]+) : (\d+)\n$`)
	last := ""
	for l := range strings.Lines(vars) {
		found := line.FindStringSubmatch(l)
		if found == nil || found[1] <= last {
			t.Fatalf("%q behind %q is no line of /vars", l, last)
		}
		last = found[1]
		if v, ok := metrics[last]; !ok || strconv.FormatFloat(v, 'f', -1, 64) != found[2] {
			t.Errorf("%s is %s in /vars and %v in /metrics", last, found[2], v)
		}
	}
	for _, family := range []string{"headstart_peer_call_seconds", "headstart_peer_queue_wait_seconds_total", "headstart_s3_gets_total"} {
		if strings.Count(text, "# TYPE "+family+" ") != 1 || strings.Count(text, "# HELP "+family+" ") != 1 {
			t.Errorf("%s is not described once", family)
		}
	}
}

// requesterNames are those of S71, word by word.
func requesterNames() []string {
	return strings.Fields(`cached_remote_reader_peer_read cached_remote_reader_s3_read peer_race_peer_win peer_race_s3_win
		peer_race_both_fail peer_same_compute_group_read peer_cross_compute_group_read peer_lazy_fetch_triggered
		peer_cache_reader_peer_latency peer_cache_reader_peer_latency_50 peer_cache_reader_peer_latency_90
		peer_cache_reader_peer_latency_99 peer_cache_reader_peer_latency_999 peer_cache_reader_peer_max_latency
		peer_cache_reader_peer_count peer_cache_reader_peer_qps`)
}

// serverNames are those of S72.
func serverNames() []string {
	return strings.Fields(`file_cache_get_by_peer_num file_cache_get_by_peer_success_num file_cache_get_by_peer_failed_num
		file_cache_get_by_peer_queue_timeout_num peer_server_fill_requested peer_server_fill_success
		peer_server_fill_timeout peer_server_fill_rejected`)
}

func TestS71_NamesOfTheRequester(t *testing.T) { checkNames(t, requesterNames()) }

func TestS72_NamesOfTheServer(t *testing.T) { checkNames(t, serverNames()) }

func checkNames(t *testing.T, names []string) {
	t.Helper()
	n := startBE(t, nil)
	_, all := n.ask("GET", "/vars", "")
	if got := strings.Count(all, "\n"); got != len(requesterNames())+len(serverNames()) {
		t.Errorf("/vars has %d lines", got)
	}
	for _, name := range names {
		if status, line := n.ask("GET", "/vars/"+name, ""); status != 200 || line != name+" : 0\n" {
			t.Errorf("/vars/%s: %d %q", name, status, line)
		}
	}
}

func TestS70_Wildcards(t *testing.T) {
	n := startBE(t, nil)
	for pattern, want := range map[string]int{
		"peer_*": 18, "*": 24, "peer_race_*_win": 2, "*_win": 2, "peer_race_s$_win": 1, "peer_race_$$_win": 1, "peer_race_%3F3_win": 1,
		"peer_race_s3_win,peer_race_peer_win": 2, "peer_race_*;file_cache_*": 7, "p**r_race_*": 3, "peer_race": 0, "no_such": 0, "[a-z]*": 0, "*x*": 1,
	} {
		status, body := n.ask("GET", "/vars/"+pattern, "")
		if got := strings.Count(body, " : "); got != want || (status == 404) != (want == 0) {
			t.Errorf("/vars/%s: %d, %d lines, want %d", pattern, status, got, want)
		}
	}
}

func TestS70_VarsOnThePortOfPeers(t *testing.T) {
	n := startBE(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() { // ends with the listener
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n.ServeVars(c)
			c.Close()
		}
	}()
	defer func() { must(t, ln.Close()); <-done }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for target, want := range map[string]int{
		"/vars": 200, "/vars/peer_race_*": 200, "/vars/nothing": 404,
		// SE-01: nothing else is to be had there.
		"/debug/pprof/": 404, "/metrics": 404, "/api/update_config?peer_race_hedge_delay_ms=1": 404, "/read?path=x": 404, "/": 404,
	} {
		resp, err := client.Get("http://" + ln.Addr().String() + target)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", target, resp.StatusCode, want)
		}
	}
}

func TestOB01_TheNumberOfSeriesIsBounded(t *testing.T) {
	n := startBE(t, nil)
	_, before := n.ask("GET", "/metrics", "")
	scrape := func() { n.direct("GET", "/metrics", nil) }
	few := testing.AllocsPerRun(1, scrape)
	for i := range 100_000 {
		c := block.Addr{Host: fmt.Sprintf("10.1.%d.%d", i%5000/250, i%250), Port: 8060}
		if i < 5000 {
			ticket, _ := n.Breakers.Allow(c)
			ticket.Done(block.OutcomeError)
		}
		n.Table.PutSource(block.TabletRoute(int64(i)), shards.Candidate{Addr: c, GroupID: "cg_write_01"})
	}
	_, after := n.ask("GET", "/metrics", "")
	if strings.Count(after, "\n") != strings.Count(before, "\n") {
		t.Errorf("%d lines, %d before", strings.Count(after, "\n"), strings.Count(before, "\n"))
	}
	if many := testing.AllocsPerRun(1, scrape); len(after) > 1<<20 || many > 2*few {
		t.Errorf("a scrape has %d bytes and takes %v allocations, %v before", len(after), many, few)
	}
	if bytes.Contains([]byte(after), []byte("10.1.")) {
		t.Error("an address is a label")
	}
	if m := parsed(t, after); m["headstart_peer_addresses"] != 5000 || m["headstart_peer_tablets"] != 100_000 {
		t.Errorf("%v addresses, %v tablets", m["headstart_peer_addresses"], m["headstart_peer_tablets"])
	}
}
