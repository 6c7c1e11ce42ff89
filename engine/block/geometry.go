package block

import (
	"fmt"
	"hash/crc32"
	"math/bits"
)

// DefaultSize is file_cache_each_block_size's default, in bytes.
const DefaultSize = 1 << 20

// MaxRun is the largest number of blocks in one Run.
const MaxRun = 16

// Geometry is how objects are cut: the block size in bytes.
type Geometry int64

// Index returns the number of the block that holds byte off.
func (g Geometry) Index(off int64) uint64 { return uint64(off / int64(g)) }

// Offset returns the first byte of block index.
func (g Geometry) Offset(index uint64) int64 { return int64(index) * int64(g) }

// Len returns how many bytes block index of an object of the given size
// holds: the block size, less for the last one, 0 past the end.
func (g Geometry) Len(index uint64, size int64) int {
	if index >= g.Blocks(size) { // before it is multiplied: any index may be asked for
		return 0
	}
	return int(min(size-g.Offset(index), int64(g)))
}

// Blocks returns how many blocks an object of the given size has; none when
// that is not known.
func (g Geometry) Blocks(size int64) uint64 {
	if size <= 0 {
		return 0
	}
	return uint64((size-1)/int64(g)) + 1
}

// Run is up to MaxRun blocks that are fetched together: the unit of a race.
// Bit i of Want stands for block First+i.
type Run struct {
	First uint64
	Want  uint16
}

// NewRun returns the run of count neighbours from first on; count is 1 to
// MaxRun.
func NewRun(first uint64, count int) Run {
	return Run{First: first, Want: uint16(1<<count - 1)}
}

// Count returns the number of blocks wanted.
func (r Run) Count() int { return bits.OnesCount16(r.Want) }

// Has reports whether block index is wanted.
func (r Run) Has(index uint64) bool {
	return r.Want>>(index-r.First)&1 == 1 // far away, nothing is left of Want
}

// Without returns r less block index.
func (r Run) Without(index uint64) Run {
	r.Want &^= 1 << (index - r.First)
	return r
}

// Span returns the first contiguous group of wanted blocks and what is left
// behind it: a GET asks for one span.
func (r Run) Span() (span, rest Run) {
	if r.Want == 0 {
		return r, r
	}
	skip := bits.TrailingZeros16(r.Want)
	count := bits.TrailingZeros16(^(r.Want >> skip))
	span = NewRun(r.First+uint64(skip), count)
	rest = r
	rest.Want &^= uint16(1<<count-1) << skip
	return span, rest
}

// String is for logs and errors.
func (r Run) String() string { return fmt.Sprintf("blocks %d+%016b", r.First, r.Want) }

// Checksum returns the CRC32C of b (RFC 3720, appendix B.4), the checksum
// that a block carries from the store to its reader.
func Checksum(b []byte) uint32 { return ExtendChecksum(0, b) }

// ExtendChecksum returns the checksum of bytes whose checksum is sum with b
// behind them. Whoever receives a block piece by piece sums it up while the
// pieces are still in the processor's caches.
func ExtendChecksum(sum uint32, b []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b)
}
