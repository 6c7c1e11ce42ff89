// Package tpch is an analytical workload: what a real query engine (DuckDB)
// reads from object storage in the 22 TPC-H queries at scale factor 1, over
// 29 Parquet files. It holds the recorded reads, makes contents of the real
// sizes from a seed, and replays the reads against nodes over HTTP.
//
// The trace has the reads, not the engine: no compute time is in it. Every
// byte that a replay receives is compared with the contents.
package tpch

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
)

// traceGz lists query,object,offset,length in the order in which the reads
// began.
//
//go:embed data/trace.csv.gz
var traceGz []byte

// objectsCSV lists object,key,size.
//
//go:embed data/objects.csv
var objectsCSV []byte

// Object is one file of the workload.
type Object struct {
	Key  string
	Size int64
}

// Read is one ranged read; Object is an index into Trace.Objects.
type Read struct {
	Object         int
	Offset, Length int64
}

// Query is the reads of one query, in the order in which they began.
type Query struct {
	// Name is "q1" to "q22".
	Name  string
	Reads []Read
}

// Trace is the workload.
type Trace struct {
	Objects []Object
	Queries []Query
}

// Load unpacks the recorded trace.
func Load() (*Trace, error) {
	objects, err := rows(bytes.NewReader(objectsCSV), 3)
	if err != nil {
		return nil, fmt.Errorf("tpch: objects: %w", err)
	}
	t := &Trace{}
	for i, row := range objects {
		n, err := numbers(row[0], row[2])
		if err != nil || n[0] != int64(i) {
			return nil, fmt.Errorf("tpch: objects: row %d is %q", i, row)
		}
		t.Objects = append(t.Objects, Object{Key: row[1], Size: n[1]})
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(traceGz))
	if err != nil {
		return nil, fmt.Errorf("tpch: trace: %w", err)
	}
	reads, err := rows(unpacked, 4)
	if err != nil {
		return nil, fmt.Errorf("tpch: trace: %w", err)
	}
	for i, row := range reads {
		if err := t.add(row); err != nil {
			return nil, fmt.Errorf("tpch: trace: row %d: %w", i, err)
		}
	}
	return t, nil
}

// add appends one row of the trace to its query.
func (t *Trace) add(row []string) error {
	n, err := numbers(row...)
	if err != nil {
		return err
	}
	name := "q" + row[0]
	if last := len(t.Queries) - 1; last < 0 || t.Queries[last].Name != name {
		t.Queries = append(t.Queries, Query{Name: name})
	}
	r := Read{Object: int(n[1]), Offset: n[2], Length: n[3]}
	if r.Object < 0 || r.Object >= len(t.Objects) || r.Offset < 0 || r.Length <= 0 ||
		r.Offset+r.Length > t.Objects[r.Object].Size {
		return fmt.Errorf("%+v is not within its object", r)
	}
	q := &t.Queries[len(t.Queries)-1]
	q.Reads = append(q.Reads, r)
	return nil
}

// Reads returns the number of reads of all queries.
func (t *Trace) Reads() int {
	n := 0
	for _, q := range t.Queries {
		n += len(q.Reads)
	}
	return n
}

// EveryBlock returns reads that cover all objects once, size bytes at a time.
func (t *Trace) EveryBlock(size int64) []Read {
	var all []Read
	for i, o := range t.Objects {
		for off := int64(0); off < o.Size; off += size {
			all = append(all, Read{Object: i, Offset: off, Length: min(size, o.Size-off)})
		}
	}
	return all
}

// rows reads a CSV with one line of headings.
func rows(r io.Reader, columns int) ([][]string, error) {
	c := csv.NewReader(r)
	c.FieldsPerRecord = columns
	all, err := c.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return all[1:], nil
}

func numbers(fields ...string) ([]int64, error) {
	n := make([]int64, len(fields))
	for i, f := range fields {
		var err error
		if n[i], err = strconv.ParseInt(f, 10, 64); err != nil {
			return nil, err
		}
	}
	return n, nil
}
