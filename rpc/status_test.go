package rpc

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"headstart/engine/block"
)

func TestPR27_EveryStatusHasItsClass(t *testing.T) {
	type class struct {
		status  block.Status
		outcome block.Outcome
		failed  bool
	}
	want := map[int32]class{
		1:  {block.StatusData, block.OutcomeHit, false},
		2:  {block.StatusNotFound, block.OutcomeMiss, false},
		3:  {block.StatusFilling, block.OutcomeBusy, false},
		4:  {block.StatusQueueTimeout, block.OutcomeBusy, false},
		5:  {block.StatusQueueFull, block.OutcomeBusy, false},
		6:  {block.StatusFillRejected, block.OutcomeBusy, false},
		7:  {block.StatusFillTimeout, block.OutcomeBusy, false},
		8:  {block.StatusCancelled, block.OutcomeCancelled, false},
		9:  {block.StatusGoingAway, block.OutcomeBusy, false},
		10: {block.StatusUnsupported, block.OutcomeUnsupported, false},
		11: {block.StatusFailed, block.OutcomeError, true},
	}
	for _, unknown := range []int32{-1 << 31, -1, 0, 12, 255, 256 + 2, 1<<31 - 1} { // 258 is not "not found"
		want[unknown] = class{block.StatusFailed, block.OutcomeError, true}
	}
	statuses := make(chan int32, 1)
	id := identity("server", "c1", "secret")
	addr := startRawPeer(t, func(c net.Conn, m received) {
		data := content("a", 0, testBlock)
		s := said{status: <-statuses}
		if s.status == int32(block.StatusData) {
			s.length, s.crc = len(data), block.Checksum(data)
		} else {
			data = nil
		}
		c.Write(message(thriftReply, m.method, m.seq, ended(fetchReply(id, block.UnknownMeta("v1"), []said{s}, len(data)), data)))
	})
	client := startClient(t, ClientOptions{}, &memory{})
	for sent, class := range want {
		statuses <- sent
		s, err := client.FetchFrom(inTime(t), addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
		if err != nil {
			t.Fatal(err)
		}
		pieces := 0
		err = drain(s, func(p block.Piece) {
			pieces++
			if o := p.Status.Outcome(); p.Status != class.status || o != class.outcome || o.Failed() != class.failed {
				t.Errorf("status %d on the wire: got status %d, outcome %d, want %+v", sent, p.Status, o, class)
			}
			if (p.Buf != nil) != (class.status == block.StatusData) {
				t.Errorf("status %d on the wire: bytes %v", sent, p.Buf)
			}
		})
		if err != io.EOF || pieces != 1 {
			t.Errorf("status %d on the wire: %d pieces, then %v", sent, pieces, err)
		}
	}
	if m := client.Metrics(); m.Dials != 1 {
		t.Errorf("%d connections: a status must not cost one", m.Dials)
	}
}

func TestPR27_TheServerSendsEveryStatus(t *testing.T) {
	statuses := make(chan block.Status, 1)
	reader := &fakeReader{}
	reader.serve = func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		answerAll(reply, f.Run, <-statuses)
	}
	_, addr := startServer(t, ServerOptions{}, reader)
	client := startClient(t, ClientOptions{}, &memory{})
	for status := block.StatusNotFound; status <= block.StatusFailed; status++ {
		statuses <- status
		s, err := client.FetchFrom(inTime(t), addr, fetchOf("a", 16*testBlock, block.Run{Want: 0b1010}))
		if err != nil {
			t.Fatal(err)
		}
		got := map[uint64]block.Status{}
		if err := drain(s, func(p block.Piece) { got[p.Index] = p.Status }); err != io.EOF {
			t.Errorf("status %d: %v", status, err)
		}
		if len(got) != 2 || got[1] != status || got[3] != status {
			t.Errorf("status %d arrives as %v", status, got)
		}
	}
}

func TestS13_AWrongByteNeverComesOutOfAStream(t *testing.T) {
	const size = 3 * testBlock
	for _, at := range []int{0, 4095, testBlock / 2, testBlock - 1} {
		reader := whole(size)
		give := reader.serve
		reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
			give(ctx, n, f, reply)
			reply.Answers[1].Lease.Raw()[at] ^= 1
		}
		_, addr := startServer(t, ServerOptions{}, reader)
		var m memory
		client := startClient(t, ClientOptions{}, &m)
		s, err := client.FetchFrom(inTime(t), addr, fetchOf("a", size, block.NewRun(0, 3)))
		if err != nil {
			t.Fatal(err)
		}
		err = drain(s, func(p block.Piece) {
			if p.Index != 0 || !bytes.Equal(p.Buf.Bytes(), content("a", 0, testBlock)) {
				t.Errorf("byte %d flipped: block %d was handed out", at, p.Index)
			}
		})
		if o := block.OutcomeOf(err, false); o != block.OutcomeCorrupt || !o.Failed() {
			t.Errorf("byte %d flipped: %v", at, err)
		}
		eventually(t, "all memory is back", func() bool { return reader.balanced() && m.balanced() })
	}
}

func TestPR22_AReplyForAnotherVersionIsRefused(t *testing.T) {
	const size = testBlock
	for name, change := range map[string]func(*block.Meta){
		"version": func(m *block.Meta) { m.Version = "v2" },
		"size":    func(m *block.Meta) { m.Size++ },
	} {
		reader := whole(size)
		give := reader.serve
		reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
			give(ctx, n, f, reply)
			change(&reply.Meta)
		}
		_, addr := startServer(t, ServerOptions{}, reader)
		var m memory
		client := startClient(t, ClientOptions{}, &m)
		s, err := client.FetchFrom(inTime(t), addr, fetchOf("a", size, block.NewRun(0, 1)))
		if err != nil {
			t.Fatal(err)
		}
		err = drain(s, func(p block.Piece) { t.Errorf("%s: block %d of another version", name, p.Index) })
		if err == io.EOF || block.OutcomeOf(err, false) != block.OutcomeError {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, "all memory is back", func() bool { return reader.balanced() && m.balanced() })
	}
}

func TestRR12_ALeavingServerSaysSoAtOnce(t *testing.T) {
	reader := whole(testBlock)
	give := reader.serve
	entered, release := make(chan struct{}), make(chan struct{})
	reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
		if f.Object.Key == "slow" {
			close(entered)
			<-release
		}
		give(ctx, n, f, reply)
	}
	reader.stat = func(block.Object) (block.Meta, error) { return block.Meta{}, nil }
	ln := listen(t)
	server, err := NewServer(ServerOptions{Listener: ln, Identity: identity("server", "c1", "secret")}, reader)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }() // ends with Shutdown
	addr := addrOf(ln)
	client := startClient(t, ClientOptions{}, &memory{})
	slow, err := client.FetchFrom(inTime(t), addr, fetchOf("slow", testBlock, block.NewRun(0, 1)))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(inTime(t)) }() // ends with the slow call
	eventually(t, "the server is leaving", server.leaving.Load)

	s, err := client.FetchFrom(inTime(t), addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
	if err == nil {
		err = drain(s, func(p block.Piece) {
			if p.Status != block.StatusGoingAway || p.Status.Outcome().Failed() {
				t.Errorf("a leaving server answers with status %d", p.Status)
			}
		})
	}
	if err != io.EOF {
		t.Errorf("a call to a leaving server: %v", err)
	}
	if _, err := client.Stat(inTime(t), addr, block.Object{Bucket: "b", Key: "k"}, ""); block.OutcomeOf(err, false) != block.OutcomeBusy {
		t.Errorf("Stat of a leaving server: %v", err)
	}
	select {
	case err := <-stopped:
		t.Errorf("Shutdown has not waited for a call: %v", err)
	default:
	}
	close(release)
	pieces := 0
	if err := drain(slow, func(block.Piece) { pieces++ }); err != io.EOF || pieces != 1 {
		t.Errorf("the call that was running: %d pieces, %v", pieces, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestRR12_ShutdownDoesNotWaitForEver(t *testing.T) {
	reader := whole(testBlock)
	entered, gone := make(chan struct{}), make(chan struct{})
	reader.serve = func(ctx context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		close(entered)
		<-ctx.Done()
		close(gone)
	}
	ln := listen(t)
	server, err := NewServer(ServerOptions{Listener: ln, Identity: identity("server", "c1", "secret")}, reader)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }() // ends with Shutdown
	client := startClient(t, ClientOptions{}, &memory{})
	s, err := client.FetchFrom(inTime(t), addrOf(ln), fetchOf("a", testBlock, block.NewRun(0, 1)))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := server.Shutdown(now); err != context.Canceled {
		t.Errorf("Shutdown: %v", err)
	}
	<-gone
	if err := drain(s, nil); err == io.EOF {
		t.Error("a call that was cut ends well")
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestBP04_AServerMayStopBeforeItHasBegun(t *testing.T) {
	before := countCosts(t)
	for range 50 {
		server, err := NewServer(ServerOptions{Listener: listen(t), Identity: identity("server", "c1", "secret")}, whole(testBlock))
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve() }() // ends with Shutdown
		if err := server.Shutdown(inTime(t)); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
	before.backTo(t)
}
