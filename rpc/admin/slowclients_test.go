package admin

import (
	"bufio"
	"context"
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

// TestHT01_FiveHundredClientsOfOneByteASecond: neither health checks nor reads
// wait for them. A machine that is slow without them may be as slow with them.
func TestHT01_FiveHundredClientsOfOneByteASecond(t *testing.T) {
	const clients = 500
	times := 1000
	if testing.Short() {
		times = 200
	}
	n := startBE(t, nil)
	n.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: "k"}, make([]byte, testBlock))
	const read = "/read?path=k&tablet_id=1"
	n.latencies(read, 20)
	livez50, livez99 := n.latencies("/livez", times)
	read50, read99 := n.latencies(read, times)
	t.Logf("alone: /livez p50 %v p99 %v, reads p50 %v p99 %v", livez50, livez99, read50, read99)

	ctx, stop := context.WithCancel(context.Background())
	var started, ended sync.WaitGroup
	started.Add(clients)
	errs := make(chan error, clients)
	for range clients {
		ended.Go(func() { errs <- dribble(ctx, n.addr, started.Done) }) // ends with stop
	}
	started.Wait()
	slow50, slow99 := n.latencies("/livez", times)
	with50, with99 := n.latencies(read, times)
	open := n.http.GetOpenConnectionsCount()
	stop()
	ended.Wait()
	t.Logf("with %d slow clients: /livez p50 %v p99 %v, reads p50 %v p99 %v", clients, slow50, slow99, with50, with99)
	for range clients {
		if err := <-errs; err != nil {
			t.Errorf("a slow client: %v", err)
		}
	}
	if open < clients {
		t.Errorf("%d connections were open: the slow ones were not there", open)
	}
	if slow99 > max(50*time.Millisecond, 3*livez99) {
		t.Errorf("/livez took %v in the 99th of 100, %v without slow clients", slow99, livez99)
	}
	if with50 > 3*read50+5*time.Millisecond {
		t.Errorf("a read took %v, %v without slow clients", with50, read50)
	}
}

// BenchmarkHT05_CostOfFraming asks over one kept connection, by a listener with
// framing in front and by one without, in turns.
func BenchmarkHT05_CostOfFraming(b *testing.B) {
	n := startBE(b, nil)
	n.source.put(block.Object{Store: "s3", Bucket: "bucket", Key: "k"}, make([]byte, testBlock))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	go n.http.Serve(ln) // ended by the node's Shutdown
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
