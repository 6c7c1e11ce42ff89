package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"headstart/engine/block"
)

// latencies asks for target so many times, and returns how long that took in
// the middle and in the 99th of 100.
func (n *nodeUnderTest) latencies(target string, times int) (p50, p99 time.Duration) {
	n.t.Helper()
	var took []time.Duration
	for range times {
		began := time.Now()
		if status, body := n.ask("GET", target, ""); status != http.StatusOK {
			n.t.Fatalf("%s: %d %.100q", target, status, body)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[times/2], took[times*99/100]
}

// dribble sends a byte of a request a second until ctx ends, or the server has
// had enough.
func dribble(ctx context.Context, addr string, started func()) error {
	c, err := net.Dial("tcp", addr)
	started()
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	request := "GET /read?path=k HTTP/1.1\r\nHost: somebody\r\nX-Padding: " + string(make([]byte, 4096))
	for i := 0; ; i++ {
		if _, err := c.Write([]byte{request[i]}); err != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// slowClients lets n clients dribble until stop, which returns what went wrong.
func slowClients(addr string, n int) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var started, ended sync.WaitGroup
	started.Add(n)
	errs := make([]error, n)
	for i := range n {
		ended.Go(func() { errs[i] = dribble(ctx, addr, started.Done) }) // ends with stop
	}
	started.Wait()
	return func() error {
		cancel()
		ended.Wait()
		return errors.Join(errs...)
	}
}

const (
	manySlow = 500
	slowRead = "/read?path=k&tablet_id=1"
)

func startBESlowly(t testing.TB) *nodeUnderTest {
	n := startBE(t, nil)
	n.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: "k"}, make([]byte, testBlock))
	return n
}

// TestHT01_FiveHundredClientsOfOneByteASecond: neither health checks nor reads
// wait for them. Both are answered while all the slow ones are connected; whoever
// waits for one of them waits until it is cut off.
func TestHT01_FiveHundredClientsOfOneByteASecond(t *testing.T) {
	n := startBESlowly(t)
	stop := slowClients(n.addr, manySlow)
	answered := 0
	for range 100 {
		for _, target := range []string{"/livez", slowRead} {
			if status, body := n.ask("GET", target, ""); status != http.StatusOK {
				t.Errorf("%s: %d %.100q", target, status, body)
			}
		}
		if n.framed.HTTP.GetOpenConnectionsCount() > manySlow {
			answered++
		}
	}
	must(t, stop())
	if answered < 10 {
		t.Errorf("only %d of 100 health checks and reads were answered while the slow ones were connected", answered)
	}
}

// BenchmarkHT01_FiveHundredClientsOfOneByteASecond reports what health checks and
// reads take, in the middle and in the 99th of 100, without slow clients and in
// the first seconds of many:
//
//	go test ./rpc/admin -run '^$' -bench FiveHundred -benchtime 1x -count 5
func BenchmarkHT01_FiveHundredClientsOfOneByteASecond(b *testing.B) {
	n := startBESlowly(b)
	n.latencies(slowRead, 20)
	report := func(when string) {
		for name, target := range map[string]string{"livez": "/livez", "read": slowRead} {
			p50, p99 := n.latencies(target, 1000)
			b.ReportMetric(float64(p50.Microseconds())/1000, name+"_p50_"+when+"_ms")
			b.ReportMetric(float64(p99.Microseconds())/1000, name+"_p99_"+when+"_ms")
		}
	}
	for b.Loop() {
		report("alone")
		stop := slowClients(n.addr, manySlow)
		report("slow")
		must(b, stop())
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHT05_CostOfFraming asks over one kept connection, by a listener with
// framing in front and by one without, in turns.
func BenchmarkHT05_CostOfFraming(b *testing.B) {
	n := startBE(b, nil)
	n.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: "k"}, make([]byte, testBlock))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	go n.framed.HTTP.Serve(ln) // ended by the node's Shutdown
	const batch = 200
	ways := []func(){n.asker(b, ln.Addr().String()), n.asker(b, n.addr)}
	times, costs := make([][]float64, 2), []float64{}
	for b.Loop() {
		for w, ask := range ways {
			began := time.Now()
			for range batch {
				ask()
			}
			times[w] = append(times[w], float64(time.Since(began).Nanoseconds())/batch)
		}
		costs = append(costs, times[1][len(costs)]-times[0][len(costs)])
	}
	for _, list := range [][]float64{times[0], times[1], costs} {
		slices.Sort(list)
	}
	middle := len(costs) / 2
	b.ReportMetric(times[0][middle], "ns/bare")
	b.ReportMetric(times[1][middle], "ns/framed")
	b.ReportMetric(costs[middle], "ns-more/framed")
}

// asker returns a read of 64 bytes over one connection.
func (n *nodeUnderTest) asker(b *testing.B, addr string) func() {
	c, err := net.Dial("tcp", addr)
	must(b, err)
	b.Cleanup(func() { c.Close() })
	in := bufio.NewReader(c)
	request := []byte("GET /read?path=k&tablet_id=1&size=64 HTTP/1.1\r\nHost: be.example.org:8040\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	return func() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			b.Fatal(err)
		}
		if k, err := io.Copy(io.Discard, resp.Body); k != 64 || err != nil {
			b.Fatal(k, err)
		}
	}
}
