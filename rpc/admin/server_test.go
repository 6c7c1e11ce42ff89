package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
)

const bearer = "Authorization: Bearer "

// TestSE01_EveryRouteThatChangesNeedsTheToken walks the router. A route that
// changes something without the token fails it, and so does one whose method
// says that it changes something and whose access does not.
func TestSE01_EveryRouteThatChangesNeedsTheToken(t *testing.T) {
	n := startBE(t, map[string]string{"admin_token": "s3cr3t", "read_token": "a reader's"})
	guarded := 0
	for _, r := range n.all() {
		if r.method != "GET" && r.access != Changing {
			t.Errorf("%s %s op=%s is open to everybody", r.method, r.path, r.op)
		}
		target := strings.TrimSuffix(r.path, "*") + "?seconds=1&op=" + r.op
		for _, header := range []string{"", bearer + "wrong", bearer + "s3cr3", bearer + "s3cr3t ?", "Authorization: Basic s3cr3t", bearer} {
			if r.access == Open {
				continue
			}
			guarded++
			resp, body := n.answer(r.method, target, "", header)
			if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, `"unauthorized"`) {
				t.Errorf("%s %s with %q: %d %.200q", r.method, target, header, resp.StatusCode, body)
			}
		}
		if r.access == Changing {
			if status, _ := n.ask(r.method, target, "", bearer+"a reader's"); status != http.StatusUnauthorized {
				t.Errorf("%s %s with the reader's token: %d", r.method, target, status)
			}
		}
		if status, _ := n.ask(r.method, target, "", bearer+"s3cr3t"); status == http.StatusUnauthorized {
			t.Errorf("%s %s refuses the admin's token", r.method, target)
		}
	}
	if guarded == 0 {
		t.Error("no route is guarded")
	}
	if log := n.log.String(); !strings.Contains(log, "without the admin's token") || strings.Contains(log, "s3cr3t") {
		t.Errorf("the log keeps quiet about strangers, or tells the token")
	}
}

func TestS65_TokensGuardReadsAndAdministration(t *testing.T) {
	n := startBE(t, map[string]string{"read_token": "r"})
	n.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: "k"}, []byte("hello"))
	for _, step := range []struct {
		update, header string
		want           int
	}{
		{"", "", 401}, {"", bearer + "r", 200}, {"", bearer + "a", 401},
		{"", "Authorization: bearer r", 200}, {"", "Authorization: BEARER r", 200}, {"", "Authorization: bear r", 401},
		{"admin_token=a", bearer + "a", 200}, // the admin may read
		{"read_token=s", bearer + "r", 401}, {"", bearer + "s", 200},
		{"read_token=", "", 200},
	} {
		if step.update != "" {
			if status, body := n.ask("POST", "/api/update_config?"+step.update, "", bearer+"a"); status != 200 {
				t.Fatalf("%s: %d %s", step.update, status, body)
			}
		}
		if status, body := n.ask("GET", "/read?path=k", "", step.header); status != step.want {
			t.Errorf("after %q, with %q: %d %s", step.update, step.header, status, body)
		}
	}
	if _, body := n.ask("GET", "/api/show_config", ""); strings.Contains(body, `"a"`) || strings.Contains(body, `"s"`) {
		t.Error("show_config tells a token")
	}
}

func TestS78_HealthAndPprof(t *testing.T) {
	n := startBE(t, nil)
	for _, target := range []string{"/livez", "/readyz", "/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/profile?seconds=1"} {
		if status, body := n.ask("GET", target, ""); status != 200 || body == "" {
			t.Errorf("%s: %d, %d bytes", target, status, len(body))
		}
	}
	n.Health.NotReady("draining")
	if status, body := n.ask("GET", "/readyz", ""); status != 503 || !strings.Contains(body, "draining") {
		t.Errorf("/readyz of a draining node: %d %s", status, body)
	}
	if status, _ := n.ask("GET", "/livez", ""); status != 200 {
		t.Errorf("/livez of a draining node: %d", status)
	}
}

func TestSE01_ProfilesAreBounded(t *testing.T) {
	n := startBE(t, nil)
	for _, seconds := range []string{"0", "61", "1e9", "-1"} {
		if status, _ := n.ask("GET", "/debug/pprof/profile?seconds="+seconds, ""); status != 400 {
			t.Errorf("a profile of %s seconds: %d", seconds, status)
		}
	}
	var results sync.Map
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { // ends with its answer
			status, _ := n.ask("GET", "/debug/pprof/profile?seconds=1", "")
			results.Store(i, status)
		})
	}
	wg.Wait()
	counts := map[int]int{}
	results.Range(func(_, status any) bool { counts[status.(int)]++; return true })
	if counts[200] == 0 || counts[200]+counts[429] != 4 {
		t.Errorf("four profiles at once: %v", counts)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	n := startBE(t, nil)
	for _, tc := range []struct {
		method, target string
		want           int
	}{
		{"GET", "/", 404}, {"GET", "/api", 404}, {"GET", "/api/peer_cache/", 404}, {"GET", "/nothing", 404}, {"GET", "/metricsx", 404},
		{"POST", "/metrics", 405}, {"DELETE", "/read", 405}, {"HEAD", "/metrics", 200}, {"HEAD", "/livez", 200},
		{"GET", "/api/../livez", 200}, {"GET", "/%6civez", 200},
	} {
		if status, body := n.ask(tc.method, tc.target, ""); status != tc.want {
			t.Errorf("%s %s: %d %s", tc.method, tc.target, status, body)
		}
	}
}

func TestHT05_AdminPortRefusesDoubtfulRequests(t *testing.T) {
	n := startBE(t, nil)
	hidden := "POST /api/update_config?peer_race_hedge_delay_ms=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
	head := "POST /api/peer_cache?op=remove&tablet_id=1 HTTP/1.1\r\nHost: a\r\n"
	for name, in := range map[string]string{
		"both":      head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two":       head + "Content-Length: 0\r\nContent-Length: 100\r\n\r\n" + hidden,
		"plus":      head + "Content-Length: +0\r\n\r\n" + hidden,
		"bare LF":   strings.ReplaceAll(head, "\r\n", "\n") + "\n" + hidden,
		"folded":    head + "X: a\r\n b\r\n\r\n" + hidden,
		"big chunk": head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + hidden,
	} {
		out := n.raw([]byte(in))
		if !strings.HasPrefix(out, "HTTP/1.1 400 ") || !strings.Contains(out, `"malformed_request"`) ||
			!strings.Contains(out, "Connection: close") || strings.Count(out, "HTTP/1.1 ") != 1 {
			t.Errorf("%s: %q", name, out)
		}
	}
	if got := n.conf.Int("peer_race_hedge_delay_ms"); got != 20 {
		t.Errorf("a hidden request ran: the head start is %d ms", got)
	}
}

func TestHT02_LargeBodiesAreRefused(t *testing.T) {
	n := startBE(t, nil)
	big := strings.Repeat("x", 8<<20)
	head := "POST /api/peer_cache?op=set&tablet_id=1 HTTP/1.1\r\nHost: a\r\n"
	for name, in := range map[string]string{
		"length": head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(big), big),
		"chunks": head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(big), big),
		"form":   head + fmt.Sprintf("Content-Type: multipart/form-data; boundary=x\r\nContent-Length: %d\r\n\r\n--x\r\n%s", len(big), big),
	} {
		var before, after runtime.MemStats
		sent := []byte(in)
		runtime.ReadMemStats(&before)
		out := n.raw(sent)
		runtime.ReadMemStats(&after)
		if !strings.HasPrefix(out, "HTTP/1.1 413 ") || !strings.Contains(out, `"body_too_large"`) || !strings.Contains(out, "Connection: close") {
			t.Errorf("%s: %.300q", name, out)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 2<<20 {
			t.Errorf("%s: %d bytes were allocated", name, grown)
		}
	}
	long := "GET /livez HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n"
	if out := n.raw([]byte(long)); !strings.HasPrefix(out, "HTTP/1.1 431 ") || !strings.Contains(out, `"header_too_large"`) {
		t.Errorf("a long header: %.200q", out)
	}
}

// TestHT01_SlowSendersHoldNeitherMemoryNorConnections runs with the limits as
// they are: it takes as long as a request may.
func TestHT01_SlowSendersHoldNeitherMemoryNorConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as a request may take to arrive")
	}
	n := startBE(t, nil)
	const senders = 1000
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var started, ended sync.WaitGroup
	answers := make(chan string, senders)
	started.Add(senders)
	for range senders {
		ended.Go(func() { answers <- n.sendSlowly(maxBodyBytes, started.Done) }) // ends when the server cuts it
	}
	go func() { // ends with the senders
		ended.Wait()
		close(answers)
	}()
	started.Wait()
	runtime.ReadMemStats(&during)
	if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > senders*2*int64(maxBodyBytes) {
		t.Errorf("%d slow senders hold %d bytes", senders, grown)
	}
	for out := range answers {
		if !strings.HasPrefix(out, "HTTP/1.1 408 ") {
			t.Fatalf("a slow sender got %.100q", out)
		}
		if status, body := n.ask("GET", "/livez", ""); status != http.StatusOK {
			t.Fatalf("meanwhile /livez says %d %.100q", status, body)
		}
	}
}

// sendSlowly announces a body and sends a byte now and then, until the server
// has had enough; it returns what the server said.
func (n *nodeUnderTest) sendSlowly(length int, started func()) string {
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		started()
		return err.Error()
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /api/peer_cache?op=set&tablet_id=1 HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", length)
	started()
	var out bytes.Buffer
	for {
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err.Error()
		}
		_, err := io.Copy(&out, c)
		if wait := net.Error(nil); !errors.As(err, &wait) || !wait.Timeout() {
			return out.String()
		}
		if _, err := c.Write([]byte("x")); err != nil {
			return out.String()
		}
	}
}

func TestOB05_TwoNodesInOneProcess(t *testing.T) {
	a, b := startBE(t, nil), startBE(t, nil)
	a.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: "k"}, []byte("hello"))
	a.ask("GET", "/read?path=k", "")
	for node, want := range map[*nodeUnderTest]string{a: "headstart_reads_total 1\n", b: "headstart_reads_total 0\n"} {
		for range 2 { // and it is not counted twice by being looked at twice
			if _, text := node.ask("GET", "/metrics", ""); strings.Count(text, "\n"+want) != 1 {
				t.Errorf("want %q once", want)
			}
		}
	}
}

func TestShutdownBeforeServe(t *testing.T) {
	f := startFE(t, nil)
	must(t, f.Shutdown(context.Background()))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, f.Serve(ln))
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("the port is open")
	}
}

func TestShutdownWaitsForTheRequestUnderWay(t *testing.T) {
	n := startBE(t, nil)
	if status, _ := n.ask("GET", "/livez", ""); status != 200 {
		t.Fatal(status)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	must(t, n.Shutdown(ctx))
	if _, err := net.Dial("tcp", n.addr); err == nil {
		t.Error("the port is still open")
	}
}

// TestHT01_ShutdownEndsHalfRequests: who has sent a part of a header is not waited
// for until it is told that it was too slow.
func TestHT01_ShutdownEndsHalfRequests(t *testing.T) {
	n := startBE(t, nil)
	var half []net.Conn
	for _, text := range []string{"", "G", "GET /livez HTTP/1.1\r\nHost: a\r\n"} {
		c, err := net.Dial("tcp", n.addr)
		must(t, err)
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(c, text)
		must(t, err)
		half = append(half, c)
	}
	must(t, n.Shutdown(t.Context()))
	for i, c := range half {
		if n, err := c.Read(make([]byte, 100)); n > 0 || err == nil {
			t.Errorf("connection %d has got an answer, %d bytes", i, n)
		}
	}
}
