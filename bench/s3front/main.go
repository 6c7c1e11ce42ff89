// Command s3front measures the S3 front on loopback: how long answers of every
// size take that come out of the cache (issue: p50 at most 5 ms + size/(1 GB/s)),
// and how many a second one client core can draw, with and without signatures.
//
// It starts object storage and a front in its own process, so its figures hold the
// cost of both ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"headstart/bench/s3law"
	"headstart/blockcache"
	"headstart/engine"
	"headstart/engine/objstore"
	"headstart/engine/profile"
	"headstart/rpc/s3"
)

const (
	bucket = "bench"
	mb     = 1 << 20
)

func main() {
	rounds := flag.Int("rounds", 15, "requests for each size and range")
	seconds := flag.Float64("seconds", 2, "how long each rate is measured")
	flag.Parse()
	if err := run(*rounds, time.Duration(*seconds*float64(time.Second))); err != nil {
		fmt.Fprintln(os.Stderr, "s3front:", err)
		os.Exit(1)
	}
}

// bench is a front and its client.
type bench struct {
	url    string
	client *http.Client
}

func run(rounds int, each time.Duration) error {
	var objects []s3law.Object
	for _, size := range sizes() {
		objects = append(objects, s3law.Object{Key: key(size), Data: make([]byte, size)})
	}
	store, err := s3law.Start(s3law.Options{Bucket: bucket, Objects: objects})
	if err != nil {
		return err
	}
	defer store.Close()
	store.Enable(false)
	dir, err := os.MkdirTemp("", "s3front")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	url, stop, err := start(store.URL(), dir)
	if err != nil {
		return err
	}
	defer stop()
	b := &bench{url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}}
	err = b.sweep(rounds)
	for _, size := range []int{1 << 10, 64 << 10, mb} {
		for _, signed := range []bool{false, true} {
			rate, wrong := b.rate(size, signed, each)
			if wrong != nil {
				return wrong
			}
			fmt.Printf("%8d bytes, signed %-5v: %8.0f requests/s, %7.1f MB/s\n", size, signed, rate, rate*float64(size)/1e6)
		}
	}
	return err
}

// sizes are 0, 1, and each power of two up to 16 MiB with its neighbours.
func sizes() []int {
	list := []int{0, 1}
	for n := 2; n <= 16*mb; n *= 2 {
		list = append(list, n-1, n, n+1)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func key(size int) string { return fmt.Sprintf("size-%d", size) }

// start runs a front before the store at url.
func start(url, dir string) (string, func(), error) {
	origin, err := objstore.New(context.Background(), objstore.Options{Endpoint: url, AccessKey: "a", SecretKey: "b", PathStyle: true})
	if err != nil {
		return "", nil, err
	}
	cache, err := blockcache.Open(blockcache.Options{BlockSize: mb, Paths: []blockcache.Path{{Dir: dir, TotalBytes: 512 * mb}}})
	if err != nil {
		return "", nil, err
	}
	e, err := engine.New(engine.Options{
		Cache: cache, Origin: origin, Settings: engine.NewSettings(), Profiles: profile.New(1), BlockSize: mb,
	})
	if err != nil {
		return "", nil, err
	}
	settings := s3.NewSettings()
	settings.RevalidateMS.Store(-1)
	settings.Anonymous.Store(uint32(s3.AccessRead))
	settings.Keys.Store(s3.NewKeys([]s3.Key{{ID: "a", Secret: "b", Access: s3.AccessWrite}}))
	front, err := s3.New(s3.Options{Engine: e, Upstream: origin, Settings: settings})
	if err != nil {
		return "", nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() { _ = front.Serve(ln) }() // ends with Shutdown
	return "http://" + ln.Addr().String(), func() {
		_ = front.Shutdown(context.Background())
		e.Close()
		_ = cache.Close()
	}, nil
}

// get reads a range, "" for all, and returns how long that took.
func (b *bench) get(size int, rng string) (time.Duration, int64, error) {
	req, err := http.NewRequest("GET", b.url+"/"+bucket+"/"+key(size), nil)
	if err != nil {
		return 0, 0, err
	}
	if rng != "" {
		req.Header.Set("Range", rng)
	}
	began := time.Now()
	n, err := b.do(req)
	return time.Since(began), n, err
}

func (b *bench) do(req *http.Request) (int64, error) {
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return n, err
}

// sweep reads each size whole and in parts, first into the cache.
func (b *bench) sweep(rounds int) error {
	worst, slow := 0.0, 0
	for _, size := range sizes() {
		ranges := []string{""}
		if size > 2 {
			ranges = append(ranges, "bytes=1-", fmt.Sprintf("bytes=0-%d", size/2), fmt.Sprintf("bytes=%d-", size-2), fmt.Sprintf("bytes=-%d", (size+2)/3))
		}
		for _, rng := range ranges {
			if _, _, err := b.get(size, rng); err != nil {
				return fmt.Errorf("size %d %s: %w", size, rng, err)
			}
			took := make([]time.Duration, rounds)
			var bytes int64
			for i := range took {
				var err error
				if took[i], bytes, err = b.get(size, rng); err != nil {
					return fmt.Errorf("size %d %s: %w", size, rng, err)
				}
			}
			slices.Sort(took)
			p50, bound := took[rounds/2], 5*time.Millisecond+time.Duration(bytes)
			worst = max(worst, float64(p50)/float64(bound))
			if p50 > bound {
				slow++
				fmt.Printf("SLOW size %d %q: p50 %v, bound %v\n", size, rng, p50, bound)
			}
		}
	}
	fmt.Printf("sizes 0 to 16 MiB, whole and in parts: the worst p50 is %.2f of 5 ms + size/(1 GB/s)\n", worst)
	if slow > 0 {
		return fmt.Errorf("%d of them are too slow", slow)
	}
	return nil
}

// rate draws one size on 16 connections.
func (b *bench) rate(size int, signed bool, each time.Duration) (float64, error) {
	var done atomic.Int64
	var wrong atomic.Pointer[error]
	signer := v4.NewSigner()
	end := time.Now().Add(each)
	began := time.Now()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { // ends with end
			for time.Now().Before(end) && wrong.Load() == nil {
				req, err := http.NewRequest("GET", b.url+"/"+bucket+"/"+key(size), nil)
				if err == nil && signed {
					req.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
					err = signer.SignHTTP(context.Background(), aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, req,
						"UNSIGNED-PAYLOAD", "s3", "us-east-1", time.Now())
				}
				if err == nil {
					_, err = b.do(req)
				}
				if err != nil {
					wrong.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if err := wrong.Load(); err != nil {
		return 0, *err
	}
	return float64(done.Load()) / time.Since(began).Seconds(), nil
}
