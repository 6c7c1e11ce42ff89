package rpc

import (
	"context"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/kitex/pkg/discovery"

	"headstart/engine/block"
)

// clientConn is one connection to another node. One call at a time uses it;
// only cut and Close may come from elsewhere.
type clientConn struct {
	net.Conn
	raw  syscall.RawConn
	r    *bufiox.DefaultReader
	w    *bufiox.DefaultWriter
	addr block.Addr
	// ctx carries the connection to Kitex, which asks pool for one.
	ctx      context.Context
	instance discovery.Instance
	peer     acquaintance
	// out holds the request while it is sent, tape what a cursor takes down.
	out, tape []byte
	// limit is the largest reply that the call expects, in bytes.
	limit int
	// healthy is Kitex's word, after a call, that the next one can follow.
	healthy   bool
	idleSince time.Time
}

func newClientConn(conn net.Conn, addr block.Addr) *clientConn {
	c := &clientConn{
		Conn:     conn,
		r:        bufiox.NewDefaultReader(conn),
		w:        bufiox.NewDefaultWriter(conn),
		addr:     addr,
		instance: discovery.NewInstance("tcp", addr.String(), discovery.DefaultWeight, nil),
	}
	if s, ok := conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	c.ctx = context.WithValue(context.Background(), connKey{}, c)
	return c
}

// connKey is the context key that Kitex's extension points find the connection
// of a call by.
type connKey struct{}

// Reader and Writer are what Kitex's gonet transport works with.
func (c *clientConn) Reader() *bufiox.DefaultReader { return c.r }

// Writer implements gonet's connection.
func (c *clientConn) Writer() *bufiox.DefaultWriter { return c.w }

// Read implements net.Conn over what is buffered.
func (c *clientConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// SetReadDeadline does nothing: Kitex calls it with the time-outs of its own,
// which are off, and would undo a cut.
func (c *clientConn) SetReadDeadline(time.Time) error { return nil }

// cut ends whatever the connection is doing, for good.
func (c *clientConn) cut() { c.Conn.SetDeadline(time.Unix(1, 0)) }

// alive reports whether an idle connection is still open and silent.
func (c *clientConn) alive() bool { return c.raw == nil || peekSocket(c.raw) == socketQuiet }

// readFull fills b from what is buffered, then straight from the socket.
func (c *clientConn) readFull(b []byte) error {
	n := min(len(b), c.r.Buffered())
	if _, err := c.r.ReadBinary(b[:n]); err != nil {
		return err
	}
	_, err := io.ReadFull(c.Conn, b[n:])
	return err
}

// discard reads over n bytes.
func (c *clientConn) discard(n int) error {
	buffered := min(n, c.r.Buffered())
	if err := c.r.Skip(buffered); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, c.Conn, int64(n-buffered))
	return err
}
