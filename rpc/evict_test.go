package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"headstart/blockcache"
	"headstart/engine/block"
)

// A reader drains a block at 1 KiB a millisecond while 16 writers push
// everything out of a cache of a few blocks: its bytes are exact, and its slot
// is free when it has them.
func TestRPC05_LC05_ASlowReaderGetsItsBytesWhileTheCacheTurnsOver(t *testing.T) {
	const size = 256 << 10
	cache, err := blockcache.Open(blockcache.Options{
		BlockSize: size, Logger: slog.New(slog.DiscardHandler), IOTimeout: time.Minute,
		Paths: []blockcache.Path{{Dir: t.TempDir(), TotalBytes: 4 << 20}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	keep := func(key string) block.ID {
		o := block.Object{Store: "s3", Bucket: "b", Key: key}
		buf := block.NewBuf(content(key, 0, size), nil)
		buf.Seal()
		id := block.BaseID(o, "v1")
		cache.Offer(&blockcache.Entry{Object: o, Meta: block.Meta{Size: size, Version: "v1"}, ID: id}, buf)
		buf.Release()
		return id
	}
	ours := keep("ours")
	if err := cache.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var lent atomic.Int64
	reader := &fakeReader{serve: func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		lease, ok := cache.Peek(ours)
		if !ok {
			t.Error("the block is not in the cache")
			return
		}
		lent.Add(1)
		reply.Meta = block.Meta{Size: size, Version: "v1"}
		reply.Answers = append(reply.Answers, block.Answer{
			Status: block.StatusData, Lease: block.NewLease(counted{lease, &lent}, 0, lease.Raw(), lease.CRC()),
		})
	}}
	_, addr := startServer(t, ServerOptions{Listener: narrow{listen(t)}, SendTimeout: time.Minute}, reader)
	c := dialRaw(t, addr)
	c.(*net.TCPConn).SetReadBuffer(16 << 10)
	f := fetchOf("ours", size, block.NewRun(0, 1))
	f.BlockSize = size
	c.Write(message(thriftCall, methodFetch, 1,
		appendFetch(nil, identity("client", "c1", "secret").now.Load().request, f, 0, 0)))
	eventually(t, "the block is lent", func() bool { return lent.Load() == 1 })

	var stop atomic.Bool
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				keep(fmt.Sprint("other ", w, " ", i))
			}
		})
	}
	all := drainSlowly(c)
	stop.Store(true)
	writers.Wait()
	ended := time.Now()
	eventually(t, "the slot is free", func() bool { return lent.Load() == 0 })
	t.Logf("the slot was free %v after the end", time.Since(ended))
	want := content("ours", 0, size)
	if at := bytes.Index(all, want[:64]); at < 0 || !bytes.HasPrefix(all[at:], want) {
		t.Error("the reader has got bytes of another block")
	}
	if m := cache.Metrics(); m.Evicted == 0 {
		t.Errorf("nothing was evicted: %+v", m)
	}
}

// drainSlowly reads a whole reply, 1 KiB each millisecond.
func drainSlowly(c net.Conn) []byte {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var all bytes.Buffer
	for left := int64(lengthLen); left > 0; {
		<-tick.C
		c.SetReadDeadline(time.Now().Add(patience)) // the writers and a busy machine may hold it up
		if _, err := io.CopyN(&all, c, min(left, 1<<10)); err != nil {
			break
		}
		left = int64(lengthLen) + int64(binary.BigEndian.Uint32(all.Bytes())) - int64(all.Len())
	}
	return all.Bytes()
}

// counted counts a lease until it is given back.
type counted struct {
	lease block.Lease
	n     *atomic.Int64
}

// CopyLease implements block.Memory.
func (c counted) CopyLease(_ uint64, _ []byte, off int, dst []byte) (int, error) {
	return c.lease.CopyAt(dst, off)
}

// ReleaseLease implements block.Memory.
func (c counted) ReleaseLease(uint64) {
	c.lease.Release()
	c.n.Add(-1)
}
