// Package s3law is object storage for demos, tests and benches: an S3 server
// in memory (gofakes3) on loopback, and the latency of real object storage in
// front of it, drawn from a seed. The same law goes before any http.Handler.
//
// It keeps the contents it is given and never copies or changes them. It
// never delays anything but GETs of objects.
package s3law

import (
	"math"
	"math/rand/v2"
	"time"
)

// The law of object storage: the first byte is lognormal with this median and
// sigma (its p99 is about 104 ms) but takes SlowFirstByte in SlowShare of the
// requests; the body follows at BytesPerSecond on each connection.
const (
	MedianFirstByte = 28 * time.Millisecond
	Sigma           = 0.564
	SlowFirstByte   = 180 * time.Millisecond
	SlowShare       = 0.01
	BytesPerSecond  = 90_000_000
)

// Law is the latency of object storage. Laws with the same seed are the same.
type Law struct {
	Seed uint64
}

// FirstByte returns how long request n waits for its first byte: a pure
// function, so that requests that come at once need no common source.
func (l Law) FirstByte(n uint64) time.Duration {
	r := rand.New(rand.NewPCG(l.Seed, n))
	if r.Float64() < SlowShare {
		return SlowFirstByte
	}
	return time.Duration(float64(MedianFirstByte) * math.Exp(Sigma*r.NormFloat64()))
}

// Body returns how long n bytes of a body take after the first byte.
func (l Law) Body(n int64) time.Duration {
	return time.Duration(n) * time.Second / BytesPerSecond
}
