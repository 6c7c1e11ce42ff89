package pools

import (
	"fmt"
	"math/bits"
	"sync"

	"headstart/engine/block"
)

// The sizes of buffers: powers of two from minClass up, and the size of a
// block, of which nearly all are.
const minClass = 4 << 10

// BuffersOptions are the options of Buffers.
type BuffersOptions struct {
	// Name stands in errors.
	Name string
	// BudgetBytes bounds all memory of the buffers, lent and kept; 0 means
	// 256 MiB.
	BudgetBytes int64
	// KeepBytes bounds the memory that is kept for reuse while nobody holds it;
	// 0 means a quarter of the budget.
	KeepBytes int64
	// BlockSize is the usual size of a buffer in bytes; 0 means
	// block.DefaultSize. Larger buffers count, but are not reused.
	BlockSize int
}

// Validate reports options that make no sense.
func (o *BuffersOptions) Validate() error {
	if o.BudgetBytes < 0 || o.KeepBytes < 0 || o.BlockSize < 0 {
		return fmt.Errorf("buffers %q: budget %d, keep %d and block size %d must not be negative",
			o.Name, o.BudgetBytes, o.KeepBytes, o.BlockSize)
	}
	if o.BudgetBytes > 0 && o.BudgetBytes < int64(o.BlockSize) {
		return fmt.Errorf("buffers %q: the budget of %d bytes is less than one block of %d",
			o.Name, o.BudgetBytes, o.BlockSize)
	}
	return nil
}

// Buffers lends memory for blocks and takes it back when the last holder of a
// buffer lets go. It never lends more than its budget: then it says
// block.ErrBusy.
type Buffers struct {
	opts BuffersOptions
	// sizes are the size classes, ascending; the last is the block size.
	sizes []int
	// busy is the refusal, made once: it has to be cheap.
	busy error

	mu struct {
		sync.Mutex
		// free holds the kept buffers of each class; the last one to come is
		// the first to go, its memory is warm.
		free [][]*block.Buf
		BuffersMetrics
	}
}

// NewBuffers returns Buffers that hold no memory yet.
func NewBuffers(opts BuffersOptions) (*Buffers, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.BlockSize == 0 {
		opts.BlockSize = block.DefaultSize
	}
	if opts.BudgetBytes == 0 {
		opts.BudgetBytes = max(256<<20, int64(opts.BlockSize))
	}
	if opts.KeepBytes == 0 {
		opts.KeepBytes = opts.BudgetBytes / 4
	}
	b := &Buffers{
		opts: opts,
		busy: fmt.Errorf("buffers %q: the budget of %d bytes is lent: %w", opts.Name, opts.BudgetBytes, block.ErrBusy),
	}
	for size := minClass; size < opts.BlockSize; size *= 2 {
		b.sizes = append(b.sizes, size)
	}
	b.sizes = append(b.sizes, opts.BlockSize)
	b.mu.free = make([][]*block.Buf, len(b.sizes))
	b.mu.BudgetBytes = opts.BudgetBytes
	return b, nil
}

// Get lends a buffer of n bytes, whose contents are whatever they were. The
// caller holds its one reference.
func (b *Buffers) Get(n int) (*block.Buf, error) {
	if n < 0 {
		return nil, fmt.Errorf("buffers %q: a buffer of %d bytes", b.opts.Name, n)
	}
	class, size := b.class(n)
	buf, err := b.lend(class, int64(size))
	if err != nil {
		return nil, err
	}
	if buf == nil {
		buf = block.NewBuf(make([]byte, size), b.takeBack)
	}
	buf.Reset(n)
	return buf, nil
}

// class returns the class that n bytes fit into and its size; -1 and n for
// more than a block.
func (b *Buffers) class(n int) (class, size int) {
	if n > b.opts.BlockSize {
		return -1, n
	}
	if n > minClass {
		class = bits.Len(uint(n-1)) - bits.Len(uint(minClass-1))
	}
	class = min(class, len(b.sizes)-1)
	return class, b.sizes[class]
}

// lend books size bytes as lent. It returns a kept buffer, or nil when the
// caller has to make one.
func (b *Buffers) lend(class int, size int64) (*block.Buf, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.LentBytes+size > b.opts.BudgetBytes {
		b.mu.Refused++
		return nil, b.busy
	}
	b.mu.Gets++
	b.mu.LentBytes += size
	b.mu.MaxLentBytes = max(b.mu.MaxLentBytes, b.mu.LentBytes)
	if class >= 0 {
		if buf := b.popLocked(class); buf != nil {
			return buf, nil
		}
	}
	b.mu.Made++
	// What is kept in other classes makes room, small buffers first.
	for c := 0; b.mu.LentBytes+b.mu.KeptBytes > b.opts.BudgetBytes; {
		if b.popLocked(c) == nil {
			c++
		}
	}
	return nil, nil
}

func (b *Buffers) popLocked(class int) *block.Buf {
	free := b.mu.free[class]
	if len(free) == 0 {
		return nil
	}
	last := len(free) - 1
	buf := free[last]
	free[last] = nil
	b.mu.free[class] = free[:last]
	b.mu.KeptBytes -= int64(b.sizes[class])
	return buf
}

// takeBack is what the last holder's Release runs.
func (b *Buffers) takeBack(buf *block.Buf) {
	class, size := b.class(buf.Cap())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.LentBytes -= int64(size)
	if class < 0 || b.mu.KeptBytes+int64(size) > b.opts.KeepBytes {
		return
	}
	b.mu.free[class] = append(b.mu.free[class], buf)
	b.mu.KeptBytes += int64(size)
}

// BuffersMetrics is a snapshot of Buffers.
type BuffersMetrics struct {
	// LentBytes are held by somebody, KeptBytes wait for reuse. Together they
	// never pass BudgetBytes. MaxLentBytes is the most that was ever lent.
	LentBytes, KeptBytes, MaxLentBytes, BudgetBytes int64
	// Gets counts buffers lent, Made those among them that were not reused,
	// Refused the calls that met the budget.
	Gets, Made, Refused uint64
}

// Metrics returns a snapshot.
func (b *Buffers) Metrics() BuffersMetrics {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.BuffersMetrics
}
