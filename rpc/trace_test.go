package rpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/transport"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
	"headstart/rpc/kitex_gen/headstart/peer"
)

// TestS89_TraceAndQueueWaitTravel: both are fields that a node of the version
// before does not know, and both are left out when there is nothing to say.
func TestS89_TraceAndQueueWaitTravel(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	reader := whole(testBlock)
	asked := make(chan string, 1)
	give := reader.serve
	reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
		asked <- f.Trace
		give(ctx, n, f, reply)
		if f.Trace != "" {
			reply.Waited = 1234567 * time.Nanosecond
		}
	}
	_, addr := startServer(t, ServerOptions{}, reader)
	var m memory
	c := startClient(t, ClientOptions{}, &m)
	for _, want := range []string{trace, "", trace} { // on one connection
		f := fetchOf("a", testBlock, block.NewRun(0, 1))
		f.Trace = want
		s, err := c.FetchFrom(inTime(t), addr, f)
		if err != nil {
			t.Fatal(err)
		}
		if err := drain(s, func(block.Piece) {}); err != io.EOF {
			t.Fatal(err)
		}
		waited := time.Duration(0)
		if want != "" {
			waited = 1234 * time.Microsecond
		}
		if got := s.(block.Queued).Waited(); <-asked != want || got != waited {
			t.Errorf("trace %q: waited %v", want, got)
		}
	}
	long := fetchOf("a", testBlock, block.NewRun(0, 1))
	long.Trace = strings.Repeat("x", maxName+1)
	if _, err := c.FetchFrom(inTime(t), addr, long); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("a traceparent without end: %v", err)
	}

	generated, err := peer.NewClient("Peer", client.WithHostPorts(addr.String()), client.WithTransportProtocol(transport.Framed))
	if err != nil {
		t.Fatal(err)
	}
	text := trace
	got, err := generated.FetchBlocks(inTime(t), &headstart.FetchRequest{
		Base: identity("client", "c1", "secret").now.Load().base(request), Object: &headstart.Object{Key: "a"}, Version: "v1",
		Size: testBlock, BlockSize: testBlock, Ranges: []*headstart.Range{{Count: 1}}, Traceparent: &text,
	})
	if err != nil || <-asked != trace || got.GetWaitedUs() != 1234 || got.Failure != nil {
		t.Errorf("a client of generated code: %v, %v", got, err)
	}
	eventually(t, "all memory is back", func() bool { return reader.balanced() && m.balanced() })
}
