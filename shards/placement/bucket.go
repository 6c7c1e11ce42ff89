package placement

import (
	"encoding/base64"
	"fmt"
	"math/bits"
)

// BucketCount is how many parts the routes are cut into, by hash: the grain
// of balance and of warm-up. A round of balance is kept as one bit a bucket,
// not as one entry a tablet.
const BucketCount = 4096

// bucketOf returns the bucket of the route of key. It is mixed once more, so
// that a bucket's routes don't agree on any bit that the rank draws from.
func bucketOf(key uint64) int { return int(mix(key) >> 52) }

// Buckets is a set of buckets.
type Buckets [BucketCount / 64]uint64

// Has reports whether bucket i is in the set.
func (b *Buckets) Has(i int) bool { return b[i>>6]&(1<<(i&63)) != 0 }

// Add puts bucket i into the set.
func (b *Buckets) Add(i int) { b[i>>6] |= 1 << (i & 63) }

// AddAll puts the other set's buckets into the set.
func (b *Buckets) AddAll(other *Buckets) {
	for i, word := range other {
		b[i] |= word
	}
}

// Len returns how many buckets are in the set.
func (b *Buckets) Len() int {
	n := 0
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// MarshalText implements encoding.TextMarshaler: base64, "" for the empty set.
func (b Buckets) MarshalText() ([]byte, error) {
	if b == (Buckets{}) {
		return nil, nil
	}
	raw := make([]byte, 0, BucketCount/8)
	for _, word := range b {
		for shift := 0; shift < 64; shift += 8 {
			raw = append(raw, byte(word>>shift))
		}
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Buckets) UnmarshalText(text []byte) error {
	*b = Buckets{}
	if len(text) == 0 {
		return nil
	}
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil || len(raw) != BucketCount/8 {
		return fmt.Errorf("a set of buckets of %d bytes, want %d (%w)", len(raw), BucketCount/8, err)
	}
	for i, c := range raw {
		b[i/8] |= uint64(c) << (8 * (i % 8))
	}
	return nil
}
