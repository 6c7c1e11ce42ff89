package fault

import (
	"context"
	"errors"
	"io"

	"headstart/engine/block"
)

// errCut is what the reader of a broken connection gets.
var errCut = errors.New("connection reset")

// bent is a reply on which a rule bears.
type bent struct {
	// Stream is nil for a reply that says all in first.
	block.Stream
	ctx    context.Context
	rule   Rule
	dice   uint64
	source block.Source
	f      *block.Fetch
	addr   string
	// first are pieces to hand out before those of Stream.
	first []block.Piece
	// seen counts the blocks handed out.
	seen uint64
}

// Next implements block.Stream.
func (s *bent) Next() (block.Piece, error) {
	if s.rule.Kind == PeerSlow || s.rule.Kind == StoreSlow {
		if err := pause(s.ctx, s.rule.Delay); err != nil {
			return block.Piece{}, s.wrap(err)
		}
	}
	if len(s.first) > 0 {
		p := s.first[0]
		s.first = s.first[1:]
		return p, nil
	}
	switch {
	case s.rule.Kind == PeerSilent:
		<-s.ctx.Done()
		return block.Piece{}, s.wrap(s.ctx.Err())
	case s.Stream == nil:
		return block.Piece{}, io.EOF
	case (s.rule.Kind == PeerCut || s.rule.Kind == StoreCut) && s.seen == s.dice%3:
		return block.Piece{}, s.wrap(errCut)
	}
	p, err := s.Stream.Next()
	if err != nil || p.Buf == nil {
		return p, err
	}
	s.seen++
	if s.rule.Kind == PeerCorrupt && s.dice>>8%2 == 0 {
		return s.corrupt(p)
	}
	return p, nil
}

// corrupt changes one bit and does what a receiver does: it holds the bytes
// against the checksum that came with them.
func (s *bent) corrupt(p block.Piece) (block.Piece, error) {
	bit := s.dice % uint64(8*len(p.Buf.Bytes()))
	p.Buf.Bytes()[bit/8] ^= 1 << (bit % 8)
	if p.Buf.Verify(p.Buf.CRC()) {
		return p, nil
	}
	p.Buf.Release()
	return block.Piece{}, s.wrap(block.ErrCorrupt)
}

// Meta implements block.Stream.
func (s *bent) Meta() block.Meta {
	if s.Stream == nil {
		return s.f.Meta
	}
	return s.Stream.Meta()
}

// Close implements block.Stream.
func (s *bent) Close() {
	if s.Stream != nil {
		s.Stream.Close()
	}
}

func (s *bent) wrap(err error) error {
	return &block.Error{Op: "fetch", Object: s.f.Object, Source: s.source, Addr: s.addr, Err: err}
}
