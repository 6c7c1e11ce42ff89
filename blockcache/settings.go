package blockcache

import "sync/atomic"

// Settings may be changed while the cache runs; each takes effect within a
// second. Percentages are of the disk's space, of its inodes, and of the
// configured capacity.
type Settings struct {
	// EnterDiskLimitPercent is the use of the disk from which on nothing more is
	// cached, until it is below ExitDiskLimitPercent.
	EnterDiskLimitPercent, ExitDiskLimitPercent atomic.Int64
	// With EvictInAdvance, blocks are evicted from EnterEvictPercent of the disk
	// or of the capacity on, until it is below ExitEvictPercent.
	EvictInAdvance                      atomic.Bool
	EnterEvictPercent, ExitEvictPercent atomic.Int64
	// TTLSeconds is how long a block stays one of the TTL queue; then it is a
	// NORMAL one. 0 means for good.
	TTLSeconds atomic.Int64
	// FillPercent is what blocks that were brought for other nodes may take of a
	// directory as long as others want the space; 100 makes no difference.
	FillPercent atomic.Int64
	// ScrubBytesPerSecond bounds what the scrubber reads to find bytes that have
	// gone bad; 0 stops it.
	ScrubBytesPerSecond atomic.Int64
}

// NewSettings returns the defaults: eviction in advance is off.
func NewSettings() *Settings {
	s := &Settings{}
	s.EnterDiskLimitPercent.Store(90)
	s.ExitDiskLimitPercent.Store(88)
	s.EnterEvictPercent.Store(88)
	s.ExitEvictPercent.Store(85)
	s.FillPercent.Store(20)
	s.ScrubBytesPerSecond.Store(8 << 20)
	return s
}
