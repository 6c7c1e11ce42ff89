package rpc

import (
	"cmp"
	"encoding/binary"
	"errors"
	"time"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/gopkg/protocol/thrift"
)

// errWire: bytes that are no message of ours.
var errWire = errors.New("malformed message")

// maxDepth bounds how deep an unknown field may nest.
const maxDepth = 16

// over returns a cursor over the message b.
func over(b []byte) cursor { return cursor{b: b, left: len(b)} }

func appendField(b []byte, t thrift.TType, id uint16) []byte {
	return append(b, byte(t), byte(id>>8), byte(id))
}

func appendI32(b []byte, id uint16, v int32) []byte {
	return binary.BigEndian.AppendUint32(appendField(b, thrift.I32, id), uint32(v))
}

func appendI64(b []byte, id uint16, v int64) []byte {
	return binary.BigEndian.AppendUint64(appendField(b, thrift.I64, id), uint64(v))
}

func appendBool(b []byte, id uint16, v bool) []byte {
	b = appendField(b, thrift.BOOL, id)
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString[T ~string | ~[]byte](b []byte, id uint16, v T) []byte {
	b = binary.BigEndian.AppendUint32(appendField(b, thrift.STRING, id), uint32(len(v)))
	return append(b, v...)
}

func appendList(b []byte, id uint16, elem thrift.TType, n int) []byte {
	b = append(appendField(b, thrift.LIST, id), byte(elem))
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendStop(b []byte) []byte { return append(b, byte(thrift.STOP)) }

// cursor walks one Thrift message field by field, in memory or, with r, as it
// comes out of a connection. It reads what it is told to and never further than
// its frame; after the first error it only answers zeros, so that a decoder
// looks at err once, at its end, and in its loops. It panics on no input, which
// the skipping of gopkg's thrift package does.
type cursor struct {
	// b is the message or, with r, that part of it which lies in r's buffer; then
	// window is how much that was before some of it was taken.
	b      []byte
	r      *bufiox.DefaultReader
	window int
	// left is what remains of the frame, in bytes.
	left int
	err  error
	// tape, while taping, takes down what is read.
	tape   []byte
	taping bool
}

// zeros is what a failed cursor reads.
const zeros = "\x00\x00\x00\x00\x00\x00\x00\x00"

func (c *cursor) fail(err error) { c.err = cmp.Or(c.err, err) }

// next returns the next n bytes, which stay valid until the message ends.
func (c *cursor) next(n int) []byte {
	if n < 0 || n > c.left {
		c.fail(errWire)
	}
	if c.err != nil || n > len(c.b) && !c.fetch(n) {
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	c.left -= n
	if c.taping {
		c.tape = append(c.tape, b...)
	}
	return b
}

// fetch waits until n bytes are there, and takes what else is there in view.
func (c *cursor) fetch(n int) bool {
	if c.settle(); c.r == nil {
		c.fail(errWire)
		return false
	}
	b, err := c.r.Peek(n)
	if err != nil {
		c.fail(err)
		return false
	}
	if more := min(c.r.Buffered(), c.left); more > n {
		b, _ = c.r.Peek(more) // it is there
	}
	c.b, c.window = b, len(b)
	return true
}

// settle tells r how far the message has been read, before somebody else reads
// on.
func (c *cursor) settle() {
	if c.r != nil {
		c.fail(c.r.Skip(c.window - len(c.b)))
		c.b, c.window = nil, 0
	}
}

// fixed is next for up to 8 bytes; it answers zeros after an error.
func (c *cursor) fixed(n int) []byte {
	if b := c.next(n); b != nil {
		return b
	}
	return []byte(zeros)
}

func (c *cursor) u8() byte   { return c.fixed(1)[0] }
func (c *cursor) i32() int32 { return int32(binary.BigEndian.Uint32(c.fixed(4))) }
func (c *cursor) i64() int64 { return int64(binary.BigEndian.Uint64(c.fixed(8))) }

// small reads an i32 that must be a small number, such as that of a kind.
func (c *cursor) small() uint8 {
	v := c.i32()
	if v != int32(uint8(v)) {
		c.fail(errWire)
	}
	return uint8(v)
}

// bytes reads a string or binary of at most limit bytes.
func (c *cursor) bytes(limit int) []byte {
	n := int(c.i32())
	if n > limit {
		c.fail(errWire)
	}
	return c.next(n)
}

// str is bytes as a string. It returns old when that is the same, which costs
// no memory: callers mostly repeat themselves.
func (c *cursor) str(limit int, old string) string {
	b := c.bytes(limit)
	if string(b) == old {
		return old
	}
	return string(b)
}

// field reads the head of the next field; ok is false at the end of the
// struct and after an error.
func (c *cursor) field() (t thrift.TType, id int16, ok bool) {
	t = thrift.TType(c.u8())
	if c.err != nil || t == thrift.STOP {
		return t, 0, false
	}
	id = int16(binary.BigEndian.Uint16(c.fixed(2)))
	return t, id, c.err == nil
}

// is reports whether a field has the type that the IDL gives it.
func (c *cursor) is(got, want thrift.TType) bool {
	if got != want {
		c.fail(errWire)
	}
	return c.err == nil
}

// list reads the head of a list of structs of at most limit elements.
func (c *cursor) list(limit int) int {
	t, n := thrift.TType(c.u8()), int(c.i32())
	if n < 0 || n > limit || n > 0 && t != thrift.STRUCT {
		c.fail(errWire)
		return 0
	}
	return n
}

// count reads how many elements a container says that it has.
func (c *cursor) count() int32 {
	n := c.i32()
	if n < 0 {
		c.fail(errWire)
	}
	return n
}

// record skips a struct and returns its bytes, valid until the next record.
func (c *cursor) record() []byte {
	if c.r == nil {
		from := c.b
		c.skip(thrift.STRUCT, maxDepth)
		return from[:len(from)-len(c.b)]
	}
	c.tape, c.taping = c.tape[:0], true
	c.skip(thrift.STRUCT, maxDepth)
	c.taping = false
	return c.tape
}

// skip reads over a value of an unknown field.
func (c *cursor) skip(t thrift.TType, depth int) {
	if depth == 0 {
		c.fail(errWire)
	}
	if c.err != nil {
		return
	}
	switch t {
	case thrift.BOOL, thrift.BYTE:
		c.next(1)
	case thrift.I16:
		c.next(2)
	case thrift.I32:
		c.next(4)
	case thrift.I64, thrift.DOUBLE:
		c.next(8)
	case thrift.STRING:
		c.bytes(maxHead)
	case thrift.STRUCT:
		for {
			ft, _, ok := c.field()
			if !ok {
				return
			}
			c.skip(ft, depth-1)
		}
	case thrift.LIST, thrift.SET:
		elem := thrift.TType(c.u8())
		for n := c.count(); n > 0 && c.err == nil; n-- {
			c.skip(elem, depth-1)
		}
	case thrift.MAP:
		key, value := thrift.TType(c.u8()), thrift.TType(c.u8())
		for n := c.count(); n > 0 && c.err == nil; n-- {
			c.skip(key, depth-1)
			c.skip(value, depth-1)
		}
	default:
		c.fail(errWire)
	}
}

// unixNano is how a time travels: 0 for none.
func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
