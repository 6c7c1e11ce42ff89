package rpc

import (
	"encoding/binary"
	"fmt"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/gopkg/protocol/thrift"
)

// Messages travel framed: a length, then the Thrift message. What a frame
// announces is checked here before Kitex sees it, because Kitex and generated
// code allocate what a length says. Unframed messages are refused: nothing
// bounds them.

const (
	// thriftCall is the version and type of a Thrift message: a call here.
	thriftCall  = 0x80010000 | uint32(thrift.CALL)
	thriftReply = 0x80010000 | uint32(thrift.REPLY)
	thriftError = 0x80010000 | uint32(thrift.EXCEPTION)
	// maxMethod bounds the name of a method in bytes.
	maxMethod = 32
	lengthLen = 4
)

// frame is the head of a message that has not been consumed.
type frame struct {
	// kind is one of the three thrift constants.
	kind uint32
	// head is the frame's length field and the message's head, body what
	// follows, in bytes.
	head, body int
	// name is how long the method's name is.
	name int
}

// peekFrame reads as much of the next message as says how long it is, and
// refuses one of more than limit bytes.
func peekFrame(r *bufiox.DefaultReader, limit int) (frame, error) {
	b, err := r.Peek(lengthLen + 8)
	if err != nil {
		return frame{}, err
	}
	size := int64(binary.BigEndian.Uint32(b))
	kind := binary.BigEndian.Uint32(b[lengthLen:])
	name := int64(binary.BigEndian.Uint32(b[lengthLen+4:]))
	head := lengthLen + 8 + name + 4
	switch {
	case kind != thriftCall && kind != thriftReply && kind != thriftError:
		return frame{}, fmt.Errorf("%w: neither a call nor a reply in a frame (%#08x)", errWire, kind)
	case size > int64(limit):
		return frame{}, fmt.Errorf("%w: a frame of %d bytes, at most %d are expected", errWire, size, limit)
	case name > maxMethod || head > lengthLen+size:
		return frame{}, fmt.Errorf("%w: a method name of %d bytes in a frame of %d", errWire, name, size)
	}
	return frame{kind: kind, head: int(head), body: int(lengthLen + size - head), name: int(name)}, nil
}

// calls reports whether the message is about a method, which it looks at as far
// as it has come.
func (f frame) calls(r *bufiox.DefaultReader, method string) bool {
	const before = lengthLen + 8
	if f.name != len(method) || r.Buffered() < before+f.name {
		return false
	}
	b, err := r.Peek(before + f.name)
	return err == nil && string(b[before:]) == method
}

// peekWhole reads all of the message f and checks that its body is one Thrift
// struct with nothing behind it. Then no length inside is a lie.
func (f frame) peekWhole(r *bufiox.DefaultReader) error {
	b, err := r.Peek(f.head + f.body)
	if err != nil {
		return err
	}
	c := over(b[f.head:])
	if c.skip(thrift.STRUCT, maxDepth); c.err != nil || c.left != 0 {
		return fmt.Errorf("%w: its frame does not hold one struct", errWire)
	}
	return nil
}

// exceptionFor returns the exception that answers the call which r holds.
func exceptionFor(r *bufiox.DefaultReader, kind int32, text string) []byte {
	f, err := peekFrame(r, maxRequest)
	if err != nil {
		return nil
	}
	call, err := r.Peek(f.head)
	if err != nil {
		return nil
	}
	b := append([]byte(nil), call...)
	binary.BigEndian.PutUint32(b[lengthLen:], thriftError)
	b = appendStop(appendI32(appendString(b, 1, text), 2, kind))
	binary.BigEndian.PutUint32(b, uint32(len(b)-lengthLen))
	return b
}
