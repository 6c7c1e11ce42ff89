// Package load is an open-loop load generator: reads are due at moments that do
// not depend on how fast earlier ones were answered, and a read's latency counts
// from the moment at which it was due. So a server that stalls is charged for
// every read that came due meanwhile (no coordinated omission).
//
// A run owns one goroutine and one buffer for each read that may be in flight;
// all end with the run. It never checks bytes, only how many came.
package load

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"

	"headstart/bench/tpch"
)

// External is the tablet of an object outside tablets.
const External = -1

// Object is one object that is read.
type Object struct {
	Key string
	// Size is in bytes.
	Size int64
	// Tablet is the object's tablet, or External.
	Tablet int64
}

// Read is one ranged read; Object is an index into Work.Objects.
type Read struct {
	Object         int
	Offset, Length int64
}

// Work is what is read, over and over in one order: that of its reads, or if it
// has none all of its places.
type Work struct {
	Objects []Object
	Reads   []Read
	all     places
}

// Len returns after how many reads it begins again.
func (w *Work) Len() int64 {
	if len(w.Reads) == 0 {
		return w.all.count()
	}
	return int64(len(w.Reads))
}

// At returns the n-th read, n from 0.
func (w *Work) At(n int64) Read {
	if n %= w.Len(); len(w.Reads) > 0 {
		return w.Reads[n]
	}
	return w.all.at(n)
}

// longest returns the length of the longest read.
func (w *Work) longest() (n int64) {
	for _, r := range w.Reads {
		n = max(n, r.Length)
	}
	return max(n, w.all.longest)
}

// places are all objects cut into pieces of one size. They are counted and not
// listed: there may be any number of them.
type places struct {
	objects       []Object
	size, longest int64
	// ends has the number of pieces up to and with each object.
	ends []int64
}

func placesOf(objects []Object, size int64) places {
	p := places{objects: objects, size: size}
	for _, o := range objects {
		p.ends = append(p.ends, p.count()+(o.Size-1)/size+1)
		p.longest = max(p.longest, min(size, o.Size))
	}
	return p
}

func (p *places) count() int64 {
	if len(p.ends) == 0 {
		return 0
	}
	return p.ends[len(p.ends)-1]
}

// at returns the n-th place, n from 0 and below count.
func (p *places) at(n int64) Read {
	i, _ := slices.BinarySearch(p.ends, n+1)
	if i > 0 {
		n -= p.ends[i-1]
	}
	return Read{i, n * p.size, min(p.size, p.objects[i].Size-n*p.size)}
}

// Recorded is the recorded reads of the 22 TPC-H queries, of the objects that
// "headstart demo -stay" serves.
func Recorded() (*Work, error) {
	trace, err := tpch.Load()
	if err != nil {
		return nil, err
	}
	w := &Work{}
	for i, o := range trace.Objects {
		w.Objects = append(w.Objects, Object{Key: o.Key, Size: o.Size, Tablet: tpch.TabletID(i)})
	}
	for _, q := range trace.Queries {
		for _, r := range q.Reads {
			w.Reads = append(w.Reads, Read(r))
		}
	}
	return w, nil
}

// ParseObjects reads lines "key,size" or "key,size,tablet".
func ParseObjects(r io.Reader) ([]Object, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = -1
	var objects []Object
	for {
		row, err := c.Read()
		if err == io.EOF && len(objects) == 0 {
			return nil, errors.New("no object is listed")
		}
		if err == io.EOF {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		o, line := Object{Key: row[0], Tablet: External}, len(objects)+1
		if len(row) < 2 || len(row) > 3 || o.Key == "" {
			return nil, fmt.Errorf("line %d: %q: want key,size or key,size,tablet", line, row)
		}
		if o.Size, err = strconv.ParseInt(row[1], 10, 64); err != nil || o.Size < 1 {
			return nil, fmt.Errorf("line %d: the size of %s is %q: want a number of bytes above 0", line, o.Key, row[1])
		}
		if len(row) == 3 {
			if o.Tablet, err = strconv.ParseInt(row[2], 10, 64); err != nil || o.Tablet < 0 {
				return nil, fmt.Errorf("line %d: the tablet of %s is %q: want a number from 0", line, o.Key, row[2])
			}
		}
		objects = append(objects, o)
	}
}

// ParseTrace reads lines "key,offset,length" about the objects.
func ParseTrace(r io.Reader, objects []Object) (*Work, error) {
	at := make(map[string]int, len(objects))
	for i, o := range objects {
		at[o.Key] = i
	}
	c := csv.NewReader(r)
	c.FieldsPerRecord = 3
	rows, err := c.ReadAll()
	if err != nil {
		return nil, err
	}
	w := &Work{Objects: objects}
	for i, row := range rows {
		one := Read{}
		var known bool
		if one.Object, known = at[row[0]]; !known {
			return nil, fmt.Errorf("line %d: %s is none of the %d objects", i+1, row[0], len(objects))
		}
		var errs [2]error
		one.Offset, errs[0] = strconv.ParseInt(row[1], 10, 64)
		one.Length, errs[1] = strconv.ParseInt(row[2], 10, 64)
		size := objects[one.Object].Size
		if errors.Join(errs[:]...) != nil || one.Offset < 0 || one.Length < 1 || one.Offset > size-one.Length {
			return nil, fmt.Errorf("line %d: %s bytes at %s: want a range within the %d bytes of %s", i+1, row[2], row[1], size, row[0])
		}
		w.Reads = append(w.Reads, one)
	}
	if len(w.Reads) == 0 {
		return nil, errors.New("no read is listed")
	}
	return w, nil
}

// Scan reads all objects from their first byte to their last, size bytes at a
// time.
func Scan(objects []Object, size int64) *Work {
	return &Work{Objects: objects, all: placesOf(objects, size)}
}

// draws is how many reads Zipf draws before it begins again.
const draws = 1 << 16

// Zipf reads size bytes at a time, some places often and most of them rarely: the
// k-th most popular one as often as 1/k^skew says. skew is above 1.
func Zipf(objects []Object, size int64, skew float64, seed uint64) *Work {
	all := placesOf(objects, size)
	n := uint64(all.count())
	rng := rand.New(rand.NewPCG(seed, 0x7a697066))
	// Which place is the k-th is k times a number that has no factor in common with
	// how many there are: each place is one, and neighbours lie far apart.
	step := 1 + rng.Uint64N(n)
	for gcd(step, n) != 1 {
		step = 1 + rng.Uint64N(n)
	}
	law := rand.NewZipf(rng, skew, 1, n-1)
	w := &Work{Objects: objects, Reads: make([]Read, draws)}
	for i := range w.Reads {
		high, low := bits.Mul64(law.Uint64(), step)
		w.Reads[i] = all.at(int64(bits.Rem64(high, low, n)))
	}
	return w
}

func gcd(a, b uint64) uint64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
