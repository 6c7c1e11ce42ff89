//go:build !race

package rpc

import (
	"runtime"
	"testing"

	"headstart/engine/block"
)

// TestConnBytes keeps the memory budget honest. It looks at both ends of a
// connection, and at stacks when they are as deep as a call makes them.
func TestConnBytes(t *testing.T) {
	const conns = 500
	reader := whole(testBlock)
	server, addr := startServer(t, ServerOptions{}, reader)
	client := startClient(t, ClientOptions{MaxConnsPerAddr: conns}, &memory{})
	in := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := in()
	var streams []block.Stream
	for range conns {
		s, err := client.FetchFrom(t.Context(), addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	for _, s := range streams {
		drain(s, nil)
	}
	eventually(t, "all connections are idle", func() bool { return client.Metrics().Idle == conns })
	if n := server.Metrics().Conns; n != conns {
		t.Fatalf("%d connections", n)
	}
	per := (in() - before) / conns
	t.Logf("%d bytes a connection, both ends", per)
	if per > 2*ConnBytes {
		t.Errorf("%d bytes a connection, both ends; the budget has %d for each", per, ConnBytes)
	}
}
