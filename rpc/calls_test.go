package rpc

import (
	"context"
	"strconv"
	"testing"

	"headstart/engine/block"
	"headstart/rpc/kitex_gen/headstart"
)

func startCall(cs *calls, node string, id uint64) (*call, context.Context) {
	c := &call{values: context.Background(), name: callName{node, id}}
	cs.begin(c)
	return c, c
}

func TestS08_ACancelThatOvertakesItsCallIsRemembered(t *testing.T) {
	var cs calls
	cs.init()
	if cs.cancel(callName{"a", 1}) {
		t.Error("a call that has not come was running")
	}
	if _, ctx := startCall(&cs, "b", 1); ctx.Err() != nil {
		t.Error("the call of another node is cancelled")
	}
	c, ctx := startCall(&cs, "a", 1)
	if ctx.Err() == nil || c.cause() != causeCancel {
		t.Error("the call runs although it was cancelled")
	}
	cs.end(c)
	if _, ctx := startCall(&cs, "a", 1); ctx.Err() != nil {
		t.Error("one Cancel ends two calls")
	}
}

func TestS08_EarlyCancelsAreBounded(t *testing.T) {
	var cs calls
	cs.init()
	const many = 3*maxEarly + 5
	for id := range uint64(many) {
		cs.cancel(callName{"a", id + 1})
	}
	if n := len(cs.mu.early); n != maxEarly {
		t.Errorf("%d are remembered, want %d", n, maxEarly)
	}
	if _, ctx := startCall(&cs, "a", many-maxEarly); ctx.Err() != nil {
		t.Error("the oldest is still remembered")
	}
	if _, ctx := startCall(&cs, "a", many-maxEarly+1); ctx.Err() == nil {
		t.Error("the newest are forgotten")
	}
	cs.cancel(callName{"a", 0})
	if _, ctx := startCall(&cs, "a", 0); ctx.Err() != nil {
		t.Error("a call without an id was cancelled")
	}
}

func TestS08_OnlyItsOwnNodeCancelsACall(t *testing.T) {
	var cs calls
	cs.init()
	mine, ctx := startCall(&cs, "a", 7)
	twin, other := startCall(&cs, "a", 7) // an id that is taken stays unknown
	if cs.cancel(callName{"b", 7}) || cs.cancel(callName{"a", 8}) || ctx.Err() != nil {
		t.Error("somebody else's Cancel has ended the call")
	}
	cs.end(twin)
	if !cs.cancel(callName{"a", 7}) || ctx.Err() == nil {
		t.Error("the call goes on")
	}
	if other.Err() != nil {
		t.Error("the twin was ended")
	}
	cs.end(mine)
	if len(cs.mu.running) != 0 {
		t.Errorf("%d calls are left", len(cs.mu.running))
	}
}

// The whole way: the Cancel is on the wire before its call.
func TestS08_AnEarlyCancelEndsTheCallWithoutWork(t *testing.T) {
	reader := whole(testBlock)
	server, addr := startServer(t, ServerOptions{}, reader)
	client := startClient(t, ClientOptions{}, &memory{})
	const next = 41
	client.callIDs.Store(next)
	var args headstart.PeerCancelArgs
	var result headstart.PeerCancelResult
	args.Req = &headstart.CancelRequest{Base: client.caller.id.now.Load().base(request), CallId: next + 1}
	conn, err := client.caller.call(inTime(t), addr, methodCancel, maxHead, &args, &result)
	if err != nil || result.Success.Found || result.Success.Failure != nil {
		t.Fatal(result, err)
	}
	client.caller.release(conn)
	for i, want := range []block.Status{block.StatusCancelled, block.StatusData} {
		s, err := client.FetchFrom(inTime(t), addr, fetchOf(strconv.Itoa(i), testBlock, block.NewRun(0, 1)))
		if err != nil {
			t.Fatal(err)
		}
		drain(s, func(p block.Piece) {
			if p.Status != want {
				t.Errorf("call %d: status %d, want %d", i, p.Status, want)
			}
		})
	}
	if reader.loans() != 1 || server.Metrics().Cancels != 1 {
		t.Errorf("%d blocks read, %d cancels", reader.loans(), server.Metrics().Cancels)
	}
}
