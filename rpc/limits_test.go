package rpc

import (
	"context"
	"io"
	"math"
	"testing"
	"time"

	"headstart/engine/block"
	"headstart/pools"
)

func statuses(t *testing.T, client *Client, addr block.Addr, f *block.Fetch) (got []block.Status) {
	t.Helper()
	s, err := client.FetchFrom(inTime(t), addr, f)
	if err == nil {
		err = drain(s, func(p block.Piece) { got = append(got, p.Status) })
	}
	if err != io.EOF {
		t.Error(err)
	}
	return got
}

// What is on its way to one group is bounded until it is out, whatever becomes
// of it; other groups don't feel it.
func TestSE05_AGroupsBytesOnTheirWayAreBounded(t *testing.T) {
	reader := large()
	large := reader.serve
	entered, release := make(chan struct{}), make(chan struct{})
	reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
		if f.Object.Key == "slow" {
			entered <- struct{}{}
			<-release
		}
		large(ctx, n, f, reply)
	}
	limit := pools.NewShares(math.MaxInt)
	limit.SetLimitEach(20 * largeBlock)
	server, addr := startServer(t, ServerOptions{GroupBytes: limit, SendTimeout: 2 * time.Second}, reader)
	client := startClient(t, ClientOptions{}, &memory{})
	other := startClient(t, ClientOptions{Identity: identity("other", "c1", "secret")}, &memory{})
	slow := fetchLarge()
	slow.Object.Key = "slow"
	running, err := client.FetchFrom(inTime(t), addr, slow)
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	if got := statuses(t, client, addr, fetchLarge()); len(got) != 16 || got[0] != block.StatusQueueFull {
		t.Errorf("a second call of the group: %v", got)
	}
	if got := statuses(t, other, addr, fetchLarge()); len(got) != 16 || got[0] != block.StatusData {
		t.Errorf("a call of another group: %v", got)
	}
	close(release)
	if err := drain(running, nil); err != io.EOF {
		t.Error(err)
	}
	eventually(t, "all bytes are out", func() bool { return limit.InUse() == 0 })
	if got := statuses(t, client, addr, fetchLarge()); len(got) != 16 || got[0] != block.StatusData {
		t.Errorf("afterwards: %v", got)
	}
	eventually(t, "these are out too", func() bool { return limit.InUse() == 0 })
	// A receiver that takes nothing holds its part, until it is cut off.
	c := dialRaw(t, addr)
	c.Write(message(thriftCall, methodFetch, 1,
		appendFetch(nil, identity("client", "c1", "secret").now.Load().request, fetchLarge(), 0, 0)))
	eventually(t, "it is served", func() bool { return server.Metrics().Calls == 5 })
	eventually(t, "all bytes are back", func() bool { return limit.InUse() == 0 && reader.balanced() })
	if m := server.Metrics(); m.OverLimit != 1 {
		t.Errorf("%d calls over the limit", m.OverLimit)
	}
}
