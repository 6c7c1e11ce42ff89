package tpch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// readTimeout bounds one read; a node that hangs costs errors, not the replay.
const readTimeout = 30 * time.Second

// reader is one of the readers of a Replay: one keep-alive connection to each
// node and one buffer, used by one goroutine. It speaks HTTP on the connection
// itself: no hand-over between goroutines is in the latency, and nothing is
// retried behind its back.
type reader struct {
	replay *Replay
	conns  map[string]*conn
	url    []byte
	body   []byte
	stats  Stats
}

// conn is one connection to one node.
type conn struct {
	net.Conn
	in *bufio.Reader
	// release ends the watch of the context that cuts the connection.
	release func() bool
}

func (c *conn) close() {
	c.release()
	_ = c.Close()
}

// read does one read and counts it. The comparison is outside the latency.
func (r *reader) read(ctx context.Context, queryID string, want Read) {
	began := time.Now()
	got, source, err := r.get(ctx, queryID, want)
	took := time.Since(began)
	s := &r.stats
	s.Reads++
	if err == nil {
		err = s.countSource(source)
	}
	if err != nil {
		s.Errors++
		if s.FirstError == nil {
			s.FirstError = fmt.Errorf("%s, %d bytes at %d: %w",
				r.replay.o.Trace.Objects[want.Object].Key, want.Length, want.Offset, err)
		}
		return
	}
	s.Latencies = append(s.Latencies, took)
	s.Bytes += int64(len(got))
	s.CheckedBytes += int64(len(got))
	s.WrongBytes += r.replay.o.Contents.Wrong(want, got)
}

func (s *Stats) countSource(source string) error {
	switch source {
	case "local":
		s.Local++
	case "peer":
		s.Peer++
	case "s3":
		s.Store++
	default:
		return fmt.Errorf("X-Headstart-Source is %q", source)
	}
	return nil
}

// get fetches the bytes into r.body, which the next get uses again.
func (r *reader) get(ctx context.Context, queryID string, want Read) (got []byte, source string, err error) {
	node := r.replay.o.Nodes[want.Object]
	c, err := r.connect(ctx, node)
	if err != nil {
		return nil, "", err
	}
	got, source, err = r.exchange(c, node, queryID, want)
	if err != nil {
		delete(r.conns, node)
		c.close()
	}
	return got, source, err
}

func (r *reader) connect(ctx context.Context, node string) (*conn, error) {
	if c := r.conns[node]; c != nil {
		return c, nil
	}
	raw, err := (&net.Dialer{Timeout: readTimeout}).DialContext(ctx, "tcp", node)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, in: bufio.NewReader(raw)}
	c.release = context.AfterFunc(ctx, func() { _ = raw.Close() })
	r.conns[node] = c
	return c, nil
}

// exchange sends one request and reads its answer to the end.
func (r *reader) exchange(c *conn, node, queryID string, want Read) ([]byte, string, error) {
	u := append(r.url[:0], "GET "...)
	u = append(u, r.replay.targets[want.Object]...)
	u = append(u, "&offset="...)
	u = strconv.AppendInt(u, want.Offset, 10)
	u = append(u, "&size="...)
	u = strconv.AppendInt(u, want.Length, 10)
	u = append(u, "&query_id="...)
	u = append(u, queryID...)
	u = append(u, " HTTP/1.1\r\nHost: "...)
	u = append(u, node...)
	u = append(u, "\r\n\r\n"...)
	r.url = u
	if err := c.SetDeadline(time.Now().Add(readTimeout)); err != nil {
		return nil, "", err
	}
	if _, err := c.Write(u); err != nil {
		return nil, "", err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return nil, "", fmt.Errorf("%s answers %s: %s", node, resp.Status, why)
	}
	// Asking for one byte more than is wanted makes the end of the body show.
	if len(r.body) < int(want.Length)+1 {
		r.body = make([]byte, want.Length+1)
	}
	n, err := io.ReadFull(resp.Body, r.body[:want.Length+1])
	if err == nil {
		return nil, "", fmt.Errorf("%s answers more than was asked for", node)
	}
	if int64(n) != want.Length || !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, "", fmt.Errorf("%s answers %d bytes: %w", node, n, err)
	}
	return r.body[:n], resp.Header.Get("X-Headstart-Source"), nil
}
