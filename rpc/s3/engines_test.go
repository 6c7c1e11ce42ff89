package s3

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"headstart/pools"
)

// TestLargeRangesGivenUpHalfWay: clients that ask for 64 MiB and reset the connection
// somewhere in it leave nothing behind: no answer under way, no memory lent, and object
// storage is not read on for them.
func TestLargeRangesGivenUpHalfWay(t *testing.T) {
	const mb, size = 1 << 20, 64 << 20
	buffers, err := pools.NewBuffers(pools.BuffersOptions{Name: t.Name(), BlockSize: mb})
	must(t, err)
	w := newWorld(t, options{blockSize: mb, cacheBytes: 16 * mb, buffers: buffers})
	w.store.s3 = sparse(4 * size)
	var all sync.WaitGroup
	for i := range int64(24) {
		all.Go(func() { // ends with the connection
			c, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			from := i % 4 * size
			_, err = fmt.Fprintf(c, "GET /data/big HTTP/1.1\r\nHost: a\r\nRange: %s\r\n\r\n", rangeOf(from, from+size))
			resp, failed := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || failed != nil || resp.ContentLength != size {
				t.Errorf("%v, %v, %+v", err, failed, resp)
				return
			}
			got, want := make([]byte, i*300_000+1), make([]byte, i*300_000+1)
			_, err = io.ReadFull(resp.Body, got)
			_, _ = computed{}.ReadAt(want, from)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d on: wrong, %v", len(got), from, err)
			}
			_ = c.(*net.TCPConn).SetLinger(0) // so Close resets the connection
		})
	}
	all.Wait()
	w.drained()
	deadline := time.Now().Add(patience)
	for buffers.Metrics().LentBytes != 0 && time.Now().Before(deadline) {
		w.flush() // what is given up ends in its own time
	}
	if held := buffers.Metrics().LentBytes; held != 0 {
		t.Errorf("%d bytes are still lent", held)
	}
	before := w.store.gets.Load()
	w.flush()
	if n := w.store.gets.Load() - before; n != 0 {
		t.Errorf("%d GETs for nobody", n)
	}
	// What was read, a window ahead of it, and what is in the sockets.
	if n := w.store.bytes.Load(); n > 24*(4+16+16)*mb {
		t.Errorf("%d MiB were fetched: what nobody reads as well", n/mb)
	}
	t.Logf("%d MiB were fetched in %d GETs", w.store.bytes.Load()/mb, w.store.gets.Load())
	want := make([]byte, 3*mb)
	_, _ = computed{}.ReadAt(want, size-mb)
	w.get("big", rangeOf(size-mb, size+2*mb), want)
}

// TestManySmallRangesAtOnce: a thousand ranges of one object over 256 connections,
// cold: each is right, and object storage is asked for each block once at most.
func TestManySmallRangesAtOnce(t *testing.T) {
	const conns, ranges, blocks = 256, 1000, 40
	w := newWorld(t, options{})
	w.settings.RevalidateMS.Store(60_000)
	data := content("k", 1, blocks*testBlock)
	w.put("k", data)
	next := make(chan int64, ranges)
	for i := range int64(ranges) {
		next <- i
	}
	close(next)
	var all sync.WaitGroup
	for range conns {
		c, err := net.Dial("tcp", w.addr)
		must(t, err)
		all.Go(func() { // ends with the ranges
			defer c.Close()
			if err := manyRanges(c, data, next); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.drained()
	if n := w.store.gets.Load(); n > blocks {
		t.Errorf("%d GETs for %d blocks", n, blocks)
	}
	if n := w.store.heads.Load(); n > 1 {
		t.Errorf("%d HEADs", n)
	}
}

// manyRanges asks for ranges of data, two at a time in one write.
func manyRanges(c net.Conn, data []byte, next <-chan int64) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	in := bufio.NewReader(c)
	for i := range next {
		from := i * 7919 * 31 % int64(len(data)-200)
		one := fmt.Sprintf("GET /data/k HTTP/1.1\r\nHost: a\r\nRange: %s\r\n\r\n", rangeOf(from, from+200))
		if _, err := io.WriteString(c, one+one); err != nil {
			return err
		}
		for range 2 {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return err
			}
			if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 206 || !bytes.Equal(body, data[from:from+200]) {
				return fmt.Errorf("%d: status %d, %d bytes, %w", from, resp.StatusCode, len(body), err)
			}
		}
	}
	return nil
}
