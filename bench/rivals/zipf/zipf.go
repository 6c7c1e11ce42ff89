// Package zipf draws the keys that all caches are asked for.
package zipf

import "math/rand/v2"

// Draws returns the numbers of keys in the order of asking, 2^18 of them, always
// the same: Zipf's law with an exponent of 1.01, the frequent ones scattered over
// all.
func Draws(keys int) []uint32 {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.01, 1, uint64(keys-1))
	place := rand.New(rand.NewPCG(2, 2)).Perm(keys)
	order := make([]uint32, 1<<18)
	for i := range order {
		order[i] = uint32(place[zipf.Uint64()])
	}
	return order
}
