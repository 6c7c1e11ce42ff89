package rpc

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/cloudwego/gopkg/bufiox"
)

// sealed writes to a secure connection of a server. To encrypt is to read, and
// Go code does not read what a lease lends: it is copied, a piece at a time, by
// the lease's owner. What is encrypted is gathered, so that a reply does not
// cost a system call for each TLS record. The memory for both belongs to a
// reply from its first byte to flush.
type sealed struct {
	conn *serverConn
	tls  *tls.Conn
	// allowed is the list of names that the other side was found on last.
	allowed *[]string
	memory  *sync.Pool
	room    *sealRoom
}

// sealStep is how much is copied and encrypted at a time: some TLS records.
const sealStep = 64 << 10

// sealRoom is what a reply is copied into and gathered in.
type sealRoom struct {
	plain [sealStep]byte
	out   []byte
}

// socketOf is the connection below TLS, of which something may have been read
// already.
type socketOf struct {
	net.Conn
	read *bufiox.DefaultReader
	to   *sealed
}

// Read implements net.Conn.
func (s socketOf) Read(p []byte) (int, error) {
	if n := s.read.Buffered(); n > 0 {
		return s.read.ReadBinary(p[:min(n, len(p))])
	}
	return s.Conn.Read(p)
}

// Write implements net.Conn: records of a reply are gathered.
func (s socketOf) Write(p []byte) (int, error) {
	room := s.to.room
	if room == nil {
		return s.Conn.Write(p)
	}
	if len(room.out)+len(p) > cap(room.out) {
		if err := s.to.send(); err != nil {
			return 0, err
		}
	}
	room.out = append(room.out, p...)
	return len(p), nil
}

// open makes the connection secure: the handshake is what comes next.
func (c *serverConn) open(t *TLS) (err error) {
	s := &sealed{conn: c, memory: &t.memory}
	if s.tls, err = t.server(c.ctx, socketOf{c.Conn, c.r, s}); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	c.sealed = s
	c.r = bufiox.NewDefaultReader(s.tls)
	c.w = bufiox.NewDefaultWriter(s)
	return nil
}

// Write implements io.Writer for a part of a reply.
func (s *sealed) Write(b []byte) (int, error) {
	if s.room == nil {
		if s.room, _ = s.memory.Get().(*sealRoom); s.room == nil {
			s.room = &sealRoom{out: make([]byte, 0, 2*sealStep)}
		}
	}
	for i := range s.conn.parts {
		p := &s.conn.parts[i]
		if p.lease != nil && len(p.bytes) == len(b) && &p.bytes[0] == &b[0] {
			return s.copied(p)
		}
	}
	return s.tls.Write(b)
}

func (s *sealed) copied(p *part) (sent int, err error) {
	for sent < len(p.bytes) {
		piece := s.room.plain[:min(sealStep, len(p.bytes)-sent)]
		n, err := p.lease.CopyAt(piece, p.from+sent)
		if err == nil && n < len(piece) {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			n, err = s.tls.Write(piece)
		}
		if err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// send hands what has been gathered to the network.
func (s *sealed) send() error {
	out := s.room.out
	s.room.out = out[:0]
	_, err := s.conn.Conn.Write(out)
	return err
}

// flush ends a reply.
func (s *sealed) flush() error {
	if s.room == nil {
		return nil
	}
	err := s.send()
	s.memory.Put(s.room)
	s.room = nil
	return err
}

// Write writes to whoever is at the other end.
func (c *serverConn) Write(b []byte) (int, error) {
	if c.sealed == nil {
		return c.Conn.Write(b)
	}
	n, err := c.sealed.Write(b)
	if flushed := c.sealed.flush(); err == nil {
		err = flushed
	}
	return n, err
}
