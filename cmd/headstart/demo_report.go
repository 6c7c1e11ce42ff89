package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"headstart/bench/s3law"
	"headstart/bench/tpch"
)

// demoOutput writes what the demo does while it does it: lines and, on a
// terminal, a progress bar below them.
type demoOutput struct {
	terminal bool
	mu       struct {
		sync.Mutex
		w io.Writer
		// bar is set while the cursor stands behind a bar.
		bar bool
	}
}

func newDemoOutput(w io.Writer) *demoOutput {
	o := &demoOutput{}
	o.mu.w = w
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		o.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return o
}

// line prints a line above the bar.
func (o *demoOutput) line(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wipeLocked()
	fmt.Fprintf(o.mu.w, format+"\n", args...)
}

func (o *demoOutput) wipeLocked() {
	if o.mu.bar {
		fmt.Fprint(o.mu.w, "\r\x1b[K")
		o.mu.bar = false
	}
}

// follow shows how ended comes to total until the returned function is called:
// a bar on a terminal, else a line each quarter.
func (o *demoOutput) follow(name string, total int64, ended *atomic.Int64) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	began, quarter := time.Now(), int64(0)
	show := func() {
		n := ended.Load()
		switch {
		case o.terminal:
			o.drawBar(name, n, total, time.Since(began))
		case n*4/total > quarter:
			quarter = n * 4 / total
			o.line("%-9s %3d %% of %d reads, %.1f s", name, n*100/total, total, time.Since(began).Seconds())
		}
	}
	go func() { // ends with stop
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			show()
			select {
			case <-tick.C:
			case <-done:
				show()
				return
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
		o.mu.Lock()
		defer o.mu.Unlock()
		o.wipeLocked()
	}
}

func (o *demoOutput) drawBar(name string, n, total int64, elapsed time.Duration) {
	const width = 40
	full := int(n * width / total)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.bar = true
	fmt.Fprintf(o.mu.w, "\r%-9s [%s%s] %3d %%  %.1f s\x1b[K", name,
		strings.Repeat("#", full), strings.Repeat(".", width-full), n*100/total, elapsed.Seconds())
}

// demoResult is what one phase came to. Local, Peer and S3 count blocks.
type demoResult struct {
	Name         string  `json:"name"`
	WallS        float64 `json:"wall_s"`
	P50MS        float64 `json:"p50_ms"`
	P95MS        float64 `json:"p95_ms"`
	P99MS        float64 `json:"p99_ms"`
	Reads        int64   `json:"reads"`
	Bytes        int64   `json:"bytes"`
	Local        int64   `json:"local"`
	Peer         int64   `json:"peer"`
	S3           int64   `json:"s3"`
	S3GETs       int64   `json:"s3_gets"`
	PeerWins     int64   `json:"peer_wins"`
	S3Wins       int64   `json:"s3_wins"`
	Speedup      float64 `json:"speedup"`
	CheckedBytes int64   `json:"checked_bytes"`
	WrongBytes   int64   `json:"wrong_bytes"`
	Errors       int64   `json:"errors"`

	sourceBytes [3]int64
	firstError  error
}

func newDemoResult(name string, wall time.Duration, s tpch.Stats, c demoCounts, gets int64) demoResult {
	ms := func(q float64) float64 { return round(s.Quantile(q).Seconds()*1000, 2) }
	return demoResult{
		Name: name, WallS: round(wall.Seconds(), 3),
		P50MS: ms(0.50), P95MS: ms(0.95), P99MS: ms(0.99),
		Reads: s.Reads, Bytes: s.Bytes,
		Local: c.blocks[0], Peer: c.blocks[1], S3: c.blocks[2],
		S3GETs: gets, PeerWins: c.peerWins, S3Wins: c.s3Wins,
		CheckedBytes: s.CheckedBytes, WrongBytes: s.WrongBytes, Errors: s.Errors,
		sourceBytes: c.bytes, firstError: s.FirstError,
	}
}

func round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}

// demoReport is the result of all phases; the first is what the others are
// compared with.
type demoReport struct {
	Phases []demoResult `json:"phases"`
	seed   uint64
}

func (r *demoReport) add(p demoResult) {
	r.Phases = append(r.Phases, p)
	if p.WallS > 0 {
		r.Phases[len(r.Phases)-1].Speedup = round(r.Phases[0].WallS/p.WallS, 2)
	}
}

// verdict is an error if a read failed or a byte was wrong.
func (r *demoReport) verdict() error {
	for _, p := range r.Phases {
		if p.Errors > 0 {
			return fmt.Errorf("%s: %d reads failed, the first: %w", p.Name, p.Errors, p.firstError)
		}
		if p.WrongBytes > 0 {
			return fmt.Errorf("%s: %d bytes were wrong", p.Name, p.WrongBytes)
		}
	}
	return nil
}

// table has a column for each phase.
func (r *demoReport) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(title, format string, cell func(p *demoResult) any) {
		// Padding keeps the titles at the left in a table aligned to the right.
		fmt.Fprintf(t, "%-22s\t", title)
		for i := range r.Phases {
			fmt.Fprintf(t, format+"\t", cell(&r.Phases[i]))
		}
		fmt.Fprintln(t)
	}
	row("", "%s", func(p *demoResult) any { return p.Name })
	row("wall time, s", "%.2f", func(p *demoResult) any { return p.WallS })
	row("speed-up", "%.2fx", func(p *demoResult) any { return p.Speedup })
	row("p50 of a read, ms", "%.2f", func(p *demoResult) any { return p.P50MS })
	row("p95 of a read, ms", "%.2f", func(p *demoResult) any { return p.P95MS })
	row("p99 of a read, ms", "%.2f", func(p *demoResult) any { return p.P99MS })
	row("reads", "%d", func(p *demoResult) any { return p.Reads })
	row("blocks from own cache", "%d", func(p *demoResult) any { return p.Local })
	row("blocks from peers", "%d", func(p *demoResult) any { return p.Peer })
	row("blocks from S3", "%d", func(p *demoResult) any { return p.S3 })
	for i, source := range []string{"own cache", "peers", "S3"} {
		row("MB from "+source, "%.1f", func(p *demoResult) any { return float64(p.sourceBytes[i]) / 1e6 })
	}
	row("S3 GETs", "%d", func(p *demoResult) any { return p.S3GETs })
	row("races won by the peer", "%d", func(p *demoResult) any { return p.PeerWins })
	row("races won by S3", "%d", func(p *demoResult) any { return p.S3Wins })
	row("bytes checked", "%d", func(p *demoResult) any { return p.CheckedBytes })
	row("bytes wrong", "%d", func(p *demoResult) any { return p.WrongBytes })
	row("reads failed", "%d", func(p *demoResult) any { return p.Errors })
	return t.Flush()
}

// print writes the result as -json says.
func (d *demo) print(r *demoReport) error {
	if d.json {
		return json.NewEncoder(d.stdout).Encode(r)
	}
	fmt.Fprintln(d.stdout)
	if err := r.table(d.stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(d.stdout, `
Real: the processes, the RPC between them, S3 over HTTP, the caches on disk and the
recorded reads of a query engine (without its compute time); injected: the latency of
S3 alone (first byte lognormal, median %d ms, sigma %.3f, %.0f %% take %d ms, then
%d MB/s a connection, seed %d).
`, s3law.MedianFirstByte.Milliseconds(), s3law.Sigma, s3law.SlowShare*100, s3law.SlowFirstByte.Milliseconds(),
		s3law.BytesPerSecond/1_000_000, r.seed)
	return err
}

// printURLs says what there is to try while the nodes stay.
func (d *demo) printURLs() {
	first := d.trace.Objects[0]
	d.out.line("\nThe nodes stay until Ctrl-C. To try:")
	d.out.line("  S3 (any credentials)  %s/%s/%s", d.store.URL(), demoBucket, first.Key)
	d.out.line("  FE                    http://%s/api/backends", d.cluster.fe.web())
	d.out.line("                        http://%s/api/tablets?tablet_id=%d", d.cluster.fe.web(), tpch.TabletID(0))
	for _, be := range d.cluster.bes {
		if be.gone() {
			continue
		}
		d.out.line("  %s  %-11s     http://%s/metrics  http://%s/vars", be.name, be.group, be.web(),
			net.JoinHostPort(demoHost, strconv.Itoa(be.ports.BrpcPort)))
	}
	d.out.line("  a read                curl -s -D /dev/stderr -o /dev/null 'http://%s/read?path=%s&tablet_id=%d&offset=0&size=1000&query_id=try'",
		d.readers[0], url.QueryEscape("s3://"+demoBucket+"/"+first.Key), tpch.TabletID(0))
}
