package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"headstart/bench/s3law"
)

const (
	slowObject = 1 << 30
	// slowPiece every slowPause is what a slow client reads.
	slowPiece = 16 << 10
	slowPause = 50 * time.Millisecond
)

// slow lets so many clients read an object of 1 GiB slowly and prints how much
// memory the BE has at most. Half of them begin at the object's beginning, the
// others each at a place of their own; each checks what it gets.
func slow(headstart string, clients int, during time.Duration) error {
	data := make([]byte, slowObject)
	for at := 0; at < len(data); at += 8 {
		binary.BigEndian.PutUint64(data[at:], uint64(at))
	}
	store, err := s3law.Start(s3law.Options{Bucket: bucket, Objects: []s3law.Object{{Key: "slow", Data: data}}})
	if err != nil {
		return err
	}
	defer store.Close()
	store.Enable(false)
	work, err := os.MkdirTemp("", "headstart-slow")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	be, err := startBE(headstart, work, store.URL(), "s3_front_anonymous = read\n")
	if err != nil {
		return err
	}
	defer be.stop()
	idle, err := be.memory()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), during)
	defer cancel()
	var got, served, refused, wrong atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { // ends with ctx
			from := int64(0)
			if i%2 == 1 {
				from = int64(i) * (slowObject / 2 / int64(clients)) &^ 7
			}
			n, err := slowRead(ctx, be.s3()+"/"+bucket+"/slow", from)
			got.Add(n)
			switch {
			case errors.Is(err, errRefused):
				refused.Add(1)
			case err != nil:
				wrong.Add(1)
				fmt.Fprintln(os.Stderr, "clients:", err)
			default:
				served.Add(1)
			}
		})
	}
	most := idle
	for ctx.Err() == nil {
		now, err := be.memory()
		if err != nil {
			return err
		}
		for name, kb := range now {
			most[name] = max(most[name], kb)
		}
		time.Sleep(100 * time.Millisecond)
	}
	all.Wait()
	fmt.Printf("1 GiB to %d clients at %d KiB/s each for %v: %d read to the end of that time, %d were told to come back, %d failed, %d MiB read\n",
		clients, slowPiece*int64(time.Second/slowPause)>>10, during, served.Load(), refused.Load(), wrong.Load(), got.Load()>>20)
	fmt.Printf("the BE's memory at most: %d MiB, of which its own %d MiB, mapped files of the cache %d MiB\n",
		most["VmRSS"]>>10, most["RssAnon"]>>10, most["RssFile"]>>10)
	if wrong.Load() > 0 {
		return fmt.Errorf("%d answers failed", wrong.Load())
	}
	return nil
}

// memory is what the node has in memory, in KiB, as the kernel tells.
func (n *node) memory() (map[string]int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	found := make(map[string]int64)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
			found[strings.TrimSuffix(f[0], ":")], _ = strconv.ParseInt(f[1], 10, 64) // the kernel's own digits
		}
	}
	return found, nil
}

// errRefused: the front has no memory for the answer now.
var errRefused = errors.New("told to come back")

// slowRead reads from that byte on until ctx ends, and checks the bytes.
func slowRead(ctx context.Context, url string, from int64) (n int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	resp, err := (&http.Transport{ReadBufferSize: slowPiece}).RoundTrip(req)
	if err != nil {
		return 0, unlessOver(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return 0, errRefused
	}
	buf := make([]byte, slowPiece)
	pace := time.NewTicker(slowPause)
	defer pace.Stop()
	for {
		k, err := io.ReadFull(resp.Body, buf)
		if err != nil {
			return n, unlessOver(ctx, err)
		}
		for at := 0; at < k; at += 8 {
			if got := binary.BigEndian.Uint64(buf[at:]); got != uint64(from+n)+uint64(at) {
				return n, fmt.Errorf("wrong bytes at %d", from+n+int64(at))
			}
		}
		n += int64(k)
		select {
		case <-pace.C:
		case <-ctx.Done():
			return n, nil
		}
	}
}

// unlessOver passes an error on unless it is the end of the time.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
