package tpch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Direct reads as a Replay does, by plain GETs with a range: from object storage
// itself, or from anything that is put in front of it.
type Direct struct {
	Trace    *Trace
	Contents *Contents
	// URL is where the keys begin, a bucket addressed by path: http://host:port/bucket/
	URL string
	// Client needs ReaderCount idle connections.
	Client *http.Client
}

// NewDirect returns a Direct with a client of its own.
func NewDirect(t *Trace, c *Contents, url string) *Direct {
	return &Direct{t, c, url, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: ReaderCount, DisableCompression: true}}}
}

// Run replays reads and returns how long each has taken, in their order. The first
// error of each reader ends it.
func (d *Direct) Run(ctx context.Context, reads []Read) ([]time.Duration, error) {
	took, errs := make([]time.Duration, len(reads)), make([]error, ReaderCount)
	var next atomic.Int64
	var readers sync.WaitGroup
	for i := range errs {
		readers.Go(func() { // ends with the reads, or with ctx
			for at := int(next.Add(1)) - 1; at < len(reads) && errs[i] == nil; at = int(next.Add(1)) - 1 {
				began := time.Now()
				var body []byte
				if body, errs[i] = d.get(ctx, reads[at]); errs[i] != nil {
					return
				}
				took[at] = time.Since(began)
				if wrong := d.Contents.Wrong(reads[at], body); wrong > 0 {
					errs[i] = fmt.Errorf("%s%s: %d bytes are wrong", d.URL, d.Trace.Objects[reads[at].Object].Key, wrong)
				}
			}
		})
	}
	readers.Wait()
	return took, errors.Join(errs...)
}

func (d *Direct) get(ctx context.Context, r Read) ([]byte, error) {
	url := d.URL + d.Trace.Objects[r.Object].Key
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1))
	resp, err := d.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusPartialContent && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.200s", url, resp.Status, body)
	}
	return body, err
}

// Close closes the connections.
func (d *Direct) Close() { d.Client.CloseIdleConnections() }
