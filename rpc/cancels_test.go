package rpc

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"headstart/engine/block"
)

// A thousand calls that are cancelled at some moment or other, each followed at
// once by another call on the same pool: whatever was still to come of the first
// must not come to the second.
func TestS08_RPC01_RandomCancelsMixNothingUp(t *testing.T) {
	const size = 16 * testBlock
	reader := whole(size)
	give := reader.serve
	reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
		random := rand.New(rand.NewPCG(3, uint64(f.Run.First)^uint64(len(f.Object.Key))))
		select {
		case <-time.After(time.Duration(random.IntN(2000)) * time.Microsecond):
		case <-ctx.Done():
		}
		give(ctx, n, f, reply)
	}
	server, addr := startServer(t, ServerOptions{}, reader)
	var m memory
	before := countCosts(t)
	client := startClient(t, ClientOptions{}, &m)
	const workers, rounds = 8, 125
	errs := make(chan error, workers)
	for w := range workers {
		go func() { // ends with its rounds
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range rounds {
				if err := cancelOne(t, client, addr, random, strconv.Itoa(w*rounds+i)); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "no call is left", func() bool { m := client.Metrics(); return m.Conns == m.Idle })
	eventually(t, "all memory is back", func() bool { return reader.balanced() && m.balanced() })
	if m := client.Metrics(); m.Cancels == 0 || m.WastedBytes == 0 {
		t.Errorf("the cancels left something untried: %+v", m)
	}
	client.Close()
	eventually(t, "no connection is left", func() bool { return server.Metrics().Conns == 0 })
	before.backTo(t)
}

// cancelOne cancels a call after a while and makes another one.
func cancelOne(t *testing.T, client *Client, addr block.Addr, random *rand.Rand, key string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const size = 16 * testBlock
	s, err := client.FetchFrom(ctx, addr, fetchOf("cancelled "+key, size, block.NewRun(0, 16)))
	if err != nil {
		return err
	}
	after := time.Duration(random.IntN(3000)) * time.Microsecond
	switch random.IntN(3) {
	case 0: // by somebody else, while it is read
		time.AfterFunc(after, cancel)
	case 1:
		time.AfterFunc(after, s.Close)
	default: // by its reader, behind some blocks
		for range random.IntN(16) {
			p, err := s.Next()
			if err != nil {
				return err
			}
			p.Buf.Release()
		}
		s.Close()
	}
	if err := drain(s, func(p block.Piece) {
		if !bytes.Equal(p.Buf.Bytes(), content("cancelled "+key, p.Index, testBlock)) {
			t.Errorf("%s: wrong bytes in block %d", key, p.Index)
		}
	}); err == nil {
		t.Errorf("%s: a stream without an end", key)
	}
	s, err = client.FetchFrom(context.Background(), addr, fetchOf(key, size, block.NewRun(2, 3)))
	if err != nil {
		return err
	}
	got := 0
	if err := drain(s, func(p block.Piece) {
		got++
		if !bytes.Equal(p.Buf.Bytes(), content(key, p.Index, testBlock)) {
			t.Errorf("%s: block %d has bytes of another call", key, p.Index)
		}
	}); err != io.EOF {
		return err
	}
	if got != 3 {
		t.Errorf("%s: %d blocks", key, got)
	}
	return nil
}
