// Package cachehit replays access traces through a real block cache, by Get
// and Offer, and counts hits. What it opens it closes; the traces stay where
// they are.
package cachehit

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Trace is one recorded run: keys renamed to 0 to Keys-1 in order of coming.
type Trace struct {
	Name   string
	Access []uint32
	Keys   int
}

// Row is a trace and a number of entries to try it with.
type Row struct {
	Trace *Trace
	Size  int
}

// String names the row.
func (r Row) String() string { return fmt.Sprintf("%s %d", r.Trace.Name, r.Size) }

// ReadTrace reads gzipped text: a key a line, or "key count" for neighbours.
func ReadTrace(path string) (_ *Trace, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t, err := parse(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.Name = strings.TrimSuffix(filepath.Base(path), ".trace.gz")
	return t, nil
}

func parse(r io.Reader) (*Trace, error) {
	t, names := &Trace{}, map[uint64]uint32{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		first, more, _ := strings.Cut(lines.Text(), " ")
		key, err := strconv.ParseUint(first, 10, 64)
		if err != nil {
			return nil, err
		}
		count := uint64(1)
		if more != "" {
			if count, err = strconv.ParseUint(more, 10, 32); err != nil {
				return nil, err
			}
		}
		for i := range count {
			n, ok := names[key+i]
			if !ok {
				n = uint32(len(names))
				names[key+i] = n
			}
			t.Access = append(t.Access, n)
		}
	}
	t.Keys = len(names)
	return t, lines.Err()
}

// Rows reads the traces of a directory and returns the ten rows that policies
// are compared by.
func Rows(dir string) ([]Row, error) {
	var rows []Row
	for _, w := range []struct {
		name  string
		sizes func(t *Trace) []int
	}{
		{"gli", func(*Trace) []int { return []int{500, 1500} }},
		{"loop", func(*Trace) []int { return []int{256, 768} }},
		{"oltp", func(*Trace) []int { return []int{1000, 2000} }},
		{"p3", func(*Trace) []int { return []int{25000, 100000} }},
		{"cloudphysics", func(t *Trace) []int { return []int{t.Keys / 100, t.Keys / 10} }},
	} {
		t, err := ReadTrace(filepath.Join(dir, w.name+".trace.gz"))
		if err != nil {
			return nil, err
		}
		for _, size := range w.sizes(t) {
			rows = append(rows, Row{t, size})
		}
	}
	return rows, nil
}
