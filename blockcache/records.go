package blockcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"headstart/engine/block"
)

// The three files of a volume. Every number is little-endian.
//
//	headstart.blocks   a header page, then a record for each slot number
//	headstart.objects  a header page, then cells: parts of object descriptions
//	headstart.data     bytes of blocks, nothing else
//
// A record is written after the bytes it speaks of, and none is ever trusted
// beyond its own checksum: where records contradict each other the one with
// the higher sequence number holds, and bytes are verified on first use.
const (
	formatVersion = 1
	headerSize    = 4096
	recordSize    = 64
	cellSize      = 128
	cellPayload   = cellSize - 32
	maxCells      = 255

	kindBlock  = 1
	kindObject = 2
)

// ErrFormat: a file of the cache directory was written by something else or by
// another version; it is left as it is.
var ErrFormat = errors.New("not a cache file of this version")

// errDamaged: a header begins as ours do, and is not whole.
var errDamaged = errors.New("the header is damaged")

// header is the first page of the two files of metadata. Its checksum covers
// the format's number too, and does so in every format to come: so a number
// that we don't know tells another program's file from a flipped bit.
type header struct {
	blockSize int64
}

const magic = "HDSTRT\r\n"

func (h header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], formatVersion)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.blockSize))
	binary.LittleEndian.PutUint32(b[12:], headerSum(b))
	return b
}

func headerSum(b []byte) uint32 {
	var c checksum
	c.add(b[8:12])
	c.add(b[16:headerSize])
	return c.crc
}

// decodeHeader reads a header page. An empty or zeroed page, as a crash during
// creation leaves it, is that of an empty file: its block size is 0.
func decodeHeader(b []byte) (header, error) {
	switch {
	case zero(b):
		return header{}, nil
	case len(b) < len(magic) || string(b[:len(magic)]) != magic:
		return header{}, fmt.Errorf("%w: it begins with %q", ErrFormat, b[:min(len(b), len(magic))])
	case len(b) < headerSize || binary.LittleEndian.Uint32(b[12:]) != headerSum(b):
		return header{}, errDamaged
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != formatVersion {
		return header{}, fmt.Errorf("%w: format %d, this program reads format %d", ErrFormat, v, formatVersion)
	}
	return header{blockSize: int64(binary.LittleEndian.Uint64(b[16:]))}, nil
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// record says what the bytes from start on are.
type record struct {
	seq   uint64
	id    block.ID
	start uint32 // in units
	size  uint32 // in bytes
	crc   uint32
	queue block.Queue
	fill  bool // it was brought for another node
}

func (r *record) encode(b *[recordSize]byte) {
	*b = [recordSize]byte{4: kindBlock, 5: byte(r.queue)}
	if r.fill {
		b[6] = 1
	}
	le := binary.LittleEndian
	le.PutUint64(b[8:], r.seq)
	le.PutUint64(b[16:], r.id.Hi)
	le.PutUint64(b[24:], r.id.Lo)
	le.PutUint64(b[32:], r.id.Index)
	le.PutUint32(b[40:], r.start)
	le.PutUint32(b[44:], r.size)
	le.PutUint32(b[48:], r.crc)
	le.PutUint32(b[0:], block.Checksum(b[4:]))
}

// decode reports whether b is a whole record that makes sense by itself.
func (r *record) decode(b []byte) bool {
	le := binary.LittleEndian
	if len(b) != recordSize || b[4] != kindBlock || int(b[5]) >= queueCount ||
		le.Uint32(b) != block.Checksum(b[4:]) {
		return false
	}
	*r = record{
		seq:   le.Uint64(b[8:]),
		id:    block.ID{Hi: le.Uint64(b[16:]), Lo: le.Uint64(b[24:]), Index: le.Uint64(b[32:])},
		start: le.Uint32(b[40:]),
		size:  le.Uint32(b[44:]),
		crc:   le.Uint32(b[48:]),
		queue: block.Queue(b[5]),
		fill:  b[6] != 0,
	}
	return r.size > 0
}

// end returns the unit behind the block's last one.
func (r *record) end() uint64 { return uint64(r.start) + uint64(unitsOf(int(r.size))) }

// objectKey is the id of an object's version, without a block number.
type objectKey struct{ hi, lo uint64 }

func keyOf(id block.ID) objectKey { return objectKey{id.Hi, id.Lo} }

// cell is a part of the description of an object.
type cell struct {
	seq         uint64
	key         objectKey
	part, parts uint8
	payload     []byte
}

func (c *cell) encode(b *[cellSize]byte) {
	*b = [cellSize]byte{4: kindObject, 5: c.part, 6: c.parts, 7: byte(len(c.payload))}
	le := binary.LittleEndian
	le.PutUint64(b[8:], c.seq)
	le.PutUint64(b[16:], c.key.hi)
	le.PutUint64(b[24:], c.key.lo)
	copy(b[32:], c.payload)
	le.PutUint32(b[0:], block.Checksum(b[4:]))
}

func (c *cell) decode(b []byte) bool {
	le := binary.LittleEndian
	if len(b) != cellSize || b[4] != kindObject || b[5] >= b[6] || b[7] > cellPayload ||
		le.Uint32(b) != block.Checksum(b[4:]) {
		return false
	}
	*c = cell{
		seq:     le.Uint64(b[8:]),
		key:     objectKey{le.Uint64(b[16:]), le.Uint64(b[24:])},
		part:    b[5],
		parts:   b[6],
		payload: b[32 : 32+int(b[7])],
	}
	return true
}

// describe encodes what the cells of an object hold together. What stands behind
// the size may be missing; who does not know of it leaves the rest alone.
func describe(e *Entry) []byte {
	o, m := &e.Object, &e.Meta
	var b []byte
	for _, s := range [...]string{o.Store, o.Bucket, o.Key, string(m.Version), m.ETag, m.ContentType} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendVarint(b, m.Size)
	tablet := e.Route.Kind == block.RouteTablet
	if tablet || !m.Modified.IsZero() {
		b = binary.AppendVarint(b, m.Modified.Unix())
		b = binary.AppendUvarint(b, uint64(m.Modified.Nanosecond()))
	}
	if tablet {
		b = binary.AppendUvarint(b, e.Route.ID)
	}
	return b
}

// parseDescription reads a description of the object with the given key, and
// refuses one of any other object.
func parseDescription(b []byte, key objectKey) (e Entry, ok bool) {
	var parts [6]string
	for i := range parts {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return e, false
		}
		parts[i], b = string(b[used:used+int(n)]), b[used+int(n):]
	}
	e.Object = block.Object{Store: parts[0], Bucket: parts[1], Key: parts[2]}
	e.Meta = block.Meta{Version: block.Version(parts[3]), ETag: parts[4], ContentType: parts[5]}
	size, used := binary.Varint(b)
	if used <= 0 {
		return e, false
	}
	e.Meta.Size, b = size, b[used:]
	if len(b) > 0 {
		sec, used := binary.Varint(b)
		if used <= 0 {
			return e, false
		}
		nsec, more := binary.Uvarint(b[used:])
		if more <= 0 || nsec >= 1e9 {
			return e, false
		}
		e.Meta.Modified, b = time.Unix(sec, int64(nsec)).UTC(), b[used+more:]
	}
	if len(b) > 0 {
		id, used := binary.Uvarint(b)
		if used <= 0 {
			return e, false
		}
		e.Route = block.Route{Kind: block.RouteTablet, ID: id}
	}
	return e, keyOf(block.BaseID(e.Object, e.Meta.Version)) == key
}
