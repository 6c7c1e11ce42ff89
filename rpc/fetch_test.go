package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"headstart/engine/block"
)

func TestS12_FetchBringsBlocksOneByOne(t *testing.T) {
	const size = 5*testBlock + 100 // the last block takes the path of small parts
	reader := whole(size)
	type asked struct {
		fetch block.Fetch
		from  block.Node
		waits time.Duration
	}
	calls := make(chan asked, 1)
	reader.serve = func(ctx context.Context, n block.Node, f *block.Fetch, reply *block.Reply) {
		deadline, _ := ctx.Deadline()
		calls <- asked{*f, n, time.Until(deadline)}
		reader.give(f, size, reply)
		reply.Answers[1].Lease.Release()
		reply.Answers[1].Status = block.StatusNotFound
	}
	_, addr := startServer(t, ServerOptions{}, reader)
	var m memory
	client := startClient(t, ClientOptions{}, &m)
	f := fetchOf("a", size, block.Run{First: 2, Want: 0b1011})
	f.Kind, f.Queue, f.Fill, f.Wait = block.KindSegmentFooter, block.QueueIndex, true, true
	s, err := client.FetchFrom(inTime(t), addr, f)
	if err != nil {
		t.Fatal(err)
	}
	var order []uint64
	err = drain(s, func(p block.Piece) {
		order = append(order, p.Index)
		if p.Status == block.StatusNotFound {
			return
		}
		if want := content("a", p.Index, block.Geometry(testBlock).Len(p.Index, size)); !bytes.Equal(p.Buf.Bytes(), want) {
			t.Errorf("block %d: wrong bytes", p.Index)
		}
		if s.Meta().ETag != "v1" || s.Meta().ContentType != "text/plain" || !s.Meta().Modified.Equal(time.Unix(1, 2)) {
			t.Errorf("meta %+v", s.Meta())
		}
	})
	if err != io.EOF {
		t.Fatalf("end of stream: %v", err)
	}
	if want := []uint64{3, 2, 5}; !equal(order, want) { // what is missing comes first
		t.Errorf("order %v, want %v", order, want)
	}
	got := <-calls
	if got.fetch != *f {
		t.Errorf("server saw %+v, sent %+v", got.fetch, f)
	}
	if want := (block.Node{ID: "client", GroupID: "group of client", Location: "default"}); got.from != want {
		t.Errorf("server saw %+v", got.from)
	}
	if got.waits <= time.Second || got.waits > patience {
		t.Errorf("server saw a deadline in %v", got.waits)
	}
	eventually(t, "all memory is back", func() bool { return reader.balanced() && m.balanced() })
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestPR31_ManyFetchesReuseConnections(t *testing.T) {
	const size = 64 * testBlock
	reader := whole(size)
	server, addr := startServer(t, ServerOptions{}, reader)
	var m memory
	client := startClient(t, ClientOptions{}, &m)
	const workers, rounds = 64, 30
	errs := make(chan error, workers)
	for w := range workers {
		go func() {
			for range rounds {
				s, err := client.FetchFrom(context.Background(), addr, fetchOf("a", size, block.NewRun(uint64(w%60), 1+w%4)))
				if err == nil {
					err = drain(s, func(p block.Piece) {
						if !bytes.Equal(p.Buf.Bytes(), content("a", p.Index, testBlock)) {
							t.Errorf("block %d: wrong bytes", p.Index)
						}
					})
				}
				if err != io.EOF {
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
	if n := server.Metrics().Accepts; n > workers+8 {
		t.Errorf("%d connections for %d readers", n, workers)
	}
	if got, want := client.Metrics().Bytes, server.Metrics().Bytes; got != want {
		t.Errorf("client counts %d bytes, server %d", got, want)
	}
	eventually(t, "all memory is back", func() bool { return reader.balanced() && m.balanced() })
}

func TestS08_CancelIsAnsweredAndTheConnectionStays(t *testing.T) {
	for _, how := range []string{"Close", "context"} {
		t.Run(how, func(t *testing.T) {
			reader := whole(testBlock)
			entered, left := make(chan struct{}), make(chan error, 1)
			reader.serve = func(ctx context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
				if f.Object.Key == "slow" {
					close(entered)
					<-ctx.Done()
					left <- ctx.Err()
				}
				reader.give(f, testBlock, reply)
			}
			server, addr := startServer(t, ServerOptions{}, reader)
			var m memory
			client := startClient(t, ClientOptions{}, &m)
			client.grace = patience
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s, err := client.FetchFrom(ctx, addr, fetchOf("slow", testBlock, block.NewRun(0, 1)))
			if err != nil {
				t.Fatal(err)
			}
			<-entered
			if how == "Close" {
				s.Close()
			} else {
				cancel()
			}
			if _, err := s.Next(); err == nil || err == io.EOF {
				t.Errorf("Next after giving up: %v", err)
			} else if how == "context" && block.OutcomeOf(err, false) != block.OutcomeCancelled {
				t.Errorf("outcome of %v", err)
			}
			if err := <-left; err != context.Canceled {
				t.Errorf("the server's context ended with %v", err)
			}
			eventually(t, "both connections are idle", func() bool { return client.Metrics().Idle == 2 })
			s, err = client.FetchFrom(context.Background(), addr, fetchOf("fast", testBlock, block.NewRun(0, 1)))
			if err == nil {
				err = drain(s, nil)
			}
			if err != io.EOF {
				t.Fatal(err)
			}
			// One connection for the call, one for its Cancel, none afterwards.
			if m := server.Metrics(); m.Accepts != 2 || m.Cancels != 1 {
				t.Errorf("accepts %d, cancels %d", m.Accepts, m.Cancels)
			}
			if m := client.Metrics(); m.Cuts != 0 || m.Cancels != 1 {
				t.Errorf("cuts %d, cancels %d", m.Cuts, m.Cancels)
			}
			eventually(t, "all memory is back", func() bool { return reader.balanced() && m.balanced() })
		})
	}
}

func TestS08_AConnectionIsCutWhenNoAnswerComes(t *testing.T) {
	t.Run("soon", func(t *testing.T) { giveUpOnADeafPeer(t, 100*time.Millisecond) })
	t.Run("not at once", func(t *testing.T) { giveUpOnADeafPeer(t, patience) })
}

// giveUpOnADeafPeer closes a call that the peer goes on with, which gives it that
// much time to answer.
func giveUpOnADeafPeer(t *testing.T, grace time.Duration) {
	reader := whole(testBlock)
	entered, release := make(chan struct{}), make(chan struct{})
	reader.serve = func(_ context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		close(entered)
		<-release // deaf to its context
		reader.give(f, testBlock, reply)
	}
	_, addr := startServer(t, ServerOptions{}, reader)
	var m memory
	client := startClient(t, ClientOptions{}, &m)
	client.grace = grace
	s, err := client.FetchFrom(context.Background(), addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	start := time.Now()
	s.Close()
	if grace == patience {
		if client.Metrics().Cuts != 0 {
			t.Error("Close waited until the connection was cut")
		}
	} else {
		// That of the Cancel may be left; on a busy machine it may have had too little time.
		eventually(t, "the connection is cut", func() bool { return client.Metrics().Cuts == 1 && client.Metrics().Conns <= 1 })
		if took := time.Since(start); took < grace {
			t.Errorf("cut after %v", took)
		}
	}
	close(release)
	eventually(t, "all memory is back", func() bool { return reader.balanced() && m.balanced() })
}

func TestPR18_ADeadlineTravelsAndIsATimeout(t *testing.T) {
	reader := whole(testBlock)
	entered, left := make(chan struct{}, 16), make(chan error, 16)
	reader.serve = func(ctx context.Context, _ block.Node, f *block.Fetch, reply *block.Reply) {
		entered <- struct{}{}
		<-ctx.Done()
		left <- ctx.Err()
		answerAll(reply, f.Run, block.StatusFillTimeout)
	}
	_, addr := startServer(t, ServerOptions{}, reader)
	var m memory
	client := startClient(t, ClientOptions{}, &m)
	untilItArrives(t, entered, func(ctx context.Context) {
		s, err := client.FetchFrom(ctx, addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
		if err == nil {
			err = drain(s, nil) // the server may have been a little earlier
		}
		if err != io.EOF && block.OutcomeOf(err, false) != block.OutcomeTimeout {
			t.Errorf("the call ended with %v", err)
		}
	})
	<-left
}

// untilItArrives makes a call that has little time. On a busy machine that may be
// over before the server sees the call, which says so by entered: then it makes
// another one with twice the time.
func untilItArrives(t *testing.T, entered <-chan struct{}, call func(context.Context)) {
	t.Helper()
	for wait := 30 * time.Millisecond; wait < patience; wait *= 2 {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		call(ctx)
		cancel()
		select {
		case <-entered:
			return
		default:
		}
	}
	t.Fatal("the server has seen no call")
}

func TestS65_StrangersAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		cluster, token string
		says           string
	}{
		"other cluster": {"c2", "secret", "cluster id"},
		"unknown yet":   {"", "secret", "cluster id"},
		"other token":   {"c1", "guess", "cluster_token"},
		"no token":      {"c1", "", "cluster_token"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := whole(testBlock)
			server, addr := startServer(t, ServerOptions{}, reader)
			var m memory
			client := startClient(t, ClientOptions{Identity: identity("client", tt.cluster, tt.token)}, &m)
			s, err := client.FetchFrom(inTime(t), addr, fetchOf("a", testBlock, block.NewRun(0, 1)))
			if err != nil {
				t.Fatal(err)
			}
			err = drain(s, nil)
			if !errors.Is(err, block.ErrRefused) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("want a refusal that names the %s, got %v", tt.says, err)
			}
			if server.Metrics().Refused != 1 || reader.loans() != 0 {
				t.Error("the server served a stranger")
			}
		})
	}
}

func TestS14_StatLearnsOfAnObject(t *testing.T) {
	want := block.Meta{Size: 7, Version: "v", ETag: "e", Modified: time.Unix(3, 4), ContentType: "x/y"}
	reader := &fakeReader{stat: func(o block.Object) (block.Meta, error) {
		if o.Key == "none" {
			return block.Meta{}, block.ErrNotFound
		}
		return want, nil
	}}
	_, addr := startServer(t, ServerOptions{}, reader)
	client := startClient(t, ClientOptions{}, &memory{})
	got, err := client.Stat(inTime(t), addr, block.Object{Store: "s3", Bucket: "b", Key: "k"}, "")
	if err != nil || !got.Modified.Equal(want.Modified) {
		t.Fatal(got, err)
	}
	got.Modified = want.Modified
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	_, err = client.Stat(inTime(t), addr, block.Object{Store: "s3", Bucket: "b", Key: "none"}, "")
	if failed := new(block.Error); !errors.As(err, &failed) || !errors.Is(err, block.ErrNotFound) || failed.Addr != addr.String() {
		t.Errorf("%v", err)
	}
}
